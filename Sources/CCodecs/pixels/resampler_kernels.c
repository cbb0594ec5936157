// The kernels for x86-64 in SSE2, which every processor has, and in AVX2, which is chosen at run time.
// target_clones is not used, because its ifuncs are resolved before sanitizers are initialized. For other
// processors the kernels are C code that the compiler vectorizes.
#include "resampler_kernels.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

typedef struct {
    __m128i low, high;
} Pair;

// Sums the lanes of each of four vectors.
static inline __m128i sums_of_four(__m128i a, __m128i b, __m128i c, __m128i d) {
    __m128i ab = _mm_add_epi32(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
    __m128i cd = _mm_add_epi32(_mm_unpacklo_epi32(c, d), _mm_unpackhi_epi32(c, d));
    return _mm_add_epi32(_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd));
}

INLINE Pair sse_sum_eight(
    const int16_t *line, const uint32_t *firsts, const int16_t *weights, size_t chunks) {
    __m128i sums[KERNEL_OUTPUTS] = {0};
    for (size_t chunk = 0; chunk < chunks; chunk++, weights += KERNEL_OUTPUTS * KERNEL_TAPS)
        for (size_t output = 0; output < KERNEL_OUTPUTS; output++) {
            __m128i samples = _mm_loadu_si128(
                (const __m128i *)(line + firsts[output] + chunk * KERNEL_TAPS));
            __m128i weight = _mm_loadu_si128(
                (const __m128i *)(weights + kernel_slot(output) * KERNEL_TAPS));
            sums[output] = _mm_add_epi32(sums[output], _mm_madd_epi16(samples, weight));
        }
    return (Pair){sums_of_four(sums[0], sums[1], sums[2], sums[3]),
        sums_of_four(sums[4], sums[5], sums[6], sums[7])};
}

static inline __m128i sse_narrow(Pair sums, int shift) {
    __m128i half = _mm_set1_epi32(1 << (shift - 1)), places = _mm_cvtsi32_si128(shift);
    return _mm_packs_epi32(_mm_sra_epi32(_mm_add_epi32(sums.low, half), places),
        _mm_sra_epi32(_mm_add_epi32(sums.high, half), places));
}

static inline __m128i sse_widen(const uint8_t *bytes) {
    return _mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)bytes), _mm_setzero_si128());
}

#define VECTOR __m128i
#define LANES 8
#define NAME(name) sse_##name
#define TARGET
#define LOAD(from) _mm_loadu_si128((const __m128i *)(from))
#define STORE(to, value) _mm_storeu_si128((__m128i *)(to), value)
#define WIDEN_BYTES sse_widen
#define SPREAD _mm_set1_epi32
#define ADD _mm_add_epi32
#define MULTIPLY_ADD _mm_madd_epi16
#define UNPACK_LOW _mm_unpacklo_epi16
#define UNPACK_HIGH _mm_unpackhi_epi16
#define SHIFT _mm_sra_epi32
#define PACK _mm_packs_epi32
#include "resampler_vectors.h"

#define AVX __attribute__((target("avx2")))

// The lower lanes belong to outputs 0 to 3, the upper ones to 4 to 7.
AVX INLINE __m256i avx_sum_eight(
    const int16_t *line, const uint32_t *firsts, const int16_t *weights, size_t chunks) {
    __m256i sums[4] = {0};
    for (size_t chunk = 0; chunk < chunks; chunk++, weights += KERNEL_OUTPUTS * KERNEL_TAPS)
        for (size_t output = 0; output < 4; output++) {
            const int16_t *low = line + firsts[output] + chunk * KERNEL_TAPS;
            const int16_t *high = line + firsts[output + 4] + chunk * KERNEL_TAPS;
            __m256i samples = _mm256_inserti128_si256(
                _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)low)),
                _mm_loadu_si128((const __m128i *)high), 1);
            __m256i weight = _mm256_loadu_si256(
                (const __m256i *)(weights + 2 * output * KERNEL_TAPS));
            sums[output] = _mm256_add_epi32(sums[output], _mm256_madd_epi16(samples, weight));
        }
    return _mm256_hadd_epi32(
        _mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
}

AVX static inline __m128i avx_narrow(__m256i sums, int shift) {
    __m256i half = _mm256_set1_epi32(1 << (shift - 1));
    __m256i settled = _mm256_sra_epi32(_mm256_add_epi32(sums, half), _mm_cvtsi32_si128(shift));
    return _mm_packs_epi32(
        _mm256_castsi256_si128(settled), _mm256_extracti128_si256(settled, 1));
}

#define VECTOR __m256i
#define LANES 16
#define NAME(name) avx_##name
#define TARGET AVX
#define LOAD(from) _mm256_loadu_si256((const __m256i *)(from))
#define STORE(to, value) _mm256_storeu_si256((__m256i *)(to), value)
#define WIDEN_BYTES(from) _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(from)))
#define SPREAD _mm256_set1_epi32
#define ADD _mm256_add_epi32
#define MULTIPLY_ADD _mm256_madd_epi16
#define UNPACK_LOW _mm256_unpacklo_epi16
#define UNPACK_HIGH _mm256_unpackhi_epi16
#define SHIFT _mm256_sra_epi32
#define PACK _mm256_packs_epi32
#include "resampler_vectors.h"

