// Composes the frames of a GIF on their canvas as browsers do (GIF89a, 23 and its disposal methods).
#include "CCodecs.h"
#include "gif_format.h"
#include "gif_lzw.h"
#include "slice.h"

#include <stdlib.h>
#include <string.h>

// The disposal methods: what happens to a frame's area before the next frame.
#define DISPOSE_CLEARS 2
#define DISPOSE_RESTORES 3
// Browsers show frames of 0 or 1 hundredths of a second for a tenth of a second.
#define LEAST_HUNDREDTHS 2
#define USUAL_MILLISECONDS 100
#define RUN 4096

typedef struct {
    Frames frames;
    GIFCursor cursor;
    GIFColours colours;          // the file's colors
    GIFArea screen;
    uint8_t *canvas, *saved;     // RGBA
    // The current frame.
    bool has_begun;              // the first frame has begun
    bool is_decoding, is_shown, has_failed;
    GIFArea image;
    int transparent, disposal;
    uint32_t milliseconds;
    GIFColours own;
    GIFLZW lzw;
    size_t block_left;
    GIFRow place;
    uint32_t column;
    uint64_t indices_left;
} Context;

// Reads an extension: the display of the next frame, or the number of loops.
static bool read_extension(Context *context) {
    const uint8_t *at = context->cursor.at;
    if (!gif_has(&context->cursor, 2)) return false;
    if (at[1] == GIF_CONTROL && gif_has(&context->cursor, GIF_CONTROL_SIZE) && at[2] == 4) {
        uint32_t hundredths = gif_u16(at + 4);
        context->disposal = at[3] >> 2 & 7;
        context->transparent = gif_transparent_index(at);
        context->milliseconds = hundredths < LEAST_HUNDREDTHS ? USUAL_MILLISECONDS : 10 * hundredths;
    }
    if (at[1] == 0xFF && gif_has(&context->cursor, 19) && at[2] == 11 && !memcmp(at + 3, "NETSCAPE2.0", 11) && at[14] == 3 && at[15] == 1) {
        uint32_t again = gif_u16(at + 16);
        context->frames.loops = again ? again + 1 : 0;
    }
    context->cursor.at += 2;
    return gif_skip_blocks(&context->cursor);
}

// Applies the shown frame's disposal method.
static void dispose(Context *context) {
    size_t canvas = (size_t)context->frames.width * context->frames.height * 4;
    if (context->disposal == DISPOSE_RESTORES) memcpy(context->canvas, context->saved, canvas);
    if (context->disposal != DISPOSE_CLEARS) return;
    uint32_t width = gif_seen(context->image.left, context->image.width, context->frames.width);
    uint32_t height = gif_seen(context->image.top, context->image.height, context->frames.height);
    for (uint32_t row = 0; row < height; row++) {
        size_t place = (size_t)(context->image.top + row) * context->frames.width + context->image.left;
        memset(context->canvas + 4 * place, 0, 4 * (size_t)width);
    }
}

static bool begin_frame(Context *context) {
    if (!gif_has(&context->cursor, GIF_IMAGE_SIZE)) return false;
    context->image = gif_image(context->cursor.at);
    context->cursor.at += GIF_IMAGE_SIZE;
    if (!context->has_begun) (void)gif_canvas(context->screen, &context->image);
    context->has_begun = true;
    context->own = context->colours;
    if (!gif_read_table(&context->cursor, &context->own, context->image.table_size)) return false;
    if (!gif_has(&context->cursor, 1)) return false;
    int code_size = *context->cursor.at++;
    context->indices_left = (uint64_t)context->image.width * context->image.height;
    if (code_size < 1 || code_size > 8) return false;
    gif_lzw_start(&context->lzw, code_size);
    context->block_left = 0;
    context->place = (GIFRow){0};
    context->column = 0;
    if (context->disposal == DISPOSE_RESTORES)
        memcpy(context->saved, context->canvas, (size_t)context->frames.width * context->frames.height * 4);
    context->is_decoding = context->indices_left > 0;
    // A frame without pixels draws nothing.
    if (!context->is_decoding) (void)gif_skip_blocks(&context->cursor);
    return true;
}

static void paint(Context *context, const uint8_t *indices, size_t count) {
    const Frames *frames = &context->frames;
    for (size_t index = 0; index < count; index++) {
        uint32_t x = context->image.left + context->column, y = context->image.top + context->place.place;
        if (x < frames->width && y < frames->height && indices[index] != context->transparent)
            memcpy(context->canvas + 4 * ((size_t)y * frames->width + x), context->own.rgba[indices[index]], 4);
        if (++context->column < context->image.width) continue;
        context->column = 0;
        gif_next_row(&context->place, context->image);
    }
}

