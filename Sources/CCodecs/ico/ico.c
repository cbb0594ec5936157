// Decodes ICO without a library. Bytes are collected up to the image's end and then decoded. A PNG
// within an icon is passed to the PNG reader.
#include "CCodecs.h"
#include "collected.h"
#include "ico_file.h"
#include "frame_budget.h"
#include "thumb.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BASE_MEMORY ((size_t)64 * 1024)
// Memory of the PNG reader for an icon, without rows for previews and variants.
#define PNG_MEMORY ((size_t)64 * 1024 * 1024)
// The most bytes of an icon whose directory gives no length.
#define MAX_UNDECLARED ((size_t)64 * 1024 * 1024)

typedef enum { LOOK, GATHER, DECODE, FINISHED, FAILED } Stage;

struct ICOReader {
    Stage stage;
    CodecFault fault;
    CodecImageInfo picture;
    ICOFile file;
    uint8_t *bytes;
    size_t count, capacity, max_memory;
    PNGReader *png;
    size_t png_taken; // how many of its bytes the PNG reader has consumed
    CodecFrameLimits frames;
    Thumb thumb;
    char message[80];
};

// Records a failure in `stage`. Callers must return at once.
static void fail(ICOReader *reader, CodecFault fault, const char *message) {
    if (reader->stage == FAILED) return;
    reader->stage = FAILED;
    reader->fault = fault;
    snprintf(reader->message, sizeof reader->message, "%s", message);
}

ICOReader *ico_reader_create(size_t max_memory) {
    ICOReader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->max_memory = max_memory;
    reader->frames = frame_budget_unbounded().limits;
    return reader;
}

void ico_reader_allow_frames(ICOReader *reader, CodecFrameLimits limits) {
    reader->frames = limits;
}

void ico_reader_destroy(ICOReader *reader) {
    if (!reader) return;
    png_reader_destroy(reader->png);
    free(reader->bytes);
    free(reader);
}

CodecImageInfo ico_reader_picture(const ICOReader *reader) {
    CodecImageInfo picture = reader->picture;
    if (reader->png) picture.maxFrames = png_reader_picture(reader->png).maxFrames;
    if (reader->stage != FINISHED) return picture;
    if (reader->png) {
        CodecImageInfo inner = png_reader_picture(reader->png);
        picture.thumbnail = inner.thumbnail;
        picture.thumbnailColumns = inner.thumbnailColumns;
        picture.thumbnailRows = inner.thumbnailRows;
    } else {
        thumb_report(&reader->thumb, &picture);
    }
    return picture;
}

const char *ico_reader_message(const ICOReader *reader) {
    return reader->message;
}

// Appends the bytes that are needed. Their number is bounded even while the image's end is not known.
static void gather(ICOReader *reader, const uint8_t *bytes, size_t count) {
    bool is_known = reader->stage != LOOK && reader->file.end != UINT64_MAX;
    uint64_t most = is_known ? reader->file.end : MAX_UNDECLARED;
    if (most > reader->max_memory) most = reader->max_memory;
    size_t room = most > reader->count ? (size_t)most - reader->count : 0;
    if (count > room && !is_known) {
        fail(reader, CodecFaultTooMuchMemory, "too many bytes");
        return;
    }
    if (count > room) count = room;
    if (!collected_append(&reader->bytes, &reader->count, &reader->capacity, bytes, count)) {
        fail(reader, CodecFaultTooMuchMemory, "out of memory");
        return;
    }
}

static bool open_png(ICOReader *reader) {
    reader->png_taken = 0;
    reader->png = png_reader_create(PNG_MEMORY);
    if (reader->png) png_reader_disable_previews(reader->png);
    else fail(reader, CodecFaultTooMuchMemory, "out of memory");
    return reader->png != NULL;
}

// Runs one step of the PNG reader on the bytes present.
static CodecStep step_png(ICOReader *reader, bool ended) {
    const ICOFile *file = &reader->file;
    uint64_t end = file->png + file->png_count;
    size_t seen = end < reader->count ? (size_t)end : reader->count;
    size_t at = (size_t)file->png + reader->png_taken;
    CodecStep step = png_reader_step(reader->png, reader->bytes + at, seen - at, ended || seen == end);
    reader->png_taken += step.consumed;
    return step;
}

// Reads the PNG's header, which becomes the icon's header.
static bool read_png_header(ICOReader *reader) {
    if (!open_png(reader)) return true;
    PNGReader *png = reader->png;
    CodecStep step;
    do step = step_png(reader, false);
    while (step.status == CodecStatusHasMore);
    CodecImageInfo inner = png_reader_picture(png);
    if (step.status == CodecStatusHeader) {
        reader->picture.width = inner.width;
        reader->picture.height = inner.height;
        // Whether a color is transparent is known only after the header.
        reader->picture.hasAlpha = true;
        reader->picture.decodingMemory = inner.decodingMemory;
    } else if (step.status == CodecStatusFailed) {
        fail(reader, step.fault, png_reader_message(png));
    }
    png_reader_destroy(png);
    reader->png = NULL;
    return step.status != CodecStatusNeedsBytes;
}

