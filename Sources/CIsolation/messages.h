// The messages between the service, the process that forks decoders, and the decoders.
#ifndef MESSAGES_H
#define MESSAGES_H

#include "CIsolation.h"

// GCC supports it since version 14.
#ifndef __has_feature
#define __has_feature(feature) 0
#endif

/// The descriptor of a process's socket.
#define CHANNEL 3

enum { FORK = 1, REAP, KILL };

typedef struct {
    int32_t what;
    /// Used by `REAP` and `KILL`. Only `REAP` is answered on this socket.
    int32_t process;
    /// Used by `FORK`. Its message also carries a socket and the memory.
    uint64_t count, heap;
} Command;

typedef struct {
    /// 0 or -errno.
    int32_t result;
    int32_t status;
} Answer;

/// The first two messages on a decoder's socket, in either order. The process that forked it sends its process
/// ID; the decoder sends its sandbox layers.
typedef struct {
    /// The process ID, or -errno if fork failed. 0 in the message of the decoder itself.
    int32_t process;
    CIsolationLayers layers;
} Introduction;

/// The crash report of a decoder. It is sent because the kernel closes the socket only after it has freed the
/// memory, which takes longer than decoding a small image. It is shorter than all other messages.
typedef struct {
    uint32_t mark;
    int32_t signal;
} CrashReport;

#define LAST_WORD 0x4C415354u

/// Installs the crash handler. Call it before decoders are forked; each decoder calls `crashes_begin`.
void crashes_prepare(void);

/// Makes the handler report crashes from now on, as this process is a decoder.
void crashes_begin(void);

/// The address space in use, in bytes. Call it before file access is denied.
uint64_t sandbox_address_space(void);

/// Unmaps libraries that decoders never call. Call it after all symbols are bound.
/// - Returns: by how many bytes the address space of decoders becomes smaller.
uint64_t libraries_unmap_unused(void);

/// Compiles the filter of system calls once for all decoders.
void sandbox_prepare(void);

/// Gives up all rights that computing does not need. Layers that the kernel or the container does not support
/// are reported in `layers`.
/// - Returns: -errno if not even the limits could be set.
int sandbox_enter(uint64_t addresses, CIsolationLayers *layers);

/// Denies access to files and sockets from now on, also in forked processes.
/// - Returns: the version of Landlock; 0 if it is not available.
int sandbox_landlock(void);

#endif
