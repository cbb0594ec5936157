// Collects the bytes of a file that is read only once all of them are present.
#ifndef GATHERED_H
#define GATHERED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/// Appends bytes. The memory grows by half. Returns false if out of memory.
static inline bool collected_append(
    uint8_t **all, size_t *count, size_t *capacity, const uint8_t *bytes, size_t added) {
    if (added > *capacity - *count) {
        size_t room = *count + added + *capacity / 2;
        uint8_t *grown = realloc(*all, room);
        if (!grown) return false;
        *all = grown;
        *capacity = room;
    }
    if (added) memcpy(*all + *count, bytes, added);
    *count += added;
    return true;
}

#endif