// Returns true once the header is read or reading has failed.
static bool read_file_header(ICOReader *reader, bool ended) {
    ICOFile *file = &reader->file;
    CodecImageInfo *picture = &reader->picture;
    CodecFault fault = ico_read_header(file, reader->bytes, reader->count);
    if (fault == CodecFaultCutShort && !ended) return false;
    if (fault) {
        fail(reader, fault, fault == CodecFaultUnsupported ? "unsupported kind of bitmap" : "no bitmap");
        return true;
    }
    if (file->is_png && !read_png_header(reader)) {
        if (ended) fail(reader, CodecFaultCutShort, "the bytes end before the image");
        return ended;
    }
    if (reader->stage == FAILED) return true;
    uint64_t held = BASE_MEMORY;
    if (!file->is_png) {
        picture->width = file->bitmap.width;
        picture->height = file->bitmap.height;
        picture->hasAlpha = true;
    }
    bool is_known = file->end != UINT64_MAX;
    picture->fileBytes = is_known ? (size_t)file->end : 0;
    held += picture->decodingMemory + (is_known ? file->end : MAX_UNDECLARED) + (uint64_t)4 * picture->width;
    picture->decodingMemory = held > SIZE_MAX ? SIZE_MAX : (size_t)held;
    reader->stage = GATHER;
    return true;
}

// Decodes an animation's frames too, like other readers, although only the default image is shown.
static void start_png(ICOReader *reader) {
    if (!open_png(reader)) return;
    png_reader_allow_frames(reader->png, reader->frames);
    reader->stage = DECODE;
}

static void decode_png(ICOReader *reader) {
    CodecStep step;
    do step = step_png(reader, true);
    while (step.status == CodecStatusHeader);
    if (step.status == CodecStatusHasMore) return;
    if (step.status == CodecStatusFinished) reader->stage = FINISHED;
    else fail(reader, step.fault ? step.fault : CodecFaultBroken, png_reader_message(reader->png));
}

static void decode_bitmap(ICOReader *reader) {
    Bitmap *bitmap = &reader->file.bitmap;
    size_t seen = reader->file.end < reader->count ? (size_t)reader->file.end : reader->count;
    CodecFault fault = bitmap_open(bitmap, reader->bytes, seen);
    uint8_t *row = fault ? NULL : malloc((size_t)4 * bitmap->width);
    if (!fault && !row) fault = CodecFaultTooMuchMemory;
    if (fault) {
        fail(reader, fault, "the bytes end before the image");
        return;
    }
    thumb_start(&reader->thumb, bitmap->width, bitmap->height);
    for (uint32_t down = 0; down < reader->thumb.down[0].count; down++) {
        uint32_t y = reader->thumb.down[0].at[down];
        if (down && y == reader->thumb.down[0].at[down - 1]) continue;
        bitmap_row(bitmap, y, row);
        thumb_add_rgba_row(&reader->thumb, y, row);
    }
    free(row);
    thumb_finish_pixels(&reader->thumb);
    reader->stage = FINISHED;
}

static CodecStatus run(ICOReader *reader, bool ended) {
    if (reader->stage == LOOK) {
        if (!read_file_header(reader, ended)) return CodecStatusNeedsBytes;
        return reader->stage == FAILED ? CodecStatusFailed : CodecStatusHeader;
    }
    if (reader->stage == GATHER) {
        if (reader->count < reader->file.end && !ended) return CodecStatusNeedsBytes;
        if (reader->count < reader->file.end && reader->file.end != UINT64_MAX)
            fail(reader, CodecFaultCutShort, "the bytes end before the image");
        else if (reader->file.is_png) start_png(reader);
        else decode_bitmap(reader);
    }
    if (reader->stage == DECODE) decode_png(reader);
    return reader->stage == FINISHED ? CodecStatusFinished
        : reader->stage == FAILED    ? CodecStatusFailed
                                     : CodecStatusHasMore;
}

CodecStep ico_reader_step(ICOReader *reader, const uint8_t *bytes, size_t count, bool ended) {
    if (reader->stage == FINISHED) return (CodecStep){CodecStatusFinished, CodecFaultNone, count};
    if (reader->stage == FAILED) return (CodecStep){CodecStatusFailed, reader->fault, count};
    gather(reader, bytes, count);
    CodecStatus status = reader->stage == FAILED ? CodecStatusFailed : run(reader, ended);
    return (CodecStep){status, reader->fault, count};
}
