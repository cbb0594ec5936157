// Rows of planes that wait until a row of MCUs of a JPEG is whole.
#ifndef JPEG_WINDOW_H
#define JPEG_WINDOW_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

// Rows of MCUs that it has room for.
#define WINDOW_MCU_ROWS 12
#define WINDOW_PLANES 3

typedef struct {
    uint8_t *rows;
    size_t stride;
    uint32_t width, height; // of the plane
    uint32_t taken;
    int lines;              // in a row of MCUs
    JSAMPROW shown[2 * DCTSIZE];
} JPEGPlane;

typedef struct {
    JPEGPlane planes[WINDOW_PLANES];
    int count;
    uint32_t written, mcu_rows; // rows of MCUs
} JPEGWindow;

/// After jpeg_start_compress. False: no memory.
bool jpeg_window_start(JPEGWindow *window, const struct jpeg_compress_struct *cinfo);
void jpeg_window_free(JPEGWindow *window);
/// False: there is no room, or the plane has all its rows.
bool jpeg_window_take(JPEGWindow *window, int plane, const uint8_t *row);
/// Shows the next row of MCUs, once it is whole; its edges are continued where the picture ends within it.
bool jpeg_window_show(JPEGWindow *window, JSAMPARRAY planes[]);

#endif
