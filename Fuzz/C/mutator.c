// Changes parts of a PNG, alone or in an icon, and then corrects their checksums. Without this, nearly every
// changed PNG would be refused because of a checksum. It changes a chunk, the deflated data in a chunk, or the
// header together with matching data. Some changes keep their wrong checksum.
#include "fuzz.h"

#include <png.h>
#include <zlib.h>

#define MAX_CHUNKS 512
// The most bytes of a rewritten PNG and of inflated data.
#define ROOM ((size_t)256 * 1024)
#define SIGNATURE "\x89PNG\r\n\x1A\n"

size_t LLVMFuzzerMutate(uint8_t *bytes, size_t count, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t count, size_t room, unsigned int seed);

typedef struct {
    char type[5];
    const uint8_t *content;
    size_t count;
} Chunk;

typedef struct {
    Chunk chunks[MAX_CHUNKS];
    size_t count;
    const uint8_t *rest; // bytes that are not part of a chunk
    size_t rest_count;
} Chunks;

typedef struct {
    uint8_t bytes[ROOM];
    size_t count;
} Buffer;

static uint32_t number_at(const uint8_t *at) {
    return png_get_uint_32(at);
}

static bool is_type(const Chunk *chunk, const char *type) {
    return !memcmp(chunk->type, type, 4);
}

// MARK: Deflated data

// Inflates as far as possible and ignores the checksum. Returns how many bytes of input the data has; 0 if it
// has no end.
static size_t inflate_into(Buffer *out, const uint8_t *bytes, size_t count) {
    z_stream stream = {0};
    out->count = 0;
    if (count < 2 || inflateInit2(&stream, -MAX_WBITS) != Z_OK) return 0;
    stream.next_in = (Bytef *)(uintptr_t)(bytes + 2);
    stream.avail_in = (uInt)(count - 2);
    stream.next_out = out->bytes;
    stream.avail_out = ROOM;
    int code = inflate(&stream, Z_FINISH);
    out->count = ROOM - stream.avail_out;
    size_t read = count - stream.avail_in;
    inflateEnd(&stream);
    return code == Z_STREAM_END ? read : 0;
}

static bool deflate_into(Buffer *out, const Buffer *raw, int level) {
    uLongf count = ROOM;
    bool is_deflated = compress2(out->bytes, &count, raw->bytes, raw->count, level) == Z_OK;
    out->count = count;
    return is_deflated;
}

static void mutate(Buffer *buffer, size_t more) {
    size_t room = ROOM - buffer->count < more ? ROOM : buffer->count + more;
    buffer->count = LLVMFuzzerMutate(buffer->bytes, buffer->count, room);
}

// MARK: PNG

// - Parameter bytes: the bytes after the signature.
static void split(Chunks *chunks, const uint8_t *bytes, size_t count) {
    *chunks = (Chunks){.rest = bytes, .rest_count = count};
    while (chunks->rest_count >= 12 && chunks->count < MAX_CHUNKS - 1) {
        uint32_t length = number_at(chunks->rest);
        if (length > chunks->rest_count - 12) return;
        Chunk *chunk = &chunks->chunks[chunks->count++];
        memcpy(chunk->type, chunks->rest + 4, 4);
        chunk->content = chunks->rest + 8;
        chunk->count = length;
        chunks->rest += length + 12;
        chunks->rest_count -= length + 12;
    }
}

static bool append(Buffer *out, const void *bytes, size_t count) {
    if (count > ROOM - out->count) return false;
    if (count) memcpy(out->bytes + out->count, bytes, count);
    out->count += count;
    return true;
}

static bool append_chunk(Buffer *out, const Chunk *chunk) {
    uint8_t number[4];
    size_t start = out->count + 4;
    png_save_uint_32(number, (png_uint_32)chunk->count);
    if (!append(out, number, 4) || !append(out, chunk->type, 4)) return false;
    if (!append(out, chunk->content, chunk->count)) return false;
    png_save_uint_32(number, (png_uint_32)crc32(0, out->bytes + start, (uInt)(4 + chunk->count)));
    return append(out, number, 4);
}

// - Parameter is_in_order: whether to correct the number of frames and their sequence numbers.
static bool append_all(Buffer *out, const Chunks *chunks, bool is_in_order) {
    uint32_t frames = 0, sequence = 0;
    for (size_t index = 0; index < chunks->count; index++) frames += is_type(&chunks->chunks[index], "fcTL");
    for (size_t index = 0; index < chunks->count; index++) {
        Chunk chunk = chunks->chunks[index];
        static uint8_t content[ROOM];
        bool is_told = is_type(&chunk, "acTL"), is_numbered = is_type(&chunk, "fcTL") || is_type(&chunk, "fdAT");
        if (is_in_order && (is_told || is_numbered) && chunk.count >= 4) {
            memcpy(content, chunk.content, chunk.count);
            png_save_uint_32(content, is_told ? frames : sequence++);
            chunk.content = content;
        }
        if (!append_chunk(out, &chunk)) return false;
    }
    return true;
}

