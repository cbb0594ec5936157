// Starts sandboxed processes that can only compute, limits them, and exchanges messages with them.
//
// Input: the program to start and its limits. Output: a socket and shared memory per decoder process. The
// service calls the first group of functions from any thread. The started process calls `CIsolation_serve` on
// its only thread.
//
// Read the files in this order: messages.h, service.c (the service's side), zygote.c (the process that forks
// decoders), sandbox.c (what a decoder gives up), crashes.c, libraries.c.
//
// Linux only. Functions that return int return 0 or more on success, and -errno on failure.
#ifndef CISOLATION_H
#define CISOLATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/// The sandbox layers that hold a decoder process. The decoder reports them in its first message.
typedef struct {
    /// Whether seccomp limits its system calls to an allow-list.
    int32_t has_filter;
    /// The version of Landlock in this kernel; 0 if it is not available.
    int32_t landlock;
} CIsolationLayers;

/// The socket and the memory that the service shares with one decoder process.
typedef struct {
    int channel;
    uint8_t *memory;
    size_t count;
    /// 0 until CIsolation_wait_until_ready has returned.
    pid_t process;
} CIsolationDecoder;

// Functions for the service.

/// Starts the process that forks decoders. Its environment has only a variable for the loader, which is removed
/// after the start. Its only descriptor is its end of `control`. It gets a session of its own, so that signals
/// from the terminal do not reach it.
int CIsolation_spawn(const char *program, const char *argument, int *control, pid_t *process);

/// Makes it fork a decoder process with `count` bytes of shared memory and at most `heap` bytes of further
/// allocations. Does not wait.
int CIsolation_fork(int control, size_t count, uint64_t heap, CIsolationDecoder *decoder);

/// Waits until a forked decoder has entered its sandbox.
/// - Returns: 0, or -errno. `decoder` has the process ID if it is known, even on failure.
int CIsolation_wait_until_ready(CIsolationDecoder *decoder, CIsolationLayers *layers);

/// Waits for the end of a process that has closed its socket.
/// - Parameter status: as from waitpid().
int CIsolation_reap(int control, pid_t process, int *status);

/// Kills the process without waiting for its end.
int CIsolation_kill(int control, pid_t process);

/// Closes the service's end of the socket and unmaps the memory.
void CIsolation_close(CIsolationDecoder *decoder);

/// Sets the process's limit of CPU time to at least this many seconds from now. After that the kernel ends it.
int CIsolation_allow_seconds(pid_t process, unsigned seconds);

/// The CPU time that the process has used, in nanoseconds. Negative if the process does not exist.
int64_t CIsolation_time(pid_t process);

/// Whether the process is running or waits for a core. False if this is not known.
bool CIsolation_is_runnable(pid_t process);

/// Lowers the priority of a decoder that computes for long. With `is_last`, it gets only CPU time that no other
/// process wants. Calls that wait for it then return after one millisecond.
void CIsolation_lower_priority(const CIsolationDecoder *decoder, bool is_last);

/// Sets how long CIsolation_receive() waits.
int CIsolation_wait_at_most(int channel, int milliseconds);

/// Receives a message. If `waits` is false, returns at once.
/// - Returns: the message's length. -EAGAIN if none arrived in time, -EPIPE if the process has ended, -EMSGSIZE
///   if the message is longer than `room` or empty, or another -errno if the socket failed.
ssize_t CIsolation_receive(int channel, void *message, size_t room, bool waits);

/// - Returns: the signal in a crash report, which is a decoder's last message. 0 if this is another message or
///   no valid signal.
int CIsolation_crash_signal(const void *message, size_t count);

/// The signal that ended a decoder, from its exit code. 0 if it exited normally.
int CIsolation_signal_of_exit(int code);

/// Sends a complete message or nothing. Returns -EAGAIN if the other side has too many unread messages.
int CIsolation_send(int channel, const void *message, size_t count);

// Function for the started process.

/// Forks decoders until the service has ended; never returns. Call it while the process has a single thread. In
/// each decoder, calls `decode` after the sandbox is entered. The decoder exits when `decode` returns.
_Noreturn void CIsolation_serve(void (*decode)(int channel, uint8_t *memory, size_t count));

#endif
