#include "animation.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    Encoder encoder;
    size_t row_bytes, room, count;
    uint8_t *pixels;
} Context;

static bool add_rows(Encoder *encoder, const uint8_t *rows, size_t stride, int count) {
    Context *context = encoder->context;
    for (int row = 0; row < count; row++) {
        if (context->room - context->count < context->row_bytes) return false;
        memcpy(context->pixels + context->count, rows + (size_t)row * stride, context->row_bytes);
        context->count += context->row_bytes;
    }
    return true;
}

static bool finish(Encoder *encoder) {
    Context *context = encoder->context;
    encoder->bytes = context->pixels;
    encoder->count = context->count;
    return context->count == context->room;
}

static void close_encoder(Encoder *encoder) {
    Context *context = encoder->context;
    free(context->pixels);
    free(context);
}

Encoder *raw_encoder_open(uint32_t width, uint32_t height, int channels, int quality) {
    Context *context = calloc(1, sizeof *context);
    if (!context) return NULL;
    context->row_bytes = (size_t)width * (size_t)channels;
    context->room = raw_encoder_max_bytes(width, height, channels, quality);
    context->pixels = malloc(context->room + 1);
    context->encoder = (Encoder){
        .context = context, .rows = add_rows, .finish = finish, .close = close_encoder};
    if (context->pixels) return &context->encoder;
    close_encoder(&context->encoder);
    return NULL;
}

size_t raw_encoder_max_bytes(uint32_t width, uint32_t height, int channels, int quality) {
    (void)quality;
    return (size_t)width * height * (size_t)channels;
}
