// Replaces what the codecs ask of the machine: the clock and the processor's features. Fuzz/run includes this
// file before each codec source, and each target provides the functions (target.h). So the input decides where
// slices end, and code for older processors is tested too.
#ifndef MACHINE_H
#define MACHINE_H

#include <time.h>

#define clock_gettime machine_clock
#define __builtin_cpu_supports machine_supports

int machine_clock(clockid_t clock, struct timespec *time);
int machine_supports(const char *feature);

#endif