static void remove_at(Chunks *chunks, size_t index) {
    Chunk *at = chunks->chunks + index;
    memmove(at, at + 1, (--chunks->count - index) * sizeof *at);
}

static void insert_at(Chunks *chunks, size_t index, Chunk chunk) {
    Chunk *at = chunks->chunks + index;
    if (chunks->count == MAX_CHUNKS) return;
    memmove(at + 1, at, (chunks->count++ - index) * sizeof *at);
    *at = chunk;
}

static void change_order(Chunks *chunks, Chance *chance) {
    // With valid lengths.
    static const Chunk usual[] = {
        {"PLTE", NULL, 48}, {"tRNS", NULL, 6}, {"tRNS", NULL, 2}, {"tRNS", NULL, 16}, {"acTL", NULL, 8},
        {"fcTL", NULL, 26}, {"fdAT", NULL, 4}, {"eXIf", NULL, 32}, {"iCCP", NULL, 64}, {"IDAT", NULL, 0},
        {"IEND", NULL, 0}, {"gAMA", NULL, 4}};
    static uint8_t nothing[64];
    size_t from = chance_below(chance, chunks->count), to = chance_below(chance, chunks->count);
    Chunk chunk = chunks->chunks[from];
    switch (chance_below(chance, 4)) {
    case 0: remove_at(chunks, from); return;
    case 1: remove_at(chunks, from); break;
    case 2: break;
    default:
        chunk = usual[chance_below(chance, sizeof usual / sizeof *usual)];
        for (size_t index = 0; index < chunk.count; index++) nothing[index] = (uint8_t)chance_below(chance, 256);
        chunk.content = nothing;
    }
    insert_at(chunks, to, chunk);
}

static void change_content(Chunks *chunks, Chance *chance) {
    static Buffer content;
    Chunk *chunk = &chunks->chunks[chance_below(chance, chunks->count)];
    content.count = 0;
    if (!append(&content, chunk->content, chunk->count)) return;
    mutate(&content, 64);
    chunk->content = content.bytes;
    chunk->count = content.count;
}

// Makes as much image data as the header requires, with valid filters, but no more than fits.
static void fit(Buffer *raw, const Chunk *header) {
    static const uint8_t channels[] = {1, 0, 3, 1, 2, 0, 4, 0};
    if (header->count < 13) return;
    uint32_t width = number_at(header->content), height = number_at(header->content + 4);
    size_t bits = (size_t)header->content[8] * channels[header->content[9] % 8], at = 0;
    bool is_interlaced = header->content[12];
    if (!width || !height || width > ROOM || height > ROOM) return;
    for (int pass = 0; pass < (is_interlaced ? PNG_INTERLACE_ADAM7_PASSES : 1); pass++) {
        size_t columns = is_interlaced ? PNG_PASS_COLS(width, pass) : width;
        size_t rows = is_interlaced ? PNG_PASS_ROWS(height, pass) : height;
        size_t stride = 1 + (columns * bits + 7) / 8;
        for (size_t row = 0; columns && row < rows; row++, at += stride) {
            if (stride > ROOM - at) return;
            if (at + stride > raw->count) {
                memset(raw->bytes + raw->count, 0, at + stride - raw->count);
                raw->count = at + stride;
            }
            raw->bytes[at] %= 5;
        }
    }
    raw->count = at;
}

static bool is_deflated(const Chunk *chunk, bool is_picture) {
    return is_type(chunk, "IDAT") || (!is_picture && (is_type(chunk, "fdAT") || is_type(chunk, "iCCP")));
}

// Changes the deflated data of one chunk, or of all IDAT chunks, which become one.
// - Parameter is_fitted: whether to change the image data so that it has the size that the header requires.
static void change_deflated(Chunks *chunks, Chance *chance, bool is_fitted) {
    static Buffer packed, raw, made;
    packed.count = made.count = 0;
    size_t at = is_fitted ? 0 : chance_below(chance, chunks->count);
    while (at < chunks->count && !is_deflated(&chunks->chunks[at], is_fitted)) at++;
    if (at == chunks->count) return;
    Chunk *chunk = &chunks->chunks[at];
    bool is_picture = is_type(chunk, "IDAT");
    const uint8_t *name_end = memchr(chunk->content, 0, chunk->count);
    size_t head = is_type(chunk, "fdAT") ? 4 : 0;
    if (is_type(chunk, "iCCP") && name_end) head = (size_t)(name_end + 2 - chunk->content);
    if (head > chunk->count || !append(&packed, chunk->content + head, chunk->count - head)) return;
    while (is_picture && at + 1 < chunks->count && is_type(&chunks->chunks[at + 1], "IDAT")) {
        const Chunk *more = &chunks->chunks[at + 1];
        if (!append(&packed, more->content, more->count)) return;
        remove_at(chunks, at + 1);
    }
    (void)inflate_into(&raw, packed.bytes, packed.count);
    if (!is_fitted || chance_below(chance, 2)) mutate(&raw, 256);
    if (is_picture && (is_fitted || chance_below(chance, 4))) fit(&raw, &chunks->chunks[0]);
    if (!deflate_into(&packed, &raw, (int)chance_below(chance, 10))) return;
    if (!append(&made, chunk->content, head) || !append(&made, packed.bytes, packed.count)) return;
    chunk->content = made.bytes;
    chunk->count = made.count;
}

