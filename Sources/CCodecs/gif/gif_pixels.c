#include "CCodecs.h"
#include "gif_format.h"
#include "gif_lzw.h"
#include "pixels_open.h"
#include "slice.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    Pixels pixels;
    GIFArea image;
    uint32_t seen_width, seen_height; // the part of the frame on the canvas
    int transparent;
    GIFColours colours;
    GIFCursor cursor;                 // within the data blocks
    size_t block_left;
    GIFLZW lzw;
    uint8_t *row;                     // the frame's row that is being decoded
    uint32_t row_count;               // indices in that row
    uint32_t rows_decoded;
    GIFRow place;                     // the place of the decoded row
    uint8_t *indices;                 // of the shown part
    uint32_t next_row;
} Context;

// Moves to the first image's codes.
static bool find_image(Context *context) {
    while (gif_has(&context->cursor, GIF_CONTROL_SIZE) && *context->cursor.at == GIF_EXTENSION) {
        if (context->cursor.at[1] == GIF_CONTROL)
            context->transparent = gif_transparent_index(context->cursor.at);
        context->cursor.at += 2;
        if (!gif_skip_blocks(&context->cursor)) return false;
    }
    if (!gif_has(&context->cursor, GIF_IMAGE_SIZE) || *context->cursor.at != GIF_IMAGE) return false;
    context->image = gif_image(context->cursor.at);
    context->cursor.at += GIF_IMAGE_SIZE;
    if (!gif_read_table(&context->cursor, &context->colours, context->image.table_size)) return false;
    if (!gif_has(&context->cursor, 1)) return false;
    int code_size = *context->cursor.at++;
    if (code_size < 1 || code_size > 8 || !context->image.width || !context->image.height)
        return false;
    gif_lzw_start(&context->lzw, code_size);
    return true;
}

static CodecFault start(void *reader, const PixelsFile *file) {
    Context *context = reader;
    const CheckedImage *checked = &file->checked;
    context->transparent = -1;
    context->cursor = (GIFCursor){file->bytes, file->bytes + file->count};
    Pixels *pixels = &context->pixels;
    if (!gif_has(&context->cursor, GIF_SCREEN_SIZE) || !gif_is_screen(context->cursor.at)) return CodecFaultBroken;
    GIFArea screen = gif_screen(context->cursor.at);
    context->cursor.at += GIF_SCREEN_SIZE;
    gif_set_colours(&context->colours, NULL, 0);
    if (!gif_read_table(&context->cursor, &context->colours, screen.table_size)) return CodecFaultBroken;
    if (!find_image(context)) return CodecFaultBroken;
    screen = gif_canvas(screen, &context->image);
    bool has_alpha = context->transparent >= 0 || !gif_covers(context->image, screen);
    if (!checked_is(checked, screen.width, screen.height, has_alpha, context->image.is_interlaced))
        return CodecFaultBroken;
    pixels->width = screen.width;
    pixels->height = screen.height;
    pixels->channels = has_alpha ? 4 : 3;
    if (context->transparent >= 0) memset(context->colours.rgba[context->transparent], 0, 4);
    context->seen_width = gif_seen(context->image.left, context->image.width, screen.width);
    context->seen_height = gif_seen(context->image.top, context->image.height, screen.height);
    context->row = malloc(context->image.width);
    context->indices = malloc((size_t)context->seen_width * context->seen_height + 1);
    return context->row && context->indices ? CodecFaultNone : CodecFaultTooMuchMemory;
}

static void keep_row(Context *context) {
    if (context->place.place < context->seen_height)
        memcpy(
            context->indices + (size_t)context->place.place * context->seen_width, context->row,
            context->seen_width);
    context->row_count = 0;
    context->rows_decoded++;
    gif_next_row(&context->place, context->image);
}

// Moves to the next data block if the last one is used up. Returns false if there is none.
static bool enter_block(Context *context) {
    if (context->block_left) return true;
    context->block_left = gif_read_block(&context->cursor);
    if (!context->block_left) return false;
    return true;
}

// Decodes up to the end of the row or of the block. Returns false on failure.
static bool decode_some(Context *context) {
    const uint8_t *start = context->cursor.at;
    size_t room = context->image.width - context->row_count;
    size_t written = gif_lzw_decode(
        &context->lzw, &context->cursor.at, start + context->block_left,
        context->row + context->row_count, room);
    context->block_left -= (size_t)(context->cursor.at - start);
    context->row_count += (uint32_t)written;
    if (written == room) keep_row(context);
    else if (context->lzw.state != GIFCodesGoOn || !enter_block(context)) return false;
    return true;
}

static bool is_ready(const Context *context, uint32_t row) {
    uint32_t top = context->image.top;
    if (row < top || row - top >= context->seen_height) return true;
    if (context->rows_decoded == context->image.height) return true;
    return !context->image.is_interlaced && row - top < context->rows_decoded;
}

static void copy_row(const Context *context, uint32_t row, uint8_t *out) {
    size_t channels = (size_t)context->pixels.channels;
    uint32_t top = context->image.top;
    if (channels == 4) memset(out, 0, 4 * (size_t)context->pixels.width);
    if (row < top || row - top >= context->seen_height || !context->seen_width) return;
    const uint8_t *indices = context->indices + (size_t)(row - top) * context->seen_width;
    out += context->image.left * channels;
    for (uint32_t column = 0; column < context->seen_width; column++)
        memcpy(out + column * channels, context->colours.rgba[indices[column]], channels);
}

static int read_rows(Pixels *pixels, uint8_t *out, size_t stride, int count) {
    Context *context = pixels->context;
    if (context->next_row == pixels->height) return 0;
    Slice slice = slice_start();
    while (!is_ready(context, context->next_row)) {
        if (!decode_some(context)) return -1;
        if (slice_is_over(slice)) return PIXELS_NOT_YET;
    }
    int written = 0;
    while (written < count && context->next_row < pixels->height
           && is_ready(context, context->next_row)) {
        copy_row(context, context->next_row, out + (size_t)written * stride);
        context->next_row++;
        written++;
    }
    return written;
}

static void close_pixels(Pixels *pixels) {
    Context *context = pixels->context;
    free(context->row);
    free(context->indices);
    free(context);
}

Pixels *gif_pixels_open(
    const uint8_t *bytes, size_t count, CheckedImage checked, uint32_t min_width,
    uint32_t min_height, CodecFault *fault) {
    static const PixelsReader reader = {sizeof(Context), start, read_rows, close_pixels};
    return pixels_open(&reader, (PixelsFile){bytes, count, checked, min_width, min_height}, fault);
}

size_t gif_pixels_memory(uint32_t width, uint32_t height) {
    return sizeof(Context) + 65536 + (size_t)width * height;
}
