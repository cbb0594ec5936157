// A file that grows in memory, up to a limit.
#ifndef OUTPUT_H
#define OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct {
    uint8_t *bytes;
    size_t count, room, limit;
} Output;

/// Makes room for at least `more` bytes after `count`. Returns false if that exceeds the limit or if
/// out of memory.
static inline bool output_reserve(Output *output, size_t more) {
    if (more > output->limit - output->count) return false;
    size_t needed = output->count + more;
    if (needed <= output->room) return true;
    size_t room = output->room + output->room / 2;
    if (room < needed) room = needed;
    if (room > output->limit) room = output->limit;
    uint8_t *bytes = realloc(output->bytes, room);
    if (!bytes) return false;
    output->bytes = bytes;
    output->room = room;
    return true;
}

#endif
