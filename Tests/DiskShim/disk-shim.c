// A library between a service and its disk. It records, in order, each change of a file or a name and each sync, so that a
// test can compute what a power cut at any moment could leave. The test can also make the disk slow, failing or read-only, and
// shift the clock.
//
// Loaded with LD_PRELOAD. It wraps the calls that the service uses to change files. The test checks that none is missing: it
// repeats the recorded changes and compares the result with the folder.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

// MARK: Control by the test

/// A shared page that the test writes to, with this layout.
struct control {
    /// Set by the test: changes block, as after a power cut.
    _Atomic int64_t is_frozen;
    /// Set by the shim while a change is in progress.
    _Atomic int64_t is_changing;
    /// Set by the test: syncs block.
    _Atomic int64_t are_syncs_held;
    /// The number of next syncs that fail.
    _Atomic int64_t failing_syncs;
    /// The offset of the wall clock in nanoseconds.
    _Atomic int64_t clock_offset;
    /// Set by the test: changes fail with EROFS.
    _Atomic int64_t is_read_only;
};

static struct control *control;
static int record_file = -1;
static dev_t device;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static uint64_t syncs;
static int (*whole_clock_gettime)(clockid_t, struct timespec *);

/// Forked processes are not recorded.
static void forked(void) {
    record_file = -1;
    control = NULL;
}

/// DISK_SHIM names the folder with the test's files, DISK_SHIM_ROOT the watched folder.
__attribute__((constructor)) static void start(void) {
    whole_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *folder = getenv("DISK_SHIM"), *root = getenv("DISK_SHIM_ROOT");
    struct stat status;
    if (!folder || !root || stat(root, &status) != 0) return;
    device = status.st_dev;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/control", folder);
    int page = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
    snprintf(path, sizeof path, "%s/record", folder);
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (page < 0 || mapped == MAP_FAILED || file < 0) abort();
    close(page);
    control = mapped;
    record_file = file;
    pthread_atfork(NULL, NULL, forked);
    // Programs that the service starts do not use the folder.
    unsetenv("LD_PRELOAD");
    unsetenv("DISK_SHIM");
    unsetenv("DISK_SHIM_ROOT");
}

// MARK: The record

enum kind { NAME = 1, UNNAME, RENAME, WRITE, SIZE, SYNC, SYNCED, SYNC_FAILED };

/// One change, followed by `count` bytes: the written data, or names that end with zero bytes.
struct change {
    uint32_t kind, count;
    /// The inodes of the changed file and of the other file or folder that is involved.
    uint64_t file, other;
    int64_t at;
};

static void append(enum kind kind, uint64_t file, uint64_t other, int64_t at, const void *bytes, size_t count) {
    struct change change = {kind, (uint32_t)count, file, other, at};
    struct iovec parts[] = {{&change, sizeof change}, {(void *)bytes, count}};
    // An incomplete record would be useless.
    if (syscall(SYS_writev, record_file, parts, 2) != (long)(sizeof change + count)) abort();
}

/// Allows one change at a time, so that changes are recorded in order.
static void enter(void) {
    pthread_mutex_lock(&changing);
    control->is_changing = 1;
    if (!control->is_frozen) return;
    control->is_changing = 0;
    for (;;) pause();
}

static void leave(void) {
    int code = errno;
    control->is_changing = 0;
    pthread_mutex_unlock(&changing);
    errno = code;
}

static int is_refused(void) {
    if (!control->is_read_only) return 0;
    errno = EROFS;
    return 1;
}

/// Whether a descriptor refers to a file or folder on the watched folder's file system.
static int is_recorded(int descriptor, uint64_t *file) {
    if (record_file < 0) return 0;
    int code = errno;
    struct stat status;
    int is_there = fstat(descriptor, &status) == 0 && status.st_dev == device &&
                   (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode));
    errno = code;
    *file = is_there ? status.st_ino : 0;
    return is_there;
}

/// A name in a folder.
struct place {
    uint64_t folder;
    char path[PATH_MAX];
    const char *name;
};

static int locate(int folder, const char *path, struct place *place) {
    if (record_file < 0 || strlen(path) >= sizeof place->path) return 0;
    int code = errno;
    strcpy(place->path, path);
    size_t length = strlen(place->path);
    while (length > 1 && place->path[length - 1] == '/') place->path[--length] = 0;
    char *slash = strrchr(place->path, '/');
    place->name = slash ? slash + 1 : place->path;
    struct stat status;
    int is_there;
    if (slash) {
        *slash = 0;
        is_there = fstatat(folder, slash == place->path ? "/" : place->path, &status, 0) == 0;
    } else {
        is_there = fstatat(folder, ".", &status, 0) == 0;
    }
    errno = code;
    place->folder = status.st_ino;
    return is_there && status.st_dev == device;
}

