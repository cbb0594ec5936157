// Rows of a PNG for variants. Rows of a non-interlaced image are kept until they are used; an interlaced image
// is kept whole.
#ifndef PNG_ROWS_H
#define PNG_ROWS_H

#include "rows.h"

// Rows are collected up to this number before they are returned.
#define PNG_ROWS_WAITING 8

typedef struct {
    bool is_wanted, is_canvas;
    CodecPixels pixels;
    uint32_t width, height;
    size_t row_bytes, room;  // the number of rows that fit
    uint8_t *held;
    const uint8_t **pointers;
    size_t count;            // rows that wait; of an interlaced image, the rows returned now
    uint32_t given;          // rows of an interlaced image that were returned
} PNGRows;

/// The most rows that a piece of compressed bytes can produce, including output that zlib still holds.
size_t png_rows_burst(uint32_t height, size_t stored_row_bytes, size_t piece);
/// An upper bound of the memory for the rows, in bytes.
size_t png_rows_memory(uint32_t width, uint32_t height, bool is_interlaced, size_t burst);
/// Returns false if out of memory. Then no rows are collected.
bool png_rows_start(PNGRows *rows, uint32_t width, uint32_t height, int channels, bool has_alpha,
    bool is_interlaced, size_t burst);
void png_rows_free(PNGRows *rows);
/// Adds a row of the image. If there is no room, no more rows are collected.
void png_rows_add(PNGRows *rows, const uint8_t *row);
/// Adds the pixels of one row of a pass of an interlaced image.
void png_rows_place(
    PNGRows *rows, const uint8_t *row, uint32_t y, uint32_t x, uint32_t across);
/// Returns the next rows of an interlaced image. Call it after the last pixel. Returns false after the last
/// row.
bool png_rows_show(PNGRows *rows);

#endif
