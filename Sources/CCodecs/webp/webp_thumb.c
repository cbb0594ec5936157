#include "webp_thumb.h"

#include <stdbool.h>

// Maps a row or column of the canvas to the decoded frame. Returns false if it is outside the frame.
static bool find(uint32_t at, uint32_t start, uint32_t side, int decoded, uint32_t *out) {
    if (at < start || at - start >= side) return false;
    *out = (uint32_t)((uint64_t)(at - start) * (uint32_t)decoded / side);
    return true;
}

static void add_row(Thumb *thumb, ThumbSpan rows, WebPPlace place, int decoded, const uint8_t *row) {
    const ThumbAxis *axis = &thumb->across[0];
    uint32_t x;
    for (uint32_t across = 0; across < axis->count; across++)
        if (find(axis->at[across], place.left, place.width, decoded, &x))
            thumb_add_pixel(thumb, across, rows, row + (size_t)4 * x);
}

void webp_thumb_make(
    Thumb *thumb, uint32_t width, uint32_t height, WebPPlace place, const WebPDecBuffer *frame) {
    const WebPRGBABuffer *buffer = &frame->u.RGBA;
    thumb_start(thumb, width, height);
    const ThumbAxis *axis = &thumb->down[0];
    uint32_t y;
    for (uint32_t down = 0; down < axis->count; down++)
        if (find(axis->at[down], place.top, place.height, frame->height, &y))
            add_row(
                thumb, (ThumbSpan){down, down + 1}, place, frame->width,
                buffer->rgba + (size_t)y * (size_t)buffer->stride);
    thumb_finish_pixels(thumb);
}
