// Encoders of WebP and AVIF. Both gather all rows; `finish` encodes them in one go.
#ifndef ENCODER_FORMATS_H
#define ENCODER_FORMATS_H

#include "encoder.h"

/// - Parameters:
///   - channels: 3 RGB, 4 RGB and alpha, not premultiplied.
///   - quality: 1 to 100.
/// - Returns: NULL where there is no memory or a side is over 16,383.
Encoder *webp_encoder_open(uint32_t width, uint32_t height, int channels, int quality);
/// As `webp_encoder_open`, but NULL for more than AVIF_ENCODER_MAX_PIXELS.
Encoder *avif_encoder_open(uint32_t width, uint32_t height, int channels, int quality);
/// The most bytes that an encoded picture may have; more fails.
size_t webp_encoder_max_bytes(uint32_t width, uint32_t height, int channels, int quality);
size_t avif_encoder_max_bytes(uint32_t width, uint32_t height, int channels, int quality);
/// What they hold at once beside the file, in bytes.
size_t webp_encoder_memory(uint32_t width, uint32_t height, int channels);
size_t avif_encoder_memory(uint32_t width, uint32_t height, int channels);

/// Encoding takes some 50 to 170 ms a megapixel and cannot be stopped: 1.5 s at the most.
#define AVIF_ENCODER_MAX_PIXELS (9u * 1000 * 1000)

#endif
