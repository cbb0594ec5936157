// Measures the cost of previews and placeholders. Decodes one progressive JPEG or interlaced PNG with this service's
// readers, with a preview of each scan and without. For the placeholder it reads as many pixels as a decode does.
//
// Benchmarks/previews.py compiles and runs it: previews photo.jpg 20
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "CCodecs.h"
#include "thumb.h"

#define PIECE 16384

typedef struct {
    bool is_jpeg;
    void *reader;
} Reader;

static CodecStep step(Reader reader, const uint8_t *bytes, size_t count, bool ended) {
    return reader.is_jpeg ? jpeg_reader_step(reader.reader, bytes, count, ended)
                          : png_reader_step(reader.reader, bytes, count, ended);
}

static CodecImageInfo image_info(Reader reader) {
    return reader.is_jpeg ? jpeg_reader_picture(reader.reader) : png_reader_picture(reader.reader);
}

static bool discard_preview(Reader reader) {
    bool is_there = reader.is_jpeg ? jpeg_reader_preview(reader.reader).bytes != NULL
                                   : png_reader_preview(reader.reader).bytes != NULL;
    if (is_there && reader.is_jpeg) jpeg_reader_discard_preview(reader.reader);
    if (is_there && !reader.is_jpeg) png_reader_discard_preview(reader.reader);
    return is_there;
}

static void request_preview(Reader reader) {
    if (reader.is_jpeg) jpeg_reader_request_preview(reader.reader, 1);
    else png_reader_request_preview(reader.reader, 1);
}

// Returns the number of previews; negative if the file is not an image.
static int decode(const uint8_t *file, size_t size, bool previews, CodecImageInfo *found) {
    Reader reader = {file[0] == 0xFF, NULL};
    reader.reader = reader.is_jpeg ? (void *)jpeg_reader_create((size_t)1 << 30)
                                   : (void *)png_reader_create((size_t)1 << 30);
    if (!reader.reader) return -1;
    if (reader.is_jpeg) jpeg_reader_allow_scans(reader.reader, 100);
    size_t used = 0, available = 0;
    int made = 0;
    CodecStep result;
    do {
        result = step(reader, file + used, available - used, available == size);
        used += result.consumed;
        made += discard_preview(reader);
        if (result.status != CodecStatusNeedsBytes) continue;
        if (previews && image_info(reader).scansToShow) request_preview(reader);
        else available = size - available > PIECE ? available + PIECE : size;
    } while (result.status != CodecStatusFinished && result.status != CodecStatusFailed);
    *found = image_info(reader);
    if (reader.is_jpeg) jpeg_reader_destroy(reader.reader);
    else png_reader_destroy(reader.reader);
    return result.status == CodecStatusFinished ? made : -1;
}

// The cost of a placeholder from 4:2:0 planes. Loading the samples into the CPU cache is part of the decode's cost.
static void add_planes(uint32_t width, uint32_t height, const uint8_t *row) {
    static Thumb thumb;
    thumb_start(&thumb, width, height);
    for (int channel = 0; channel < 3; channel++) {
        uint32_t divisor = channel ? 2 : 1;
        thumb_set_plane(&thumb, channel, (width + 1) / divisor, (height + 1) / divisor);
        for (uint32_t y = 0; y < (height + 1) / divisor; y++)
            thumb_add_plane_row(&thumb, channel, y, row);
    }
    __asm__ volatile("" : : "r"(&thumb) : "memory");
}

static double milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
}

static uint8_t *load(const char *name, size_t *size) {
    FILE *stream = fopen(name, "rb");
    if (!stream || fseek(stream, 0, SEEK_END)) return NULL;
    *size = (size_t)ftell(stream);
    rewind(stream);
    uint8_t *bytes = malloc(*size + 1);
    if (bytes && fread(bytes, 1, *size, stream) != *size) return NULL;
    fclose(stream);
    return bytes;
}

int main(int count, char **arguments) {
    size_t size = 0;
    int rounds = count > 2 ? atoi(arguments[2]) : 0;
    uint8_t *file = rounds > 0 ? load(arguments[1], &size) : NULL;
    if (!file || size < 8) {
        fprintf(stderr, "usage: previews FILE ROUNDS\n");
        return 2;
    }
    CodecImageInfo found;
    double plain = 0, shown = 0, thumbs = 0;
    int made = 0;
    for (int round = 0; round < rounds; round++) {
        double start = milliseconds();
        if (decode(file, size, false, &found) < 0) return 1;
        plain += milliseconds() - start;
        start = milliseconds();
        made = decode(file, size, true, &found);
        shown += milliseconds() - start;
        uint8_t *row = calloc(1, (size_t)found.width + 1);
        if (!row) return 1;
        start = milliseconds();
        add_planes(found.width, found.height, row);
        thumbs += milliseconds() - start;
        free(row);
    }
    printf("decode %.2f CPU ms, with %d previews %.2f", plain / rounds, made, shown / rounds);
    if (made) printf(" (%.2f decodes each)", (shown - plain) / made / plain);
    printf(", placeholder %.3f (%.2f %% of the decode)\n", thumbs / rounds, thumbs / plain * 100);
    return 0;
}
