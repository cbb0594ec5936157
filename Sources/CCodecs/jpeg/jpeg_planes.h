// A JPEG's components as planes, at the scale of decoding.
#ifndef JPEG_PLANES_H
#define JPEG_PLANES_H

#include "rows.h"

#include <stdio.h>

#include <jpeglib.h>

/// The meaning of the components. Call it once the header is read. Scale and profile are not set.
CodecPixels jpeg_planes_pixels(const struct jpeg_decompress_struct *cinfo);
/// The sides of a component's plane.
typedef struct {
    uint32_t width, height; // in samples
    uint32_t across, down;  // how many pixels of the whole image one sample covers, along each side
    int lines;              // rows of samples in a row of MCUs
} JPEGPlaneSides;

/// The sides of a component's plane if the image is decoded at this scale.
/// - Parameter is_own: whether every component has exactly this scale. If not, components with fewer samples
///   are scaled down less, as jpeg_calc_output_dimensions does.
JPEGPlaneSides jpeg_planes_sides(
    const struct jpeg_decompress_struct *cinfo, int component, int eighths, bool is_own);

#endif
