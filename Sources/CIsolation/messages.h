// What the service and the process that forks say to each other.
#ifndef MESSAGES_H
#define MESSAGES_H

#include "CIsolation.h"

// GCC has it since version 14.
#ifndef __has_feature
#define __has_feature(feature) 0
#endif

/// Where a process finds its socket.
#define CHANNEL 3

enum { FORK = 1, REAP, KILL };

typedef struct {
    int32_t what;
    /// Of `REAP`, which alone is answered here, and of `KILL`.
    int32_t process;
    /// Of `FORK`, whose message carries a socket and the memory.
    uint64_t count, heap;
} Order;

typedef struct {
    /// 0 or -errno.
    int32_t result;
    int32_t status;
} Answer;

/// What comes first on a decoder's socket, twice, whichever is the first: from the process that forked it, which one it is,
/// and from itself, what holds it.
typedef struct {
    /// Or -errno; 0: it is its own word.
    int32_t process;
    CIsolationLayers layers;
} Introduction;

/// What a decoder that crashes says before it ends: that the kernel takes its memory back takes longer than a small picture,
/// and its socket is closed after that. Shorter than any other message.
typedef struct {
    uint32_t mark;
    int32_t signal;
} LastWord;

#define LAST_WORD 0x4C415354u

/// Has a process that crashes tell of it; to be called before decoders are forked, and `crashes_begin` in each.
void crashes_prepare(void);

/// From here on a crash is the decoder's.
void crashes_begin(void);

/// Bytes of address space in use; to be asked before files are denied.
uint64_t sandbox_address_space(void);

/// Keeps libraries that no decoder calls from being forked into any; to be called when all symbols are bound.
/// - Returns: bytes of address space that decoders don't have.
uint64_t libraries_leave_out(void);

/// Compiles the filter of system calls, once for all that are forked.
void sandbox_prepare(void);

/// Gives up all that isn't needed to compute. What the kernel or the container doesn't let us give up is told.
/// - Returns: -errno where not even the limits could be set.
int sandbox_enter(uint64_t addresses, CIsolationLayers *layers);

/// Denies all files and sockets from here on, in what is forked too.
/// - Returns: Landlock's version; 0: not to be had.
int sandbox_landlock(void);

#endif