// Decodes a part of the frame. Returns false on failure.
static bool decode_some(Context *context) {
    uint8_t indices[RUN];
    if (!context->block_left) {
        context->block_left = gif_read_block(&context->cursor);
        if (!context->block_left) return false;
    }
    const uint8_t *start = context->cursor.at;
    size_t room = context->indices_left < RUN ? (size_t)context->indices_left : RUN;
    size_t written;
    do {
        written = gif_lzw_decode(&context->lzw, &context->cursor.at, start + context->block_left, indices, room);
        paint(context, indices, written);
        context->indices_left -= written;
        room = context->indices_left < RUN ? (size_t)context->indices_left : RUN;
    } while (written == RUN && room);
    context->block_left -= (size_t)(context->cursor.at - start);
    if (!context->indices_left) {
        context->cursor.at += context->block_left;
        context->is_decoding = false;
        // The data may end here.
        (void)gif_skip_blocks(&context->cursor);
        return true;
    }
    return context->lzw.state == GIFCodesGoOn;
}

// Returns 1 if a frame begins. Returns 0 at the trailer, at a byte that starts no block, or at the end of the
// data.
static int find_frame(Context *context) {
    if (context->is_shown) dispose(context);
    context->is_shown = false;
    context->transparent = -1;
    context->disposal = 0;
    context->milliseconds = USUAL_MILLISECONDS;
    while (gif_has(&context->cursor, 1)) {
        if (*context->cursor.at == GIF_IMAGE) return begin_frame(context) ? 1 : -1;
        if (*context->cursor.at != GIF_EXTENSION || !read_extension(context)) return 0;
    }
    return 0;
}

static int next_frame(Frames *frames, const uint8_t **rgba, uint32_t *milliseconds) {
    Context *context = frames->context;
    Slice slice = slice_start();
    if (context->has_failed) return -1;
    if (!context->is_decoding) {
        int found = find_frame(context);
        context->has_failed = found < 0;
        if (found != 1) return found;
    }
    while (context->is_decoding) {
        context->has_failed = !decode_some(context);
        if (context->has_failed) return -1;
        if (context->is_decoding && slice_is_over(slice)) return PIXELS_NOT_YET;
    }
    context->is_shown = true;
    *rgba = context->canvas;
    *milliseconds = context->milliseconds;
    return 1;
}

static void close_frames(Frames *frames) {
    Context *context = frames->context;
    free(context->canvas);
    free(context->saved);
    free(context);
}

static CodecFault start(Context *context, const CheckedImage *checked) {
    if (!gif_has(&context->cursor, GIF_SCREEN_SIZE) || !gif_is_screen(context->cursor.at)) return CodecFaultBroken;
    context->screen = gif_screen(context->cursor.at);
    context->cursor.at += GIF_SCREEN_SIZE;
    gif_set_colours(&context->colours, NULL, 0);
    if (!gif_read_table(&context->cursor, &context->colours, context->screen.table_size)) return CodecFaultBroken;
    context->frames.loops = 1;
    // The canvas and the number of loops are needed before the first frame. The extensions are read again with
    // that frame.
    const uint8_t *start = context->cursor.at;
    while (gif_has(&context->cursor, 1) && *context->cursor.at == GIF_EXTENSION && read_extension(context)) continue;
    if (!gif_has(&context->cursor, GIF_IMAGE_SIZE) || *context->cursor.at != GIF_IMAGE) return CodecFaultBroken;
    GIFArea first = gif_image(context->cursor.at), canvas = gif_canvas(context->screen, &first);
    context->cursor.at = start;
    if (!canvas.width || canvas.width != checked->width || canvas.height != checked->height) return CodecFaultBroken;
    context->frames.width = canvas.width;
    context->frames.height = canvas.height;
    context->canvas = calloc((size_t)canvas.width * canvas.height, 4);
    context->saved = malloc((size_t)canvas.width * canvas.height * 4 + 1);
    return context->canvas && context->saved ? CodecFaultNone : CodecFaultTooMuchMemory;
}

Frames *gif_frames_open(const uint8_t *bytes, size_t count, CheckedImage checked, CodecFault *fault) {
    Context *context = calloc(1, sizeof *context);
    *fault = CodecFaultTooMuchMemory;
    if (!context) return NULL;
    context->frames = (Frames){.context = context, .next = next_frame, .close = close_frames};
    context->cursor = (GIFCursor){bytes, bytes + count};
    *fault = start(context, &checked);
    if (!*fault) return &context->frames;
    close_frames(&context->frames);
    return NULL;
}
