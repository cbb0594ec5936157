#include "png_pixel.h"

#include <string.h>

PNGPixels png_pixels(png_structp png, png_infop info) {
    PNGPixels pixels = {0};
    png_colorp palette;
    png_bytep alpha;
    png_color_16p key;
    int count;
    pixels.colour_type = png_get_color_type(png, info);
    pixels.depth = png_get_bit_depth(png, info);
    memset(pixels.palette_alpha, 255, sizeof pixels.palette_alpha);
    if (png_get_PLTE(png, info, &palette, &count) && count <= PNG_MAX_PALETTE_LENGTH)
        memcpy(pixels.palette, palette, (size_t)count * sizeof *palette);
    if (!png_get_tRNS(png, info, &alpha, &count, &key)) return pixels;
    if (pixels.colour_type == PNG_COLOR_TYPE_PALETTE) {
        if (alpha && count <= PNG_MAX_PALETTE_LENGTH)
            memcpy(pixels.palette_alpha, alpha, (size_t)count);
    } else if (key) {
        pixels.has_key = true;
        // Only the image's bit depth counts, as in libpng. PNG section 11.3.1.1 requires the other bits to be
        // 0.
        png_uint_16 bits = (png_uint_16)((1u << pixels.depth) - 1);
        pixels.key = (png_color_16){
            .red = key->red & bits, .green = key->green & bits, .blue = key->blue & bits, .gray = key->gray & bits};
    }
    return pixels;
}

// Reads a sample at its own bit depth.
static unsigned sample(const PNGPixels *pixels, const uint8_t *row, size_t index) {
    unsigned depth = (unsigned)pixels->depth;
    if (depth == 16) return (unsigned)row[2 * index] << 8 | row[2 * index + 1];
    if (depth == 8) return row[index];
    size_t bit = index * depth;
    return row[bit / 8] >> (8 - depth - bit % 8) & ((1u << depth) - 1);
}

static uint8_t eight_bits(unsigned value, int depth) {
    // Rounded like png_set_scale_16(), which converts the rows for variants.
    if (depth == 16) return (uint8_t)((value * 255 + 32895) >> 16);
    return (uint8_t)(value * 255 / ((1u << depth) - 1));
}

static void palette_pixel(const PNGPixels *pixels, unsigned index, uint8_t rgba[4]) {
    const png_color *colour = &pixels->palette[index];
    rgba[0] = colour->red;
    rgba[1] = colour->green;
    rgba[2] = colour->blue;
    rgba[3] = pixels->palette_alpha[index];
}

void png_pixel(const PNGPixels *pixels, const uint8_t *row, uint32_t x, uint8_t rgba[4]) {
    if (pixels->colour_type == PNG_COLOR_TYPE_PALETTE) {
        palette_pixel(pixels, sample(pixels, row, x), rgba);
        return;
    }
    bool is_colour = pixels->colour_type & PNG_COLOR_MASK_COLOR;
    bool has_alpha = pixels->colour_type & PNG_COLOR_MASK_ALPHA;
    size_t first = (size_t)x * ((is_colour ? 3 : 1) + has_alpha);
    unsigned values[3];
    for (size_t index = 0; index < 3; index++) {
        values[index] = sample(pixels, row, first + (is_colour ? index : 0));
        rgba[index] = eight_bits(values[index], pixels->depth);
    }
    const png_color_16 *key = &pixels->key;
    bool is_key = pixels->has_key
        && (is_colour
                ? values[0] == key->red && values[1] == key->green && values[2] == key->blue
                : values[0] == key->gray);
    rgba[3] = is_key ? 0 : 255;
    if (has_alpha)
        rgba[3] = eight_bits(sample(pixels, row, first + (is_colour ? 3 : 1)), pixels->depth);
}
