// The library's own function keeps every APP2 segment, whatever it contains. This code keeps only segments of a
// profile and joins them once all are present (ICC.1, annex B.4).
#include "jpeg_profile.h"

#include "profile.h"

#include <stdlib.h>
#include <string.h>

#define SOS 0xDA
#define EOI 0xD9
#define APP2 0xE2
// The maximum size of all parts of a profile with their heads.
#define MAX_SEGMENTS (MAX_PROFILE + 255 * 32)
#define HEAD 14 // the name with its NUL, the chunk's number from 1, the number of chunks

typedef struct {
    const uint8_t *bytes;
    size_t count;
} Chunk;

typedef struct {
    Chunk chunks[255];
    int total;
    size_t size;
} Chunks;

// Returns false if the chunks do not belong to one profile.
static bool add_chunk(Chunks *found, const uint8_t *content, size_t count) {
    static const char name[12] = "ICC_PROFILE";
    if (count < HEAD || memcmp(content, name, sizeof name)) return true;
    int number = content[12], total = content[13];
    if (!number || number > total || (found->total && found->total != total)) return false;
    Chunk *chunk = &found->chunks[number - 1];
    if (chunk->bytes) return false;
    *chunk = (Chunk){content + HEAD, count - HEAD};
    found->total = total;
    found->size += chunk->count;
    return found->size <= MAX_PROFILE;
}

// Reads the segments before the first scan.
static bool find(Chunks *found, const uint8_t *bytes, size_t count) {
    size_t at = 2;
    while (at + 4 <= count) {
        if (bytes[at] != 0xFF) {
            at++;
            continue;
        }
        uint8_t marker = bytes[at + 1];
        if (marker == SOS || marker == EOI) break;
        // Fill bytes, a stuffed zero, and markers without a length.
        if (marker == 0xFF || marker <= 1 || (marker >= 0xD0 && marker <= 0xD8)) {
            at += marker == 0xFF ? 1 : 2;
            continue;
        }
        size_t length = (size_t)bytes[at + 2] << 8 | bytes[at + 3];
        if (length < 2 || length > count - at - 2) return false;
        if (marker == APP2 && !add_chunk(found, bytes + at + 4, length - 2)) return false;
        at += 2 + length;
    }
    return found->total > 0;
}

static uint8_t *join(const uint8_t *bytes, size_t count, size_t *profile_count) {
    Chunks found = {.total = 0};
    if (!find(&found, bytes, count)) return NULL;
    for (int index = 0; index < found.total; index++)
        if (!found.chunks[index].bytes) return NULL;
    uint8_t *profile = malloc(found.size + 1);
    if (!profile) return NULL;
    *profile_count = 0;
    for (int index = 0; index < found.total; index++) {
        memcpy(profile + *profile_count, found.chunks[index].bytes, found.chunks[index].count);
        *profile_count += found.chunks[index].count;
    }
    return profile;
}

void jpeg_profile_add(JPEGProfile *profile, const uint8_t *segment, size_t count) {
    static const char name[12] = "ICC_PROFILE";
    // The first two bytes of a JPEG precede its segments.
    size_t before = profile->segments ? profile->segments_count : 2;
    if (count < 2 + HEAD || memcmp(segment + 2, name, sizeof name)) return;
    if (before + 2 + count > MAX_SEGMENTS) return;
    uint8_t *segments = realloc(profile->segments, before + 2 + count);
    if (!segments) return;
    profile->segments = segments;
    segments[before] = 0xFF;
    segments[before + 1] = APP2;
    memcpy(segments + before + 2, segment, count);
    profile->segments_count = before + 2 + count;
}

void jpeg_profile_join(JPEGProfile *profile) {
    if (!profile->segments) return;
    profile->segments[0] = 0xFF;
    profile->segments[1] = 0xD8;
    profile->bytes = join(profile->segments, profile->segments_count, &profile->count);
    free(profile->segments);
    profile->segments = NULL;
}

void jpeg_profile_free(JPEGProfile *profile) {
    free(profile->segments);
    free(profile->bytes);
}
