#include "jpeg_thumb.h"

#include "CCodecs.h"
#include "jpeg_planes.h"
#include "jpeg_scale.h"

#include <stdbool.h>
#include <string.h>

void jpeg_thumb_start(Thumb *thumb, const struct jpeg_decompress_struct *cinfo) {
    thumb_start(thumb, cinfo->image_width, cinfo->image_height);
    for (int index = 0; index < cinfo->num_components; index++) {
        int eighths = COMPONENT_SCALE(&cinfo->comp_info[index]);
        JPEGPlaneSides sides = jpeg_planes_sides(cinfo, index, eighths, true);
        thumb_set_plane(thumb, index, sides.width, sides.height);
    }
}

void jpeg_thumb_add(
    Thumb *thumb, const struct jpeg_decompress_struct *cinfo, JDIMENSION mcu_row, JSAMPARRAY *rows) {
    for (int index = 0; index < cinfo->num_components; index++) {
        const jpeg_component_info *component = &cinfo->comp_info[index];
        uint32_t count = (uint32_t)(component->v_samp_factor * COMPONENT_SCALE(component));
        for (uint32_t row = 0; row < count; row++)
            thumb_add_plane_row(thumb, index, mcu_row * count + row, rows[index][row]);
    }
}

static uint8_t clamped(double value) {
    return value <= 0 ? 0 : value >= 255 ? 255 : (uint8_t)(value + 0.5);
}

// JFIF's conversion to RGB.
static void convert_ycc(uint8_t colour[3]) {
    double light = colour[0], blue = colour[1] - 128.0, red = colour[2] - 128.0;
    colour[0] = clamped(light + 1.402 * red);
    colour[1] = clamped(light - 0.344136 * blue - 0.714136 * red);
    colour[2] = clamped(light + 1.772 * blue);
}

// Like variants without a profile. Inks are stored inverted, with or without Adobe's marker, as in browsers and
// Pillow.
static void convert_inks(uint8_t colour[4]) {
    uint8_t light[3];
    colour_print(colour, light, 1);
    memcpy(colour, light, sizeof light);
}

static void convert(uint8_t colour[4], const struct jpeg_decompress_struct *cinfo) {
    switch (cinfo->jpeg_color_space) {
    case JCS_GRAYSCALE:
        colour[1] = colour[2] = colour[0];
        break;
    case JCS_YCbCr:
        convert_ycc(colour);
        break;
    case JCS_YCCK: // converts to inverted CMY, not to RGB
        convert_ycc(colour);
        for (int index = 0; index < 3; index++) colour[index] = 255 - colour[index];
        convert_inks(colour);
        break;
    case JCS_CMYK:
        convert_inks(colour);
        break;
    default:
        break;
    }
    colour[3] = 255;
}

void jpeg_thumb_finish(Thumb *thumb, const struct jpeg_decompress_struct *cinfo) {
    thumb_finish_planes(thumb, cinfo->num_components);
    for (uint32_t cell = 0; cell < thumb->columns * thumb->rows; cell++)
        convert(thumb->rgba + 4 * cell, cinfo);
}
