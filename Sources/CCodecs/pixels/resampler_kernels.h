// The arithmetic of the resampler: weighted sums of rows, and of pixels within a row, in fixed point.
//
// Input samples have 8 bits. Intermediate results are lines: signed 16-bit numbers with LINE_BITS fractional
// bits. They need a sign, because the first filter direction can overshoot 0 and 255.
#ifndef RESAMPLER_KERNELS_H
#define RESAMPLER_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define LINE_BITS 6
// Rows have room for a multiple of this many samples. Lines have room for KERNEL_TAPS more.
#define KERNEL_BLOCK 32
// The number of horizontal taps is a multiple of this; extra taps have the weight 0. Outputs are padded in the
// same way.
#define KERNEL_TAPS 8
#define KERNEL_OUTPUTS 8

/// Interleaves two source rows, so that one instruction multiplies and adds both. The order of the samples is
/// private to the kernels.
void kernel_pair(const uint8_t *one, const uint8_t *other, size_t samples, int16_t *pair);
/// The same for lines.
void kernel_pair_lines(const int16_t *one, const int16_t *other, size_t samples, int16_t *pair);

/// Pairs of rows to be summed, and two weights for each pair.
typedef struct {
    const int16_t *const *pairs;
    const int16_t *weights;
    size_t count;
} KernelPairs;

/// Computes a line of weighted sums, shifted right by `shift` bits.
void kernel_down(KernelPairs pairs, int shift, size_t samples, int16_t *line);
/// Adds to sums. `kernel_settle` converts them to a line.
void kernel_add(KernelPairs pairs, size_t samples, int32_t *sums);
void kernel_settle(const int32_t *sums, int shift, size_t samples, int16_t *line);

/// For each output, where its taps begin in a line, and their weights. Outputs are grouped by eight. Within a
/// group, weights are stored for eight taps at a time, in the output order 0, 4, 1, 5, 2, 6, 3, 7.
typedef struct {
    const uint32_t *firsts;
    const int16_t *weights;
    size_t chunks, outputs; // groups of eight taps; a multiple of eight
    int bits;
} KernelAcross;

static inline size_t kernel_slot(size_t output) {
    return output % 4 * 2 + output / 4;
}

/// Filters a line horizontally, to 8-bit samples or to a line.
void kernel_across(const KernelAcross *across, const int16_t *line, uint8_t *out);
void kernel_across_lines(const KernelAcross *across, const int16_t *line, int16_t *out);

#endif
