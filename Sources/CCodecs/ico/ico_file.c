#include "ico_file.h"

#include <string.h>

#define ENTRY 16

static uint64_t u32(const uint8_t *bytes) {
    return bytes[0] | (uint64_t)bytes[1] << 8 | (uint64_t)bytes[2] << 16 | (uint64_t)bytes[3] << 24;
}

// Orders icon entries: by the declared size, then by the bits per pixel.
static uint32_t size_of(const uint8_t *entry) {
    uint32_t width = entry[0] ? entry[0] : 256, height = entry[1] ? entry[1] : 256;
    return width * height << 8 | entry[6];
}

CodecFault ico_read_header(ICOFile *file, const uint8_t *bytes, size_t count) {
    *file = (ICOFile){0};
    static const uint8_t png[8] = {0x89, 'P', 'N', 'G', 13, 10, 26, 10};
    if (count < 6) return CodecFaultCutShort;
    size_t entries = bytes[4] | (size_t)bytes[5] << 8;
    if (!entries) return CodecFaultBroken;
    if (count < 6 + entries * ENTRY) return CodecFaultCutShort;
    const uint8_t *best = bytes + 6;
    for (size_t index = 1; index < entries; index++) {
        const uint8_t *entry = bytes + 6 + index * ENTRY;
        if (size_of(entry) > size_of(best)) best = entry;
    }
    uint64_t length = u32(best + 8), at = u32(best + 12);
    bool has_length = length > 0;
    if (at < 6 + entries * ENTRY || (has_length && length < sizeof png)) return CodecFaultBroken;
    // Some writers omit the length. Then a bitmap's header gives it, and a PNG ends by its own chunks.
    file->end = has_length ? at + length : UINT64_MAX;
    if (at + sizeof png > count) return CodecFaultCutShort;
    file->is_png = !memcmp(bytes + at, png, sizeof png);
    file->png = at;
    file->png_count = file->end - at;
    if (file->is_png) return CodecFaultNone;
    // The bitmap must lie within the bytes that its entry declares.
    size_t seen = file->end < count ? (size_t)file->end : count;
    CodecFault fault = bitmap_read_header(&file->bitmap, bytes, seen, at);
    if (fault == CodecFaultCutShort && seen == file->end) return CodecFaultBroken;
    if (fault) return fault;
    // Some writers omit the mask too. Then the entry ends after the pixels.
    if (!has_length) file->end = file->bitmap.end;
    return file->bitmap.mask > file->end ? CodecFaultBroken : CodecFaultNone;
}
