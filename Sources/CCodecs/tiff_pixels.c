#include "CCodecs.h"
#include "pixels_open.h"
#include "slice.h"
#include "tiff_bands.h"

typedef struct {
    Pixels pixels;
    TIFFBands *bands;
    uint32_t next_row;
    bool has_failed;
} Context;

static CodecFault start(void *reader, const PixelsFile *opened) {
    Context *context = reader;
    Pixels *pixels = &context->pixels;
    TIFFFile file;
    if (tiff_look(&file, opened->bytes, opened->count) || file.end > opened->count) return CodecFaultBroken;
    if (!tiff_has_few_scans(&file, opened->bytes)) return CodecFaultBroken;
    CodecFault fault;
    context->bands = tiff_bands_open(&file, opened->bytes, opened->count, &fault, NULL, 0);
    if (!context->bands) return fault == CodecFaultTooMuchMemory ? fault : CodecFaultBroken;
    pixels->channels = tiff_bands_channels(context->bands);
    if (!checked_is(&opened->checked, file.width, file.height, pixels->channels == 4, false)) return CodecFaultBroken;
    pixels->width = file.width;
    pixels->height = file.height;
    pixels->icc = tiff_bands_profile(context->bands, &pixels->icc_count);
    return CodecFaultNone;
}

static int read_rows(Pixels *pixels, uint8_t *out, size_t stride, int count) {
    Context *context = pixels->context;
    Slice slice = slice_start();
    int written = 0;
    while (!context->has_failed && written < count && context->next_row < pixels->height) {
        if (!tiff_bands_have(context->bands, context->next_row)) {
            if (slice_is_over(slice)) break;
            context->has_failed = !tiff_bands_next(context->bands);
            continue;
        }
        tiff_bands_row(context->bands, context->next_row++, pixels->channels, out + (size_t)written++ * stride);
    }
    if (context->has_failed) return -1;
    return written || context->next_row == pixels->height ? written : PIXELS_NOT_YET;
}

static void close_pixels(Pixels *pixels) {
    Context *context = pixels->context;
    tiff_bands_close(context->bands);
    free(context);
}

Pixels *tiff_pixels_open(
    const uint8_t *bytes, size_t count, CheckedPicture checked, uint32_t min_width,
    uint32_t min_height, CodecFault *fault) {
    static const PixelsReader reader = {sizeof(Context), start, read_rows, close_pixels};
    return pixels_open(&reader, (PixelsFile){bytes, count, checked, min_width, min_height}, fault);
}

// One strip, of the most samples that there may be, and its pixels; of tiles what goes beyond a small picture.
size_t tiff_pixels_memory(uint32_t width, uint32_t height) {
    uint64_t sum = ((uint64_t)width + 16) * ((uint64_t)height + 16) * 16 + (uint64_t)16 * 1024 * 1024;
    return sum > SIZE_MAX ? SIZE_MAX : (size_t)sum;
}
