// Decodes PNG with libpng's progressive reader.
//
// This code parses the chunks and passes libpng only those that pixels depend on: IHDR, PLTE, tRNS, IDAT, IEND.
// Other ancillary chunks are skipped unread, because libpng would collect and inflate them. Exceptions are
// eXIf, which is kept if it is small enough, and the chunks of an animation, whose frames are checked in
// png_frames.c. The decoded image is the file's default image.
//
// Rows of each pass are processed as they are stored, without transformations and without a buffer for the
// whole image. For an interlaced image, the pixels of the first passes are kept for previews, as many as memory
// allows.
#include "png_reader.h"
#include "slice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void png_reader_fail(PNGReader *reader, CodecFault fault, const char *message) {
    if (reader->made_end && reader->rows < reader->rows_wanted) fault = CodecFaultCutShort;
    reader->fault = reader->out_of_memory ? CodecFaultTooMuchMemory : fault;
    snprintf(reader->message, sizeof reader->message, "%s", message);
    longjmp(reader->escape, 1);
}

static void on_error(png_structp png, png_const_charp message) {
    png_reader_fail(png_get_error_ptr(png), CodecFaultBroken, message);
}

// Treats warnings about image data as errors. libpng only warns about damaged data once it has all rows, and
// about every zlib error that it takes for a wrong checksum.
static void on_warning(png_structp png, png_const_charp message) {
    if (!strncmp(message, "IDAT:", 5) || !strncmp(message, "Truncated compressed data", 25))
        png_reader_fail(png_get_error_ptr(png), CodecFaultBroken, message);
}

// Each block starts with its size, so that freed memory can be counted.
#define BLOCK_HEAD 16

static png_voidp allocate(png_structp png, png_alloc_size_t size) {
    PNGReader *reader = png_get_mem_ptr(png);
    size_t room = reader->max_memory - reader->allocated;
    uint8_t *block = size > room || room - size < BLOCK_HEAD ? NULL : malloc(size + BLOCK_HEAD);
    if (!block) {
        reader->out_of_memory = true;
        return NULL;
    }
    size_t whole = size + BLOCK_HEAD;
    memcpy(block, &whole, sizeof whole);
    reader->allocated += whole;
    return block + BLOCK_HEAD;
}

static void release(png_structp png, png_voidp pointer) {
    if (!pointer) return;
    uint8_t *block = (uint8_t *)pointer - BLOCK_HEAD;
    size_t whole;
    memcpy(&whole, block, sizeof whole);
    ((PNGReader *)png_get_mem_ptr(png))->allocated -= whole;
    free(block);
}

static void on_end(png_structp png, png_infop info) {
    (void)info;
    ((PNGReader *)png_get_progressive_ptr(png))->saw_end = true;
}

