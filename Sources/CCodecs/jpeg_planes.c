#include "jpeg_planes.h"

#include "CCodecs.h"

bool jpeg_may_shrink(uint32_t side, uint32_t factor, uint32_t least) {
    uint64_t left = ((uint64_t)side + factor - 1) / factor;
    // The coarser blocks are, the more is left out with them.
    uint64_t eighths = factor == 2 ? 6 : factor == 4 ? 7 : 8;
    return left * 8 >= least * eighths;
}

CodecPixels jpeg_planes_pixels(const struct jpeg_decompress_struct *cinfo) {
    CodecPixels pixels = {.channels = 1, .planes = cinfo->num_components};
    switch (cinfo->jpeg_color_space) {
    case JCS_GRAYSCALE: pixels.colours = CodecColoursGrey; break;
    case JCS_CMYK: pixels.colours = CodecColoursInks; break;
    case JCS_YCCK: pixels.colours = CodecColoursYCCInks; break;
    case JCS_RGB: pixels.colours = CodecColoursRGB; break;
    default: pixels.colours = CodecColoursYCC;
    }
    return pixels;
}

static uint32_t side(uint32_t side, int factor, int max_factor) {
    uint64_t whole = (uint64_t)max_factor * DCTSIZE;
    return (uint32_t)((side * (uint64_t)factor + whole - 1) / whole);
}

int jpeg_planes_sides(const struct jpeg_decompress_struct *cinfo, int component, int eighths, bool is_own,
    uint32_t *width, uint32_t *height) {
    const jpeg_component_info *info = &cinfo->comp_info[component];
    int across = info->h_samp_factor, down = info->v_samp_factor, size = eighths;
    while (!is_own && size < DCTSIZE && cinfo->max_h_samp_factor * eighths % (across * size * 2) == 0
        && cinfo->max_v_samp_factor * eighths % (down * size * 2) == 0)
        size *= 2;
    *width = side(cinfo->image_width, across * size, cinfo->max_h_samp_factor);
    *height = side(cinfo->image_height, down * size, cinfo->max_v_samp_factor);
    return down * size;
}
