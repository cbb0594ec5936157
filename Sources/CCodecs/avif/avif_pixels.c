#include "CCodecs.h"
#include "avif_decoder.h"
#include "pixels_open.h"
#include "profile.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    Pixels pixels;
    AVIFSource source;
    uint32_t width, height; // as stored
    avifCropRect shown;     // the shown part of it
    avifDecoder *decoder; // NULL once its frame is converted
    bool is_decoded, has_failed;
    avifRGBImage rgb;
    avifRWData icc;
    uint32_t next_row;
} Context;

static bool is_checked(Context *context, const CheckedImage *checked) {
    const avifDecoder *decoder = context->decoder;
    return decoder->imageCount > 0 && (uint64_t)decoder->imageCount == checked->frames
        && avif_decoder_shown(decoder, &context->shown)
        && checked_is(checked, context->shown.width, context->shown.height, decoder->alphaPresent, false);
}

// Reads the boxes. If the stored sides are known, they become the limit.
static CodecFault open_decoder(Context *context, const CheckedImage *checked) {
    uint32_t frames = checked->frames > UINT32_MAX ? UINT32_MAX : (uint32_t)checked->frames;
    // A limit of 0 would mean no limit.
    if (!frames) return CodecFaultBroken;
    if (context->decoder) avifDecoderDestroy(context->decoder);
    context->decoder = avif_decoder_open(&context->source, frames);
    if (!context->decoder) return CodecFaultTooMuchMemory;
    if (context->width) avif_decoder_limit(context->decoder, context->width, context->height);
    if (avifDecoderParse(context->decoder) != AVIF_RESULT_OK) return CodecFaultBroken;
    if (!is_checked(context, checked)) return CodecFaultBroken;
    context->width = context->decoder->image->width;
    context->height = context->decoder->image->height;
    return CodecFaultNone;
}

static CodecFault start(void *reader, const PixelsFile *file) {
    Context *context = reader;
    context->source = (AVIFSource){.bytes = file->bytes, .count = file->count, .is_whole = true};
    // If the image is cropped, only its boxes say how large a frame may be. So the boxes are read first, and
    // then again with that limit.
    CodecFault fault = open_decoder(context, &file->checked);
    if (!fault) fault = open_decoder(context, &file->checked);
    if (fault) return fault;
    const avifImage *image = context->decoder->image;
    Pixels *pixels = &context->pixels;
    pixels->width = context->shown.width;
    pixels->height = context->shown.height;
    pixels->channels = context->decoder->alphaPresent ? 4 : 3;
    if (!image->icc.size || image->icc.size > MAX_PROFILE) return CodecFaultNone;
    // Since libavif 1.0, this returns a result. Since 1.2, the compiler warns if the result is ignored.
#if AVIF_VERSION >= 1000000
    if (avifRWDataSet(&context->icc, image->icc.data, image->icc.size) != AVIF_RESULT_OK) return CodecFaultTooMuchMemory;
#else
    avifRWDataSet(&context->icc, image->icc.data, image->icc.size);
#endif
    if (!context->icc.data) return CodecFaultTooMuchMemory;
    pixels->icc = context->icc.data;
    pixels->icc_count = context->icc.size;
    return CodecFaultNone;
}

// Converts the decoded frame to RGB. Returns false on failure.
static bool convert(Context *context) {
    const avifImage *frame = context->decoder->image;
    const Pixels *pixels = &context->pixels;
    if (frame->width != context->width || frame->height != context->height) return false;
    avifImage image = avif_decoder_crop(frame, context->shown);
    avifRGBImage *rgb = &context->rgb;
    avifRGBImageSetDefaults(rgb, &image);
    rgb->format = pixels->channels == 4 ? AVIF_RGB_FORMAT_RGBA : AVIF_RGB_FORMAT_RGB;
    rgb->depth = 8;
    rgb->rowBytes = pixels->width * (uint32_t)pixels->channels;
    rgb->pixels = malloc((size_t)rgb->rowBytes * pixels->height);
    if (!rgb->pixels || !avif_decoder_convert(&image, rgb)) return false;
    avifDecoderDestroy(context->decoder);
    context->decoder = NULL;
    return true;
}

// Decodes the whole image in the first call and converts it in the second. Returns false on failure.
static bool prepare(Context *context) {
    if (context->is_decoded) return convert(context);
    context->is_decoded = avifDecoderNextImage(context->decoder) == AVIF_RESULT_OK;
    return context->is_decoded;
}

static int read_rows(Pixels *pixels, uint8_t *out, size_t stride, int count) {
    Context *context = pixels->context;
    if (context->has_failed) return -1;
    if (context->decoder) {
        context->has_failed = !prepare(context);
        return context->has_failed ? -1 : PIXELS_NOT_YET;
    }
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
    const uint8_t *bytes, size_t count, CheckedImage checked, uint32_t min_width,
    uint32_t min_height, CodecFault *fault) {
    static const PixelsReader reader = {sizeof(Context), start, read_rows, close_pixels};
    return pixels_open(&reader, (PixelsFile){bytes, count, checked, min_width, min_height}, fault);
}

size_t avif_pixels_memory(uint32_t width, uint32_t height, bool has_alpha) {
    // Two frames with 16-bit planes without subsampling, then RGB.
    size_t pixels = (size_t)(width + 127) * (height + 127);
    return pixels * (has_alpha ? 2 * 8 + 4 : 2 * 6 + 3) + AVIF_BASE_MEMORY;
}
