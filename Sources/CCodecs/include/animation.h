// Reads the composed frames of a stored animation, and writes animated WebP.
#ifndef ANIMATION_H
#define ANIMATION_H

#include "encoder.h"
#include "pixels.h"

/// A reader of an animation. Free it with `close`. Each frame covers the whole canvas.
typedef struct Frames {
    uint32_t width, height;
    /// How often the animation plays; 0 means forever.
    uint32_t loops;
    /// The color profile, valid as long as the reader. NULL if there is none.
    const uint8_t *icc;
    size_t icc_count;
    void *context;
    /// Reads the next frame as RGBA, not premultiplied, valid until the next call. Returns 1: there is a frame;
    /// 0: there are no more; -1: failure; PIXELS_NOT_YET: call again.
    int (*next)(struct Frames *, const uint8_t **rgba, uint32_t *milliseconds);
    void (*close)(struct Frames *);
} Frames;

/// Opens an animation that was decoded completely before. Its bytes must outlive the reader. The library
/// decodes a frame in one call.
/// - Returns: NULL with the fault.
Frames *webp_frames_open(const uint8_t *bytes, size_t count, CheckedImage checked, CodecFault *fault);
Frames *gif_frames_open(const uint8_t *bytes, size_t count, CheckedImage checked, CodecFault *fault);
/// An upper bound of the memory that the reader takes at once, without the file's bytes, in bytes.
size_t frames_memory(uint32_t width, uint32_t height);

typedef struct WebPAnimation WebPAnimation;

/// - Parameter quality: 1 to 100.
/// - Returns: NULL if out of memory.
WebPAnimation *webp_animation_open(uint32_t width, uint32_t height, int quality, uint32_t loops);
void webp_animation_close(WebPAnimation *animation);
/// Encodes a frame in one call. Returns false on failure.
/// - Parameters:
///   - pixels: a frame of the animation's size, RGB or RGBA as `channels` says, top row first, rows without
///     gaps.
///   - milliseconds: how long the frame is shown.
bool webp_animation_add(WebPAnimation *animation, const uint8_t *pixels, int channels, uint32_t milliseconds);
/// Call it after the last frame.
/// - Returns: the file, valid until the animation is closed; NULL on failure.
const uint8_t *webp_animation_finish(WebPAnimation *animation, size_t *count);
/// An upper bound of the memory that the writer takes in addition to the file, in bytes.
size_t webp_animation_memory(uint32_t width, uint32_t height);

/// An encoder whose file is the unencoded rows.
Encoder *raw_encoder_open(uint32_t width, uint32_t height, int channels, int quality);
size_t raw_encoder_max_bytes(uint32_t width, uint32_t height, int channels, int quality);

#endif
