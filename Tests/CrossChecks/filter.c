// Prints what the filter of system calls decides, for every call that libseccomp knows on this architecture. The program is
// interpreted here: qemu-user applies no filter. `.ci/check-arm64` builds this for x86-64 and for AArch64 and compares the two.
//
// Each line is `NAME CASE DECISION`, where a case is a set of arguments.
#include "../../Sources/CIsolation/sandbox.c"

#include <linux/audit.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#ifdef __aarch64__
#define OWN_ARCHITECTURE AUDIT_ARCH_AARCH64
#define OTHER_ARCHITECTURE AUDIT_ARCH_ARM
#else
#define OWN_ARCHITECTURE AUDIT_ARCH_X86_64
#define OTHER_ARCHITECTURE AUDIT_ARCH_I386
#endif

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "filter: %s\n", what);
    exit(1);
}

/// Runs the filter as the kernel does. It is classic BPF; libseccomp uses these instructions.
static uint32_t decide(const struct seccomp_data *call) {
    uint32_t accumulator = 0;
    for (size_t at = 0; at < filter_bytes / sizeof *filter_program; at++) {
        const struct sock_filter *instruction = &filter_program[at];
        uint32_t k = instruction->k;
        bool holds;
        switch (instruction->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            if (k % 4 != 0 || k > sizeof *call - 4) fail("a load beyond the call");
            memcpy(&accumulator, (const char *)call + k, 4);
            continue;
        case BPF_ALU | BPF_AND | BPF_K: accumulator &= k; continue;
        case BPF_RET | BPF_K: return k;
        case BPF_JMP | BPF_JA: at += k; continue;
        case BPF_JMP | BPF_JEQ | BPF_K: holds = accumulator == k; break;
        case BPF_JMP | BPF_JGE | BPF_K: holds = accumulator >= k; break;
        case BPF_JMP | BPF_JGT | BPF_K: holds = accumulator > k; break;
        case BPF_JMP | BPF_JSET | BPF_K: holds = (accumulator & k) != 0; break;
        default: fail("an instruction that is not interpreted here");
        }
        at += holds ? instruction->jt : instruction->jf;
    }
    fail("the program has no end");
}

static const struct {
    const char *name;
    uint64_t arguments[6];
} cases[] = {
    {"zeros", {0}},
    {"anonymous", {0, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1}},
    {"anonymous-executable", {0, 1, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1}},
    {"of-a-file", {0, 1, PROT_READ, MAP_PRIVATE, CHANNEL}},
    {"executable", {0, 1, PROT_READ | PROT_EXEC}},
    {"channel", {CHANNEL}},
    {"standard-error", {STDERR_FILENO}},
    {"wake", {0, FUTEX_WAKE_PRIVATE}},
    {"wait", {0, FUTEX_WAIT_PRIVATE}},
    {"unblock", {SIG_UNBLOCK}},
    {"abort-itself", {OWN_ID, 1, SIGABRT}},
    {"stop-itself", {OWN_ID, 1, SIGSTOP}},
    {"abort-another", {1, 1, SIGABRT}},
    {"high-half-of-channel", {(1ULL << 32) | CHANNEL}},
};

static const char *name_of(uint32_t decision) {
    static char text[32];
    if (decision == SECCOMP_RET_ALLOW) return "allow";
    if (decision == SECCOMP_RET_KILL_PROCESS) return "kill";
    snprintf(text, sizeof text, "%#x", decision);
    return text;
}

int main(void) {
    // Under qemu-user, libseccomp cannot ask the kernel for its API level. Our filter needs level 3.
    if (seccomp_api_get() < 3) seccomp_api_set(3);
    if (seccomp_arch_native() != OWN_ARCHITECTURE) fail("another architecture than the compiler's");
    sandbox_prepare();
    if (filter_bytes == 0) fail("no filter was compiled");
    int known = 0;
    for (int number = 0; number < 1024; number++) {
        char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, number);
        if (name && seccomp_syscall_resolve_name_arch(SCMP_ARCH_NATIVE, name) != number) fail(name);
        known += name != NULL;
        for (size_t index = 0; index < sizeof cases / sizeof *cases; index++) {
            struct seccomp_data call = {.nr = number, .arch = OWN_ARCHITECTURE};
            memcpy(call.args, cases[index].arguments, sizeof call.args);
            uint32_t decision = decide(&call);
            if (name) printf("%s %s %s\n", name, cases[index].name, name_of(decision));
            else if (decision != SECCOMP_RET_KILL_PROCESS) fail("a call without a name is not denied");
            call.arch = OTHER_ARCHITECTURE;
            // For other architectures, libseccomp by default kills the thread. A decoder has only one.
            if (decide(&call) != SECCOMP_RET_KILL_THREAD) fail("another architecture's call is not denied");
        }
        free(name);
    }
    if (known < 200) fail("libseccomp knows too few calls");
    return 0;
}
