// Runs a program and reports which of its functions are entered, each once and in the order of the first entry.
//
// usage: FunctionTrace ARGUMENT…
//
// The environment names the program (TRACED_PROGRAM), a file with the addresses of its functions (TRACED_FUNCTIONS, one
// hexadecimal number a line, as nm prints them) and the file to write (TRACED_ENTRIES). On SIGUSR1 a breakpoint is set at
// each function, in the program and in every process that it has forked. The first entry of a function removes its
// breakpoint, so that the program runs at almost full speed. On SIGUSR2 all breakpoints are removed. SIGTERM is passed on.
//
// Everything runs in one thread. Needs CAP_SYS_PTRACE, because the decoder processes are not dumpable.
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
static const uint8_t breakpoint[] = {0xCC};  // int3
#define PROGRAM_COUNTER(registers) ((registers).rip)
#define PASSED 1  // The program counter is behind the breakpoint.
#elif defined(__aarch64__)
static const uint8_t breakpoint[] = {0x00, 0x00, 0x20, 0xD4};  // brk #0
#define PROGRAM_COUNTER(registers) ((registers).pc)
#define PASSED 0
#endif

/// The functions' addresses in the executable, ascending.
static uint64_t *functions;
static size_t function_count;
static bool *is_entered;

/// The executable's code from the first function to the last, without and with breakpoints. Null until it was first read.
static uint8_t *code, *trapped;
static size_t code_size;

/// The traced processes, without their threads.
static pid_t processes[256];
static size_t process_count;

static char program[PATH_MAX];
static FILE *entries;

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "FunctionTrace: %s: %s\n", what, strerror(errno));
    exit(125);
}

static int compare(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static void read_functions(const char *path) {
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) fail("TRACED_FUNCTIONS");
    size_t capacity = 0;
    for (uint64_t address; fscanf(file, "%lx", &address) == 1;) {
        if (function_count == capacity) {
            capacity = capacity ? capacity * 2 : 1 << 16;
            functions = realloc(functions, capacity * sizeof *functions);
            if (!functions) fail("memory");
        }
        functions[function_count++] = address;
    }
    fclose(file);
    if (function_count == 0) fail("no functions");
    qsort(functions, function_count, sizeof *functions, compare);
    is_entered = calloc(function_count, sizeof *is_entered);
    code_size = functions[function_count - 1] - functions[0] + sizeof breakpoint;
}

/// - Returns: The address of the executable in the process. 0 if the process runs another program, or has ended.
static uint64_t base_address(pid_t process) {
    char path[64], line[PATH_MAX + 128];
    snprintf(path, sizeof path, "/proc/%d/maps", process);
    FILE *maps = fopen(path, "r");
    if (!maps) return 0;
    uint64_t base = 0;
    while (!base && fgets(line, sizeof line, maps))
        if (strstr(line, program)) base = strtoull(line, NULL, 16);
    fclose(maps);
    return base;
}

static int open_memory(pid_t process) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", process);
    return open(path, O_RDWR | O_CLOEXEC);
}

/// Sets or removes all breakpoints of a process.
static void write_code(pid_t process, bool isTrapped) {
    uint64_t base = base_address(process);
    int memory = base ? open_memory(process) : -1;
    if (memory < 0) return;
    off_t start = (off_t)(base + functions[0]);
    if (!code) {
        code = malloc(code_size), trapped = malloc(code_size);
        if (!code || !trapped || pread(memory, code, code_size, start) != (ssize_t)code_size) fail("code");
        memcpy(trapped, code, code_size);
        for (size_t i = 0; i < function_count; i++)
            memcpy(trapped + (functions[i] - functions[0]), breakpoint, sizeof breakpoint);
    }
    if (pwrite(memory, isTrapped ? trapped : code, code_size, start) != (ssize_t)code_size) fail("breakpoints");
    close(memory);
}

