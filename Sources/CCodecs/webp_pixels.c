#include "CCodecs.h"
#include "slice.h"
#include "webp_frame.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_HEAD 8
#define TAG_VP8X WEBP_TAG('V', 'P', '8', 'X')
#define TAG_ANMF WEBP_TAG('A', 'N', 'M', 'F')
#define TAG_ICCP WEBP_TAG('I', 'C', 'C', 'P')
#define VP8X_SIZE 10
#define ANMF_SIZE 16

typedef struct {
    Pixels pixels;
    WebPFrame frame;
    bool is_done;
    uint32_t next_row;
    uint32_t left, top, width, height; // of the frame on the canvas
    bool has_canvas, has_alpha_chunk;
    size_t total;                      // bytes of the frame's chunks
    uint32_t tag;                      // of the chunk with its image
    WebPBitstream bitstream;
} Context;

static void note_canvas(Context *context, const uint8_t *content) {
    context->has_canvas = true;
    context->pixels.width = webp_u24(content + 4) + 1;
    context->pixels.height = webp_u24(content + 7) + 1;
}

static void note_place(Context *context, const uint8_t *content) {
    context->left = 2 * webp_u24(content);
    context->top = 2 * webp_u24(content + 3);
}

// Takes the chunk's bytes for the decoder. False: no memory.
static bool keep_chunk(Context *context, const uint8_t *chunk, size_t size) {
    context->total += size;
    return webp_frame_append(&context->frame, chunk, size);
}

static CodecFault take_image(Context *context, uint32_t tag, const uint8_t *chunk, size_t size) {
    if (tag == WEBP_ALPH) {
        context->has_alpha_chunk = true;
        return keep_chunk(context, chunk, size) ? CodecFaultNone : CodecFaultTooMuchMemory;
    }
    if (size < CHUNK_HEAD + webp_bitstream_head(tag)) return CodecFaultBroken;
    if (!webp_bitstream_read(tag, chunk + CHUNK_HEAD, &context->bitstream)) return CodecFaultBroken;
    if (tag == WEBP_VP8L) {
        webp_frame_reset(&context->frame);
        context->total = 0;
        context->has_alpha_chunk = false;
    }
    context->tag = tag;
    return keep_chunk(context, chunk, size) ? CodecFaultNone : CodecFaultTooMuchMemory;
}

// Looks for the first picture and the colour profile before it. An ANMF chunk is entered.
static CodecFault find_image(Context *context, const uint8_t *bytes, size_t count) {
    size_t offset = 12;
    while (!context->tag && count >= CHUNK_HEAD && offset <= count - CHUNK_HEAD) {
        const uint8_t *chunk = bytes + offset;
        uint32_t tag = webp_u32(chunk);
        size_t size = webp_u32(chunk + 4), room = count - offset - CHUNK_HEAD;
        if (size > room) return CodecFaultBroken;
        if (tag == TAG_VP8X && size >= VP8X_SIZE) note_canvas(context, chunk + CHUNK_HEAD);
        if (tag == TAG_ICCP && size) {
            context->pixels.icc = chunk + CHUNK_HEAD;
            context->pixels.icc_count = size;
        }
        size_t padded = CHUNK_HEAD + size + (size % 2 && size < room);
        if (tag == TAG_ANMF && size >= ANMF_SIZE) {
            note_place(context, chunk + CHUNK_HEAD);
            padded = CHUNK_HEAD + ANMF_SIZE;
        } else if (tag == WEBP_ALPH || tag == WEBP_VP8 || tag == WEBP_VP8L) {
            CodecFault fault = take_image(context, tag, chunk, padded);
            if (fault) return fault;
        }
        offset += padded;
    }
    return context->tag ? CodecFaultNone : CodecFaultBroken;
}

static bool covers(const Context *context) {
    return context->width == context->pixels.width && context->height == context->pixels.height;
}

// Halves both sides while they stay at least so large.
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

static CodecFault start(Context *context, uint32_t min_width, uint32_t min_height) {
    Pixels *pixels = &context->pixels;
    const WebPBitstream *bitstream = &context->bitstream;
    context->width = bitstream->width;
    context->height = bitstream->height;
    if (!context->has_canvas) {
        pixels->width = context->width;
        pixels->height = context->height;
    }
    if (context->left + context->width > pixels->width
        || context->top + context->height > pixels->height)
        return CodecFaultBroken;
    bool has_alpha = bitstream->has_alpha || context->has_alpha_chunk || !covers(context);
    pixels->channels = has_alpha ? 4 : 3;
    scale(context, min_width, min_height);
    bool is_scaled = context->width != bitstream->width || context->height != bitstream->height;
    bool is_started = webp_frame_start(
        &context->frame, context->total, bitstream->height, context->tag == WEBP_VP8L,
        has_alpha ? MODE_RGBA : MODE_RGB, is_scaled ? context->width : 0,
        is_scaled ? context->height : 0);
    return is_started ? CodecFaultNone : CodecFaultTooMuchMemory;
}

// The frame's rows that are decoded, of all of them.
static int rows_decoded(const Context *context) {
    int rows = 0;
    if (context->is_done) return (int)context->height;
    WebPIDecGetRGB(context->frame.decoder, &rows, NULL, NULL, NULL);
    return rows;
}

// Decodes until a canvas row can be told or the slice is over. False: it failed.
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
    if (!decode(context)) return -1;
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
    const uint8_t *bytes, size_t count, uint32_t min_width, uint32_t min_height, CodecFault *fault) {
    Context *context = calloc(1, sizeof *context);
    *fault = CodecFaultTooMuchMemory;
    if (!context) return NULL;
    context->pixels.context = context;
    context->pixels.rows = read_rows;
    context->pixels.close = close_pixels;
    *fault = find_image(context, bytes, count);
    if (!*fault) *fault = start(context, min_width, min_height);
    if (!*fault) return &context->pixels;
    close_pixels(&context->pixels);
    return NULL;
}

size_t webp_pixels_memory(uint32_t width, uint32_t height, bool has_alpha) {
    // Whether it is lossless is not known, nor how many prefix codes it has.
    size_t decoding = webp_frame_memory(width, height, true, has_alpha, 0);
    return decoding + (size_t)width * height * (has_alpha ? 4 : 3);
}
