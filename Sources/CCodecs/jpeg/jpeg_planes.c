#include "jpeg_planes.h"

#include "CCodecs.h"

bool jpeg_may_shrink(uint32_t side, uint32_t factor, uint32_t least) {
    uint64_t left = ((uint64_t)side + factor - 1) / factor;
    // Smaller scales lose more detail, so they must leave more pixels.
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

static uint32_t samples(uint32_t side, uint32_t pixels) {
    return (uint32_t)(((uint64_t)side + pixels - 1) / pixels);
}

JPEGPlaneSides jpeg_planes_sides(
    const struct jpeg_decompress_struct *cinfo, int component, int eighths, bool is_own) {
    const jpeg_component_info *info = &cinfo->comp_info[component];
    int across = info->h_samp_factor, down = info->v_samp_factor, size = eighths;
    while (!is_own && size < DCTSIZE && cinfo->max_h_samp_factor * eighths % (across * size * 2) == 0
        && cinfo->max_v_samp_factor * eighths % (down * size * 2) == 0)
        size *= 2;
    // Both are integers: the reader refuses sampling factors that do not divide the largest one.
    JPEGPlaneSides sides = {
        .across = (uint32_t)(cinfo->max_h_samp_factor * DCTSIZE / (across * size)),
        .down = (uint32_t)(cinfo->max_v_samp_factor * DCTSIZE / (down * size)),
        .lines = down * size,
    };
    sides.width = samples(cinfo->image_width, sides.across);
    sides.height = samples(cinfo->image_height, sides.down);
    return sides;
}
