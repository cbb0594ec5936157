// Encodes the samples that a decoder has so far as a baseline JPEG, without upsampling or color conversion.
#ifndef JPEG_PREVIEW_H
#define JPEG_PREVIEW_H

#include "encoded.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <jpeglib.h>

// The library's tables and buffers, without the encoded bytes.
#define JPEG_PREVIEW_MEMORY ((size_t)128 * 1024)

typedef struct JPEGPreview JPEGPreview;

/// Whether a preview is possible for this header. It is not if an MCU is too large for a file with a single
/// scan.
bool jpeg_preview_fits(const struct jpeg_decompress_struct *source);
/// Returns NULL if out of memory.
JPEGPreview *jpeg_preview_create(
    const struct jpeg_decompress_struct *source, int orientation, size_t max_bytes);
/// Adds a row of MCUs. Returns false if the preview cannot be made.
bool jpeg_preview_write(JPEGPreview *preview, JSAMPARRAY *rows);
/// Call it after the last row. Returns false if the preview cannot be made.
bool jpeg_preview_finish(JPEGPreview *preview);
/// The encoded bytes, valid as long as the preview.
const Encoded *jpeg_preview_encoded(const JPEGPreview *preview);
void jpeg_preview_destroy(JPEGPreview *preview);

#endif
