// Decodes GIF without a library: GIF libraries pull their input and cannot wait for more bytes. The LZW part is
// in gif_lzw.c.
//
// Every index of every frame is decoded, and none is kept. The thumbnail is made from the first frame on the
// way. Frames are not composed, because copying decoded pixels cannot fail. As in browsers, parts of a frame
// outside the canvas are decoded but not shown, and data after a frame's last pixel is skipped.
//
// Once a frame is complete, the image may end without a trailer: at the end of the data, or at a byte that
// starts no block. Browsers accept this too, because many files lack the trailer or have other bytes before it.
// A frame that has begun must have all its pixels.
#include "CCodecs.h"
#include "frame_budget.h"
#include "gif_format.h"
#include "gif_lzw.h"
#include "gif_thumb.h"
#include "slice.h"

#include <stdio.h>
#include <stdlib.h>

// How many indices are decoded between checks of the clock.
#define RUN ((size_t)64 * 1024)
#define BASE_MEMORY ((size_t)192 * 1024)

typedef enum { SCREEN, BLOCK, CODE_SIZE, TABLE, SKIP, BLOCKS, DATA, FINISHED, FAILED } Stage;

struct GIFReader {
    Stage stage;
    CodecFault fault;
    CodecImageInfo picture;
    GIFArea screen;          // the canvas, once the header is read
    uint32_t left;           // bytes left of a table or a data block
    Stage after;             // the stage after them
    bool has_header;         // the canvas is known; this needs the first frame
    bool in_image;           // the data blocks belong to an image
    bool is_in_frame;        // a frame has begun and lacks pixels
    int transparent;         // the transparent index of the next frame
    FrameBudget budget;
    uint64_t offset;         // of the next byte in the file
    uint64_t indices_left;   // missing indices of the current frame
    GIFArea frame;           // the frame that is too large
    GIFArea first;           // the first frame, on the canvas
    int first_transparent;
    uint8_t table[GIF_MAX_TABLE]; // the first frame's colors, or the file's
    uint32_t table_size;
    GIFThumb thumb;
    GIFLZW lzw;
    uint8_t indices[RUN];
    char message[80];
};

// Records a failure in `stage`. Callers must return at once.
static void fail(GIFReader *reader, CodecFault fault, const char *message) {
    if (reader->stage == FAILED) return;
    reader->stage = FAILED;
    reader->fault = fault;
    snprintf(reader->message, sizeof reader->message, "%s", message);
}

GIFReader *gif_reader_create(size_t max_memory) {
    (void)max_memory; // memory is the same for every image
    GIFReader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->budget = frame_budget_unbounded();
    reader->transparent = -1;
    return reader;
}

void gif_reader_destroy(GIFReader *reader) {
    free(reader);
}

void gif_reader_allow_frames(GIFReader *reader, CodecFrameLimits limits) {
    reader->budget.limits = limits;
}

CodecImageInfo gif_reader_picture(const GIFReader *reader) {
    CodecImageInfo picture = reader->picture;
    picture.frames = reader->budget.frames;
    picture.maxFrames = reader->budget.told;
    picture.frameWidth = reader->frame.width;
    picture.frameHeight = reader->frame.height;
    if (reader->stage == FINISHED) thumb_report(&reader->thumb.thumb, &picture);
    return picture;
}

const char *gif_reader_message(const GIFReader *reader) {
    return reader->message;
}

static void skip(GIFReader *reader, uint32_t count, Stage after) {
    reader->left = count;
    reader->stage = count ? SKIP : after;
    reader->after = after;
}

// Starts reading a color table. Only the first frame's table and the file's table are kept.
static void begin_table(GIFReader *reader, uint32_t size, Stage after) {
    skip(reader, size, after);
    if (!size || reader->budget.frames > 1) return;
    reader->table_size = size;
    reader->stage = TABLE;
}

static void read_screen(GIFReader *reader, const uint8_t *bytes) {
    reader->screen = gif_screen(bytes);
    if (!gif_is_screen(bytes)) {
        fail(reader, CodecFaultBroken, "bad header");
        return;
    }
    begin_table(reader, reader->screen.table_size, BLOCK);
}

