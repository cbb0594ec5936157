#include "CCodecs.h"
#include "jxl_decoder.h"
#include "pixels_open.h"
#include "slice.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    Pixels pixels;
    JXLSource source; // closed once the first frame is decoded
    JxlBasicInfo info;
    const uint8_t *bytes;
    size_t count;
    uint8_t *icc;
    uint8_t *image; // allocated once the header is read
    size_t stride;
    bool has_failed;
    uint32_t next_row;
} Context;

static bool is_checked(const JxlBasicInfo *info, const CheckedImage *checked) {
    return checked->frames && (checked->frames == 1 || info->have_animation)
        && checked_is(checked, info->xsize, info->ysize, info->alpha_bits > 0, false);
}

static JxlDecoderStatus advance(Context *context) {
    size_t consumed = 0;
    JxlDecoderStatus event = jxl_advance(&context->source, context->bytes, context->count, &consumed);
    context->bytes += consumed;
    context->count -= consumed;
    return event;
}

// The next event, before memory of the image's size is allocated. A cut file has none.
static JxlDecoderStatus next_event(Context *context) {
    JxlDecoderStatus event;
    do event = advance(context);
    while (event == JXL_DEC_NEED_MORE_INPUT && !context->source.is_dry);
    return event;
}

// Reads up to the color information.
static CodecFault start(void *reader, const PixelsFile *file) {
    Context *context = reader;
    const CheckedImage *checked = &file->checked;
    context->bytes = file->bytes;
    context->count = file->count;
    if (!jxl_open(&context->source)) return CodecFaultTooMuchMemory;
    JxlDecoder *decoder = context->source.decoder;
    JxlBasicInfo *info = &context->info;
    if (next_event(context) != JXL_DEC_BASIC_INFO) return CodecFaultBroken;
    if (JxlDecoderGetBasicInfo(decoder, info) != JXL_DEC_SUCCESS) return CodecFaultBroken;
    if (!is_checked(info, checked) || !jxl_is_supported(decoder, info)) return CodecFaultBroken;
    if (jxl_extra_memory(info, checked->frames) > checked->extra_memory) return CodecFaultTooMuchMemory;
    if (next_event(context) != JXL_DEC_COLOR_ENCODING) return CodecFaultBroken;
    jxl_request_srgb(decoder, info);
    Pixels *pixels = &context->pixels;
    pixels->width = info->xsize;
    pixels->height = info->ysize;
    pixels->channels = (int)jxl_pixels_of(info).num_channels;
    context->stride = (size_t)pixels->width * (size_t)pixels->channels;
    size_t size = jxl_profile_size(decoder);
    if (!size) return CodecFaultNone;
    context->icc = malloc(size);
    if (!context->icc) return CodecFaultTooMuchMemory;
    JxlColorProfileTarget target = JXL_COLOR_PROFILE_TARGET_DATA;
    if (JxlDecoderGetColorAsICCProfile(decoder, JXL_UNUSED_FORMAT target, context->icc, size) != JXL_DEC_SUCCESS)
        return CodecFaultBroken;
    pixels->icc = context->icc;
    pixels->icc_count = size;
    return CodecFaultNone;
}

static bool set_output(Context *context) {
    size_t size = context->stride * context->pixels.height;
    JxlPixelFormat format = jxl_pixels_of(&context->info);
    if (!context->image) context->image = calloc(1, size);
    return context->image
        && JxlDecoderSetImageOutBuffer(context->source.decoder, &format, context->image, size) == JXL_DEC_SUCCESS;
}

// Decodes for some milliseconds. Returns false on failure.
static bool prepare(Context *context) {
    Slice slice = slice_start();
    do {
        switch (advance(context)) {
        case JXL_DEC_NEED_MORE_INPUT:
            if (context->source.is_dry) return false;
            break;
        case JXL_DEC_FRAME:
            break;
        case JXL_DEC_NEED_IMAGE_OUT_BUFFER:
            if (!set_output(context)) return false;
            break;
        case JXL_DEC_FULL_IMAGE:
            jxl_close(&context->source);
            return context->image != NULL;
        default:
            return false;
        }
    } while (!slice_is_over(slice));
    return true;
}

static int read_rows(Pixels *pixels, uint8_t *out, size_t stride, int count) {
    Context *context = pixels->context;
    if (context->has_failed) return -1;
    if (context->source.decoder) {
        context->has_failed = !prepare(context);
        return context->has_failed ? -1 : PIXELS_NOT_YET;
    }
    int written = 0;
    while (written < count && context->next_row < pixels->height) {
        const uint8_t *row = context->image + context->next_row * context->stride;
        memcpy(out + (size_t)written * stride, row, context->stride);
        context->next_row++;
        written++;
    }
    return written;
}

static void close_pixels(Pixels *pixels) {
    Context *context = pixels->context;
    jxl_close(&context->source);
    free(context->icc);
    free(context->image);
    free(context);
}

Pixels *jxl_pixels_open(
    const uint8_t *bytes, size_t count, CheckedImage checked, uint32_t min_width,
    uint32_t min_height, CodecFault *fault) {
    static const PixelsReader reader = {sizeof(Context), start, read_rows, close_pixels};
    return pixels_open(&reader, (PixelsFile){bytes, count, checked, min_width, min_height}, fault);
}

size_t jxl_pixels_memory(uint32_t width, uint32_t height, bool has_alpha, bool is_animated) {
    uint64_t image = (uint64_t)width * height * (has_alpha ? 4 : 3);
    uint64_t needed = jxl_memory(width, height, has_alpha, is_animated) + image;
    return needed > SIZE_MAX ? SIZE_MAX : (size_t)needed;
}
