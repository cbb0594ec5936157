// Readers of the pixels of WebP, GIF and AVIF images that were decoded completely before. For JPEG XL and HEIC,
// see jxl.h and heic.h.
#ifndef PIXELS_FORMATS_H
#define PIXELS_FORMATS_H

#include "pixels.h"

/// Reads a still image, or an animation's first frame on its canvas, as RGB or RGBA. Halves the sides as long
/// as they stay at least `min_width` × `min_height`; 0 means no scaling. `rows` returns PIXELS_NOT_YET between
/// slices of work. The bytes must outlive the reader.
/// - Returns: NULL with the fault.
Pixels *webp_pixels_open(const uint8_t *bytes, size_t count, CheckedImage checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault);
/// Like `webp_pixels_open`. Never scales, and has no color profile.
Pixels *gif_pixels_open(const uint8_t *bytes, size_t count, CheckedImage checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault);
/// Like `webp_pixels_open`. Never scales. The library cannot be interrupted: one call of `rows` decodes the
/// whole image, the next one converts it to RGB.
Pixels *avif_pixels_open(const uint8_t *bytes, size_t count, CheckedImage checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault);

/// Upper bounds of the memory that the readers take at once, without the file's bytes, in bytes.
size_t webp_pixels_memory(uint32_t width, uint32_t height, bool has_alpha);
size_t gif_pixels_memory(uint32_t width, uint32_t height);
size_t avif_pixels_memory(uint32_t width, uint32_t height, bool has_alpha);

#endif