// Sets the image's size, which is known once the first frame's size is. Consumes nothing of the frame: the
// caller checks the size first.
static void read_canvas(GIFReader *reader, GIFArea first) {
    if (!first.width || !first.height) {
        fail(reader, CodecFaultBroken, "a first frame without pixels");
        return;
    }
    reader->screen = gif_canvas(reader->screen, &first);
    reader->first = first;
    reader->picture.width = reader->screen.width;
    reader->picture.height = reader->screen.height;
    reader->picture.decodingMemory = BASE_MEMORY;
    reader->has_header = true;
}

// Sets the properties of the image that come from its first frame.
static void describe_first_frame(GIFReader *reader) {
    if (reader->budget.frames > 1) return;
    reader->first_transparent = reader->transparent;
    reader->picture.isProgressive = reader->first.is_interlaced;
    reader->picture.hasAlpha = reader->transparent >= 0 || !gif_covers(reader->first, reader->screen);
}

// Later frames may have no pixels: they draw nothing.
static void begin_image(GIFReader *reader, GIFArea image) {
    uint64_t pixels = (uint64_t)image.width * image.height;
    if (pixels > reader->budget.limits.freePixels) {
        reader->frame = image;
        fail(reader, CodecFaultFrameTooLarge, "too large a frame");
    } else if (!frame_budget_count(&reader->budget, pixels, reader->offset)) {
        fail(reader, CodecFaultTooManyFrames, "too many frames");
    } else {
        describe_first_frame(reader);
        reader->indices_left = pixels;
        reader->is_in_frame = true;
        reader->transparent = -1;
        begin_table(reader, image.table_size, CODE_SIZE);
    }
}

static void begin_codes(GIFReader *reader, uint8_t size) {
    if (size < 1 || size > 8) {
        fail(reader, CodecFaultBroken, "bad code size");
        return;
    }
    if (reader->budget.frames == 1)
        gif_thumb_start(
            &reader->thumb, reader->screen, reader->first, reader->table, reader->table_size,
            reader->first_transparent);
    gif_lzw_start(&reader->lzw, size);
    reader->is_in_frame = reader->indices_left > 0;
    reader->in_image = true;
    reader->stage = BLOCKS;
}

static void end_file(GIFReader *reader) {
    if (!reader->budget.frames) {
        fail(reader, CodecFaultBroken, "no image");
        return;
    }
    thumb_finish_pixels(&reader->thumb.thumb);
    reader->stage = FINISHED;
}

// Reads the start of a block. Returns how many bytes it consumed; 0 if it needs more.
static size_t read_block(GIFReader *reader, const uint8_t *bytes, size_t count) {
    switch (bytes[0]) {
    case GIF_IMAGE:
        if (count < GIF_IMAGE_SIZE) return 0;
        if (!reader->has_header) {
            read_canvas(reader, gif_image(bytes));
            return 0;
        }
        begin_image(reader, gif_image(bytes));
        return GIF_IMAGE_SIZE;
    case GIF_EXTENSION:
        if (count < 2 || (bytes[1] == GIF_CONTROL && count < GIF_CONTROL_SIZE)) return 0;
        if (bytes[1] == GIF_CONTROL) reader->transparent = gif_transparent_index(bytes);
        reader->in_image = false;
        reader->stage = BLOCKS;
        return 2;
    case GIF_TRAILER:
        end_file(reader);
        return 1;
    default:
        // All frames that have begun are complete here.
        if (reader->budget.frames) end_file(reader);
        else fail(reader, CodecFaultBroken, "unexpected bytes between blocks");
        return 1;
    }
}

// Handles the end of the data before the trailer. It may be within a frame or after a complete one.
static void end_early(GIFReader *reader, const uint8_t *rest, size_t count) {
    bool is_cut = reader->is_in_frame || (reader->stage == BLOCK && count && rest[0] == GIF_IMAGE);
    if (!reader->budget.frames || is_cut)
        fail(reader, CodecFaultCutShort, "the bytes end before the image");
    else
        end_file(reader);
}

// Reads the length of a data block. A length of 0 ends the blocks.
static void read_length(GIFReader *reader, uint8_t length) {
    if (length) {
        bool counts = reader->in_image && reader->indices_left;
        skip(reader, length, BLOCKS);
        if (counts) reader->stage = DATA;
    } else if (reader->in_image && reader->indices_left) {
        fail(reader, CodecFaultBroken, "not enough image data");
    } else {
        reader->stage = BLOCK;
    }
}

