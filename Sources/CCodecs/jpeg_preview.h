// A baseline JPEG of what a decoder has so far, made of its samples as they are: nothing is upsampled, and no colours
// are converted.
#ifndef JPEG_PREVIEW_H
#define JPEG_PREVIEW_H

#include "encoded.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <jpeglib.h>

// Beside the bytes: the library's tables and buffers.
#define JPEG_PREVIEW_MEMORY ((size_t)128 * 1024)

typedef struct JPEGPreview JPEGPreview;

/// Whether a picture with this header can have one: an MCU of it may be too large for a file in one scan.
bool jpeg_preview_fits(const struct jpeg_decompress_struct *source);
/// NULL when there is no memory.
JPEGPreview *jpeg_preview_create(
    const struct jpeg_decompress_struct *source, int orientation, size_t max_bytes);
/// Takes a row of MCUs. False: there will be no preview.
bool jpeg_preview_write(JPEGPreview *preview, JSAMPARRAY *rows);
/// After the last row. False: there is no preview.
bool jpeg_preview_finish(JPEGPreview *preview);
/// What was encoded, as long as the preview lives.
const Encoded *jpeg_preview_encoded(const JPEGPreview *preview);
void jpeg_preview_destroy(JPEGPreview *preview);

#endif
