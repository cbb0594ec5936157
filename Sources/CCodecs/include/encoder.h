// Encoders: rows of 8-bit samples in, a complete file in memory out.
#ifndef ENCODER_H
#define ENCODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// An encoder of one image. Free it with `close`.
typedef struct Encoder {
    void *context;
    /// Adds rows. Returns false on failure; all later calls fail too.
    bool (*rows)(struct Encoder *, const uint8_t *rows, size_t stride, int count);
    /// Call it after the last row.
    bool (*finish)(struct Encoder *);
    const uint8_t *bytes; size_t count; /* after finish */
    void (*close)(struct Encoder *);
} Encoder;

/// - Parameters:
///   - channels: 1 gray, 3 RGB.
///   - quality: 1 to 100; from 90 on, chroma is not subsampled.
/// - Returns: NULL if out of memory or if the library does not support the size.
Encoder *jpeg_encoder_open(uint32_t width, uint32_t height, int channels, int quality);
/// Opens an encoder of a grayscale or JFIF JPEG that takes each component as a plane, by `jpeg_encoder_add_row`
/// instead of `rows`.
Encoder *jpeg_planes_encoder_open(uint32_t width, uint32_t height, int planes, int quality);
/// How many pixels one sample of the second and third plane covers, along each side: 2 or 1.
uint32_t jpeg_encoder_chroma(int quality);
/// How many rows of the image one plane may be ahead of another.
#define JPEG_ENCODER_AHEAD 80
/// Adds a row of a plane. Returns false on failure; all later calls fail too.
bool jpeg_encoder_add_row(Encoder *encoder, int plane, const uint8_t *row);
/// - Parameters:
///   - channels: 1 gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha.
///   - quality: ignored.
/// - Returns: like `jpeg_encoder_open`.
Encoder *png_encoder_open(uint32_t width, uint32_t height, int channels, int quality);
/// The most bytes that the encoded file may have. Encoding fails if it would be longer.
size_t jpeg_encoder_max_bytes(uint32_t width, uint32_t height, int channels, int quality);
size_t png_encoder_max_bytes(uint32_t width, uint32_t height, int channels, int quality);

#endif
