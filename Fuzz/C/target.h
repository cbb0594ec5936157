// The machine that the codecs see. Included once by each target.
#ifndef TARGET_H
#define TARGET_H

#include "fuzz.h"
#include "machine.h"

#undef clock_gettime
#undef __builtin_cpu_supports

static struct {
    uint64_t pace, now; // nanoseconds
    Chance chance;
    bool lacks_avx2;
} machine;

/// From now on, each check of the clock advances it by a random time below `nanoseconds`. At 0 the clock stands
/// still.
static inline void machine_set_pace(uint64_t nanoseconds, uint64_t seed) {
    machine.pace = nanoseconds;
    machine.chance = (Chance){seed};
}

static inline void machine_allow_avx2(bool is_allowed) {
    machine.lacks_avx2 = !is_allowed;
}

int machine_clock(clockid_t clock, struct timespec *time) {
    (void)clock;
    if (machine.pace) machine.now += chance_below(&machine.chance, machine.pace);
    *time = (struct timespec){(time_t)(machine.now / 1000000000), (long)(machine.now % 1000000000)};
    return 0;
}

int machine_supports(const char *feature) {
    (void)feature;
#ifdef __x86_64__
    return !machine.lacks_avx2 && __builtin_cpu_supports("avx2");
#else
    return 0;
#endif
}

#endif
