// The process that forks decoders. It never reads or stores any client's bytes.
#define _GNU_SOURCE
#include "messages.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef void Decode(int channel, uint8_t *memory, size_t count);

/// - Returns: false if the service has ended.
static bool receive_order(Command *order, int descriptors[2]) {
    struct iovec content = {order, sizeof *order};
    _Alignas(struct cmsghdr) char space[CMSG_SPACE(2 * sizeof(int))];
    struct msghdr message = {
        .msg_iov = &content, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    ssize_t count;
    do count = recvmsg(CHANNEL, &message, MSG_CMSG_CLOEXEC); while (count < 0 && errno == EINTR);
    if (count != sizeof *order) return false;
    descriptors[0] = descriptors[1] = -1;
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    if (rights && rights->cmsg_type == SCM_RIGHTS && rights->cmsg_len == CMSG_LEN(2 * sizeof(int)))
        memcpy(descriptors, CMSG_DATA(rights), 2 * sizeof(int));
    return true;
}

/// Runs a decoder, from the fork to its exit.
_Noreturn static void run_decoder(
    const Command *order, const int descriptors[2], pid_t parent, CIsolationLayers layers, uint64_t space,
    Decode *decode) {
    uint8_t *memory =
        mmap(NULL, order->count, PROT_READ | PROT_WRITE, MAP_SHARED, descriptors[1], 0);
    if (memory == MAP_FAILED || dup2(descriptors[0], CHANNEL) < 0) _exit(1);
    close_range(0, CHANNEL - 1, 0);
    close_range(CHANNEL + 1, ~0U, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    crashes_begin();
    if (sandbox_enter(space + order->count + order->heap, &layers) != 0) _exit(1);
    Introduction own = {.layers = layers};
    if (send(CHANNEL, &own, sizeof own, MSG_NOSIGNAL) != sizeof own) _exit(1);
    decode(CHANNEL, memory, order->count);
    _exit(0);
}

/// Killed decoders whose memory the kernel is still freeing. They are reaped later, so that nothing waits for
/// them.
static pid_t killed[64];
static size_t killed_count;

static void reap_killed(void) {
    for (size_t i = killed_count; i-- > 0;)
        if (waitpid(killed[i], NULL, WNOHANG) != 0) killed[i] = killed[--killed_count];
}

/// Kills a decoder if it is still our child. The ID of a reaped process may belong to another process by now.
static void kill_decoder(pid_t process) {
    if (waitpid(process, NULL, WNOHANG) != 0) return;
    kill(process, SIGKILL);
    if (killed_count == sizeof killed / sizeof *killed)
        waitpid(killed[--killed_count], NULL, 0);
    killed[killed_count++] = process;
}

/// Reaps a decoder whose socket the kernel has closed. Only its exit status is missing.
static Answer reap(pid_t process) {
    Answer answer = {0, 0};
    pid_t ended = waitpid(process, &answer.status, WNOHANG);
    if (ended == 0) {
        kill(process, SIGKILL);
        ended = waitpid(process, &answer.status, 0);
    }
    if (ended < 0) answer.result = -errno;
    return answer;
}

/// Makes the kernel end decoders before the service if memory runs out.
static void prefer_to_be_killed(void) {
    int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (file < 0) return;
    if (write(file, "500", 3) != 3) errno = 0;
    close(file);
}

static int compare(const void *one, const void *other) { return memcmp(one, other, 1); }

/// Removes the variable that was meant for the loader.
static void forget_environment(void) {
    for (char **word = environ; *word; word++) memset(*word, 0, strlen(*word));
    clearenv();
}

static void prepare(void) {
    // Removes the runtime's crash handlers. The service reports crashes.
    for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
    // A service manager may signal all processes of a service. These processes must live until the service has
    // drained.
    const int ignored[] = {SIGHUP, SIGINT, SIGTERM, SIGPIPE};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
    crashes_prepare();
    prefer_to_be_killed();
    // The same priority as the service's decoding threads, so that responses and transfers take precedence over
    // decoding.
    if (getpriority(PRIO_PROCESS, 0) < 5) setpriority(PRIO_PROCESS, 0, 5);
    // Reading color profiles needs the date, which opens the time zone's file. Done here once, because decoders
    // cannot open files.
    tzset();
    // libwebp's encoder sorts more than 1 KiB, and qsort() then reads the machine's memory size. Done here
    // once, not in a decoder.
    static uint8_t many[2048];
    qsort(many, sizeof many, 1, compare);
    sandbox_prepare();
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

_Noreturn void CIsolation_serve(Decode *decode) {
    prepare();
    uint64_t space = sandbox_address_space() - libraries_unmap_unused();
    forget_environment();
    CIsolationLayers layers = {.landlock = sandbox_landlock()};
    pid_t self = getpid();
    Command order;
    int descriptors[2];
    while (receive_order(&order, descriptors)) {
        reap_killed();
        if (order.what == KILL) {
            kill_decoder(order.process);
            continue;
        }
        if (order.what == REAP) {
            Answer answer = reap(order.process);
            if (send(CHANNEL, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer) break;
        } else if (order.what == FORK && descriptors[1] >= 0) {
            // fork() would call handlers in libraries that are no longer mapped.
            pid_t child = _Fork();
            if (child == 0) run_decoder(&order, descriptors, self, layers, space, decode);
            Introduction of_child = {.process = child < 0 ? -errno : child};
            // If the service has closed the socket, it cannot end this decoder. So it is ended here.
            bool is_told = send(descriptors[0], &of_child, sizeof of_child, MSG_NOSIGNAL) == sizeof of_child;
            if (!is_told && child > 0) kill_decoder(child);
        }
        for (int i = 0; i < 2; i++)
            if (descriptors[i] >= 0) close(descriptors[i]);
    }
    _exit(0);
}
