// EXIF's eight orientations (tag 0x0112).
#ifndef ORIENTATION_H
#define ORIENTATION_H

#include <stddef.h>
#include <stdint.h>

/// Writes rows of the upright image.
/// - Parameters:
///   - image: the stored image, rows without gaps; `width` and `height` are its sides.
///   - channels: 1 to 4.
///   - first: the first upright row to write. From orientation 5 on, an upright row has `height` pixels.
void orientation_rows(const uint8_t *image, uint32_t width, uint32_t height, int channels,
    int orientation, uint32_t first, int count, uint8_t *out, size_t stride);

#endif
