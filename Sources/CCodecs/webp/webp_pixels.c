#include "CCodecs.h"
#include "pixels_open.h"
#include "slice.h"
#include "webp_container.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    Pixels pixels;
    CheckedImage checked;
    WebPContainer container;           // positioned at the image to read
    WebPFrame frame;
    bool is_done, has_failed;
    uint32_t next_row;
    uint32_t left, top, width, height; // the frame's place on the canvas
    size_t alpha, alpha_end;           // where the frame's ALPH chunk is in the file; both 0: there is none
} Context;

// Moves to the first image and remembers the color profile on the way. Returns false if there is no image.
static bool find_image(Context *context, const uint8_t *bytes, size_t count) {
    WebPContainer *container = &context->container;
    for (;;) {
        if (container->offset > count) return false;
        size_t at = (size_t)container->offset;
        WebPChunk chunk = webp_container_inspect(container, bytes + at, count - at);
        bool is_entered = chunk == WebPAnimationFrame || chunk == WebPAlpha || chunk == WebPImage;
        bool is_passed = chunk == WebPOther || chunk == WebPEXIF || chunk == WebPProfile;
        if (!is_entered && !is_passed) return false;
        if (container->chunk_end > count) return false;
        if (is_entered && !webp_container_enter(container, chunk, bytes + at)) return false;
        if (chunk == WebPImage) return true;
        if (chunk == WebPAnimationFrame) continue;
        if (chunk == WebPAlpha) {
            context->alpha = at;
            context->alpha_end = (size_t)container->chunk_end;
        }
        if (chunk == WebPProfile && container->content_end > at + WEBP_CHUNK_HEAD) {
            context->pixels.icc = bytes + at + WEBP_CHUNK_HEAD;
            context->pixels.icc_count = (size_t)container->content_end - at - WEBP_CHUNK_HEAD;
        }
        container->offset = container->chunk_end;
    }
}

// Whether the image found equals the one that was checked. For an animation, the decoder reports alpha of any
// frame.
static bool is_checked(const Context *context) {
    const CheckedImage *checked = &context->checked;
    const WebPContainer *container = &context->container;
    bool has_alpha = container->has_alpha || (checked->frames > 1 && checked->has_alpha);
    return checked->frames && (checked->frames == 1 || container->is_animated)
        && checked_is(checked, container->width, container->height, has_alpha, false);
}

// Gives the decoder the image's chunks in place, or a copy if other chunks are between them. Returns false if
// out of memory.
static bool provide_chunks(Context *context, const uint8_t *bytes) {
    const WebPContainer *container = &context->container;
    WebPFrame *frame = &context->frame;
    size_t image = (size_t)container->offset, end = (size_t)container->chunk_end;
    bool has_alpha = container->has_alpha_chunk;
    if (!has_alpha || context->alpha_end == image) {
        size_t start = has_alpha ? context->alpha : image;
        webp_frame_borrow(frame, bytes + start, end - start);
        return true;
    }
    return webp_frame_append(frame, bytes + context->alpha, context->alpha_end - context->alpha)
        && webp_frame_append(frame, bytes + image, end - image);
}

static bool covers(const Context *context) {
    return context->width == context->pixels.width && context->height == context->pixels.height;
}

// Halves both sides while they stay at least this large.
static void scale(Context *context, uint32_t min_width, uint32_t min_height) {
    if (!min_width || !min_height || !covers(context)) return;
    uint32_t width = context->width, height = context->height;
    while ((width + 1) / 2 >= min_width && (height + 1) / 2 >= min_height && (width > 1 || height > 1)) {
        width = (width + 1) / 2;
        height = (height + 1) / 2;
    }
    context->width = context->pixels.width = width;
    context->height = context->pixels.height = height;
}

