// Compiled twice where the processor may have AVX2, and chosen when called: portable vectors of the
// compiler's, no intrinsics. (Not target_clones: its ifuncs are resolved before sanitizers are set up.)
#include "resampler_kernels.h"

#include <string.h>

#define MAX_ROWS 8
#define INLINE static inline __attribute__((always_inline))

typedef float Lanes __attribute__((vector_size(4 * KERNEL_LANES)));
typedef uint8_t ByteLanes __attribute__((vector_size(KERNEL_LANES)));
#define BLOCK_LANES (KERNEL_BLOCK / KERNEL_LANES)

typedef union {
    Lanes lanes[BLOCK_LANES];
    float samples[KERNEL_BLOCK];
} Block;

INLINE void premultiply(Block *block, int channels) {
    for (int pixel = 0; pixel < KERNEL_BLOCK; pixel += channels) {
        float *samples = block->samples + pixel, alpha = samples[channels - 1];
        for (int channel = 0; channel < channels - 1; channel++) samples[channel] *= alpha;
        samples[channels - 1] = 255 * alpha;
    }
}

INLINE void load(Block *block, const uint8_t *row, size_t count, int alpha_channels) {
    uint8_t rest[KERNEL_BLOCK];
    if (count < KERNEL_BLOCK) {
        memcpy(rest, row, count);
        memset(rest + count, 0, KERNEL_BLOCK - count);
        row = rest;
    }
    for (int index = 0; index < BLOCK_LANES; index++) {
        ByteLanes bytes;
        memcpy(&bytes, row + index * KERNEL_LANES, sizeof bytes);
        block->lanes[index] = __builtin_convertvector(bytes, Lanes);
    }
    if (alpha_channels == 4) premultiply(block, 4);
    else if (alpha_channels == 2) premultiply(block, 2);
}

INLINE void add_block(const Block *blocks, const KernelLine *line, float *sums) {
    Lanes sum[BLOCK_LANES];
    memcpy(sum, sums, sizeof sum);
    for (int tap = 0; tap < line->count; tap++) {
        float weight = line->weights[tap];
        const Lanes *lanes = blocks[line->first + tap].lanes;
        for (int index = 0; index < BLOCK_LANES; index++) sum[index] += weight * lanes[index];
    }
    memcpy(sums, sum, sizeof sum);
}

INLINE void add_rows(const uint8_t *const *rows, int row_count, const KernelLine *lines,
    int line_count, size_t samples, int alpha_channels) {
    Block blocks[MAX_ROWS];
    for (size_t start = 0; start < samples; start += KERNEL_BLOCK) {
        size_t count = samples - start < KERNEL_BLOCK ? samples - start : KERNEL_BLOCK;
        for (int row = 0; row < row_count; row++)
            load(&blocks[row], rows[row] + start, count, alpha_channels);
        for (int line = 0; line < line_count; line++)
            add_block(blocks, &lines[line], lines[line].sums + start);
    }
}

INLINE void filter_row(const float *plane, const uint32_t *firsts, const float *weights,
    size_t count, size_t outputs, float *out) {
    for (size_t output = 0; output < outputs; output++, weights += count) {
        const float *samples = plane + firsts[output];
        Lanes sum = {0};
        for (size_t tap = 0; tap < count; tap += KERNEL_LANES) {
            Lanes weight, sample;
            memcpy(&weight, weights + tap, sizeof weight);
            memcpy(&sample, samples + tap, sizeof sample);
            sum += weight * sample;
        }
        out[output] = ((sum[0] + sum[4]) + (sum[1] + sum[5]))
            + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
    }
}

#ifdef __x86_64__
#define WIDE __attribute__((target("avx2,fma")))

static bool is_wide(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

WIDE static void add_rows_wide(const uint8_t *const *rows, int row_count, const KernelLine *lines,
    int line_count, size_t samples, int alpha_channels) {
    add_rows(rows, row_count, lines, line_count, samples, alpha_channels);
}

WIDE static void filter_row_wide(const float *plane, const uint32_t *firsts, const float *weights,
    size_t count, size_t outputs, float *out) {
    filter_row(plane, firsts, weights, count, outputs, out);
}
#else
#define is_wide() false
#define add_rows_wide add_rows
#define filter_row_wide filter_row
#endif

void kernel_add_rows(const uint8_t *const *rows, int row_count, const KernelLine *lines,
    int line_count, size_t samples, int alpha_channels) {
    if (is_wide()) add_rows_wide(rows, row_count, lines, line_count, samples, alpha_channels);
    else add_rows(rows, row_count, lines, line_count, samples, alpha_channels);
}

void kernel_filter_row(const float *plane, const uint32_t *firsts, const float *weights,
    size_t count, size_t outputs, float *out) {
    if (is_wide()) filter_row_wide(plane, firsts, weights, count, outputs, out);
    else filter_row(plane, firsts, weights, count, outputs, out);
}
