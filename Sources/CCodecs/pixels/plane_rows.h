// Splits rows of pixels into planes, and joins planes to rows.
#ifndef PLANE_ROWS_H
#define PLANE_ROWS_H

#include <stddef.h>
#include <stdint.h>

/// `channels` is 1 to 4.
void planes_split(const uint8_t *row, int channels, size_t pixels, uint8_t *const *planes);
void planes_join(const uint8_t *const *planes, int channels, size_t pixels, uint8_t *row);

/// Multiplies 8-bit colors by alpha, which is the last channel. The results are lines (see
/// resampler_kernels.h).
void planes_premultiply(
    const uint8_t *const *planes, int channels, size_t pixels, int16_t *const *lines);
/// Reverses planes_premultiply.
void planes_unpremultiply(
    const int16_t *const *lines, int channels, size_t pixels, uint8_t *const *planes);

#endif
