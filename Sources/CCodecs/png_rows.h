// Rows of a PNG for whoever wants its pixels: those of a picture in one pass until they are taken, all of an interlaced
// one.
#ifndef PNG_ROWS_H
#define PNG_ROWS_H

#include "rows.h"

// As many are gathered before they are given.
#define PNG_ROWS_WAITING 8

typedef struct {
    bool is_wanted, is_canvas;
    CodecPixels pixels;
    uint32_t width, height;
    size_t row_bytes, room;  // rows that there is room for
    uint8_t *held;
    const uint8_t **pointers;
    size_t count;            // rows that wait; of a canvas, those that are shown
    uint32_t given;          // of a canvas
} PNGRows;

/// Rows that may come of so many compressed bytes, with what zlib may owe from those before.
size_t png_rows_burst(uint32_t height, size_t stored_row_bytes, size_t piece);
/// An upper bound of what they take.
size_t png_rows_memory(uint32_t width, uint32_t height, bool is_interlaced, size_t burst);
/// False: no memory. After that none are wanted.
bool png_rows_start(PNGRows *rows, uint32_t width, uint32_t height, int channels, bool has_alpha,
    bool is_interlaced, size_t burst);
void png_rows_free(PNGRows *rows);
/// Adds a row of the picture; where there is no room, none are wanted any more.
void png_rows_add(PNGRows *rows, const uint8_t *row);
/// Adds pixels of a row of a pass, of an interlaced picture.
void png_rows_place(
    PNGRows *rows, const uint8_t *row, uint32_t y, uint32_t x, uint32_t across);
/// After a canvas's last pixel: shows the next rows. False: all were.
bool png_rows_show(PNGRows *rows);

#endif