// Changes the header, mostly to a valid combination.
static void change_header(Chunks *chunks, Chance *chance) {
    static const uint8_t kinds[][2] = {{1, 0}, {2, 0}, {4, 0}, {8, 0}, {16, 0}, {8, 2}, {16, 2}, {1, 3}, {2, 3}, {4, 3},
        {8, 3}, {8, 4}, {16, 4}, {8, 6}, {16, 6}, {2, 6}};
    static uint8_t content[13];
    Chunk *chunk = &chunks->chunks[0];
    if (chunk->count != sizeof content) return;
    memcpy(content, chunk->content, sizeof content);
    if (!chance_below(chance, 4)) {
        png_save_uint_32(content, 1 + (png_uint_32)chance_below(chance, 300));
        png_save_uint_32(content + 4, 1 + (png_uint_32)chance_below(chance, 300));
    }
    if (!chance_below(chance, 2)) memcpy(content + 8, kinds[chance_below(chance, sizeof kinds / sizeof *kinds)], 2);
    if (!chance_below(chance, 2)) content[12] ^= 1;
    chunk->content = content;
    change_deflated(chunks, chance, true);
}

// Corrects the places of an icon's images after one of them has changed its length.
static void mend_icon(uint8_t *bytes, size_t png, size_t old_count, size_t new_count) {
    for (size_t entry = 6; entry + 16 <= png && entry < 6 + 16 * (size_t)bytes[4]; entry += 16) {
        uint32_t size, at; // little-endian, like the processors that run this
        memcpy(&size, bytes + entry + 8, 4);
        memcpy(&at, bytes + entry + 12, 4);
        if (at == png) size = (uint32_t)new_count;
        else if (at > png) at += (uint32_t)(new_count - old_count);
        memcpy(bytes + entry + 8, &size, 4);
        memcpy(bytes + entry + 12, &at, 4);
    }
}

// Returns 0 if it changes nothing.
static size_t mutate_png(uint8_t *bytes, size_t count, size_t room, size_t at, Chance *chance) {
    static Chunks chunks;
    static Buffer out;
    split(&chunks, bytes + at + 8, count - at - 8);
    if (!chunks.count) return 0;
    switch (chance_below(chance, 8)) {
    case 0: break;
    case 1: change_order(&chunks, chance); break;
    case 2:
    case 3: change_header(&chunks, chance); break;
    case 4:
    case 5: change_content(&chunks, chance); break;
    default: change_deflated(&chunks, chance, false);
    }
    out.count = 0;
    bool is_written = append(&out, SIGNATURE, 8) && append_all(&out, &chunks, chance_below(chance, 8));
    size_t own = out.count, old = count - at - chunks.rest_count;
    if (!is_written || !append(&out, chunks.rest, chunks.rest_count) || out.count > room - at) return 0;
    memcpy(bytes + at, out.bytes, out.count);
    if (at) mend_icon(bytes, at, old, own);
    return at + out.count;
}

// MARK: Others

// Changes one piece of deflated data if it does not become longer, and corrects all checksums.
static void mend_streams(uint8_t *bytes, size_t count, Chance *chance) {
    static Buffer raw, packed;
    for (size_t at = 0; at + 2 < count; at++) {
        bool is_head = (bytes[at] & 15) == 8 && (bytes[at] << 8 | bytes[at + 1]) % 31 == 0;
        size_t read = is_head ? inflate_into(&raw, bytes + at, count - at) : 0;
        if (!read || count - at - read < 4) continue;
        uLong checksum = adler32(adler32(0, NULL, 0), raw.bytes, (uInt)raw.count);
        png_save_uint_32(bytes + at + read, (png_uint_32)checksum);
        if (chance_below(chance, 4)) continue;
        mutate(&raw, 64);
        if (!deflate_into(&packed, &raw, 9) || packed.count > read + 4) continue;
        memcpy(bytes + at, packed.bytes, packed.count);
        at += read;
    }
}

static size_t find_png(const uint8_t *bytes, size_t count, Chance *chance) {
    size_t found = SIZE_MAX, seen = 0;
    for (size_t at = 0; at + 8 <= count; at++)
        if (!memcmp(bytes + at, SIGNATURE, 8) && !chance_below(chance, ++seen)) found = at;
    return found;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t count, size_t room, unsigned int seed) {
    Chance chance = {seed};
    (void)chance_below(&chance, 1);
    size_t png = find_png(bytes, count, &chance);
    // Some changes are left uncorrected.
    bool is_mended = chance_below(&chance, 4);
    size_t changed = is_mended && png < count ? mutate_png(bytes, count, room, png, &chance) : 0;
    if (changed) return changed;
    count = LLVMFuzzerMutate(bytes, count, room);
    if (is_mended && png >= count) mend_streams(bytes, count, &chance);
    return count;
}
