#include "jpeg_window.h"

#include <stdlib.h>
#include <string.h>

static uint32_t part(JDIMENSION side, int factor, int max_factor) {
    return (uint32_t)((side * (uint64_t)factor + (uint64_t)max_factor - 1) / (uint64_t)max_factor);
}

bool jpeg_window_start(JPEGWindow *window, const struct jpeg_compress_struct *cinfo) {
    window->count = cinfo->num_components;
    window->mcu_rows = part(cinfo->image_height, 1, cinfo->max_v_samp_factor * DCTSIZE);
    for (int index = 0; index < window->count; index++) {
        const jpeg_component_info *component = &cinfo->comp_info[index];
        JPEGPlane *plane = &window->planes[index];
        plane->width = part(cinfo->image_width, component->h_samp_factor, cinfo->max_h_samp_factor);
        plane->height = part(cinfo->image_height, component->v_samp_factor, cinfo->max_v_samp_factor);
        plane->lines = component->v_samp_factor * DCTSIZE;
        // The library reads whole MCUs.
        plane->stride = part(plane->width, 1, component->h_samp_factor * DCTSIZE)
            * (size_t)component->h_samp_factor * DCTSIZE;
        plane->rows = calloc((size_t)plane->lines * WINDOW_MCU_ROWS, plane->stride);
        if (!plane->rows) return false;
    }
    return true;
}

void jpeg_window_free(JPEGWindow *window) {
    for (int index = 0; index < window->count; index++) free(window->planes[index].rows);
}

static uint8_t *place_of(const JPEGPlane *plane, uint32_t row) {
    return plane->rows + row % ((uint32_t)plane->lines * WINDOW_MCU_ROWS) * plane->stride;
}

bool jpeg_window_add(JPEGWindow *window, int index, const uint8_t *row) {
    JPEGPlane *plane = &window->planes[index];
    uint32_t first = window->written * (uint32_t)plane->lines;
    bool is_full = plane->taken - first == (uint32_t)plane->lines * WINDOW_MCU_ROWS;
    if (plane->taken == plane->height || is_full) return false;
    uint8_t *place = place_of(plane, plane->taken++);
    memcpy(place, row, plane->width);
    memset(place + plane->width, row[plane->width - 1], plane->stride - plane->width);
    return true;
}

bool jpeg_window_show(JPEGWindow *window, JSAMPARRAY planes[]) {
    if (window->written == window->mcu_rows) return false;
    for (int index = 0; index < window->count; index++) {
        JPEGPlane *plane = &window->planes[index];
        uint32_t first = window->written * (uint32_t)plane->lines;
        uint32_t end = first + (uint32_t)plane->lines;
        if (plane->taken < end && plane->taken < plane->height) return false;
        for (int line = 0; line < plane->lines; line++) {
            uint32_t row = first + (uint32_t)line;
            plane->shown[line] = place_of(plane, row < plane->height ? row : plane->height - 1);
        }
        planes[index] = plane->shown;
    }
    window->written++;
    return true;
}
