// Encoders: rows of 8-bit samples in, a whole file out, in memory.
#ifndef ENCODER_H
#define ENCODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// One picture being written, which `close` frees.
typedef struct Encoder {
    void *context;
    /// False: it failed, and will again.
    bool (*rows)(struct Encoder *, const uint8_t *rows, size_t stride, int count);
    /// After the last row.
    bool (*finish)(struct Encoder *);
    const uint8_t *bytes; size_t count; /* after finish */
    void (*close)(struct Encoder *);
} Encoder;

/// - Parameters:
///   - channels: 1 grey, 3 RGB.
///   - quality: 1 to 100; from 90 chroma is not subsampled.
/// - Returns: NULL where there is no memory or the library does not write such sides.
Encoder *jpeg_encoder_open(uint32_t width, uint32_t height, int channels, int quality);
/// A JPEG whose components come a plane each, grey or JFIF's: rows of each by `jpeg_encoder_take`, none by `rows`.
Encoder *jpeg_planes_encoder_open(uint32_t width, uint32_t height, int planes, int quality);
/// How many pixels a sample of the second and third plane stands for, along each side: 2 or 1.
uint32_t jpeg_encoder_chroma(int quality);
/// Rows of one plane may come JPEG_ENCODER_AHEAD rows of the picture before those of another.
#define JPEG_ENCODER_AHEAD 80
/// False: it failed, and will again.
bool jpeg_encoder_take(Encoder *encoder, int plane, const uint8_t *row);
/// - Parameters:
///   - channels: 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha.
///   - quality: means nothing.
/// - Returns: as `jpeg_encoder_open`.
Encoder *png_encoder_open(uint32_t width, uint32_t height, int channels, int quality);
/// The most bytes that an encoded picture may have; more fails.
size_t jpeg_encoder_max_bytes(uint32_t width, uint32_t height, int channels, int quality);
size_t png_encoder_max_bytes(uint32_t width, uint32_t height, int channels, int quality);

#endif
