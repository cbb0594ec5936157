#include "CCodecs.h"
#include "ico_file.h"
#include "pixels_open.h"
#include "slice.h"

#include <string.h>

typedef struct {
    Pixels pixels;
    ICOFile file;
    PNGReader *png;   // NULL once it is read
    const uint8_t *bytes;
    size_t count;     // bytes of the PNG that its reader has not consumed
    uint8_t *row;     // RGBA, for a bitmap
    uint8_t *picture; // RGBA, for a PNG within an icon
    uint32_t png_rows;
    bool has_failed;
    uint32_t next_row;
} Context;

static CodecStep step_png(Context *context) {
    CodecStep step = png_reader_step(context->png, context->bytes, context->count, true);
    context->bytes += step.consumed;
    context->count -= step.consumed;
    return step;
}

// Reads the PNG up to its header, before memory of the image's size is allocated.
static CodecFault open_png(Context *context, const PixelsFile *file) {
    context->bytes = file->bytes + context->file.png;
    size_t left = file->count - (size_t)context->file.png;
    context->count = context->file.png_count < left ? (size_t)context->file.png_count : left;
    context->png = png_reader_create(SIZE_MAX / 2);
    if (!context->png) return CodecFaultTooMuchMemory;
    png_reader_request_rows(context->png);
    png_reader_disable_previews(context->png);
    png_reader_skip_animation(context->png);
    CodecStep step;
    do step = step_png(context);
    while (step.status == CodecStatusHasMore);
    if (step.status != CodecStatusHeader) return CodecFaultBroken;
    CodecImageInfo picture = png_reader_picture(context->png);
    if (!checked_is(&file->checked, picture.width, picture.height, true, false)) return CodecFaultBroken;
    context->picture = calloc((size_t)picture.width * picture.height, 4);
    return context->picture ? CodecFaultNone : CodecFaultTooMuchMemory;
}

// Copies the PNG's rows, which may have 1 to 4 channels.
static void copy_png_rows(Context *context) {
    CodecRows rows = png_reader_rows(context->png, 0);
    int channels = png_reader_pixels(context->png).channels;
    uint32_t width = context->pixels.width;
    for (int row = 0; row < rows.count && context->png_rows < context->pixels.height; row++, context->png_rows++) {
        const uint8_t *from = rows.rows[row];
        uint8_t *out = context->picture + (size_t)4 * width * context->png_rows;
        for (uint32_t x = 0; x < width; x++, from += channels, out += 4) {
            bool is_grey = channels < 3;
            out[0] = from[0];
            out[1] = from[is_grey ? 0 : 1];
            out[2] = from[is_grey ? 0 : 2];
            out[3] = channels % 2 ? 255 : from[channels - 1];
        }
    }
}

// Decodes for some milliseconds. Returns false on failure.
static bool read_png(Context *context) {
    Slice slice = slice_start();
    do {
        switch (step_png(context).status) {
        case CodecStatusRows:
            copy_png_rows(context);
            break;
        case CodecStatusHasMore:
            return true;
        case CodecStatusFinished:
            png_reader_destroy(context->png);
            context->png = NULL;
            return context->png_rows == context->pixels.height;
        default:
            return false;
        }
    } while (!slice_is_over(slice));
    return true;
}

static CodecFault start(void *reader, const PixelsFile *file) {
    Context *context = reader;
    Pixels *pixels = &context->pixels;
    ICOFile *found = &context->file;
    if (ico_read_header(found, file->bytes, file->count) || !file->checked.width || !file->checked.height) return CodecFaultBroken;
    if (found->end != UINT64_MAX && found->end > file->count) return CodecFaultBroken;
    pixels->width = file->checked.width;
    pixels->height = file->checked.height;
    pixels->channels = file->checked.has_alpha ? 4 : 3;
    if (found->is_png) return open_png(context, file);
    const Bitmap *bitmap = &found->bitmap;
    if (!checked_is(&file->checked, bitmap->width, bitmap->height, true, false)) return CodecFaultBroken;
    context->row = malloc((size_t)4 * bitmap->width);
    if (!context->row) return CodecFaultTooMuchMemory;
    size_t seen = found->end < file->count ? (size_t)found->end : file->count;
    return bitmap_open(&found->bitmap, file->bytes, seen);
}

static int read_rows(Pixels *pixels, uint8_t *out, size_t stride, int count) {
    Context *context = pixels->context;
    if (context->has_failed) return -1;
    if (context->png) {
        context->has_failed = !read_png(context);
        return context->has_failed ? -1 : PIXELS_NOT_YET;
    }
    int written = 0;
    for (; written < count && context->next_row < pixels->height; written++, context->next_row++, out += stride) {
        const uint8_t *row = context->row;
        if (context->picture) row = context->picture + (size_t)4 * pixels->width * context->next_row;
        else bitmap_row(&context->file.bitmap, context->next_row, context->row);
        for (size_t x = 0; x < pixels->width; x++)
            memcpy(out + x * (size_t)pixels->channels, row + 4 * x, (size_t)pixels->channels);
    }
    return written;
}

static void close_pixels(Pixels *pixels) {
    Context *context = pixels->context;
    png_reader_destroy(context->png);
    free(context->row);
    free(context->picture);
    free(context);
}

Pixels *ico_pixels_open(
    const uint8_t *bytes, size_t count, CheckedImage checked, uint32_t min_width,
    uint32_t min_height, CodecFault *fault) {
    static const PixelsReader reader = {sizeof(Context), start, read_rows, close_pixels};
    return pixels_open(&reader, (PixelsFile){bytes, count, checked, min_width, min_height}, fault);
}

size_t ico_pixels_memory(uint32_t width, uint32_t height) {
    // The pixels of a PNG, and a second copy if it is interlaced.
    return (size_t)width * height * 8 + (size_t)width * 4 * 100 + 1024 * 1024;
}