// MARK: Names

static int opened(int folder, const char *path, int flags, mode_t mode) {
    struct place place;
    int changes = (flags & (O_CREAT | O_TRUNC)) || (flags & O_ACCMODE) != O_RDONLY;
    if (!changes || !locate(folder, path, &place)) return (int)syscall(SYS_openat, folder, path, flags, mode);
    enter();
    struct stat before, after;
    int was_there = fstatat(folder, path, &before, 0) == 0;
    int descriptor = is_refused() ? -1 : (int)syscall(SYS_openat, folder, path, flags, mode);
    if (descriptor >= 0 && fstat(descriptor, &after) == 0) {
        if (!was_there)
            append(NAME, place.folder, after.st_ino, 0, place.name, strlen(place.name) + 1);
        else if (flags & O_TRUNC)
            append(SIZE, after.st_ino, 0, 0, NULL, 0);
    }
    leave();
    return descriptor;
}

static mode_t mode_of(int flags, va_list rest) { return flags & O_CREAT ? va_arg(rest, mode_t) : 0; }

#define OPEN(function)                                                                                                 \
    int function(const char *path, int flags, ...) {                                                                   \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = mode_of(flags, rest);                                                                            \
        va_end(rest);                                                                                                  \
        return opened(AT_FDCWD, path, flags, mode);                                                                    \
    }
