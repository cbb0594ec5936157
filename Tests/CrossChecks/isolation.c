// Forks decoders, makes them reply and crash, and checks what the service receives. `.ci/check-arm64` builds
// this for x86-64 and for AArch64. qemu-user has neither seccomp nor Landlock, so the argument `unfiltered`
// expects none.
#define main hostile_main
#include "../HostileDecoder/main.c"
#undef main

#include <sys/auxv.h>
#include <sys/wait.h>

#define MEMORY (((size_t)2 << 20) + sizeof(uint32_t))

static _Noreturn void fail(const char *what, long number) {
    fprintf(stderr, "isolation: %s (%ld)\n", what, number);
    exit(1);
}

/// Starts the process that forks decoders by a fork instead of a program, because qemu-user cannot start one.
static int start(pid_t *process) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) fail("socketpair", errno);
    *process = fork();
    if (*process < 0) fail("fork", errno);
    if (*process > 0) {
        close(ends[1]);
        CIsolation_wait_at_most(ends[0], 10000);
        return ends[0];
    }
    if (dup2(ends[1], 3) != 3) _exit(1);
    for (int other = 4; other < 16; other++) close(other);
    CIsolation_serve(decode);
}

/// Makes a decoder do something.
/// - Parameters:
///   - detail: the expected detail in the reply; NULL if the decoder must end instead.
///   - crash: the signal in the expected crash report; 0 if there must be none.
///   - is_filtered: whether a filter of system calls is expected.
static void try(int control, const char *what, const char *detail, int crash, bool is_filtered) {
    CIsolationDecoder decoder;
    CIsolationLayers layers = {-1, -1};
    int code = CIsolation_fork(control, MEMORY, (uint64_t)1 << 30, &decoder);
    if (code != 0) fail("a decoder is not forked", code);
    if ((code = CIsolation_wait_until_ready(&decoder, &layers)) != 0) fail("a decoder is not met", code);
    if (layers.has_filter != is_filtered) fail("the filter of system calls", layers.has_filter);
    CIsolation_wait_at_most(decoder.channel, 60000);
    strcpy((char *)decoder.memory, what);
    uint8_t request[16] = {7}, reply[1024] = {0};
    if ((code = CIsolation_send(decoder.channel, request, sizeof request)) != 0) fail("send", code);
    ssize_t count = CIsolation_receive(decoder.channel, reply, sizeof reply, true);
    if (detail) {
        if (count <= 0 || !memmem(reply, (size_t)count, detail, strlen(detail))) fail(what, count);
        if ((code = CIsolation_kill(control, decoder.process)) != 0) fail("kill", code);
        CIsolation_close(&decoder);
        return;
    }
    if (crash) {
        if (count <= 0 || CIsolation_crash_signal(reply, (size_t)count) != crash) fail(what, count);
        count = CIsolation_receive(decoder.channel, reply, sizeof reply, true);
    }
    if (count != -EPIPE) fail(what, count);
    int status = 0;
    if ((code = CIsolation_reap(control, decoder.process, &status)) != 0) fail("reap", code);
    bool is_expected = crash ? WIFEXITED(status) && CIsolation_signal_of_exit(WEXITSTATUS(status)) == crash
        : WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
    if (!is_expected) fail("the exit status", status);
    CIsolation_close(&decoder);
}

int main(int count, char **arguments) {
    bool is_filtered = count < 2 || strcmp(arguments[1], "unfiltered") != 0;
    pid_t process;
    int control = start(&process);
    for (int round = 0; round < 3; round++) {
        try(control, "text", "[31m", 0, is_filtered);
        try(control, "crash", NULL, SIGSEGV, is_filtered);
        // The handler has its own stack, which must be large enough for all registers.
        try(control, "no more stack", NULL, SIGSEGV, is_filtered);
        try(control, "abort", NULL, SIGABRT, is_filtered);
        if (is_filtered) try(control, "open", NULL, 0, true);
    }
    close(control);
    int status;
    if (waitpid(process, &status, 0) != process || status != 0) fail("the end of the process that forks", status);
    printf("signal frames of %lu bytes\n", (unsigned long)sysconf(_SC_MINSIGSTKSZ));
    return 0;
}
