// The arithmetic of the resampler, on samples of float.
#ifndef RESAMPLER_KERNELS_H
#define RESAMPLER_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Sums have room for a multiple of so many samples.
#define KERNEL_BLOCK 64
// Taps across are a multiple of so many, those too many of weight 0.
#define KERNEL_LANES 8

/// A row of the output on its way: what each row of a batch adds to it.
typedef struct {
    float *sums;
    const float *weights; // of the batch's rows from `first`
    int first, count;
} KernelLine;

/// Adds weighted rows to lines.
/// - Parameters:
///   - samples: in a row.
///   - alpha_channels: 0, or the number of channels, of which the last is alpha. Then colours are
///     multiplied by it, and alpha by 255.
void kernel_add_rows(const uint8_t *const *rows, int row_count, const KernelLine *lines,
    int line_count, size_t samples, int alpha_channels);

/// Weighs `count` samples (a multiple of KERNEL_LANES) and sums them up.
void kernel_filter_row(const float *plane, const uint32_t *firsts, const float *weights,
    size_t count, size_t outputs, float *out);

#endif
