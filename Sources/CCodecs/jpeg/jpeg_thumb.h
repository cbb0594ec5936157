// Makes a thumbnail of a JPEG from its samples as they are stored. Only the colors of its cells are converted
// to RGB.
#ifndef JPEG_THUMB_H
#define JPEG_THUMB_H

#include "thumb.h"

#include <stdio.h>

#include <jpeglib.h>

/// Call it before the first row of a pass, after its scale is set.
void jpeg_thumb_start(Thumb *thumb, const struct jpeg_decompress_struct *cinfo);
/// Adds a row of MCUs, as jpeg_read_raw_data returns it.
void jpeg_thumb_add(
    Thumb *thumb, const struct jpeg_decompress_struct *cinfo, JDIMENSION mcu_row, JSAMPARRAY *rows);
/// Call it after all rows were added.
void jpeg_thumb_finish(Thumb *thumb, const struct jpeg_decompress_struct *cinfo);

#endif
