// Reads the frames of a sequence, which is a track of samples (ISO/IEC 14496-12, 8). The first frame is decoded
// if no item shows an image.
#include "heif_image.h"

#define MEDIA HEIF_TYPE('m', 'd', 'i', 'a')

// Finds the tables of the first track of images.
static bool find_tables(const HEIFFile *file, HEIFPart *tables) {
    HEIFPart movie = file->movie;
    HEIFBox box;
    while (file->has_movie && heif_next(file, &movie, &box)) {
        HEIFPart media, handler, information;
        if (box.type != HEIF_TYPE('t', 'r', 'a', 'k') || !heif_find(file, box.content, MEDIA, &media)) continue;
        if (!heif_find(file, media, HEIF_TYPE('h', 'd', 'l', 'r'), &handler)) continue;
        HEIFCursor cursor = heif_cursor(file, handler);
        (void)heif_read(&cursor, 8);
        uint32_t kind = (uint32_t)heif_read(&cursor, 4);
        if (kind != HEIF_TYPE('p', 'i', 'c', 't') && kind != HEIF_TYPE('v', 'i', 'd', 'e')) continue;
        return heif_find(file, media, HEIF_TYPE('m', 'i', 'n', 'f'), &information)
            && heif_find(file, information, HEIF_TYPE('s', 't', 'b', 'l'), tables);
    }
    return false;
}

// Finds the sizes of samples. `each` is the size of all samples, or 0 if `sizes` points to a table.
static uint64_t find_sizes(const HEIFFile *file, HEIFPart tables, HEIFCursor *sizes, uint32_t *each) {
    HEIFPart part;
    if (!heif_find(file, tables, HEIF_TYPE('s', 't', 's', 'z'), &part)) return 0;
    *sizes = heif_cursor(file, part);
    (void)heif_read(sizes, 4);
    *each = (uint32_t)heif_read(sizes, 4);
    uint64_t count = heif_read(sizes, 4);
    bool is_there = !sizes->is_short && (*each || count <= (uint64_t)(sizes->end - sizes->at) / 4);
    return is_there ? count : 0;
}

// Finds the places of chunks. The samples of a chunk follow one another.
static uint64_t find_chunks(const HEIFFile *file, HEIFPart tables, HEIFCursor *chunks, int *size) {
    HEIFPart part;
    *size = 4;
    if (!heif_find(file, tables, HEIF_TYPE('s', 't', 'c', 'o'), &part)) {
        *size = 8;
        if (!heif_find(file, tables, HEIF_TYPE('c', 'o', '6', '4'), &part)) return 0;
    }
    *chunks = heif_cursor(file, part);
    (void)heif_read(chunks, 4);
    uint64_t count = heif_read(chunks, 4);
    return !chunks->is_short && count <= (uint64_t)(chunks->end - chunks->at) / (uint64_t)*size ? count : 0;
}

uint64_t heif_frames(const HEIFFile *file) {
    HEIFPart tables;
    HEIFCursor sizes;
    uint32_t each;
    uint64_t count = find_tables(file, &tables) ? find_sizes(file, tables, &sizes, &each) : 0;
    return count ? count : 1;
}

// Counts the samples in each chunk, from a table of runs of equal chunks. The cursor is before the next run.
typedef struct {
    HEIFCursor runs;
    uint64_t left, next, samples;
} Runs;

static uint64_t samples_of(Runs *runs, uint64_t chunk) {
    while (runs->left && runs->next == chunk) {
        runs->samples = heif_read(&runs->runs, 4);
        (void)heif_read(&runs->runs, 4);
        runs->left--;
        runs->next = runs->left ? heif_read(&runs->runs, 4) : 0;
    }
    return runs->samples;
}

uint64_t heif_frames_end(const HEIFFile *file) {
    HEIFPart tables, part;
    HEIFCursor sizes, chunks;
    uint32_t each;
    int size;
    if (!find_tables(file, &tables) || !heif_find(file, tables, HEIF_TYPE('s', 't', 's', 'c'), &part)) return 0;
    uint64_t samples = find_sizes(file, tables, &sizes, &each), end = 0;
    uint64_t count = find_chunks(file, tables, &chunks, &size);
    Runs runs = {.runs = heif_cursor(file, part)};
    (void)heif_read(&runs.runs, 4);
    runs.left = heif_read(&runs.runs, 4);
    runs.next = runs.left ? heif_read(&runs.runs, 4) : 0;
    for (uint64_t chunk = 1; chunk <= count && samples; chunk++) {
        uint64_t at = heif_read(&chunks, size), bytes = 0;
        uint64_t left = samples_of(&runs, chunk);
        if (left > samples) left = samples;
        samples -= left;
        if (each) bytes = left * each;
        else
            for (; left; left--) bytes += heif_read(&sizes, 4);
        if (at > UINT64_MAX - bytes) return UINT64_MAX;
        if (at + bytes > end) end = at + bytes;
    }
    return samples ? UINT64_MAX : end;
}

HEIFFinding heif_first_of_sequence(const HEIFFile *file, HEIFImage *picture) {
    *picture = (HEIFImage){.columns = 1, .rows = 1, .orientation = 1};
    HEIFPart tables, part;
    HEIFCursor sizes, chunks;
    uint32_t each;
    int size;
    if (!find_tables(file, &tables)) return HEIFNotThere;
    if (!heif_find(file, tables, HEIF_TYPE('s', 't', 's', 'd'), &part) || part.count < 8) return HEIFBroken;
    part.at += 8;
    part.count -= 8;
    HEIFBox entry;
    if (!heif_next(file, &part, &entry)) return HEIFBroken;
    if (entry.type != HEIF_TYPE('h', 'v', 'c', '1') && entry.type != HEIF_TYPE('h', 'e', 'v', '1')) return HEIFUnknown;
    HEIFCursor cursor = heif_cursor(file, entry.content);
    (void)heif_read(&cursor, 8), (void)heif_read(&cursor, 8), (void)heif_read(&cursor, 8);
    picture->width = picture->tile_width = picture->shown_width = (uint32_t)heif_read(&cursor, 2);
    picture->height = picture->tile_height = picture->shown_height = (uint32_t)heif_read(&cursor, 2);
    // The fixed part of a visual sample entry, before its boxes.
    if (cursor.is_short || entry.content.count < 78) return HEIFBroken;
    HEIFPart boxes = {entry.content.at + 78, entry.content.count - 78};
    if (!heif_find(file, boxes, HEIF_TYPE('h', 'v', 'c', 'C'), &picture->first.setup)) return HEIFBroken;
    if (!find_sizes(file, tables, &sizes, &each) || !find_chunks(file, tables, &chunks, &size)) return HEIFBroken;
    uint64_t at = heif_read(&chunks, size), bytes = each ? each : heif_read(&sizes, 4);
    if (!bytes || at > UINT64_MAX - bytes) return HEIFBroken;
    picture->first.extents = (HEIFExtents){.count = 1, .parts = {{at, bytes}}, .bytes = bytes, .end = at + bytes};
    return heif_read_format(file, picture);
}
