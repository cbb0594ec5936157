// Processes that can do nothing but compute: how they are started, what they are left with, and how they are spoken to.
// Linux alone. Functions that return int give 0 or more where they succeed, and -errno else.
#ifndef CISOLATION_H
#define CISOLATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/// What holds a decoder process, as it tells with its first message.
typedef struct {
    /// Its system calls are those of the allow-list.
    int32_t has_filter;
    /// Landlock's version in this kernel; 0: it has none, or not for us.
    int32_t landlock;
} CIsolationLayers;

/// The socket and the memory that a service shares with one decoder process.
typedef struct {
    int channel;
    uint8_t *memory;
    size_t count;
    /// 0 until it was met.
    pid_t process;
} CIsolationDecoder;

// Of the service.

/// Starts the process that decoders are forked from: a program of our own, with nothing in its environment but a word for the
/// loader, which it forgets, and no descriptor but its end of `control`, in a session of its own (what is typed at the
/// terminal is not for it).
int CIsolation_spawn(const char *program, const char *argument, int *control, pid_t *process);

/// Has a decoder process forked, with `count` bytes of shared memory, which may allocate `heap` more; waits for nothing.
int CIsolation_fork(int control, size_t count, uint64_t heap, CIsolationDecoder *decoder);

/// Waits until a decoder that was forked is behind its limits.
/// - Returns: what became of that; where it is known which process it is, that is in `decoder`, whatever became of it.
int CIsolation_meet(CIsolationDecoder *decoder, CIsolationLayers *layers);

/// Waits for the end of a process that has closed its socket.
/// - `status`: as waitpid() has it.
int CIsolation_reap(int control, pid_t process, int *status);

/// Kills the process, and doesn't wait for its end.
int CIsolation_kill(int control, pid_t process);

/// Closes this side's channel and memory.
void CIsolation_close(CIsolationDecoder *decoder);

/// Lets the process compute for so many seconds from now on, at least; the kernel ends it after that.
int CIsolation_allow_seconds(pid_t process, unsigned seconds);

/// Nanoseconds of CPU time that the process has used; negative where it isn't there.
int64_t CIsolation_time(pid_t process);

/// Whether the process is running or waits for a core. False if this is not known.
bool CIsolation_is_runnable(pid_t process);

/// Has others go before one that keeps computing: it gets less of a core, or only what nobody else wants, and is waited for a
/// millisecond at a time where it is.
void CIsolation_put_back(const CIsolationDecoder *decoder, bool is_last);

/// How long CIsolation_receive() waits.
int CIsolation_wait_at_most(int channel, int milliseconds);

/// Waits for a message, or just looks for one.
/// - Returns: its bytes; -EAGAIN where none came in time, -EPIPE where the process has gone, -EMSGSIZE for one of more than
///   `room` or of nothing, another -errno where the channel is none.
ssize_t CIsolation_receive(int channel, void *message, size_t room, bool waits);

/// - Returns: the signal by which a decoder says with its last message that it ends; 0: it is another message, or no such
///   signal.
int CIsolation_last_word(const void *message, size_t count);

/// The signal that a decoder ended by, by its exit code; 0: it ended by itself.
int CIsolation_signal_of_exit(int code);

/// Sends a message, whole or not at all; -EAGAIN where the other side has left too many unread.
int CIsolation_send(int channel, const void *message, size_t count);

// Of the process that was started.

/// Forks decoders until the service has gone, and never returns; to be called while there is one thread. In each of them the
/// function is called behind all its limits, and ends it by returning.
_Noreturn void CIsolation_serve(void (*decode)(int channel, uint8_t *memory, size_t count));

#endif
