// The kernels in vector instructions. Included once for each vector width.
//
// The includer defines VECTOR, LANES (the number of 16-bit lanes), NAME(function), and the operations used
// below.

TARGET static void NAME(pair)(
    const uint8_t *one, const uint8_t *other, size_t samples, int16_t *pair) {
    for (size_t at = 0; at < samples; at += LANES) {
        VECTOR a = WIDEN_BYTES(one + at), b = WIDEN_BYTES(other + at);
        STORE(pair + 2 * at, UNPACK_LOW(a, b));
        STORE(pair + 2 * at + LANES, UNPACK_HIGH(a, b));
    }
}

TARGET static void NAME(pair_lines)(
    const int16_t *one, const int16_t *other, size_t samples, int16_t *pair) {
    for (size_t at = 0; at < samples; at += LANES) {
        VECTOR a = LOAD(one + at), b = LOAD(other + at);
        STORE(pair + 2 * at, UNPACK_LOW(a, b));
        STORE(pair + 2 * at + LANES, UNPACK_HIGH(a, b));
    }
}

// Both weights of a pair, repeated in all lanes.
TARGET static inline VECTOR NAME(weights)(KernelPairs pairs, size_t index) {
    int32_t both;
    memcpy(&both, pairs.weights + 2 * index, sizeof both);
    return SPREAD(both);
}

TARGET static void NAME(down)(KernelPairs pairs, int shift, size_t samples, int16_t *line) {
    VECTOR half = SPREAD(1 << (shift - 1));
    __m128i places = _mm_cvtsi32_si128(shift);
    for (size_t at = 0; at < samples; at += 2 * LANES) {
        VECTOR a = half, b = half, c = half, d = half;
        for (size_t index = 0; index < pairs.count; index++) {
            const int16_t *pair = pairs.pairs[index] + 2 * at;
            VECTOR weights = NAME(weights)(pairs, index);
            a = ADD(a, MULTIPLY_ADD(LOAD(pair), weights));
            b = ADD(b, MULTIPLY_ADD(LOAD(pair + LANES), weights));
            c = ADD(c, MULTIPLY_ADD(LOAD(pair + 2 * LANES), weights));
            d = ADD(d, MULTIPLY_ADD(LOAD(pair + 3 * LANES), weights));
        }
        STORE(line + at, PACK(SHIFT(a, places), SHIFT(b, places)));
        STORE(line + at + LANES, PACK(SHIFT(c, places), SHIFT(d, places)));
    }
}

// Sums stay in the order of the pairs; only `settle` depends on it.
TARGET static void NAME(add)(KernelPairs pairs, size_t samples, int32_t *sums) {
    for (size_t at = 0; at < samples; at += LANES) {
        VECTOR a = LOAD(sums + at), b = LOAD(sums + at + LANES / 2);
        for (size_t index = 0; index < pairs.count; index++) {
            const int16_t *pair = pairs.pairs[index] + 2 * at;
            VECTOR weights = NAME(weights)(pairs, index);
            a = ADD(a, MULTIPLY_ADD(LOAD(pair), weights));
            b = ADD(b, MULTIPLY_ADD(LOAD(pair + LANES), weights));
        }
        STORE(sums + at, a);
        STORE(sums + at + LANES / 2, b);
    }
}

TARGET static void NAME(settle)(const int32_t *sums, int shift, size_t samples, int16_t *line) {
    VECTOR half = SPREAD(1 << (shift - 1));
    __m128i places = _mm_cvtsi32_si128(shift);
    for (size_t at = 0; at < samples; at += LANES) {
        VECTOR a = ADD(LOAD(sums + at), half), b = ADD(LOAD(sums + at + LANES / 2), half);
        STORE(line + at, PACK(SHIFT(a, places), SHIFT(b, places)));
    }
}

// Passes the usual small numbers of chunks as constants, so that the compiler needs no loop for them.
#define EACH_EIGHT(store)                                                                          \
    switch (across.chunks) {                                                                       \
    case 1: EIGHTS(1, store) break;                                                                \
    case 2: EIGHTS(2, store) break;                                                                \
    case 3: EIGHTS(3, store) break;                                                                \
    default: EIGHTS(across.chunks, store)                                                          \
    }
#define EIGHTS(count, store)                                                                       \
    for (size_t output = 0; output < across.outputs; output += KERNEL_OUTPUTS) {                   \
        const int16_t *weights = across.weights + output * (count) * KERNEL_TAPS;                  \
        __m128i eight = NAME(narrow)(                                                              \
            NAME(sum_eight)(line, across.firsts + output, weights, count), shift);                 \
        store;                                                                                     \
    }

TARGET static void NAME(across)(KernelAcross across, const int16_t *line, uint8_t *out) {
    int shift = across.bits + LINE_BITS;
    EACH_EIGHT(_mm_storel_epi64((__m128i *)(out + output), _mm_packus_epi16(eight, eight)))
}

TARGET static void NAME(across_lines)(KernelAcross across, const int16_t *line, int16_t *out) {
    int shift = across.bits;
    EACH_EIGHT(_mm_storeu_si128((__m128i *)(out + output), eight))
}

#undef EACH_EIGHT
#undef EIGHTS
#undef VECTOR
#undef LANES
#undef NAME
#undef TARGET
#undef LOAD
#undef STORE
#undef WIDEN_BYTES
#undef SPREAD
#undef ADD
#undef MULTIPLY_ADD
#undef UNPACK_LOW
#undef UNPACK_HIGH
#undef SHIFT
#undef PACK