static CodecFault start(void *reader, const PixelsFile *file) {
    Context *context = reader;
    context->checked = file->checked;
    const WebPContainer *container = &context->container;
    Pixels *pixels = &context->pixels;
    if (!find_image(context, file->bytes, file->count) || !is_checked(context)) return CodecFaultBroken;
    pixels->width = container->width;
    pixels->height = container->height;
    pixels->channels = container->has_alpha ? 4 : 3;
    context->left = container->place.left;
    context->top = container->place.top;
    context->width = container->place.width;
    context->height = container->place.height;
    uint32_t own_width = context->width, own_height = context->height;
    scale(context, file->min_width, file->min_height);
    bool is_scaled = context->width != own_width || context->height != own_height;
    if (!provide_chunks(context, file->bytes)) return CodecFaultTooMuchMemory;
    bool is_started = webp_frame_start(
        &context->frame, context->frame.count, own_height, container->tag == WEBP_VP8L,
        container->has_alpha ? MODE_RGBA : MODE_RGB, is_scaled ? context->width : 0,
        is_scaled ? context->height : 0);
    return is_started ? CodecFaultNone : CodecFaultTooMuchMemory;
}

// How many of the frame's rows are decoded.
static int rows_decoded(const Context *context) {
    int rows = 0;
    if (context->is_done) return (int)context->height;
    WebPIDecGetRGB(context->frame.decoder, &rows, NULL, NULL, NULL);
    return rows;
}

// Decodes until the next canvas row is known or the slice is over. Returns false on failure.
static bool decode(Context *context) {
    Slice slice = slice_start();
    while (!context->is_done && (int64_t)rows_decoded(context) + context->top <= context->next_row) {
        WebPFrameState state = webp_frame_advance(&context->frame);
        if (state == WebPFrameFailed || state == WebPFrameNeedsBytes) return false;
        context->is_done = state == WebPFrameDone;
        if (slice_is_over(slice)) break;
    }
    return true;
}

static bool is_ready(const Context *context, uint32_t row) {
    return row < context->top || row >= context->top + context->height
        || row - context->top < (uint32_t)rows_decoded(context);
}

static void copy_row(const Context *context, uint32_t row, uint8_t *out) {
    size_t channels = (size_t)context->pixels.channels;
    if (!covers(context)) memset(out, 0, context->pixels.width * channels);
    if (row < context->top || row >= context->top + context->height) return;
    const WebPRGBABuffer *buffer = &context->frame.config.output.u.RGBA;
    memcpy(
        out + context->left * channels, buffer->rgba + (size_t)(row - context->top) * buffer->stride,
        context->width * channels);
}

static int read_rows(Pixels *pixels, uint8_t *out, size_t stride, int count) {
    Context *context = pixels->context;
    if (context->next_row == pixels->height) return 0;
    if (context->has_failed || !decode(context)) {
        context->has_failed = true;
        return -1;
    }
    int written = 0;
    while (written < count && context->next_row < pixels->height
           && is_ready(context, context->next_row)) {
        copy_row(context, context->next_row, out + (size_t)written * stride);
        context->next_row++;
        written++;
    }
    return written ? written : PIXELS_NOT_YET;
}

static void close_pixels(Pixels *pixels) {
    Context *context = pixels->context;
    webp_frame_reset(&context->frame);
    free(context);
}

Pixels *webp_pixels_open(
    const uint8_t *bytes, size_t count, CheckedImage checked, uint32_t min_width,
    uint32_t min_height, CodecFault *fault) {
    static const PixelsReader reader = {sizeof(Context), start, read_rows, close_pixels};
    return pixels_open(&reader, (PixelsFile){bytes, count, checked, min_width, min_height}, fault);
}

size_t webp_pixels_memory(uint32_t width, uint32_t height, bool has_alpha) {
    // It is not known whether the image is lossless or how many prefix codes it has, so this assumes the worst.
    size_t decoding = webp_frame_memory(width, height, true, has_alpha, 0);
    return decoding + (size_t)width * height * (has_alpha ? 4 : 3);
}
