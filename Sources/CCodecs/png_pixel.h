// One pixel of a row as a PNG stores it, made RGBA of 8 bits a channel.
#ifndef PNG_PIXEL_H
#define PNG_PIXEL_H

#include <stdbool.h>
#include <stdint.h>

#include <png.h>

// What a row's bytes mean.
typedef struct {
    int colour_type, depth;
    png_color palette[PNG_MAX_PALETTE_LENGTH]; // black where the file has fewer
    uint8_t palette_alpha[PNG_MAX_PALETTE_LENGTH];
    bool has_key;      // one colour is transparent
    png_color_16 key;
} PNGPixels;

/// What the file said; after its PLTE and tRNS.
PNGPixels png_pixels(png_structp png, png_infop info);
void png_pixel(const PNGPixels *pixels, const uint8_t *row, uint32_t x, uint8_t rgba[4]);

#endif
