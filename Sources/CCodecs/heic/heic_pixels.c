#include "CCodecs.h"
#include "avif_decoder.h"
#include "heic_file.h"
#include "pixels_open.h"
#include "slice.h"

#include <stdlib.h>
#include <string.h>

// The shown part may be a small part of a camera's image. Allows for one tile, and for a row of tiles 9,000
// pixels wide.
#define LARGER_TILES ((uint64_t)16 * 1024 * 1024)

// A decoded and converted row of tiles of one layer.
typedef struct {
    uint8_t *pixels;
    int channels;      // 3 for colors, 1 for alpha
    uint32_t row;      // the row of tiles that is decoded
    uint32_t column;   // the next tile in it
    HEVCDecoder *decoder;
} Strip;

typedef struct {
    Pixels pixels;
    HEICFile file;
    Strip strips[HEIC_LAYERS];
    bool has_failed;
    uint32_t next_row;
} Context;

static CodecFault start(void *reader, const PixelsFile *opened) {
    Context *context = reader;
    Pixels *pixels = &context->pixels;
    const CheckedImage *checked = &opened->checked;
    HEICFile *file = &context->file;
    file->boxes.bytes = opened->bytes;
    file->boxes.count = opened->count;
    CodecFault fault;
    if (heif_scan(&file->boxes, true, &fault) != HEIFReady || heic_find(file) != HEIFFound) return CodecFaultBroken;
    const HEIFImage *picture = &file->layers[0];
    bool has_alpha = file->layer_count > 1;
    if (heif_frames(&file->boxes) != checked->frames) return CodecFaultBroken;
    if (!checked_is(checked, picture->shown_width, picture->shown_height, has_alpha, false)) return CodecFaultBroken;
    pixels->width = picture->shown_width;
    pixels->height = picture->shown_height;
    pixels->channels = has_alpha ? 4 : 3;
    HEIFCursor profile = heif_cursor(&file->boxes, picture->icc);
    if (picture->icc.count && !profile.is_short) {
        pixels->icc = profile.at;
        pixels->icc_count = (size_t)picture->icc.count;
    }
    for (int layer = 0; layer < file->layer_count; layer++) {
        Strip *strip = &context->strips[layer];
        strip->channels = layer ? 1 : 3;
        strip->pixels = calloc(1, (size_t)heic_strip_bytes(file, layer));
        if (!strip->pixels) return CodecFaultTooMuchMemory;
    }
    return CodecFaultNone;
}

// Alpha is stored as a separate image; its luma is the alpha value.
static void convert_alpha(const avifImage *image, uint8_t *out, size_t stride) {
    int shift = (int)image->depth - 8;
    for (uint32_t y = 0; y < image->height; y++) {
        const uint8_t *row = image->yuvPlanes[0] + (size_t)y * image->yuvRowBytes[0];
        uint8_t *target = out + y * stride;
        if (!shift) memcpy(target, row, image->width);
        for (uint32_t x = 0; shift && x < image->width; x++) {
            uint16_t value;
            memcpy(&value, row + (size_t)2 * x, sizeof value);
            uint32_t rounded = (value + (1u << shift >> 1)) >> shift;
            target[x] = rounded > 255 ? 255 : (uint8_t)rounded;
        }
    }
}

static bool convert(const Context *context, int layer, uint32_t columns, uint32_t rows) {
    const Strip *strip = &context->strips[layer];
    const HEIFImage *picture = &context->file.layers[layer];
    avifImage image;
    if (!heic_tile_image(&context->file, layer, strip->decoder, &image)) return false;
    // Ignores the part of the tile beyond the image.
    image.width = columns;
    image.height = rows;
    size_t stride = (size_t)picture->width * (size_t)strip->channels;
    uint8_t *out = strip->pixels + (size_t)strip->column * picture->tile_width * (size_t)strip->channels;
    if (layer) {
        convert_alpha(&image, out, stride);
        return true;
    }
    avifRGBImage rgb;
    avifRGBImageSetDefaults(&rgb, &image);
    rgb.format = AVIF_RGB_FORMAT_RGB;
    rgb.depth = 8;
    rgb.rowBytes = (uint32_t)stride;
    rgb.pixels = out;
    return avif_decoder_convert(&image, &rgb);
}

static uint32_t least(uint32_t one, uint32_t other) {
    return one < other ? one : other;
}

