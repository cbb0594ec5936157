#include "CCodecs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <avif/avif.h>

// From 0 (best) to 10 (fastest). 8 takes 50 % longer for 0.1 dB; below 8 it takes five times as long.
#define SPEED 9
#define MAX_SIDE 16383

typedef struct {
    Encoder encoder;
    avifImage *image;
    avifRGBImage rgb;
    avifRWData output;
    uint32_t next_row;
    int quality;
} Context;

static bool add_rows(Encoder *encoder, const uint8_t *rows, size_t stride, int count) {
    Context *context = encoder->context;
    avifRGBImage *rgb = &context->rgb;
    if (count < 0 || (uint32_t)count > rgb->height - context->next_row) return false;
    for (int row = 0; row < count; row++) {
        uint8_t *out = rgb->pixels + (size_t)context->next_row * rgb->rowBytes;
        memcpy(out, rows + (size_t)row * stride, rgb->rowBytes);
        context->next_row++;
    }
    return true;
}

// AV1's quantizer falls as the quality rises: quality 100 is 0, and 1 is 63.
static avifEncoder *create_encoder(int quality) {
    avifEncoder *encoder = avifEncoderCreate();
    if (!encoder) return NULL;
    int quantizer = (100 - quality) * 63 / 99;
    if (avifCodecName(AVIF_CODEC_CHOICE_AOM, AVIF_CODEC_FLAG_CAN_ENCODE))
        encoder->codecChoice = AVIF_CODEC_CHOICE_AOM;
    encoder->maxThreads = 1;
    encoder->speed = SPEED;
    encoder->minQuantizer = encoder->minQuantizerAlpha = quantizer > 8 ? quantizer - 8 : 0;
    encoder->maxQuantizer = encoder->maxQuantizerAlpha = quantizer < 55 ? quantizer + 8 : 63;
    return encoder;
}

static bool encode(Context *context) {
    if (avifImageRGBToYUV(context->image, &context->rgb) != AVIF_RESULT_OK) return false;
    free(context->rgb.pixels);
    context->rgb.pixels = NULL;
    avifEncoder *encoder = create_encoder(context->quality);
    if (!encoder) return false;
    avifResult result = avifEncoderWrite(encoder, context->image, &context->output);
    avifEncoderDestroy(encoder);
    return result == AVIF_RESULT_OK;
}

static bool finish(Encoder *encoder) {
    Context *context = encoder->context;
    if (context->next_row != context->rgb.height || !context->rgb.pixels || !encode(context))
        return false;
    size_t most = avif_encoder_max_bytes(
        context->rgb.width, context->rgb.height, (int)avifRGBImagePixelSize(&context->rgb), 0);
    if (context->output.size > most) return false;
    encoder->bytes = context->output.data;
    encoder->count = context->output.size;
    return true;
}

static void close_encoder(Encoder *encoder) {
    Context *context = encoder->context;
    if (context->image) avifImageDestroy(context->image);
    avifRWDataFree(&context->output);
    free(context->rgb.pixels);
    free(context);
}

// Colors are sRGB in full range: BT.709 primaries and the BT.601 matrix.
static bool set_up(Context *context, uint32_t width, uint32_t height, int channels) {
    avifPixelFormat format = context->quality >= 90 ? AVIF_PIXEL_FORMAT_YUV444 : AVIF_PIXEL_FORMAT_YUV420;
    context->image = avifImageCreate(width, height, 8, format);
    if (!context->image) return false;
    context->image->colorPrimaries = AVIF_COLOR_PRIMARIES_BT709;
    context->image->transferCharacteristics = AVIF_TRANSFER_CHARACTERISTICS_SRGB;
    context->image->matrixCoefficients = AVIF_MATRIX_COEFFICIENTS_BT601;
    avifRGBImageSetDefaults(&context->rgb, context->image);
    context->rgb.format = channels == 4 ? AVIF_RGB_FORMAT_RGBA : AVIF_RGB_FORMAT_RGB;
    context->rgb.rowBytes = width * (uint32_t)channels;
    context->rgb.pixels = malloc((size_t)context->rgb.rowBytes * height);
    return context->rgb.pixels != NULL;
}

Encoder *avif_encoder_open(uint32_t width, uint32_t height, int channels, int quality) {
    if (!width || !height || width > MAX_SIDE || height > MAX_SIDE) return NULL;
    if ((uint64_t)width * height > AVIF_ENCODER_MAX_PIXELS) return NULL;
    if ((channels != 3 && channels != 4) || quality < 1 || quality > 100) return NULL;
    Context *context = calloc(1, sizeof *context);
    if (!context) return NULL;
    context->quality = quality;
    context->encoder = (Encoder){
        .context = context, .rows = add_rows, .finish = finish, .close = close_encoder};
    if (set_up(context, width, height, channels)) return &context->encoder;
    close_encoder(&context->encoder);
    return NULL;
}

size_t avif_encoder_max_bytes(uint32_t width, uint32_t height, int channels, int quality) {
    (void)quality;
    return (size_t)width * height * (size_t)channels + 64 * 1024;
}

size_t avif_encoder_memory(uint32_t width, uint32_t height, int channels) {
    size_t pixels = (size_t)width * height;
    return pixels * (channels == 4 ? 36 : 28) + 16 * 1024 * 1024;
}
