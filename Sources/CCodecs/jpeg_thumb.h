// A tiny picture of a JPEG from its samples as they are stored: colours are converted once, those of its cells.
#ifndef JPEG_THUMB_H
#define JPEG_THUMB_H

#include "thumb.h"

#include <stdio.h>

#include <jpeglib.h>

/// Before the first row of a pass, whose scale is set.
void jpeg_thumb_start(Thumb *thumb, const struct jpeg_decompress_struct *cinfo);
/// A row of MCUs, as jpeg_read_raw_data gives it.
void jpeg_thumb_add(
    Thumb *thumb, const struct jpeg_decompress_struct *cinfo, JDIMENSION mcu_row, JSAMPARRAY *rows);
/// Once all rows were added.
void jpeg_thumb_finish(Thumb *thumb, const struct jpeg_decompress_struct *cinfo);

#endif
