// What the targets share.
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
    fprintf(stderr, "not held: %s\n", what);
    abort();
}

static inline void touch(const uint8_t *bytes, size_t count) {
    __attribute__((unused)) static volatile uint8_t sink;
    uint8_t sum = 0;
    for (size_t index = 0; index < count; index++) sum ^= bytes[index];
    sink = sum;
}

/// So many bytes in a block of their own, the given ones over and over.
static inline uint8_t *repeated(const uint8_t *bytes, size_t count, size_t wanted) {
    uint8_t *block = malloc(wanted);
    for (size_t done = 0; done < wanted; done += count)
        memcpy(block + done, bytes, wanted - done < count ? wanted - done : count);
    return block;
}

/// What is left to chance is the same for the same input.
typedef struct {
    uint64_t state;
} Chance;

static inline uint64_t chance_below(Chance *chance, uint64_t bound) {
    chance->state = chance->state * 6364136223846793005u + 1442695040888963407u;
    return (chance->state >> 33) % bound;
}

/// By the length and the last bytes alone: most changes to an input leave how it is tried as it was.
static inline Chance chance_of(const uint8_t *bytes, size_t count) {
    uint64_t state = count;
    for (size_t index = count < 4 ? 0 : count - 4; index < count; index++)
        state = (state ^ bytes[index]) * 0x100000001B3u;
    Chance chance = {state ^ state >> 29};
    (void)chance_below(&chance, 1);
    return chance;
}

#endif