PNGReader *png_reader_create(size_t max_memory) {
    PNGReader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->max_memory = max_memory;
    reader->frames.budget = frame_budget_unbounded();
    reader->piece = PNG_PIECE;
    if (setjmp(reader->escape)) {
        png_reader_destroy(reader);
        return NULL;
    }
    reader->png = png_create_read_struct_2(
        PNG_LIBPNG_VER_STRING, reader, on_error, on_warning, reader, allocate, release);
    if (reader->png) reader->info = png_create_info_struct(reader->png);
    if (!reader->info) png_reader_fail(reader, CodecFaultTooMuchMemory, "out of memory");
    // The caller checks the sides after the header, so that its error can contain them.
    png_set_user_limits(reader->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_benign_errors(reader->png, 1);
    // Some writers declare a smaller window in zlib's header than they used. The largest window reads all
    // files.
    png_set_option(reader->png, PNG_MAXIMUM_INFLATE_WINDOW, PNG_OPTION_ON);
    // The only ancillary chunk passed to libpng is tRNS, and pixels depend on it.
    png_set_crc_action(reader->png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_progressive_read_fn(reader->png, reader, png_reader_on_info, png_reader_on_row, on_end);
    return reader;
}

void png_reader_destroy(PNGReader *reader) {
    if (!reader) return;
    if (!setjmp(reader->escape))
        png_destroy_read_struct(&reader->png, &reader->info, NULL);
    png_preview_destroy(reader->preview);
    png_frames_free(&reader->frames);
    png_rows_free(&reader->rows_out);
    free(reader->grid.pixels);
    free(reader->kept);
    free(reader->profile);
    free(reader->exif);
    free(reader);
}

// How many passes a preview started now would show. 0 if an earlier one showed as many, or if none is possible.
static int passes_to_show(const PNGReader *reader) {
    bool may = reader->stage < FINISHED && reader->grid.pixels && !reader->is_last_bytes;
    bool is_idle = !reader->preview || png_preview_is_whole(reader->preview);
    bool is_newer = reader->whole_passes > reader->shown_passes;
    return may && is_idle && is_newer ? reader->whole_passes : 0;
}

CodecImageInfo png_reader_picture(const PNGReader *reader) {
    CodecImageInfo picture = reader->picture;
    picture.scansToShow = passes_to_show(reader);
    picture.frames = reader->frames.budget.frames;
    picture.maxFrames = reader->frames.budget.told;
    if (reader->stage == FINISHED) thumb_report(&reader->thumb, &picture);
    picture.exif = reader->exif;
    picture.exifCount = reader->exif_count;
    return picture;
}

void png_reader_allow_frames(PNGReader *reader, CodecFrameLimits limits) {
    reader->frames.budget.limits = limits;
}

void png_reader_request_rows(PNGReader *reader) {
    reader->rows_out.is_wanted = true;
}

CodecPixels png_reader_pixels(const PNGReader *reader) {
    CodecPixels pixels = reader->rows_out.pixels;
    pixels.icc = reader->profile;
    pixels.icc_count = reader->profile_count;
    return pixels;
}

CodecRows png_reader_rows(const PNGReader *reader, int plane) {
    (void)plane;
    const PNGRows *rows = &reader->rows_out;
    size_t first = rows->is_canvas ? rows->given - rows->count : 0;
    return (CodecRows){
        .width = rows->width, .height = rows->height, .rows = rows->pointers + first, .count = (int)rows->count};
}

const char *png_reader_message(const PNGReader *reader) {
    return reader->message;
}

static void start_preview(PNGReader *reader) {
    reader->preview_wanted = false;
    int passes = passes_to_show(reader);
    if (!passes) return;
    png_preview_destroy(reader->preview);
    // Also after a failure, so that the next preview shows more passes.
    reader->shown_passes = passes;
    reader->preview = png_preview_create(
        &reader->grid, passes, reader->picture.hasAlpha, reader->orientation, reader->max_preview);
}

static void discard_preview(PNGReader *reader) {
    png_preview_destroy(reader->preview);
    reader->preview = NULL;
}

static bool is_under_way(const PNGReader *reader) {
    return reader->preview && !png_preview_is_whole(reader->preview);
}

// Returns false if the time is over before the preview is complete.
static bool render_preview(PNGReader *reader, Slice slice) {
    if (reader->preview_wanted) start_preview(reader);
    while (is_under_way(reader)) {
        if (!png_preview_write_row(reader->preview)) discard_preview(reader);
        if (slice_is_over(slice)) return !is_under_way(reader);
    }
    return true;
}

static bool has_rows(const PNGReader *reader, size_t least) {
    const PNGRows *rows = &reader->rows_out;
    return rows->is_wanted && !rows->is_canvas && rows->count >= least;
}

// Returns rows that are waiting, or all rows of an interlaced image, before the final status.
static CodecStep finished(PNGReader *reader, size_t count) {
    bool rows = has_rows(reader, 1) || png_rows_show(&reader->rows_out);
    return (CodecStep){rows ? CodecStatusRows : CodecStatusFinished, CodecFaultNone, count};
}

static CodecStep run(PNGReader *reader, const uint8_t *bytes, size_t count, bool ended) {
    Slice slice = slice_start();
    size_t consumed = 0;
    reader->is_last_bytes = ended;
    // The image itself takes precedence over previews.
    if (ended && is_under_way(reader)) discard_preview(reader);
    if (!render_preview(reader, slice))
        return (CodecStep){CodecStatusHasMore, CodecFaultNone, consumed};
    while (consumed < count) {
        const uint8_t *rest = bytes + consumed;
        bool at_head = reader->stage == SIGNATURE || reader->stage == HEAD;
        size_t left = count - consumed;
        size_t taken = at_head ? png_reader_collect_head(reader, rest, left) : png_reader_process_content(reader, rest, left);
        consumed += taken;
        reader->offset += taken;
        if (reader->stage == FINISHED) return finished(reader, count);
        if (!at_head && png_reader_reaches_header(reader))
            return (CodecStep){CodecStatusHeader, CodecFaultNone, consumed};
        if (has_rows(reader, PNG_ROWS_WAITING))
            return (CodecStep){CodecStatusRows, CodecFaultNone, consumed};
        if (slice_is_over(slice)) return (CodecStep){CodecStatusHasMore, CodecFaultNone, consumed};
    }
    if (!ended) return (CodecStep){CodecStatusNeedsBytes, CodecFaultNone, consumed};
    png_reader_end_early(reader);
    return finished(reader, count);
}

CodecStep png_reader_step(PNGReader *reader, const uint8_t *bytes, size_t count, bool ended) {
    if (has_rows(reader, PNG_ROWS_WAITING) || reader->stage == FINISHED) reader->rows_out.count = 0;
    if (reader->stage == FINISHED) return finished(reader, count);
    if (reader->stage == FAILED) return (CodecStep){CodecStatusFailed, reader->fault, count};
    if (setjmp(reader->escape)) {
        reader->stage = FAILED;
        return (CodecStep){CodecStatusFailed, reader->fault, count};
    }
    return run(reader, bytes, count, ended);
}

void png_reader_disable_previews(PNGReader *reader) {
    reader->has_no_previews = true;
}

void png_reader_skip_animation(PNGReader *reader) {
    png_frames_discard(&reader->frames);
}

void png_reader_request_preview(PNGReader *reader, int orientation) {
    reader->orientation = orientation;
    reader->preview_wanted = passes_to_show(reader) > 0;
}

void png_reader_discard_preview(PNGReader *reader) {
    reader->preview_wanted = false;
    discard_preview(reader);
}

CodecPreview png_reader_preview(const PNGReader *reader) {
    if (!reader->preview || is_under_way(reader)) return (CodecPreview){0};
    const Encoded *encoded = png_preview_encoded(reader->preview);
    return (CodecPreview){encoded->bytes, encoded->count, png_preview_passes(reader->preview)};
}
