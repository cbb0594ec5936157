// Converts one pixel of a stored PNG row to RGBA with 8 bits per channel.
#ifndef PNG_PIXEL_H
#define PNG_PIXEL_H

#include <stdbool.h>
#include <stdint.h>

#include <png.h>

// The meaning of a row's bytes.
typedef struct {
    int colour_type, depth;
    png_color palette[PNG_MAX_PALETTE_LENGTH]; // black beyond the file's palette
    uint8_t palette_alpha[PNG_MAX_PALETTE_LENGTH];
    bool has_key;      // one color is transparent
    png_color_16 key;
} PNGPixels;

/// Reads the format from libpng. Call it after PLTE and tRNS.
PNGPixels png_pixels(png_structp png, png_infop info);
void png_pixel(const PNGPixels *pixels, const uint8_t *row, uint32_t x, uint8_t rgba[4]);

#endif
