// PNG's pixels over libpng's progressive reader.
//
// It pushes: a few compressed bytes can become many rows. It is given so few at a time that those rows
// beyond the ones asked for have a place of bounded size. An interlaced picture is taken in whole.
//
// libpng is shown only the chunks that samples depend on. A profile is inflated here, and bounded;
// gamma (gAMA) is not looked at, as in most browsers.
#include "pixels.h"
#include "png_profile.h"
#include "slice.h"

#include <setjmp.h>
#include <stdlib.h>

#include <png.h>

// Compressed bytes given at once: with what deflate makes of each at the most, and with what zlib may
// still owe from those before, so many bytes of rows can come of it.
#define PIECE 128
#define MAX_GROWTH 1032
#define MAX_BURST (PIECE * MAX_GROWTH + 16384)
#define MAX_SMALL_CHUNK 1024

typedef enum { INTERLACED, ROWS, END, FAILED } Stage;

typedef struct {
    const uint8_t *type; // four letters, then the content
    uint32_t length;
} Chunk;

typedef struct {
    Pixels pixels;
    png_structp png;
    png_infop info;
    jmp_buf escape;
    CodecFault fault;
    Stage stage;
    CheckedPicture checked;
    const uint8_t *bytes;
    size_t count, at;     // of the file; where the next chunk starts
    const uint8_t *piece; // of the chunk being read
    size_t piece_left;
    bool saw_end, saw_profile;
    uint8_t *profile;
    size_t row_bytes;
    uint32_t received, given; // rows
    uint8_t *out;             // the rows asked for, as long as they are
    size_t stride;
    int wanted, written;
    uint8_t *waiting;         // rows beyond those, or the whole interlaced picture
    size_t waiting_first, waiting_count, waiting_room; // rows
} Reader;

_Noreturn static void fail(Reader *reader, CodecFault fault) {
    reader->fault = fault;
    longjmp(reader->escape, 1);
}

static void on_error(png_structp png, png_const_charp message) {
    (void)message;
    fail(png_get_error_ptr(png), CodecFaultBroken);
}

static void on_warning(png_structp png, png_const_charp message) {
    (void)png, (void)message;
}

static void on_info(png_structp png, png_infop info) {
    Reader *reader = png_get_progressive_ptr(png);
    bool has_alpha = (png_get_color_type(png, info) & PNG_COLOR_MASK_ALPHA)
        || png_get_valid(png, info, PNG_INFO_tRNS);
    bool is_interlaced = png_get_interlace_type(png, info) != PNG_INTERLACE_NONE;
    if (!checked_is(
            &reader->checked, png_get_image_width(png, info), png_get_image_height(png, info),
            has_alpha, is_interlaced))
        fail(reader, CodecFaultBroken);
    size_t burst = MAX_BURST / (png_get_rowbytes(png, info) + 1) + 2;
    png_set_expand(png);
    png_set_scale_16(png);
    bool interlaced = png_set_interlace_handling(png) > 1;
    png_read_update_info(png, info);
    reader->pixels.width = png_get_image_width(png, info);
    reader->pixels.height = png_get_image_height(png, info);
    reader->pixels.channels = png_get_channels(png, info);
    reader->row_bytes = png_get_rowbytes(png, info);
    if (reader->row_bytes != (size_t)reader->pixels.width * (size_t)reader->pixels.channels)
        fail(reader, CodecFaultBroken);
    reader->waiting_room = interlaced || burst > reader->pixels.height
        ? reader->pixels.height : burst;
    reader->stage = interlaced ? INTERLACED : ROWS;
}

static void take_row(Reader *reader, const uint8_t *row) {
    uint8_t *target;
    if (reader->written < reader->wanted && !reader->waiting_count) {
        target = reader->out + (size_t)reader->written++ * reader->stride;
    } else {
        if (reader->waiting_count == reader->waiting_room) fail(reader, CodecFaultTooMuchMemory);
        size_t place = (reader->waiting_first + reader->waiting_count++) % reader->waiting_room;
        target = reader->waiting + place * reader->row_bytes;
    }
    memcpy(target, row, reader->row_bytes);
}

static void on_row(png_structp png, png_bytep row, png_uint_32 number, int pass) {
    Reader *reader = png_get_progressive_ptr(png);
    (void)pass;
    if (!row || number >= reader->pixels.height) return;
    if (!reader->waiting)
        reader->waiting = calloc(reader->waiting_room, reader->row_bytes);
    if (!reader->waiting) fail(reader, CodecFaultTooMuchMemory);
    if (reader->stage == INTERLACED) {
        png_progressive_combine_row(png, reader->waiting + number * reader->row_bytes, row);
        return;
    }
    reader->received++;
    take_row(reader, row);
}

static void on_end(png_structp png, png_infop info) {
    (void)info;
    ((Reader *)png_get_progressive_ptr(png))->saw_end = true;
}

static void pass_on(Reader *reader, const uint8_t *bytes, size_t count) {
    // libpng's parameter lacks a const: it only reads.
    png_process_data(reader->png, reader->info, (png_bytep)(uintptr_t)bytes, count);
}

static bool is_type(Chunk chunk, const char *type) {
    return !memcmp(chunk.type, type, 4);
}

