#include "CCodecs.h"
#include "avif_decoder.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    Pixels pixels;
    avifDecoder *decoder; // until its frame is converted
    bool is_decoded;
    avifRWData icc;
    avifRGBImage rgb;
    uint32_t next_row;
} Context;

static CodecFault parse(Context *context, const uint8_t *bytes, size_t count) {
    context->decoder = avif_decoder_create();
    if (!context->decoder) return CodecFaultTooMuchMemory;
    avifResult result = avifDecoderSetIOMemory(context->decoder, bytes, count);
    if (result == AVIF_RESULT_OK) result = avifDecoderParse(context->decoder);
    return result == AVIF_RESULT_OK ? CodecFaultNone : CodecFaultBroken;
}

static CodecFault start(Context *context, const uint8_t *bytes, size_t count) {
    CodecFault fault = parse(context, bytes, count);
    if (fault) return fault;
    const avifImage *image = context->decoder->image;
    Pixels *pixels = &context->pixels;
    pixels->width = image->width;
    pixels->height = image->height;
    pixels->channels = context->decoder->alphaPresent ? 4 : 3;
    avifRWDataSet(&context->icc, image->icc.data, image->icc.size);
    if (image->icc.size && !context->icc.data) return CodecFaultTooMuchMemory;
    pixels->icc = context->icc.data;
    pixels->icc_count = context->icc.size;
    // The limit counts from where the file is parsed again.
    avif_decoder_limit(context->decoder, image->width, image->height);
    avifResult result = avifDecoderSetIOMemory(context->decoder, bytes, count);
    if (result == AVIF_RESULT_OK) result = avifDecoderParse(context->decoder);
    return result == AVIF_RESULT_OK ? CodecFaultNone : CodecFaultBroken;
}

// False: it failed.
static bool convert(Context *context) {
    const avifImage *image = context->decoder->image;
    const Pixels *pixels = &context->pixels;
    if (image->width != pixels->width || image->height != pixels->height) return false;
    avifRGBImage *rgb = &context->rgb;
    avifRGBImageSetDefaults(rgb, image);
    rgb->format = pixels->channels == 4 ? AVIF_RGB_FORMAT_RGBA : AVIF_RGB_FORMAT_RGB;
    rgb->depth = 8;
    rgb->rowBytes = pixels->width * (uint32_t)pixels->channels;
    rgb->pixels = malloc((size_t)rgb->rowBytes * pixels->height);
    if (!rgb->pixels || avifImageYUVToRGB(image, rgb) != AVIF_RESULT_OK) return false;
    avifDecoderDestroy(context->decoder);
    context->decoder = NULL;
    return true;
}

static int read_rows(Pixels *pixels, uint8_t *out, size_t stride, int count) {
    Context *context = pixels->context;
    if (!context->is_decoded) {
        context->is_decoded = avifDecoderNextImage(context->decoder) == AVIF_RESULT_OK;
        return context->is_decoded ? PIXELS_NOT_YET : -1;
    }
    if (context->decoder) return convert(context) ? PIXELS_NOT_YET : -1;
    int written = 0;
    while (written < count && context->next_row < pixels->height) {
        const uint8_t *row = context->rgb.pixels + (size_t)context->next_row * context->rgb.rowBytes;
        memcpy(out + (size_t)written * stride, row, context->rgb.rowBytes);
        context->next_row++;
        written++;
    }
    return written;
}

static void close_pixels(Pixels *pixels) {
    Context *context = pixels->context;
    if (context->decoder) avifDecoderDestroy(context->decoder);
    avifRWDataFree(&context->icc);
    free(context->rgb.pixels);
    free(context);
}

Pixels *avif_pixels_open(
    const uint8_t *bytes, size_t count, uint32_t min_width, uint32_t min_height, CodecFault *fault) {
    (void)min_width, (void)min_height;
    Context *context = calloc(1, sizeof *context);
    *fault = CodecFaultTooMuchMemory;
    if (!context) return NULL;
    context->pixels.context = context;
    context->pixels.rows = read_rows;
    context->pixels.close = close_pixels;
    *fault = start(context, bytes, count);
    if (!*fault) return &context->pixels;
    close_pixels(&context->pixels);
    return NULL;
}

size_t avif_pixels_memory(uint32_t width, uint32_t height, bool has_alpha) {
    // Two pictures of planes in two bytes, not subsampled, then RGB.
    size_t pixels = (size_t)(width + 127) * (height + 127);
    return pixels * (has_alpha ? 2 * 8 + 4 : 2 * 6 + 3) + 4 * 1024 * 1024;
}
