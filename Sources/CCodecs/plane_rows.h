// Rows of pixels taken apart into planes and put together again.
#ifndef PLANE_ROWS_H
#define PLANE_ROWS_H

#include <stddef.h>
#include <stdint.h>

/// `channels` are 1 to 4.
void planes_split(const uint8_t *row, int channels, size_t pixels, uint8_t *const *planes);
void planes_join(const uint8_t *const *planes, int channels, size_t pixels, uint8_t *row);

/// Multiplies the colours of 8 bits by alpha, the last channel, and gives lines (see resampler_kernels.h).
void planes_premultiply(
    const uint8_t *const *planes, int channels, size_t pixels, int16_t *const *lines);
/// Takes that back.
void planes_unpremultiply(
    const int16_t *const *lines, int channels, size_t pixels, uint8_t *const *planes);

#endif