#define CALL(name, ...)                                                                            \
    if (__builtin_cpu_supports("avx2")) avx_##name(__VA_ARGS__);                                   \
    else sse_##name(__VA_ARGS__)
#else

static int16_t line_sample(int32_t value) {
    return (int16_t)(value < INT16_MIN ? INT16_MIN : value > INT16_MAX ? INT16_MAX : value);
}

static void c_pair(const uint8_t *one, const uint8_t *other, size_t samples, int16_t *pair) {
    for (size_t at = 0; at < samples; at++) {
        pair[2 * at] = one[at];
        pair[2 * at + 1] = other[at];
    }
}

static void c_pair_lines(const int16_t *one, const int16_t *other, size_t samples, int16_t *pair) {
    for (size_t at = 0; at < samples; at++) {
        pair[2 * at] = one[at];
        pair[2 * at + 1] = other[at];
    }
}

static void c_add(KernelPairs pairs, size_t samples, int32_t *sums) {
    for (size_t index = 0; index < pairs.count; index++) {
        const int16_t *pair = pairs.pairs[index];
        int32_t one = pairs.weights[2 * index], other = pairs.weights[2 * index + 1];
        for (size_t at = 0; at < samples; at++)
            sums[at] += one * pair[2 * at] + other * pair[2 * at + 1];
    }
}

static void c_settle(const int32_t *sums, int shift, size_t samples, int16_t *line) {
    for (size_t at = 0; at < samples; at++)
        line[at] = line_sample((sums[at] + (1 << (shift - 1))) >> shift);
}

// Works in blocks, so that their sums stay in registers.
static void c_down(KernelPairs pairs, int shift, size_t samples, int16_t *line) {
    for (size_t at = 0; at < samples; at += KERNEL_BLOCK) {
        int32_t sums[KERNEL_BLOCK] = {0};
        for (size_t index = 0; index < pairs.count; index++) {
            const int16_t *pair = pairs.pairs[index] + 2 * at;
            KernelPairs block = {&pair, pairs.weights + 2 * index, 1};
            c_add(block, KERNEL_BLOCK, sums);
        }
        c_settle(sums, shift, KERNEL_BLOCK, line + at);
    }
}

static int32_t sum_across(KernelAcross across, const int16_t *line, size_t output) {
    const int16_t *samples = line + across.firsts[output];
    size_t group = output / KERNEL_OUTPUTS * across.chunks;
    int32_t sum = 0;
    for (size_t chunk = 0; chunk < across.chunks; chunk++, samples += KERNEL_TAPS) {
        const int16_t *weights = across.weights
            + ((group + chunk) * KERNEL_OUTPUTS + kernel_slot(output % KERNEL_OUTPUTS)) * KERNEL_TAPS;
        for (size_t tap = 0; tap < KERNEL_TAPS; tap++) sum += weights[tap] * samples[tap];
    }
    return sum;
}

static void c_across(KernelAcross across, const int16_t *line, uint8_t *out) {
    int shift = across.bits + LINE_BITS;
    for (size_t output = 0; output < across.outputs; output++) {
        int32_t value = (sum_across(across, line, output) + (1 << (shift - 1))) >> shift;
        out[output] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

static void c_across_lines(KernelAcross across, const int16_t *line, int16_t *out) {
    int shift = across.bits;
    for (size_t output = 0; output < across.outputs; output++)
        out[output] = line_sample((sum_across(across, line, output) + (1 << (shift - 1))) >> shift);
}

#define CALL(name, ...) c_##name(__VA_ARGS__)
#endif

void kernel_pair(const uint8_t *one, const uint8_t *other, size_t samples, int16_t *pair) {
    CALL(pair, one, other, samples, pair);
}

void kernel_pair_lines(const int16_t *one, const int16_t *other, size_t samples, int16_t *pair) {
    CALL(pair_lines, one, other, samples, pair);
}

void kernel_down(KernelPairs pairs, int shift, size_t samples, int16_t *line) {
    CALL(down, pairs, shift, samples, line);
}

void kernel_add(KernelPairs pairs, size_t samples, int32_t *sums) {
    CALL(add, pairs, samples, sums);
}

void kernel_settle(const int32_t *sums, int shift, size_t samples, int16_t *line) {
    CALL(settle, sums, shift, samples, line);
}

void kernel_across(const KernelAcross *across, const int16_t *line, uint8_t *out) {
    CALL(across, *across, line, out);
}

void kernel_across_lines(const KernelAcross *across, const int16_t *line, int16_t *out) {
    CALL(across_lines, *across, line, out);
}
