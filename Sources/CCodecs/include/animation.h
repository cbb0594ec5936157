// Frames of a kept animation, as they are shown, and an animation made of frames.
#ifndef ANIMATION_H
#define ANIMATION_H

#include "encoder.h"
#include "pixels.h"

/// An animation being read, which `close` frees. Each frame is the whole canvas.
typedef struct Frames {
    uint32_t width, height;
    /// How often it is shown; 0: without end.
    uint32_t loops;
    /// The colour profile, as long as the reader lives; NULL where there is none.
    const uint8_t *icc;
    size_t icc_count;
    void *context;
    /// 1: there is another frame, RGBA, not premultiplied, until the next call; 0: there is none; -1: it failed;
    /// PIXELS_NOT_YET: call again.
    int (*next)(struct Frames *, const uint8_t **rgba, uint32_t *milliseconds);
    void (*close)(struct Frames *);
} Frames;

/// Of an animation that was decoded whole; its bytes must outlive the reader. The library decodes a frame in one go.
/// - Returns: NULL with the fault.
Frames *webp_frames_open(const uint8_t *bytes, size_t count, CheckedPicture checked, CodecFault *fault);
Frames *gif_frames_open(const uint8_t *bytes, size_t count, CheckedPicture checked, CodecFault *fault);
/// An upper bound of what they hold at once, the file's bytes not counted, in bytes.
size_t frames_memory(uint32_t width, uint32_t height);

typedef struct WebPAnimation WebPAnimation;

/// - Parameter quality: 1 to 100.
/// - Returns: NULL where there is no memory.
WebPAnimation *webp_animation_open(uint32_t width, uint32_t height, int quality, uint32_t loops);
void webp_animation_close(WebPAnimation *animation);
/// Encodes a frame in one go. False: it failed.
/// - Parameters:
///   - pixels: of the sides of the animation, RGB or RGBA as `channels` says, top row first, without gaps.
///   - milliseconds: how long it is shown.
bool webp_animation_add(WebPAnimation *animation, const uint8_t *pixels, int channels, uint32_t milliseconds);
/// After the last frame. NULL: it failed.
/// - Returns: the file, until it is closed.
const uint8_t *webp_animation_finish(WebPAnimation *animation, size_t *count);
/// An upper bound of what that holds at once beside the file, in bytes.
size_t webp_animation_memory(uint32_t width, uint32_t height);

/// What encodes nothing: its file is the rows.
Encoder *raw_encoder_open(uint32_t width, uint32_t height, int channels, int quality);
size_t raw_encoder_max_bytes(uint32_t width, uint32_t height, int channels, int quality);

#endif