// Decodes bytes of a data block, up to one run of indices. Returns how many bytes it consumed.
static size_t decode_data(GIFReader *reader, const uint8_t *bytes, size_t count) {
    const uint8_t *at = bytes;
    const uint8_t *end = bytes + (count < reader->left ? count : reader->left);
    size_t room = reader->indices_left < RUN ? (size_t)reader->indices_left : RUN;
    size_t written = gif_lzw_decode(&reader->lzw, &at, end, reader->indices, room);
    // `indices` now has the frame's next `written` indices, row after row.
    reader->indices_left -= written;
    reader->is_in_frame = reader->indices_left > 0;
    if (reader->budget.frames == 1) gif_thumb_add(&reader->thumb, reader->indices, written);
    if (reader->lzw.state == GIFCodesBroken) fail(reader, CodecFaultBroken, "bad LZW code");
    // Data after the last pixel or the end code is ignored.
    bool is_over = !reader->indices_left || reader->lzw.state != GIFCodesGoOn;
    if (is_over) at = end;
    reader->left -= (uint32_t)(at - bytes);
    // If the run is full, a part of a string may be left in the decoder.
    bool is_done = is_over || written < room;
    if (reader->stage == DATA && !reader->left && is_done) reader->stage = BLOCKS;
    return (size_t)(at - bytes);
}

// Consumes bytes of a table, or bytes that are skipped.
static size_t skip_or_store(GIFReader *reader, const uint8_t *bytes, size_t count) {
    size_t taken = count < reader->left ? count : reader->left;
    if (reader->stage == TABLE)
        memcpy(reader->table + (reader->table_size - reader->left), bytes, taken);
    reader->left -= (uint32_t)taken;
    if (!reader->left) reader->stage = reader->after;
    return taken;
}

// Performs one action. Returns how many bytes it consumed; 0 if it needs more.
static size_t advance(GIFReader *reader, const uint8_t *bytes, size_t count) {
    switch (reader->stage) {
    case SCREEN:
        if (count < GIF_SCREEN_SIZE) return 0;
        read_screen(reader, bytes);
        return GIF_SCREEN_SIZE;
    case BLOCK:
        return read_block(reader, bytes, count);
    case CODE_SIZE:
        begin_codes(reader, bytes[0]);
        return 1;
    case BLOCKS:
        read_length(reader, bytes[0]);
        return 1;
    case DATA:
        return decode_data(reader, bytes, count);
    default:
        return skip_or_store(reader, bytes, count);
    }
}

static CodecStatus run(GIFReader *reader, const uint8_t *bytes, size_t count, size_t *consumed) {
    Slice slice = slice_start();
    do {
        Stage stage = reader->stage;
        bool had_header = reader->has_header;
        bool has_string = stage == DATA && !reader->left;
        if (*consumed == count && !has_string) return CodecStatusNeedsBytes;
        size_t taken = advance(reader, bytes + *consumed, count - *consumed);
        *consumed += taken;
        reader->offset += taken;
        if (reader->stage == FINISHED) return CodecStatusFinished;
        if (reader->stage == FAILED) return CodecStatusFailed;
        if (reader->has_header && !had_header) return CodecStatusHeader;
        // A run of indices may come from bytes that were consumed before.
        if (!taken && stage != DATA) return CodecStatusNeedsBytes;
    } while (!slice_is_over(slice));
    return CodecStatusHasMore;
}

CodecStep gif_reader_step(GIFReader *reader, const uint8_t *bytes, size_t count, bool ended) {
    if (reader->stage == FINISHED) return (CodecStep){CodecStatusFinished, CodecFaultNone, count};
    if (reader->stage == FAILED) return (CodecStep){CodecStatusFailed, reader->fault, count};
    static const uint8_t none = 0;
    size_t consumed = 0;
    CodecStatus status = run(reader, bytes ? bytes : &none, count, &consumed);
    if (status == CodecStatusNeedsBytes && ended) {
        end_early(reader, bytes ? bytes + consumed : &none, count - consumed);
        status = reader->stage == FINISHED ? CodecStatusFinished : CodecStatusFailed;
    }
    bool is_over = status == CodecStatusFinished || status == CodecStatusFailed;
    return (CodecStep){status, reader->fault, is_over ? count : consumed};
}
