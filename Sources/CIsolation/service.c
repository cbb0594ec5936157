#define _GNU_SOURCE
#include "messages.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/// How long to wait for the process that forks. It has no other work.
#define PATIENCE_MILLISECONDS 10000

int CIsolation_spawn(const char *program, const char *argument, int *control, pid_t *process) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -errno;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    for (int standard = 0; standard < CHANNEL; standard++)
        posix_spawn_file_actions_addopen(&actions, standard, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], CHANNEL);
    posix_spawn_file_actions_addclosefrom_np(&actions, CHANNEL + 1);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    char *const arguments[] = {(char *)"imagefetch", (char *)argument, NULL};
    // libraries_unmap_unused() needs this. The process removes it afterwards.
    char *const environment[] = {(char *)"LD_BIND_NOW=1", NULL};
    int code = posix_spawn(process, program, &actions, &attributes, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(ends[1]);
    if (code != 0) {
        close(ends[0]);
        return -code;
    }
    CIsolation_wait_at_most(ends[0], PATIENCE_MILLISECONDS);
    *control = ends[0];
    return 0;
}

int CIsolation_send(int channel, const void *message, size_t count) {
    for (;;) {
        // Does not block, because a process that reads nothing would block the service forever.
        ssize_t sent = send(channel, message, count, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent == (ssize_t)count) return 0;
        if (sent >= 0) return -EMSGSIZE;
        if (errno != EINTR) return errno == ECONNRESET ? -EPIPE : -errno;
    }
}

int CIsolation_wait_at_most(int channel, int milliseconds) {
    struct timeval time = {milliseconds / 1000, milliseconds % 1000 * 1000};
    return setsockopt(channel, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0 ? 0 : -errno;
}

/// Whether the other side has closed. An empty message looks the same to recv().
static bool has_gone(int channel) {
    struct pollfd end = {.fd = channel};
    return poll(&end, 1, 0) > 0 && (end.revents & POLLHUP);
}

ssize_t CIsolation_receive(int channel, void *message, size_t room, bool waits) {
    const int flags = waits ? MSG_TRUNC : MSG_TRUNC | MSG_DONTWAIT;
    ssize_t count;
    do count = recv(channel, message, room, flags); while (count < 0 && errno == EINTR);
    if (count < 0) return errno == ECONNRESET ? -EPIPE : -errno;
    if (count == 0) return has_gone(channel) ? -EPIPE : -EMSGSIZE;
    return (size_t)count > room ? -EMSGSIZE : count;
}

static int order(int control, const Command *order, void *rights, size_t count) {
    struct iovec content = {(void *)order, sizeof *order};
    struct msghdr message = {
        .msg_iov = &content, .msg_iovlen = 1, .msg_control = rights, .msg_controllen = count};
    if (sendmsg(control, &message, MSG_NOSIGNAL) >= 0) return 0;
    return errno == ECONNRESET ? -EPIPE : -errno;
}

/// Makes memory that no process can shrink. Reading beyond its end would end the reader.
static int make_memory(size_t count, uint8_t **memory) {
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    // Hardened kernels require a flag that the memory is never executed. Kernels before 6.3 refuse that flag.
    int file = memfd_create("imagefetch-decoder", flags | 8 /* MFD_NOEXEC_SEAL */);
    if (file < 0 && errno == EINVAL) file = memfd_create("imagefetch-decoder", flags);
    if (file < 0) return -errno;
    void *mapped = MAP_FAILED;
    if (ftruncate(file, (off_t)count) == 0 &&
        fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        mapped = mmap(NULL, count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        int code = errno;
        close(file);
        return -code;
    }
    *memory = mapped;
    return file;
}

int CIsolation_fork(int control, size_t count, uint64_t heap, CIsolationDecoder *decoder) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -errno;
    uint8_t *memory = NULL;
    int file = make_memory(count, &memory);
    int result = file;
    if (file >= 0) {
        _Alignas(struct cmsghdr) char space[CMSG_SPACE(2 * sizeof(int))] = {0};
        struct cmsghdr *rights = (struct cmsghdr *)space;
        *rights = (struct cmsghdr){CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        int descriptors[2] = {ends[1], file};
        memcpy(CMSG_DATA(rights), descriptors, sizeof descriptors);
        result = order(control, &(Command){.what = FORK, .count = count, .heap = heap}, space, sizeof space);
        close(file);
    }
    close(ends[1]);
    *decoder = (CIsolationDecoder){ends[0], memory, count, 0};
    if (result < 0) CIsolation_close(decoder);
    return result;
}

int CIsolation_wait_until_ready(CIsolationDecoder *decoder, CIsolationLayers *layers) {
    CIsolation_wait_at_most(decoder->channel, PATIENCE_MILLISECONDS);
    for (bool has_layers = false; !has_layers || decoder->process == 0;) {
        Introduction word;
        ssize_t count = CIsolation_receive(decoder->channel, &word, sizeof word, true);
        if (count == -EAGAIN) return -ETIMEDOUT;
        if (count != sizeof word) return count < 0 ? (int)count : -EMSGSIZE;
        if (word.process < 0) return word.process;
        if (word.process > 0) {
            decoder->process = word.process;
        } else {
            *layers = word.layers;
            has_layers = true;
        }
    }
    return CIsolation_wait_at_most(decoder->channel, 10);
}

int CIsolation_reap(int control, pid_t process, int *status) {
    int code = order(control, &(Command){.what = REAP, .process = process}, NULL, 0);
    if (code < 0) return code;
    Answer answer;
    // A late answer would be taken for the next one's.
    if (CIsolation_receive(control, &answer, sizeof answer, true) != sizeof answer) return -EPIPE;
    *status = answer.status;
    return answer.result;
}

int CIsolation_kill(int control, pid_t process) {
    return order(control, &(Command){.what = KILL, .process = process}, NULL, 0);
}

void CIsolation_close(CIsolationDecoder *decoder) {
    close(decoder->channel);
    if (decoder->memory) munmap(decoder->memory, decoder->count);
}

int64_t CIsolation_time(pid_t process) {
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &used) != 0) return -1;
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

bool CIsolation_is_runnable(pid_t process) {
    char text[256];
    snprintf(text, sizeof text, "/proc/%d/stat", process);
    int file = open(text, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t count = read(file, text, sizeof text - 1);
    close(file);
    text[count > 0 ? count : 0] = 0;
    // The process name before the state is in parentheses and may contain parentheses.
    const char *name_end = strrchr(text, ')');
    return name_end && strncmp(name_end, ") R", 3) == 0;
}

int CIsolation_allow_seconds(pid_t process, unsigned seconds) {
    int64_t used = CIsolation_time(process);
    if (used < 0) return -ESRCH;
    // Only the soft limit: a lowered hard limit could not be raised for the next image.
    struct rlimit limit;
    if (prlimit(process, RLIMIT_CPU, NULL, &limit) != 0) return -errno;
    limit.rlim_cur = (rlim_t)(used / 1000000000) + 1 + seconds;
    if (limit.rlim_cur > limit.rlim_max) limit.rlim_cur = limit.rlim_max;
    return prlimit(process, RLIMIT_CPU, &limit, NULL) == 0 ? 0 : -errno;
}

void CIsolation_lower_priority(const CIsolationDecoder *decoder, bool is_last) {
    int niceness = is_last ? 19 : getpriority(PRIO_PROCESS, decoder->process) + 5;
    setpriority(PRIO_PROCESS, decoder->process, niceness);
    CIsolation_wait_at_most(decoder->channel, 1);
}
