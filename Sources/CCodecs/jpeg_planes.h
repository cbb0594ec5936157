// A JPEG's components as planes, at the scale that they are decoded at.
#ifndef JPEG_PLANES_H
#define JPEG_PLANES_H

#include "rows.h"

#include <stdio.h>

#include <jpeglib.h>

/// What the components mean, once the header is read; neither scale nor profile.
CodecPixels jpeg_planes_pixels(const struct jpeg_decompress_struct *cinfo);
/// A component's samples, as they are decoded.
typedef struct {
    uint32_t width, height; // in samples
    uint32_t across, down;  // pixels of the whole image that a sample stands for, along each side
    int lines;              // in a row of MCUs
} JPEGPlaneSides;

/// A component's sides where the picture is decoded at so many eighths.
/// - Parameter is_own: each component has that scale. Otherwise those with fewer samples are scaled down less, as
///   jpeg_calc_output_dimensions does it.
JPEGPlaneSides jpeg_planes_sides(
    const struct jpeg_decompress_struct *cinfo, int component, int eighths, bool is_own);

#endif
