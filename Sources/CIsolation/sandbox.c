#define _GNU_SOURCE
#include "messages.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

// The structure in the newest linux/landlock.h. The headers at compile time may be older than the kernel.
typedef struct {
    uint64_t files, net, scoped;
} Ruleset;

#if __has_feature(address_sanitizer)
const char *__asan_default_options(void);

/// Makes allocations beyond the limit fail, as in malloc() without AddressSanitizer, instead of ending the
/// process.
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
#endif

int sandbox_landlock(void) {
#ifdef SYS_landlock_create_ruleset
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, 1 /* LANDLOCK_CREATE_RULESET_VERSION */);
    if (version < 1) return 0;
    // The rights that each version can deny: 13 rights to files, then linking across directories, truncating,
    // and device control; TCP; sockets and signals of other processes.
    int rights = version >= 5 ? 16 : version >= 3 ? 15 : version >= 2 ? 14 : 13;
    Ruleset all = {
        .files = (1ULL << rights) - 1, .net = version >= 4 ? 3 : 0, .scoped = version >= 6 ? 3 : 0};
    size_t known = version >= 6 ? sizeof all : version >= 4 ? 16 : 8;
    int rules = (int)syscall(SYS_landlock_create_ruleset, &all, known, 0);
    if (rules < 0) return 0;
    // Without any rule, nothing is allowed.
    bool holds = syscall(SYS_landlock_restrict_self, rules, 0) == 0;
    close(rules);
    return holds ? (int)version : 0;
#else
    return 0;
#endif
}

uint64_t sandbox_address_space(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    if (file) {
        if (fscanf(file, "%lu", &pages) != 1) pages = 0;
        fclose(file);
    }
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int limit(__rlimit_resource_t what, rlim_t most) {
    struct rlimit limit = {most, most};
    return setrlimit(what, &limit) == 0 ? 0 : -errno;
}

/// A placeholder for the decoder's own process ID in the filter program. Larger than any process ID.
#define OWN_ID 0x5E1F1D00u

static bool allow_calls(scmp_filter_ctx filter) {
    // Messages, on this socket only.
    int code = seccomp_rule_add(
        filter, SCMP_ACT_ALLOW, SCMP_SYS(recvfrom), 1, SCMP_A0(SCMP_CMP_EQ, CHANNEL, 0));
    code |= seccomp_rule_add(
        filter, SCMP_ACT_ALLOW, SCMP_SYS(sendto), 1, SCMP_A0(SCMP_CMP_EQ, CHANNEL, 0));
    // Memory that is not from a file and not executable.
    code |= seccomp_rule_add(
        filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 2, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0),
        SCMP_A3(SCMP_CMP_MASKED_EQ, MAP_ANONYMOUS, MAP_ANONYMOUS));
    code |= seccomp_rule_add(
        filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
        SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    // pthread_once() wakes waiting threads, although there are none. Waiting is not allowed.
    code |= seccomp_rule_add(
        filter, SCMP_ACT_ALLOW, SCMP_SYS(futex), 1,
        SCMP_A1(SCMP_CMP_MASKED_EQ, (scmp_datum_t)~FUTEX_PRIVATE_FLAG, FUTEX_WAKE));
    // Libraries print messages about broken files to stderr, which is closed here.
    const int telling[] = {SCMP_SYS(write), SCMP_SYS(writev)};
    for (size_t i = 0; i < sizeof telling / sizeof *telling; i++)
        code |= seccomp_rule_add(
            filter, SCMP_ACT_ERRNO(EBADF), telling[i], 1, SCMP_A0(SCMP_CMP_EQ, STDERR_FILENO, 0));
    const int plain[] = {
        SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(brk), SCMP_SYS(madvise),
        // Clocks, in case the vDSO cannot read them, and random seeds for hash tables.
        SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday), SCMP_SYS(getrandom),
        // Exiting. abort() sends its signal to the process itself; other signals are denied, because a stopped
        // decoder would make the service wait.
        SCMP_SYS(exit_group), SCMP_SYS(getpid), SCMP_SYS(gettid),
#if __has_feature(address_sanitizer)
        // AddressSanitizer checks at each longjmp() whether it leaves a signal stack.
        SCMP_SYS(sigaltstack),
#endif
    };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        code |= seccomp_rule_add(filter, SCMP_ACT_ALLOW, plain[i], 0);
    code |= seccomp_rule_add(
        filter, SCMP_ACT_ALLOW, SCMP_SYS(rt_sigprocmask), 1, SCMP_A0(SCMP_CMP_EQ, SIG_UNBLOCK, 0));
    code |= seccomp_rule_add(
        filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 2, SCMP_A0(SCMP_CMP_EQ, OWN_ID, 0),
        SCMP_A2(SCMP_CMP_EQ, SIGABRT, 0));
    return code == 0;
}

static struct sock_filter filter_program[1024];
static size_t filter_bytes;

/// Exports the compiled filter to a file in memory and reads it back.
static size_t compile(scmp_filter_ctx filter) {
    int file = memfd_create("filter", MFD_CLOEXEC);
    if (file < 0) return 0;
    ssize_t count = 0;
    if (allow_calls(filter) && seccomp_export_bpf(filter, file) == 0 &&
        lseek(file, 0, SEEK_END) <= (off_t)sizeof filter_program)
        count = pread(file, filter_program, sizeof filter_program, 0);
    close(file);
    return count < 0 ? 0 : (size_t)count;
}

void sandbox_prepare(void) {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
    if (!filter) return;
    filter_bytes = compile(filter);
    seccomp_release(filter);
}

static bool filter_calls(void) {
    size_t count = filter_bytes / sizeof *filter_program;
    if (count == 0) return false;
    for (size_t i = 0; i < count; i++)
        if (filter_program[i].k == OWN_ID) filter_program[i].k = (uint32_t)getpid();
    struct sock_fprog whole = {(unsigned short)count, filter_program};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole, 0, 0) == 0;
}

int sandbox_enter(uint64_t addresses, CIsolationLayers *layers) {
    prctl(PR_SET_DUMPABLE, 0);
    const __rlimit_resource_t nothing[] = {
        RLIMIT_CORE, RLIMIT_FSIZE, RLIMIT_MEMLOCK, RLIMIT_MSGQUEUE, RLIMIT_NPROC};
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) limit(nothing[i], 0);
    int code = limit(RLIMIT_AS, addresses);
    if (code != 0) return code;
    code = limit(RLIMIT_NOFILE, 0);
    if (code != 0) return code;
    layers->has_filter = filter_calls();
    return 0;
}
