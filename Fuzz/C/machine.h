// What the codecs ask of the machine: Fuzz/run has this read before each of their files, and a target answers
// (target.h). So slices end where an input has them end, however busy the computer is, and what is for older processors
// runs here.
#ifndef MACHINE_H
#define MACHINE_H

#include <time.h>

#define clock_gettime machine_clock
#define __builtin_cpu_supports machine_supports

int machine_clock(clockid_t clock, struct timespec *time);
int machine_supports(const char *feature);

#endif
