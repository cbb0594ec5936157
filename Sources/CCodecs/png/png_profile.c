#include "png_profile.h"

#include <stdlib.h>

#include <png.h>
#include <zlib.h>

#define MAX_PROFILE_NAME 80

static uint8_t *inflate_profile(z_stream *stream, size_t *profile_count) {
    uint8_t head[PROFILE_HEADER + 4];
    stream->next_out = head;
    stream->avail_out = sizeof head;
    inflate(stream, Z_SYNC_FLUSH);
    size_t size = stream->avail_out ? 0 : png_get_uint_32(head);
    bool fits = size > sizeof head && size <= MAX_PNG_PROFILE
        && (profile_is_of(head, sizeof head, "RGB ") || profile_is_of(head, sizeof head, "GRAY"));
    uint8_t *profile = fits ? malloc(size) : NULL;
    if (!profile) return NULL;
    memcpy(profile, head, sizeof head);
    stream->next_out = profile + sizeof head;
    stream->avail_out = (uInt)(size - sizeof head);
    inflate(stream, Z_FINISH);
    *profile_count = size - stream->avail_out;
    return profile;
}

uint8_t *png_profile(const uint8_t *content, size_t count, size_t *profile_count) {
    const uint8_t *end = content + count;
    const uint8_t *name_end = memchr(content, 0, count < MAX_PROFILE_NAME ? count : MAX_PROFILE_NAME);
    if (!name_end || end - name_end < 3 || name_end[1] != 0) return NULL;
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)(name_end + 2)};
    stream.avail_in = (uInt)(end - stream.next_in);
    if (inflateInit(&stream) != Z_OK) return NULL;
    uint8_t *profile = inflate_profile(&stream, profile_count);
    inflateEnd(&stream);
    return profile;
}
