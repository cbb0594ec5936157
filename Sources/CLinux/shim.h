#pragma once
// Do not include headers that declare `struct stat`. Swift would treat it as this module's type, not Glibc's.
#include <linux/openat2.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

// glibc has no openat2() before 2.42, and defines O_PATH only with _GNU_SOURCE.

/// Opens a path below `folder`. Fails if `..` or a symbolic link leads out of the folder.
static inline int CLinux_openBeneath(int folder, const char *path, int flags) {
    struct open_how how = {
        .flags = (uint64_t)flags,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    };
    return (int)syscall(SYS_openat2, folder, path, &how, sizeof how);
}

/// The flag O_PATH of open(2): returns a descriptor that refers to a file, or to a symbolic link itself, without opening
/// it. Opening a device could have side effects.
static const int CLinux_O_PATH = 010000000;
