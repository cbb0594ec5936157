#include "avif_thumb.h"

#include "avif_decoder.h"

#include <string.h>

#define CELLS (THUMB_SIDE * THUMB_SIDE)

// A plane to be sampled at 8 bits.
typedef struct {
    const uint8_t *bytes;  // NULL if there is no such plane; then all samples are `otherwise`
    size_t stride;
    int shift_across, shift_down; // the subsampling
    int shift_depth;              // of 16-bit samples; -1: samples have 8 bits
    uint8_t otherwise;
} Plane;

static Plane plane_of(const avifImage *image, int channel) {
    bool is_alpha = channel == 3;
    Plane plane = {
        .bytes = is_alpha ? image->alphaPlane : image->yuvPlanes[channel],
        .stride = is_alpha ? image->alphaRowBytes : image->yuvRowBytes[channel],
        .shift_depth = image->depth > 8 ? (int)image->depth - 8 : -1,
        .otherwise = is_alpha ? 255 : 128,
    };
    if (is_alpha || channel == AVIF_CHAN_Y) return plane;
    avifPixelFormatInfo info;
    avifGetPixelFormatInfo(image->yuvFormat, &info);
    plane.shift_across = info.chromaShiftX;
    plane.shift_down = info.chromaShiftY;
    return plane;
}

static uint8_t sample(const Plane *plane, uint32_t x, uint32_t y) {
    if (!plane->bytes) return plane->otherwise;
    const uint8_t *row = plane->bytes + (y >> plane->shift_down) * plane->stride;
    x >>= plane->shift_across;
    if (plane->shift_depth < 0) return row[x];
    uint16_t value;
    memcpy(&value, row + (size_t)2 * x, sizeof value);
    uint32_t rounded = (value + (1u << plane->shift_depth >> 1)) >> plane->shift_depth;
    return rounded > 255 ? 255 : (uint8_t)rounded;
}

uint8_t avif_thumb_sample(const avifImage *image, int channel, uint32_t x, uint32_t y) {
    Plane plane = plane_of(image, channel);
    return sample(&plane, x, y);
}

void avif_thumb_add(Thumb *thumb, uint32_t across, uint32_t down, const uint8_t yuva[4], bool is_straight) {
    if (is_straight) {
        thumb_add_pixel(thumb, across, (ThumbSpan){down, down + 1}, yuva);
        return;
    }
    uint32_t *sums = thumb->sums[down / THUMB_SAMPLES_PER_CELL][across / THUMB_SAMPLES_PER_CELL];
    for (int channel = 0; channel < THUMB_CHANNELS; channel++) sums[channel] += yuva[channel];
}

static void add_samples(Thumb *thumb, const avifImage *image, bool is_straight) {
    Plane planes[THUMB_CHANNELS];
    for (int channel = 0; channel < THUMB_CHANNELS; channel++)
        planes[channel] = plane_of(image, channel);
    for (uint32_t down = 0; down < thumb->down[0].count; down++)
        for (uint32_t across = 0; across < thumb->across[0].count; across++) {
            uint8_t yuva[THUMB_CHANNELS];
            for (int channel = 0; channel < THUMB_CHANNELS; channel++)
                yuva[channel] = sample(
                    &planes[channel], thumb->across[0].at[across], thumb->down[0].at[down]);
            avif_thumb_add(thumb, across, down, yuva, is_straight);
        }
}

// Makes planes of the cells' means and converts them with the library, which knows every matrix and range.
static bool convert(Thumb *thumb, const avifImage *image) {
    uint8_t planes[THUMB_CHANNELS][CELLS];
    uint32_t count = thumb->columns * thumb->rows;
    for (uint32_t cell = 0; cell < count; cell++)
        for (int channel = 0; channel < THUMB_CHANNELS; channel++)
            planes[channel][cell] = thumb->rgba[4 * cell + (uint32_t)channel];
    bool is_grey = image->yuvFormat == AVIF_PIXEL_FORMAT_YUV400;
    avifImage *tiny = avifImageCreate(
        thumb->columns, thumb->rows, 8, is_grey ? AVIF_PIXEL_FORMAT_YUV400 : AVIF_PIXEL_FORMAT_YUV444);
    if (!tiny) return false;
    tiny->yuvRange = image->yuvRange;
    tiny->colorPrimaries = image->colorPrimaries;
    tiny->transferCharacteristics = image->transferCharacteristics;
    tiny->matrixCoefficients = image->matrixCoefficients;
    tiny->alphaPremultiplied = image->alphaPremultiplied;
    for (int channel = 0; channel < (is_grey ? 1 : 3); channel++) {
        tiny->yuvPlanes[channel] = planes[channel];
        tiny->yuvRowBytes[channel] = thumb->columns;
    }
    tiny->alphaPlane = planes[3];
    tiny->alphaRowBytes = thumb->columns;
    avifRGBImage rgb;
    avifRGBImageSetDefaults(&rgb, tiny);
    rgb.depth = 8;
    rgb.format = AVIF_RGB_FORMAT_RGBA;
    rgb.pixels = thumb->rgba;
    rgb.rowBytes = 4 * thumb->columns;
    bool is_converted = avif_decoder_convert(tiny, &rgb);
    avifImageDestroy(tiny); // the image does not own the planes
    return is_converted;
}

bool avif_thumb_finish(Thumb *thumb, const avifImage *image, bool is_straight) {
    if (is_straight) thumb_finish_pixels(thumb);
    else thumb_finish_planes(thumb, THUMB_CHANNELS);
    return convert(thumb, image);
}

bool avif_thumb_make(Thumb *thumb, const avifImage *image) {
    bool is_straight = !image->alphaPlane || !image->alphaPremultiplied;
    thumb_start(thumb, image->width, image->height);
    add_samples(thumb, image, is_straight);
    return avif_thumb_finish(thumb, image, is_straight);
}