#define OPENAT(function)                                                                                               \
    int function(int folder, const char *path, int flags, ...) {                                                       \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = mode_of(flags, rest);                                                                            \
        va_end(rest);                                                                                                  \
        return opened(folder, path, flags, mode);                                                                      \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

int mkdirat(int folder, const char *path, mode_t mode) {
    struct place place;
    if (!locate(folder, path, &place)) return (int)syscall(SYS_mkdirat, folder, path, mode);
    enter();
    struct stat status;
    int result = is_refused() ? -1 : (int)syscall(SYS_mkdirat, folder, path, mode);
    if (result == 0 && fstatat(folder, path, &status, 0) == 0)
        append(NAME, place.folder, status.st_ino, 1, place.name, strlen(place.name) + 1);
    leave();
    return result;
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int unlinkat(int folder, const char *path, int flags) {
    struct place place;
    if (!locate(folder, path, &place)) return (int)syscall(SYS_unlinkat, folder, path, flags);
    enter();
    int result = is_refused() ? -1 : (int)syscall(SYS_unlinkat, folder, path, flags);
    if (result == 0) append(UNNAME, place.folder, 0, 0, place.name, strlen(place.name) + 1);
    leave();
    return result;
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int renameat2(int folder, const char *path, int target, const char *name, unsigned flags) {
    struct place from, to;
    if (!locate(folder, path, &from) || !locate(target, name, &to))
        return (int)syscall(SYS_renameat2, folder, path, target, name, flags);
    enter();
    int result = is_refused() ? -1 : (int)syscall(SYS_renameat2, folder, path, target, name, flags);
    if (result == 0) {
        char names[2 * NAME_MAX + 2];
        int length = snprintf(names, sizeof names, "%s%c%s", from.name, 0, to.name);
        append(RENAME, from.folder, to.folder, 0, names, (size_t)length + 1);
    }
    leave();
    return result;
}

int renameat(int folder, const char *path, int target, const char *name) {
    return renameat2(folder, path, target, name, 0);
}
int rename(const char *path, const char *name) { return renameat2(AT_FDCWD, path, AT_FDCWD, name, 0); }

int linkat(int folder, const char *path, int target, const char *name, int flags) {
    struct place place;
    if (!locate(target, name, &place)) return (int)syscall(SYS_linkat, folder, path, target, name, flags);
    enter();
    struct stat status;
    int result = is_refused() ? -1 : (int)syscall(SYS_linkat, folder, path, target, name, flags);
    if (result == 0 && fstatat(target, name, &status, AT_SYMLINK_NOFOLLOW) == 0)
        append(NAME, place.folder, status.st_ino, 2, place.name, strlen(place.name) + 1);
    leave();
    return result;
}

int link(const char *path, const char *name) { return linkat(AT_FDCWD, path, AT_FDCWD, name, 0); }

// MARK: Bytes

/// - Parameter at: the offset in the file; -1 for the descriptor's position.
static ssize_t written(int descriptor, uint64_t file, const struct iovec *parts, int count, off_t at) {
    enter();
    ssize_t result = -1;
    if (!is_refused())
        result = at < 0 ? syscall(SYS_writev, descriptor, parts, count)
                        : syscall(SYS_pwritev, descriptor, parts, count, at, 0);
    if (result > 0) {
        int64_t place = at < 0 ? lseek(descriptor, 0, SEEK_CUR) - result : at;
        size_t rest = (size_t)result;
        for (int part = 0; rest > 0; part++) {
            size_t size = parts[part].iov_len < rest ? parts[part].iov_len : rest;
            append(WRITE, file, 0, place, parts[part].iov_base, size);
            place += (int64_t)size;
            rest -= size;
        }
    }
    leave();
    return result;
}

ssize_t write(int descriptor, const void *bytes, size_t count) {
    uint64_t file;
    if (!is_recorded(descriptor, &file)) return syscall(SYS_write, descriptor, bytes, count);
    struct iovec part = {(void *)bytes, count};
    return written(descriptor, file, &part, 1, -1);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    uint64_t file;
    if (!is_recorded(descriptor, &file)) return syscall(SYS_writev, descriptor, parts, count);
    return written(descriptor, file, parts, count, -1);
}

#define PWRITE(function, offset)                                                                                       \
    ssize_t function(int descriptor, const void *bytes, size_t count, offset at) {                                     \
        uint64_t file;                                                                                                 \
        if (!is_recorded(descriptor, &file)) return syscall(SYS_pwrite64, descriptor, bytes, count, at);               \
        struct iovec part = {(void *)bytes, count};                                                                    \
        return written(descriptor, file, &part, 1, at);                                                                \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

static int resized(int descriptor, uint64_t file, off_t size) {
    enter();
    int result = is_refused() ? -1 : (int)syscall(SYS_ftruncate, descriptor, size);
    if (result == 0) append(SIZE, file, 0, size, NULL, 0);
    leave();
    return result;
}

#define FTRUNCATE(function, offset)                                                                                    \
    int function(int descriptor, offset size) {                                                                        \
        uint64_t file;                                                                                                 \
        if (!is_recorded(descriptor, &file)) return (int)syscall(SYS_ftruncate, descriptor, size);                     \
        return resized(descriptor, file, size);                                                                        \
    }
FTRUNCATE(ftruncate, off_t)
FTRUNCATE(ftruncate64, off64_t)

/// - Returns: 0, or `errno`.
static int allocated(int descriptor, off_t at, off_t count) {
    uint64_t file;
    if (!is_recorded(descriptor, &file)) return syscall(SYS_fallocate, descriptor, 0, at, count) == 0 ? 0 : errno;
    enter();
    struct stat status;
    int code = is_refused() || syscall(SYS_fallocate, descriptor, 0, at, count) != 0 ? errno : 0;
    if (code == 0 && fstat(descriptor, &status) == 0) append(SIZE, file, 0, status.st_size, NULL, 0);
    leave();
    return code;
}

int posix_fallocate(int descriptor, off_t at, off_t count) { return allocated(descriptor, at, count); }
int posix_fallocate64(int descriptor, off64_t at, off64_t count) { return allocated(descriptor, at, count); }

// MARK: Syncs

/// Changes that were recorded before a sync started are durable once it has succeeded.
static int synced(int descriptor, long call) {
    uint64_t file;
    if (!is_recorded(descriptor, &file)) return (int)syscall(call, descriptor);
    enter();
    int64_t number = (int64_t)++syncs;
    append(SYNC, file, (uint64_t)getpid(), number, NULL, 0);
    int is_failing = control->failing_syncs > 0 && control->failing_syncs-- > 0;
    leave();
    while (control->are_syncs_held) nanosleep(&(struct timespec){0, 1000000}, NULL);
    int result = (int)syscall(call, descriptor);
    if (is_failing) {
        result = -1;
        errno = EIO;
    }
    enter();
    append(result == 0 ? SYNCED : SYNC_FAILED, file, (uint64_t)getpid(), number, NULL, 0);
    leave();
    return result;
}

int fsync(int descriptor) { return synced(descriptor, SYS_fsync); }
int fdatasync(int descriptor) { return synced(descriptor, SYS_fdatasync); }

// MARK: The wall clock

static int64_t offset(void) { return control ? control->clock_offset : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = whole_clock_gettime ? whole_clock_gettime(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
    if (result != 0 || offset() == 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
    int64_t all = now->tv_sec * 1000000000LL + now->tv_nsec + offset();
    *now = (struct timespec){all / 1000000000, all % 1000000000};
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
    *now = (struct timeval){exact.tv_sec, exact.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}
