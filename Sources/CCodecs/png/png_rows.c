#include "png_rows.h"

#include <stdlib.h>
#include <string.h>

// The most bytes that deflate makes of one byte, and of input that zlib has buffered.
#define MAX_GROWTH 1032
#define MAX_OWED 65536
// How many rows of an interlaced image are returned at once.
#define SHOWN 64

size_t png_rows_burst(uint32_t height, size_t stored_row_bytes, size_t piece) {
    // Includes rows that are waiting already, and one row of rounding at each end.
    size_t rows = (piece * MAX_GROWTH + MAX_OWED) / (stored_row_bytes + 1) + PNG_ROWS_WAITING + 2;
    return rows < height ? rows : height;
}

size_t png_rows_memory(uint32_t width, uint32_t height, bool is_interlaced, size_t burst) {
    size_t rows = is_interlaced ? height : burst;
    return rows * ((size_t)4 * width + sizeof(uint8_t *));
}

bool png_rows_start(PNGRows *rows, uint32_t width, uint32_t height, int channels, bool has_alpha,
    bool is_interlaced, size_t burst) {
    rows->width = width;
    rows->height = height;
    rows->is_canvas = is_interlaced;
    rows->row_bytes = (size_t)width * (size_t)channels;
    rows->room = is_interlaced ? height : burst;
    rows->pixels = (CodecPixels){
        .colours = channels < 3 ? CodecColoursGrey : CodecColoursRGB, .has_alpha = has_alpha,
        .channels = channels, .planes = 1, .eighths = 8};
    rows->held = calloc(rows->room, rows->row_bytes);
    rows->pointers = calloc(rows->room, sizeof *rows->pointers);
    rows->is_wanted = rows->held && rows->pointers;
    for (size_t row = 0; rows->is_wanted && row < rows->room; row++)
        rows->pointers[row] = rows->held + row * rows->row_bytes;
    return rows->is_wanted;
}

void png_rows_free(PNGRows *rows) {
    free(rows->held);
    free(rows->pointers);
}

void png_rows_add(PNGRows *rows, const uint8_t *row) {
    if (rows->count == rows->room) {
        rows->is_wanted = false;
        rows->count = 0;
        return;
    }
    memcpy(rows->held + rows->count++ * rows->row_bytes, row, rows->row_bytes);
}

void png_rows_place(
    PNGRows *rows, const uint8_t *row, uint32_t y, uint32_t x, uint32_t across) {
    size_t channels = (size_t)rows->pixels.channels;
    uint8_t *out = rows->held + y * rows->row_bytes;
    for (; x < rows->width; x += across, row += channels) memcpy(out + x * channels, row, channels);
}

bool png_rows_show(PNGRows *rows) {
    if (!rows->is_wanted || !rows->is_canvas || rows->given == rows->height) return false;
    uint32_t left = rows->height - rows->given;
    rows->count = left < SHOWN ? left : SHOWN;
    rows->given += (uint32_t)rows->count;
    return true;
}
