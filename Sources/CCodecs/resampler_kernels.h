// The arithmetic of the resampler: weighted sums of rows, and of pixels in a row, in fixed point.
//
// Samples come with 8 bits, or as lines: 16 bits with LINE_BITS behind the point and the sign before it, as what lies
// between the two directions overshoots 0 and 255.
#ifndef RESAMPLER_KERNELS_H
#define RESAMPLER_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define LINE_BITS 6
// Rows have room for a multiple of so many samples, and lines for KERNEL_TAPS beyond that.
#define KERNEL_BLOCK 32
// Taps across are a multiple of so many, those too many of weight 0; so are outputs.
#define KERNEL_TAPS 8
#define KERNEL_OUTPUTS 8

/// Two rows of the source as one: their samples by twos, in an order that only the kernels know, so that one
/// instruction multiplies and adds both.
void kernel_pair(const uint8_t *one, const uint8_t *other, size_t samples, int16_t *pair);
/// The same of lines.
void kernel_pair_lines(const int16_t *one, const int16_t *other, size_t samples, int16_t *pair);

/// Pairs of rows to be summed up, and two weights for each.
typedef struct {
    const int16_t *const *pairs;
    const int16_t *weights;
    size_t count;
} KernelPairs;

/// A line of the weighted sums, without their last `shift` bits.
void kernel_down(KernelPairs pairs, int shift, size_t samples, int16_t *line);
/// Adds to sums, which `kernel_settle` makes a line of.
void kernel_add(KernelPairs pairs, size_t samples, int32_t *sums);
void kernel_settle(const int32_t *sums, int shift, size_t samples, int16_t *line);

/// Where each output's taps begin in a line, and their weights: for eight outputs after one another, for each eight
/// taps, those of outputs 0, 4, 1, 5, 2, 6, 3 and 7.
typedef struct {
    const uint32_t *firsts;
    const int16_t *weights;
    size_t chunks, outputs; // eights of taps; a multiple of eight
    int bits;
} KernelAcross;

static inline size_t kernel_slot(size_t output) {
    return output % 4 * 2 + output / 4;
}

/// Samples of 8 bits from a line, or a line from a line.
void kernel_across(const KernelAcross *across, const int16_t *line, uint8_t *out);
void kernel_across_lines(const KernelAcross *across, const int16_t *line, int16_t *out);

#endif
