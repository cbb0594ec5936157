// Reports a decoder's crash to the service before the process ends.
#define _GNU_SOURCE
#include "messages.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/// The signals of faults in a library. Signals that the kernel or the service uses to end a process cannot be
/// handled.
static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT};

/// The stack that the handler may use, in addition to the saved registers.
#define HANDLER_STACK ((size_t)64 << 10)

/// The same exit codes as in shells.
#define SIGNAL_EXIT 128

static bool is_fault(int number) {
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (faults[i] == number) return true;
    return false;
}

static volatile sig_atomic_t is_decoder;

/// Runs in the signal handler. Only system calls are safe here.
static void report_crash(int number) {
    if (!is_decoder) {
        // The fault repeats with the default action, which ends the process.
        signal(number, SIG_DFL);
        return;
    }
    const CrashReport word = {LAST_WORD, number};
    // If the socket has no room for the message, the exit code reports the signal.
    send(CHANNEL, &word, sizeof word, MSG_NOSIGNAL | MSG_DONTWAIT);
    _exit(SIGNAL_EXIT + number);
}

void crashes_prepare(void) {
    // The fault may be a full stack, so the handler needs its own. The kernel saves all registers there; SME
    // alone can have more than 64 KiB.
    const long frame = sysconf(_SC_MINSIGSTKSZ);
    const size_t count = HANDLER_STACK + (frame > 0 ? (size_t)frame : 0);
    void *stack = mmap(NULL, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) return;
    const stack_t own = {.ss_sp = stack, .ss_size = count};
    if (sigaltstack(&own, NULL) != 0) return;
    struct sigaction action = {.sa_handler = report_crash, .sa_flags = SA_ONSTACK};
    // Any further fault in the handler ends the process.
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigaction(faults[i], &action, NULL);
}

void crashes_begin(void) { is_decoder = 1; }

int CIsolation_crash_signal(const void *message, size_t count) {
    CrashReport word;
    if (count != sizeof word) return 0;
    memcpy(&word, message, sizeof word);
    return word.mark == LAST_WORD && is_fault(word.signal) ? word.signal : 0;
}

int CIsolation_signal_of_exit(int code) {
    return is_fault(code - SIGNAL_EXIT) ? code - SIGNAL_EXIT : 0;
}
