#pragma once
// Nothing that declares `struct stat`: a Swift file that sees it here first would take it for this module's.
#include <linux/openat2.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

// glibc wraps openat2 since 2.42 only, and shows O_PATH to those alone who define _GNU_SOURCE.

/// Opens a path below `folder` that doesn't leave it, neither by its parts nor by symbolic links.
static inline int CLinux_openBeneath(int folder, const char *path, int flags) {
    struct open_how how = {
        .flags = (uint64_t)flags,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    };
    return (int)syscall(SYS_openat2, folder, path, &how, sizeof how);
}

/// Names a file without opening it: also a symbolic link itself, and without what opening a device does.
static const int CLinux_O_PATH = 010000000;
