// Limits how long a step computes.
#ifndef SLICE_H
#define SLICE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

// Less than the 10 ms that a step may take, because the clock is read only between pieces of up to 3 ms.
#define SLICE_NANOSECONDS 6000000

typedef struct {
    int64_t end;
} Slice;

static inline int64_t slice_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline Slice slice_start(void) {
    return (Slice){slice_clock() + SLICE_NANOSECONDS};
}

static inline bool slice_is_over(Slice slice) {
    return slice_clock() >= slice.end;
}

#endif