static bool is_shown(Reader *reader, Chunk chunk) {
    if (is_type(chunk, "IDAT")) return true;
    // There may be one, and each takes its time.
    if (is_type(chunk, "iCCP") && !reader->saw_profile) {
        reader->saw_profile = true;
        reader->profile = png_profile(chunk.type + 4, chunk.length, &reader->pixels.icc_count);
        reader->pixels.icc = reader->profile;
    }
    bool known = is_type(chunk, "IHDR") || is_type(chunk, "PLTE") || is_type(chunk, "tRNS")
        || is_type(chunk, "IEND");
    return known && chunk.length <= MAX_SMALL_CHUNK;
}

// The next chunk, of which a piece is to be given; those in between are passed over.
static void next_chunk(Reader *reader) {
    for (;;) {
        if (reader->count - reader->at < 12) fail(reader, CodecFaultCutShort);
        Chunk chunk = {reader->bytes + reader->at + 4, png_get_uint_32(reader->bytes + reader->at)};
        if (chunk.length > reader->count - reader->at - 12) fail(reader, CodecFaultCutShort);
        size_t whole = (size_t)chunk.length + 12;
        reader->piece = reader->bytes + reader->at;
        reader->piece_left = whole;
        reader->at += whole;
        if (is_shown(reader, chunk)) return;
    }
}

static void advance(Reader *reader) {
    if (reader->saw_end) fail(reader, CodecFaultBroken);
    if (!reader->piece_left) next_chunk(reader);
    // No image data before the first row is asked for: opening allocates nothing of the picture's size.
    size_t most = reader->row_bytes ? PIECE : 8;
    size_t count = reader->piece_left < most ? reader->piece_left : most;
    const uint8_t *piece = reader->piece;
    reader->piece += count;
    reader->piece_left -= count;
    pass_on(reader, piece, count);
}

static bool read_interlaced(Reader *reader) {
    Slice slice = slice_start();
    while (!reader->saw_end) {
        advance(reader);
        if (slice_is_over(slice)) return false;
    }
    if (!reader->waiting) fail(reader, CodecFaultBroken);
    reader->received = reader->pixels.height;
    reader->waiting_count = reader->pixels.height;
    reader->stage = ROWS;
    return true;
}

static void give_waiting(Reader *reader) {
    while (reader->waiting_count && reader->written < reader->wanted) {
        memcpy(reader->out + (size_t)reader->written++ * reader->stride,
            reader->waiting + reader->waiting_first * reader->row_bytes, reader->row_bytes);
        reader->waiting_first = (reader->waiting_first + 1) % reader->waiting_room;
        reader->waiting_count--;
    }
}

static int read_rows(Reader *reader, uint8_t *out, size_t stride, int count) {
    uint32_t left = reader->pixels.height - reader->given;
    reader->out = out;
    reader->stride = stride;
    reader->wanted = count > 0 && (uint32_t)count > left ? (int)left : count;
    reader->written = 0;
    give_waiting(reader);
    Slice slice = slice_start();
    while (reader->written < reader->wanted && !slice_is_over(slice)) advance(reader);
    reader->given += (uint32_t)reader->written;
    reader->wanted = 0;
    return reader->written ? reader->written : PIXELS_NOT_YET;
}

static int rows(Pixels *pixels, uint8_t *out, size_t stride, int count) {
    Reader *reader = pixels->context;
    if (reader->stage == FAILED) return -1;
    if (reader->given == pixels->height) return 0;
    if (setjmp(reader->escape)) {
        reader->stage = FAILED;
        return -1;
    }
    if (reader->stage == INTERLACED && !read_interlaced(reader)) return PIXELS_NOT_YET;
    return read_rows(reader, out, stride, count);
}

static void close_reader(Pixels *pixels) {
    Reader *reader = pixels->context;
    if (!setjmp(reader->escape)) png_destroy_read_struct(&reader->png, &reader->info, NULL);
    free(reader->profile);
    free(reader->waiting);
    free(reader);
}

static void start(Reader *reader) {
    static const size_t signature = 8;
    reader->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, reader, on_error, on_warning);
    if (reader->png) reader->info = png_create_info_struct(reader->png);
    if (!reader->info) fail(reader, CodecFaultTooMuchMemory);
    png_set_crc_action(reader->png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_progressive_read_fn(reader->png, reader, on_info, on_row, on_end);
    if (reader->count < signature) fail(reader, CodecFaultCutShort);
    reader->at = signature;
    pass_on(reader, reader->bytes, signature);
    // The first chunk of image data makes the library call `on_info`.
    while (!reader->row_bytes) advance(reader);
}

Pixels *png_pixels_open(const uint8_t *bytes, size_t count, CheckedPicture checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault) {
    (void)min_width, (void)min_height;
    *fault = CodecFaultTooMuchMemory;
    Reader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->bytes = bytes;
    reader->count = count;
    reader->checked = checked;
    reader->pixels = (Pixels){.context = reader, .rows = rows, .close = close_reader};
    if (setjmp(reader->escape)) {
        *fault = reader->fault;
        close_reader(&reader->pixels);
        return NULL;
    }
    start(reader);
    *fault = CodecFaultNone;
    return &reader->pixels;
}