/// Removes the breakpoint that a thread has reached, and moves the thread back to it.
///
/// - Returns: false if the thread has stopped for another reason.
static bool enter(pid_t thread) {
    struct user_regs_struct registers;
    struct iovec vector = {&registers, sizeof registers};
    uint64_t base = base_address(thread);
    if (!code || !base || ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &vector) != 0) return false;
    uint64_t address = PROGRAM_COUNTER(registers) - PASSED - base;
    uint64_t *found = bsearch(&address, functions, function_count, sizeof *functions, compare);
    if (!found) return false;
    int memory = open_memory(thread);
    if (memory < 0
        || pwrite(memory, code + (address - functions[0]), sizeof breakpoint, (off_t)(base + address))
            != sizeof breakpoint) fail("breakpoint");
    close(memory);
    PROGRAM_COUNTER(registers) = base + address;
    if (ptrace(PTRACE_SETREGSET, thread, NT_PRSTATUS, &vector) != 0) fail("registers");
    if (!is_entered[found - functions]) {
        is_entered[found - functions] = true;
        fprintf(entries, "%lx\n", address);
    }
    return true;
}

/// Continues a stopped thread, and passes on its signal.
static void resume(pid_t thread, int status) {
    int event = status >> 16, number = WSTOPSIG(status);
    unsigned long child;
    if ((event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK)
        && ptrace(PTRACE_GETEVENTMSG, thread, 0, &child) == 0
        && process_count < sizeof processes / sizeof *processes)
        processes[process_count++] = (pid_t)child;
    // A new thread or process begins with SIGSTOP, or with an event if it was seized.
    bool isOwn = event != 0 || (number == SIGTRAP && enter(thread));
    ptrace(PTRACE_CONT, thread, 0, isOwn ? 0 : number);
}

int main(int count, char **arguments) {
    (void)count;
    const char *path = getenv("TRACED_PROGRAM"), *result = getenv("TRACED_ENTRIES");
    if (!path || !realpath(path, program)) fail("TRACED_PROGRAM");
    read_functions(getenv("TRACED_FUNCTIONS"));
    entries = result ? fopen(result, "we") : NULL;
    if (!entries) fail("TRACED_ENTRIES");
    setlinebuf(entries);

    sigset_t signals, before;
    sigemptyset(&signals);
    for (size_t i = 0; i < 4; i++) sigaddset(&signals, (int[]){SIGCHLD, SIGUSR1, SIGUSR2, SIGTERM}[i]);
    sigprocmask(SIG_BLOCK, &signals, &before);
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) fail("pipe");
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigprocmask(SIG_SETMASK, &before, NULL);
        // Waits until it is traced.
        char none;
        close(ready[1]);
        if (read(ready[0], &none, 1) != 0) _exit(125);
        arguments[0] = program;
        execv(program, arguments);
        _exit(126);
    }
    long options = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (child < 0 || ptrace(PTRACE_SEIZE, child, 0, options) != 0) fail("ptrace");
    close(ready[0]), close(ready[1]);
    processes[process_count++] = child;

    while (true) {
        int number = sigwaitinfo(&signals, NULL);
        if (number == SIGTERM) kill(child, SIGTERM);
        if (number == SIGUSR1 || number == SIGUSR2) {
            // Each start counts every function again.
            if (number == SIGUSR1) {
                memset(is_entered, 0, function_count * sizeof *is_entered);
                fputs("start\n", entries);
            }
            for (size_t i = 0; i < process_count; i++) write_code(processes[i], number == SIGUSR1);
            fputs(number == SIGUSR1 ? "set\n" : "removed\n", entries);
        }
        int status;
        for (pid_t thread; (thread = waitpid(-1, &status, __WALL | WNOHANG)) > 0;) {
            if (WIFSTOPPED(status)) {
                resume(thread, status);
                continue;
            }
            if (thread == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            // Another process may get its number.
            for (size_t i = 0; i < process_count; i++)
                if (processes[i] == thread) processes[i] = processes[--process_count];
        }
    }
}
