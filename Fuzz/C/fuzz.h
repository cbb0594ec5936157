// Shared by the fuzz targets.
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static inline void expect(bool is_so, const char *what) {
    if (is_so) return;
    fprintf(stderr, "failed expectation: %s\n", what);
    abort();
}

static inline void touch(const uint8_t *bytes, size_t count) {
    __attribute__((unused)) static volatile uint8_t sink;
    uint8_t sum = 0;
    for (size_t index = 0; index < count; index++) sum ^= bytes[index];
    sink = sum;
}

/// Allocates `wanted` bytes and fills them with repetitions of the given bytes.
static inline uint8_t *repeated(const uint8_t *bytes, size_t count, size_t wanted) {
    uint8_t *block = malloc(wanted);
    for (size_t done = 0; done < wanted; done += count)
        memcpy(block + done, bytes, wanted - done < count ? wanted - done : count);
    return block;
}

/// A pseudorandom generator that depends only on the input.
typedef struct {
    uint64_t state;
} Chance;

static inline uint64_t chance_below(Chance *chance, uint64_t bound) {
    chance->state = chance->state * 6364136223846793005u + 1442695040888963407u;
    return (chance->state >> 33) % bound;
}

/// Seeded by the length and the last bytes only. So most changes of an input do not change how it is tried.
static inline Chance chance_of(const uint8_t *bytes, size_t count) {
    uint64_t state = count;
    for (size_t index = count < 4 ? 0 : count - 4; index < count; index++)
        state = (state ^ bytes[index]) * 0x100000001B3u;
    Chance chance = {state ^ state >> 29};
    (void)chance_below(&chance, 1);
    return chance;
}

#endif
