// A wall clock that a test shifts while the process runs, loaded with LD_PRELOAD. Monotonic clocks stay as they are.
//
// CLOCK_SHIM names a file with one 64-bit integer: the offset in nanoseconds. The file is mapped at the start, so a call needs no
// other system calls than without this library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const _Atomic int64_t *offset;
static int (*original)(clockid_t, struct timespec *);

__attribute__((constructor)) static void start(void) {
    original = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CLOCK_SHIM");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    // Without an offset, the test would check nothing.
    if (page == MAP_FAILED) abort();
    close(file);
    offset = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = original ? original(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
    if (result != 0 || !offset || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
    int64_t all = now->tv_sec * INT64_C(1000000000) + now->tv_nsec + *offset;
    *now = (struct timespec){all / 1000000000, all % 1000000000};
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    if (result == 0) *now = (struct timeval){exact.tv_sec, exact.tv_nsec / 1000};
    return result;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}
