// Simulates a compromised decoder. It runs in the same sandbox as the real one, does what the "image" requests,
// and reports whether it succeeded.
#define _GNU_SOURCE
#include "CIsolation.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int channel;
static uint8_t *memory;
static int answers;

static void *idle(void *nothing) { return nothing; }

static long read_others(pid_t other) {
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)&channel, 1};
    return syscall(SYS_process_vm_readv, other, &here, 1, &there, 1, 0);
}

static long send_descriptor(void) {
    struct iovec content = {"x", 1};
    char space[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr message = {
        .msg_iov = &content, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    *rights = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    return sendmsg(channel, &message, 0);
}

static long allocate(size_t bytes) {
    uint8_t *room = malloc(bytes);
    if (!room) return -1;
    for (size_t i = 0; i < bytes; i += 4096) room[i] = 1;
    return 1;
}

static long raise_limit(void) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    return setrlimit(RLIMIT_AS, &limit);
}

static long execute_memory(size_t size, int prot) {
    return mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0;
}

/// Reports how many milliseconds of CPU time a step may take, as a real decoder does.
static void allow(uint32_t milliseconds) { memcpy(memory + (2 << 20), &milliseconds, sizeof milliseconds); }

/// - Returns: -1, like a denied attempt, because it ends.
static long compute(int milliseconds) {
    const clock_t end = clock() + (clock_t)milliseconds * (CLOCKS_PER_SEC / 1000);
    while (clock() < end) {}
    return -1;
}

static int deepen(int depth) {
    volatile uint8_t some[4096];
    some[depth % (int)sizeof some] = 1;
    return depth == INT32_MAX ? 0 : deepen(depth + 1) + some[0];
}

/// Sends a crash report, as `CIsolation_crash_signal` reads it.
static void say_last_word(int32_t number) {
    const int32_t word[] = {0x4C415354, number};
    CIsolation_send(channel, word, sizeof word);
}

/// Searches the memory for bytes of earlier images.
static long find_remains(void) {
    for (size_t i = 64; i < (size_t)2 << 20; i++)
        if (memory[i] == 0xA5) return 0;
    return -1;
}

/// - Returns: 0 or more if the attempt succeeded.
static long attempt(const char *what) {
    pthread_t thread;
    char *const arguments[] = {"/bin/true", NULL};
    struct sched_param param = {0};
    union bpf_attr program = {0};
#define IS(word) (strcmp(what, word) == 0)
    if (IS("open")) return open("/etc/passwd", O_RDONLY);
    if (IS("environ")) return open("/proc/self/environ", O_RDONLY);
    if (IS("init")) return open("/proc/1/cmdline", O_RDONLY);
    if (IS("parent memory")) return open("/proc/self/mem", O_RDWR);
    if (IS("create")) return open("/tmp/imagefetch-hostile", O_CREAT | O_WRONLY, 0600);
    if (IS("unlink")) return unlink("/tmp/imagefetch-hostile");
    if (IS("stat")) return syscall(SYS_newfstatat, AT_FDCWD, "/", memory, 0);
    if (IS("directory")) return chdir("/");
    if (IS("read")) return read(0, memory, 1);
    if (IS("write")) return write(2, "x", 1);
    if (IS("write channel")) return write(channel, "x", 1);
    if (IS("inet")) return socket(AF_INET, SOCK_STREAM, 0);
    if (IS("unix")) return socket(AF_UNIX, SOCK_STREAM, 0);
    if (IS("netlink")) return socket(AF_NETLINK, SOCK_RAW, 0);
    if (IS("connect")) return connect(channel, (struct sockaddr *)memory, 16);
    if (IS("descriptor")) return send_descriptor();
    if (IS("duplicate")) return dup(channel);
    if (IS("memfd")) return memfd_create("x", 0);
    if (IS("shared memory")) return shmget(IPC_PRIVATE, 4096, 0600);
    if (IS("exec")) return execv("/bin/true", arguments);
    if (IS("fork")) return fork();
    if (IS("fork bomb")) for (int i = 0; i < 100; i++) fork();
    if (IS("thread")) return pthread_create(&thread, NULL, idle, NULL) == 0 ? 0 : -1;
    if (IS("kill parent")) return kill(getppid(), 0);
    if (IS("kill all")) return kill(-1, 0);
    if (IS("stop")) return syscall(SYS_tgkill, getpid(), getpid(), SIGSTOP);
    if (IS("kill thread")) return syscall(SYS_tgkill, 1, 1, 0);
    if (IS("ptrace")) return ptrace(PTRACE_ATTACH, 1, NULL, NULL);
    if (IS("read others")) return read_others(1);
    if (IS("pidfd")) return syscall(SYS_pidfd_open, 1, 0);
    if (IS("raise limit")) return raise_limit();
    if (IS("lower nice")) return setpriority(PRIO_PROCESS, 0, -5);
    if (IS("real time")) return sched_setscheduler(0, SCHED_FIFO, &param);
    if (IS("prctl")) return prctl(PR_SET_DUMPABLE, 1);
    if (IS("unshare")) return unshare(CLONE_NEWUSER);
    if (IS("mount")) return mount("none", "/tmp", "tmpfs", 0, NULL);
    if (IS("setuid")) return setuid(0);
    if (IS("bpf")) return syscall(SYS_bpf, BPF_PROG_LOAD, &program, sizeof program);
    if (IS("io_uring")) return syscall(SYS_io_uring_setup, 1, memory);
    if (IS("keyring")) return syscall(SYS_add_key, "user", "x", "x", 1, -3);
    if (IS("perf")) return syscall(SYS_perf_event_open, memory, 0, -1, -1, 0);
    if (IS("userfault")) return syscall(SYS_userfaultfd, 0);
    if (IS("sleep")) return usleep(1);
    if (IS("handler")) return signal(SIGXCPU, SIG_IGN) == SIG_ERR ? -1 : 0;
    if (IS("executable memory")) return execute_memory(4096, PROT_READ | PROT_EXEC);
    if (IS("executable stack")) return mprotect((void *)((uintptr_t)&what & ~4095UL), 4096, PROT_READ | PROT_EXEC);
    if (IS("map channel")) return mmap(NULL, 4096, PROT_READ, MAP_SHARED, channel, 0) == MAP_FAILED ? -1 : 0;
    if (IS("allocate")) return allocate((size_t)8 << 30);
    if (IS("allocate address space")) return execute_memory((size_t)1 << 40, PROT_NONE);
    if (IS("crash")) *(volatile int *)16 = 1;
    if (IS("no more stack")) return deepen(0);
    if (IS("abort")) abort();
    if (IS("exit")) _exit(0);
    if (IS("lie: a last word of no fault")) say_last_word(SIGKILL);
    if (IS("a last word, and on")) {
        say_last_word(SIGSEGV);
        for (volatile int i = 0;; i++) {}
    }
    if (IS("lie: a long step")) allow(UINT32_MAX);
    if (IS("compute") || IS("lie: a long step")) for (volatile int i = 0;; i++) {}
    if (IS("a loop after others") && answers > 0) for (volatile int i = 0;; i++) {}
    if (IS("a loop after others")) return -1;
    if (IS("a reported long step")) allow(60000);
    if (IS("a long step") || IS("a reported long step")) return compute(1000);
    if (IS("find remains")) return find_remains();
    if (IS("say nothing")) for (;;) recv(channel, memory, 1, 0);
    return -2;
}

// A reply in the format of DecoderReply: header, outcome, more to show, preview, files, whether they are in the
// memory.
typedef struct {
    uint8_t bytes[65536];
    size_t count;
} Reply;

static void add(Reply *reply, int count, const uint8_t *bytes) {
    memcpy(reply->bytes + reply->count, bytes, count);
    reply->count += count;
}

static void add_byte(Reply *reply, uint8_t byte) { add(reply, 1, &byte); }

static void add_number(Reply *reply, int64_t number) { add(reply, 8, (uint8_t *)&number); }

static void add_header(Reply *reply, uint8_t format, int64_t width, int64_t height, int64_t bytes) {
    add_byte(reply, 1);
    add_byte(reply, format);
    add_number(reply, width);
    add_number(reply, height);
    add_number(reply, bytes);
}

static void add_decoded(Reply *reply, uint8_t format, int64_t width, int64_t height, int64_t orientation) {
    add_byte(reply, 2);
    add_byte(reply, format);
    const int64_t numbers[] = {width, height, orientation, 1};
    for (int i = 0; i < 4; i++) add_number(reply, numbers[i]);
    for (int i = 0; i < 4; i++) add_byte(reply, 0);
}

/// Adds files with this length to a reply.
static void add_files(Reply *reply, int count, int64_t length, uint8_t placed) {
    add_byte(reply, 0);
    add_byte(reply, 0);
    add_number(reply, count);
    for (int i = 0; i < count && i < 64; i++) {
        add_byte(reply, 0);
        add_number(reply, length);
    }
    add_byte(reply, placed);
}

/// Adds a preview of `count` bytes. The first reply has the header instead.
static void add_preview(Reply *reply, int64_t count) {
    if (answers == 0) {
        add_header(reply, 0, 10, 10, 1 << 20);
        add_byte(reply, 0);
        add_byte(reply, 1);
        add_byte(reply, 0);
    } else {
        add_byte(reply, 0);
        add_byte(reply, 1);
        add_byte(reply, 1);
        add_byte(reply, 1);
        add_byte(reply, 0);
        add_number(reply, 1);
        add_number(reply, count);
    }
    add_number(reply, 0);
    add_byte(reply, 0);
}

/// - Returns: false if `what` is no known protocol violation.
static bool lie(const char *what, Reply *reply) {
    if (IS("lie: garbage")) memset(reply->bytes + 8, 0xEE, 40), reply->count = 48;
    else if (IS("lie: too long")) reply->count = sizeof reply->bytes;
    else if (IS("lie: short")) reply->count = 9;
    else if (IS("lie: nothing")) reply->count = 0;
    else if (IS("lie: another's answer")) reply->bytes[0]++, add_files(reply, 0, 0, 0);
    else if (IS("lie: header again")) {
        add_header(reply, 0, 10, 10, 1);
        add_byte(reply, 1);
        add_files(reply, 0, 0, 0);
    } else if (IS("lie: memory")) {
        add_header(reply, 0, 10, 10, INT64_MAX);
        add_byte(reply, 1);
        add_files(reply, 0, 0, 0);
    } else if (IS("lie: preview")) {
        add_preview(reply, 20);
    } else if (IS("lie: long preview")) {
        add_preview(reply, 2 << 20);
    } else if (IS("lie: unrequested preview")) {
        answers = 1;
        add_preview(reply, 20);
    } else if (IS("lie: more to show")) {
        add_byte(reply, 0);
        add_byte(reply, 0);
        add_byte(reply, 1);
        add_byte(reply, 0);
        add_number(reply, 0);
        add_byte(reply, 0);
    } else if (IS("lie: more to compute")) {
        add_byte(reply, 0);
        add_byte(reply, 1);
        add_files(reply, 0, 0, 0);
    }
    else if (IS("lie: huge")) {
        add_header(reply, 0, 2000000000, 2000000000, 1);
        add_decoded(reply, 0, 2000000000, 2000000000, 1);
        add_files(reply, 0, 0, 1);
    } else if (IS("lie: another size")) {
        add_header(reply, 0, 10, 10, 1);
        add_decoded(reply, 0, 20, 20, 1);
        add_files(reply, 0, 0, 1);
    } else if (IS("lie: no header")) {
        add_byte(reply, 0);
        add_decoded(reply, 0, 10, 10, 1);
        add_files(reply, 0, 0, 1);
    } else if (IS("lie: orientation")) {
        add_header(reply, 0, 10, 10, 1);
        add_decoded(reply, 0, 10, 10, 9);
        add_files(reply, 0, 0, 1);
    } else if (IS("lie: format")) {
        add_header(reply, 77, 10, 10, 1);
        add_decoded(reply, 77, 10, 10, 1);
        add_files(reply, 0, 0, 1);
    } else if (IS("lie: forbidden format")) {
        add_header(reply, 1, 10, 10, 1);
        add_decoded(reply, 1, 10, 10, 1);
        add_files(reply, 0, 0, 1);
    } else if (IS("lie: files")) {
        add_header(reply, 0, 10, 10, 1);
        add_decoded(reply, 0, 10, 10, 1);
        add_files(reply, 3, 10, 1);
    } else if (IS("lie: early files")) {
        add_header(reply, 0, 10, 10, 1 << 20);
        add_byte(reply, 1);
        add_files(reply, 1, 10, 0);
    } else if (IS("lie: endless list")) {
        add_header(reply, 0, 10, 10, 1);
        add_decoded(reply, 0, 10, 10, 1);
        add_files(reply, 2147483647, 10, 1);
    } else if (IS("lie: rendered")) {
        add_byte(reply, 0);
        add_byte(reply, 3);
        add_files(reply, 0, 0, 1);
    } else if (strncmp(what, "lie: variant", 12) == 0) {
        // One variant was requested. Its file is too long, has a negative length, an unknown format, or never
        // arrives.
        int64_t length = IS("lie: variant long") ? 1LL << 40 : IS("lie: variant negative") ? -5
            : IS("lie: variant beyond") ? (1 << 20) + 1 : IS("lie: variant brands") ? 400 : 20;
        add_header(reply, 0, 10, 10, 1);
        add_decoded(reply, 0, 10, 10, 1);
        add_files(reply, 1, length, !IS("lie: variant taken"));
        memset(memory + (1 << 20), 'x', 20);
        // A box as long as the file, with the brand at its end.
        if (IS("lie: variant brands")) {
            memset(memory + (1 << 20), 0, 400);
            memcpy(memory + (1 << 20), "\0\0\x01\x90" "ftypmif1", 12);
            memcpy(memory + (1 << 20) + 300, "avif", 4);
        }
    } else if (IS("a variant")) {
        add_header(reply, 0, 10, 10, 1);
        add_decoded(reply, 0, 10, 10, 1);
        add_files(reply, 1, 100000, 1);
        memset(memory + (1 << 20), 0xA5, 100000);
        memcpy(memory + (1 << 20), "\xff\xd8\xff\xe0", 4);
    } else {
        return false;
    }
    return true;
}

/// Adds a failure with this detail.
static void add_broken(Reply *reply, const char *detail) {
    add_byte(reply, 0);
    add_byte(reply, 4);
    char error[256];
    const int count = snprintf(error, sizeof error, "{\"broken\":{\"format\":\"jpeg\",\"detail\":\"%s\"}}", detail);
    add_number(reply, count);
    add(reply, count, (const uint8_t *)error);
    add_files(reply, 0, 0, 0);
}

static void add_wish_for_bytes(Reply *reply) {
    add_byte(reply, 0);
    add_files(reply, 0, 0, 0);
}

/// Sends replies endlessly and reads no requests.
static void flood(Reply *reply) {
    const size_t start = reply->count;
    for (int64_t number;; memcpy(&number, reply->bytes, 8), number++, memcpy(reply->bytes, &number, 8)) {
        reply->count = start;
        add_byte(reply, 0);
        add_wish_for_bytes(reply);
        while (CIsolation_send(channel, reply->bytes, reply->count) == -EAGAIN) {}
    }
}

/// The plan for the following images: a crash at once, a crash after some of their pieces, or a false header
/// and then a crash.
static enum { NONE, CRASH, LATE_CRASH, HEADER } plant;
static int planted_at;

static void strike(Reply *reply) {
    int strikes = answers - planted_at - 1;
    if (plant == CRASH || strikes == (plant == HEADER ? 1 : 5)) abort();
    if (plant == HEADER) add_header(reply, 0, 20, 20, 1);
    else add_byte(reply, 0);
    add_wish_for_bytes(reply);
}

/// - Returns: whether `what` sets a plan for the following images.
static bool is_plant(const char *what) {
    plant = IS("plant") ? CRASH : IS("plant a late crash") ? LATE_CRASH : IS("plant a header") ? HEADER : NONE;
    planted_at = answers;
    return plant != NONE;
}

/// Reports the process ID.
static void add_self(Reply *reply) {
    char own[16];
    snprintf(own, sizeof own, "%d", getpid());
    add_broken(reply, own);
}

static void spin(Reply *reply) {
    add_self(reply);
    CIsolation_send(channel, reply->bytes, reply->count);
    for (volatile int i = 0;; i++) {}
}

static void decode(int socket, uint8_t *shared, size_t count) {
    (void)count;
    channel = socket;
    memory = shared;
    static uint8_t message[16 << 10];
    while (recv(channel, message, sizeof message, 0) > 0) {
        char what[64];
        memcpy(what, memory, sizeof what - 1);
        what[sizeof what - 1] = 0;
        static Reply reply;
        // The request's number, then its type.
        memcpy(reply.bytes, message, reply.count = 8);
        if (message[8] == 2) continue;
        if (message[8] == 1) {
            if (!IS("lie: preview")) continue;
            add_number(&reply, 20);
        } else if (plant != NONE) {
            strike(&reply);
        } else if (IS("flood")) {
            flood(&reply);
        } else if (IS("spin once it is idle")) {
            spin(&reply);
        } else if (IS("who")) {
            add_self(&reply);
        } else if (is_plant(what)) {
            add_broken(&reply, "planted");
        } else if (IS("a header")) {
            add_header(&reply, 0, 10, 10, 1);
            add_wish_for_bytes(&reply);
        } else if (IS("steps")) {
            compute(50);
            add_byte(&reply, 0);
            add_byte(&reply, 1);
            add_files(&reply, 0, 0, 0);
        } else if (IS("two answers")) {
            add_broken(&reply, "two answers");
            CIsolation_send(channel, reply.bytes, reply.count);
        } else if (IS("text")) {
            add_broken(&reply, "a\n\x1b[31mb\xff");
        } else if (!lie(what, &reply)) {
            long got = attempt(what);
            add_broken(&reply, got == -2 ? "unknown" : got < 0 ? "denied" : "got it");
        }
        CIsolation_send(channel, reply.bytes, reply.count);
        answers++;
    }
}

int main(void) { CIsolation_serve(decode); }
