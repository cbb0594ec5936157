// Collects rows of planes until a row of MCUs of a JPEG is complete.
#ifndef JPEG_WINDOW_H
#define JPEG_WINDOW_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

// How many rows of MCUs fit.
#define WINDOW_MCU_ROWS 12
#define WINDOW_PLANES 3

typedef struct {
    uint8_t *rows;
    size_t stride;
    uint32_t width, height; // of the plane
    uint32_t taken;
    int lines;              // rows of samples in a row of MCUs
    JSAMPROW shown[2 * DCTSIZE];
} JPEGPlane;

typedef struct {
    JPEGPlane planes[WINDOW_PLANES];
    int count;
    uint32_t written, mcu_rows; // rows of MCUs
} JPEGWindow;

/// Call it after jpeg_start_compress. Returns false if out of memory.
bool jpeg_window_start(JPEGWindow *window, const struct jpeg_compress_struct *cinfo);
void jpeg_window_free(JPEGWindow *window);
/// Adds a row of a plane. Returns false if there is no room or the plane has all its rows.
bool jpeg_window_add(JPEGWindow *window, int plane, const uint8_t *row);
/// Returns the next row of MCUs if it is complete. If the image ends within it, its edges are continued.
bool jpeg_window_show(JPEGWindow *window, JSAMPARRAY planes[]);

#endif
