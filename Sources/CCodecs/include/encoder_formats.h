// Encoders of WebP and AVIF. Both collect all rows; `finish` encodes them in one call.
#ifndef ENCODER_FORMATS_H
#define ENCODER_FORMATS_H

#include "encoder.h"

/// - Parameters:
///   - channels: 3 RGB, 4 RGB and alpha, not premultiplied.
///   - quality: 1 to 100.
/// - Returns: NULL if out of memory or if a side is over 16,383.
Encoder *webp_encoder_open(uint32_t width, uint32_t height, int channels, int quality);
/// Like `webp_encoder_open`, but also NULL for more than AVIF_ENCODER_MAX_PIXELS.
Encoder *avif_encoder_open(uint32_t width, uint32_t height, int channels, int quality);
/// The most bytes that the encoded file may have. Encoding fails if it would be longer.
size_t webp_encoder_max_bytes(uint32_t width, uint32_t height, int channels, int quality);
size_t avif_encoder_max_bytes(uint32_t width, uint32_t height, int channels, int quality);
/// The memory that the encoders take in addition to the file, in bytes.
size_t webp_encoder_memory(uint32_t width, uint32_t height, int channels);
size_t avif_encoder_memory(uint32_t width, uint32_t height, int channels);

/// Encoding takes 50 to 170 ms per megapixel and cannot be interrupted, so at most 1.5 s.
#define AVIF_ENCODER_MAX_PIXELS (9u * 1000 * 1000)

#endif
