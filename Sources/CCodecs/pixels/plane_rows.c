// Splits and joins planes with simple loops, so that the compiler can vectorize them. On x86-64 they are
// compiled twice, with and without AVX2, like the resampler's kernels.
#include "plane_rows.h"

#include "resampler_kernels.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

INLINE void split(const uint8_t *row, int channels, size_t pixels, uint8_t *const *planes) {
    uint8_t *a = planes[0], *b = planes[1];
    uint8_t *c = channels > 2 ? planes[2] : NULL, *d = channels > 3 ? planes[3] : NULL;
    if (channels == 2)
        for (size_t pixel = 0; pixel < pixels; pixel++) {
            a[pixel] = row[2 * pixel];
            b[pixel] = row[2 * pixel + 1];
        }
    else if (channels == 3)
        for (size_t pixel = 0; pixel < pixels; pixel++) {
            a[pixel] = row[3 * pixel];
            b[pixel] = row[3 * pixel + 1];
            c[pixel] = row[3 * pixel + 2];
        }
    else
        for (size_t pixel = 0; pixel < pixels; pixel++) {
            a[pixel] = row[4 * pixel];
            b[pixel] = row[4 * pixel + 1];
            c[pixel] = row[4 * pixel + 2];
            d[pixel] = row[4 * pixel + 3];
        }
}

INLINE void join(const uint8_t *const *planes, int channels, size_t pixels, uint8_t *row) {
    const uint8_t *a = planes[0], *b = planes[1];
    const uint8_t *c = channels > 2 ? planes[2] : NULL, *d = channels > 3 ? planes[3] : NULL;
    if (channels == 2)
        for (size_t pixel = 0; pixel < pixels; pixel++) {
            row[2 * pixel] = a[pixel];
            row[2 * pixel + 1] = b[pixel];
        }
    else if (channels == 3)
        for (size_t pixel = 0; pixel < pixels; pixel++) {
            row[3 * pixel] = a[pixel];
            row[3 * pixel + 1] = b[pixel];
            row[3 * pixel + 2] = c[pixel];
        }
    else
        for (size_t pixel = 0; pixel < pixels; pixel++) {
            row[4 * pixel] = a[pixel];
            row[4 * pixel + 1] = b[pixel];
            row[4 * pixel + 2] = c[pixel];
            row[4 * pixel + 3] = d[pixel];
        }
}

// Computes c * a / 255 with LINE_BITS fractional bits. 257 / 65536 equals 1 / 255 at this precision.
INLINE void premultiply(const uint8_t *colours, const uint8_t *alphas, size_t pixels, int16_t *line) {
    for (size_t pixel = 0; pixel < pixels; pixel++) {
        uint32_t product = (uint32_t)colours[pixel] * alphas[pixel] << LINE_BITS;
        line[pixel] = (int16_t)((product * 257 + 32768) >> 16);
    }
}

INLINE void widen(const uint8_t *samples, size_t pixels, int16_t *line) {
    for (size_t pixel = 0; pixel < pixels; pixel++)
        line[pixel] = (int16_t)(samples[pixel] << LINE_BITS);
}

INLINE uint8_t sample(int32_t value) {
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

// A pixel whose alpha rounds to 0 has no color.
INLINE void unpremultiply(const int16_t *line, const int16_t *alphas, size_t pixels, uint8_t *colours) {
    const int32_t half = 1 << (LINE_BITS - 1);
    for (size_t pixel = 0; pixel < pixels; pixel++) {
        int32_t alpha = alphas[pixel] < half ? 0 : alphas[pixel];
        float colour = (float)line[pixel] * 255 / (float)(alpha ? alpha : 1);
        colour = colour < 0 || !alpha ? 0 : colour > 255 ? 255 : colour;
        colours[pixel] = (uint8_t)(int32_t)(colour + 0.5f);
    }
}

INLINE void round_line(const int16_t *line, size_t pixels, uint8_t *samples) {
    for (size_t pixel = 0; pixel < pixels; pixel++)
        samples[pixel] = sample((line[pixel] + (1 << (LINE_BITS - 1))) >> LINE_BITS);
}

INLINE void premultiply_all(
    const uint8_t *const *planes, int channels, size_t pixels, int16_t *const *lines) {
    for (int channel = 0; channel < channels - 1; channel++)
        premultiply(planes[channel], planes[channels - 1], pixels, lines[channel]);
    widen(planes[channels - 1], pixels, lines[channels - 1]);
}

INLINE void unpremultiply_all(
    const int16_t *const *lines, int channels, size_t pixels, uint8_t *const *planes) {
    for (int channel = 0; channel < channels - 1; channel++)
        unpremultiply(lines[channel], lines[channels - 1], pixels, planes[channel]);
    round_line(lines[channels - 1], pixels, planes[channels - 1]);
}

#ifdef __x86_64__
#define WIDE __attribute__((target("avx2")))
#define is_wide() __builtin_cpu_supports("avx2")
#else
#define WIDE
#define is_wide() 0
#endif

WIDE static void split_wide(const uint8_t *row, int channels, size_t pixels, uint8_t *const *planes) {
    split(row, channels, pixels, planes);
}

WIDE static void join_wide(const uint8_t *const *planes, int channels, size_t pixels, uint8_t *row) {
    join(planes, channels, pixels, row);
}

WIDE static void premultiply_wide(
    const uint8_t *const *planes, int channels, size_t pixels, int16_t *const *lines) {
    premultiply_all(planes, channels, pixels, lines);
}

WIDE static void unpremultiply_wide(
    const int16_t *const *lines, int channels, size_t pixels, uint8_t *const *planes) {
    unpremultiply_all(lines, channels, pixels, planes);
}

void planes_split(const uint8_t *row, int channels, size_t pixels, uint8_t *const *planes) {
    if (channels == 1) memcpy(planes[0], row, pixels);
    else if (is_wide()) split_wide(row, channels, pixels, planes);
    else split(row, channels, pixels, planes);
}

void planes_join(const uint8_t *const *planes, int channels, size_t pixels, uint8_t *row) {
    if (channels == 1) memcpy(row, planes[0], pixels);
    else if (is_wide()) join_wide(planes, channels, pixels, row);
    else join(planes, channels, pixels, row);
}

void planes_premultiply(
    const uint8_t *const *planes, int channels, size_t pixels, int16_t *const *lines) {
    if (is_wide()) premultiply_wide(planes, channels, pixels, lines);
    else premultiply_all(planes, channels, pixels, lines);
}

void planes_unpremultiply(
    const int16_t *const *lines, int channels, size_t pixels, uint8_t *const *planes) {
    if (is_wide()) unpremultiply_wide(lines, channels, pixels, planes);
    else unpremultiply_all(lines, channels, pixels, planes);
}
