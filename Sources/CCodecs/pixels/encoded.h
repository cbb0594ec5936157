// The bytes of an image that is being encoded, up to a fixed limit.
#ifndef ENCODED_H
#define ENCODED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint8_t *bytes;
    size_t count, capacity, limit;
} Encoded;

// Makes room for `more` bytes. Returns false if that exceeds the limit or if out of memory.
static inline bool encoded_reserve(Encoded *encoded, size_t more) {
    if (more > encoded->limit - encoded->count) return false;
    size_t wanted = encoded->count + more;
    if (wanted <= encoded->capacity) return true;
    size_t capacity = encoded->capacity > encoded->limit / 2 ? encoded->limit
                                                            : encoded->capacity * 2;
    if (capacity < wanted) capacity = wanted;
    uint8_t *bytes = realloc(encoded->bytes, capacity);
    if (!bytes) return false;
    encoded->bytes = bytes;
    encoded->capacity = capacity;
    return true;
}

static inline bool encoded_append(Encoded *encoded, const uint8_t *bytes, size_t count) {
    if (!encoded_reserve(encoded, count)) return false;
    memcpy(encoded->bytes + encoded->count, bytes, count);
    encoded->count += count;
    return true;
}

static inline void encoded_free(Encoded *encoded) {
    free(encoded->bytes);
    *encoded = (Encoded){0};
}

#endif