// Decodes a slice of the strip's next tile. Returns false on failure.
static bool decode(Context *context, int layer) {
    Strip *strip = &context->strips[layer];
    const HEIFImage *picture = &context->file.layers[layer];
    CodecFault fault;
    uint32_t tile = strip->row * picture->columns + strip->column;
    if (!strip->decoder) strip->decoder = heic_open_tile(&context->file, layer, tile, HEVCPixels, &fault);
    if (!strip->decoder) return false;
    HEVCState state = hevc_step(strip->decoder);
    if (state != HEVCDone) return state == HEVCGoesOn;
    uint32_t columns = least(picture->tile_width, picture->width - strip->column * picture->tile_width);
    uint32_t rows = least(picture->tile_height, picture->height - strip->row * picture->tile_height);
    if (!convert(context, layer, columns, rows)) return false;
    hevc_close(strip->decoder);
    strip->decoder = NULL;
    strip->column++;
    return true;
}

// Whether row `y` of the uncropped image is decoded. If it is in another row of tiles, the strip moves there.
static bool is_ready(Context *context, int layer, uint32_t y) {
    Strip *strip = &context->strips[layer];
    const HEIFImage *picture = &context->file.layers[layer];
    uint32_t row = y / picture->tile_height;
    if (strip->row != row) {
        strip->row = row;
        strip->column = 0;
    }
    return strip->column == picture->columns;
}

static const uint8_t *row_of(const Context *context, int layer, uint32_t y) {
    const HEIFImage *picture = &context->file.layers[layer];
    const Strip *strip = &context->strips[layer];
    size_t at = (size_t)(y % picture->tile_height) * picture->width + context->file.layers[0].left;
    return strip->pixels + at * (size_t)strip->channels;
}

static uint8_t unpremultiplied(uint8_t colour, uint8_t alpha) {
    uint32_t straight = alpha ? (colour * 255u + alpha / 2) / alpha : 0;
    return straight > 255 ? 255 : (uint8_t)straight;
}

static void copy_row(const Context *context, uint32_t y, uint8_t *out) {
    const uint8_t *colours = row_of(context, 0, y);
    size_t width = context->pixels.width;
    if (context->pixels.channels == 3) {
        memcpy(out, colours, 3 * width);
        return;
    }
    const uint8_t *alpha = row_of(context, 1, y);
    for (size_t x = 0; x < width; x++, out += 4) {
        for (int channel = 0; channel < 3; channel++) {
            uint8_t colour = colours[3 * x + (size_t)channel];
            out[channel] = context->file.is_premultiplied ? unpremultiplied(colour, alpha[x]) : colour;
        }
        out[3] = alpha[x];
    }
}

// Decodes tiles while there is time. Returns 1 if the row is ready, 0 if not yet, -1 on failure.
static int prepare(Context *context, uint32_t y) {
    Slice slice = slice_start();
    for (int layer = 0; layer < context->file.layer_count; layer++)
        while (!is_ready(context, layer, y)) {
            if (slice_is_over(slice)) return 0;
            if (!decode(context, layer)) return -1;
        }
    return 1;
}

static int read_rows(Pixels *pixels, uint8_t *out, size_t stride, int count) {
    Context *context = pixels->context;
    int written = 0;
    while (!context->has_failed && written < count && context->next_row < pixels->height) {
        uint32_t y = context->file.layers[0].top + context->next_row;
        int ready = prepare(context, y);
        context->has_failed = ready < 0;
        if (ready <= 0) break;
        copy_row(context, y, out + (size_t)written * stride);
        context->next_row++;
        written++;
    }
    if (context->has_failed) return -1;
    return written || context->next_row == pixels->height ? written : PIXELS_NOT_YET;
}

static void close_pixels(Pixels *pixels) {
    Context *context = pixels->context;
    for (int layer = 0; layer < HEIC_LAYERS; layer++) {
        hevc_close(context->strips[layer].decoder);
        free(context->strips[layer].pixels);
    }
    free(context);
}

Pixels *heic_pixels_open(
    const uint8_t *bytes, size_t count, CheckedImage checked, uint32_t min_width,
    uint32_t min_height, CodecFault *fault) {
    static const PixelsReader reader = {sizeof(Context), start, read_rows, close_pixels};
    return pixels_open(&reader, (PixelsFile){bytes, count, checked, min_width, min_height}, fault);
}

size_t heic_pixels_memory(uint32_t width, uint32_t height, bool has_alpha) {
    // An image without tiles, with the largest bit depth and no subsampling.
    HEVCFormat worst = {.width = width, .height = height, .chroma = 3, .depth = 12};
    uint64_t sum = LARGER_TILES + hevc_memory(&worst) + (uint64_t)width * height * (has_alpha ? 4 : 3);
    return sum > SIZE_MAX ? SIZE_MAX : (size_t)sum;
}
