// Readers of the pixels of WebP, GIF and AVIF images that were decoded whole before; those of JPEG XL and HEIC stand in jxl.h
// and heic.h.
#ifndef PIXELS_FORMATS_H
#define PIXELS_FORMATS_H

#include "pixels.h"

/// RGB or RGBA of a still picture, or of an animation's first frame on its canvas. The decoder halves the
/// picture, once or often, as long as it stays at least `min_width` × `min_height`; 0: no scaling. Rows
/// come after slices of work, between which `rows` says PIXELS_NOT_YET. The bytes must outlive the reader.
/// - Returns: NULL with the fault.
Pixels *webp_pixels_open(const uint8_t *bytes, size_t count, CheckedPicture checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault);
/// As `webp_pixels_open`; never scales, and has no colour profile.
Pixels *gif_pixels_open(const uint8_t *bytes, size_t count, CheckedPicture checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault);
/// As `webp_pixels_open`; never scales. All of the picture is decoded in one call of `rows`, converted to RGB
/// in the next: the library can't be left.
Pixels *avif_pixels_open(const uint8_t *bytes, size_t count, CheckedPicture checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault);

/// Upper bounds of what they hold at once, the file's bytes not counted, in bytes.
size_t webp_pixels_memory(uint32_t width, uint32_t height, bool has_alpha);
size_t gif_pixels_memory(uint32_t width, uint32_t height);
size_t avif_pixels_memory(uint32_t width, uint32_t height, bool has_alpha);

#endif
