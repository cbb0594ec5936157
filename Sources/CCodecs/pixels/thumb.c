#include "thumb.h"

#include <string.h>

#define MIN_CELLS 4
#define SAMPLES_PER_CELL (THUMB_SAMPLES_PER_CELL * THUMB_SAMPLES_PER_CELL)

// Sets the samples to the centers of equal parts of the side.
static void set_axis(ThumbAxis *axis, uint32_t cells, uint32_t side) {
    axis->count = cells * THUMB_SAMPLES_PER_CELL;
    for (uint32_t index = 0; index < axis->count; index++)
        axis->at[index] = (uint32_t)(((uint64_t)index * 2 + 1) * side / (2 * axis->count));
}

// The cells along a side, if the longer side has THUMB_SIDE. With fewer than four cells, the frequencies of the
// hash could not be distinguished.
static uint32_t cells_of(uint32_t side, uint32_t longest) {
    uint64_t cells = ((uint64_t)side * THUMB_SIDE + longest / 2) / longest;
    return cells < MIN_CELLS ? MIN_CELLS : (uint32_t)cells;
}

void thumb_start(Thumb *thumb, uint32_t width, uint32_t height) {
    uint32_t longest = width > height ? width : height;
    memset(thumb->sums, 0, sizeof thumb->sums);
    thumb->columns = cells_of(width, longest);
    thumb->rows = cells_of(height, longest);
    for (int channel = 0; channel < THUMB_CHANNELS; channel++)
        thumb_set_plane(thumb, channel, width, height);
}

void thumb_set_plane(Thumb *thumb, int channel, uint32_t width, uint32_t height) {
    set_axis(&thumb->across[channel], thumb->columns, width);
    set_axis(&thumb->down[channel], thumb->rows, height);
}

ThumbSpan thumb_span(const Thumb *thumb, int channel, uint32_t y) {
    const ThumbAxis *axis = &thumb->down[channel];
    uint32_t low = 0, high = axis->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (axis->at[middle] < y) low = middle + 1;
        else high = middle;
    }
    ThumbSpan span = {low, low};
    while (span.end < axis->count && axis->at[span.end] == y) span.end++;
    return span;
}

void thumb_add_plane_row(Thumb *thumb, int channel, uint32_t y, const uint8_t *row) {
    ThumbSpan rows = thumb_span(thumb, channel, y);
    if (rows.first == rows.end) return;
    const uint32_t *at = thumb->across[channel].at;
    uint32_t cells[THUMB_SIDE];
    for (uint32_t column = 0; column < thumb->columns; column++) {
        cells[column] = 0;
        for (int index = 0; index < THUMB_SAMPLES_PER_CELL; index++) cells[column] += row[*at++];
    }
    // One row of a small plane can cover several samples of a cell, and several cells.
    for (uint32_t down = rows.first, end; down < rows.end; down = end) {
        uint32_t cell = down / THUMB_SAMPLES_PER_CELL;
        end = (cell + 1) * THUMB_SAMPLES_PER_CELL;
        if (end > rows.end) end = rows.end;
        for (uint32_t column = 0; column < thumb->columns; column++)
            thumb->sums[cell][column][channel] += cells[column] * (end - down);
    }
}

void thumb_add_pixel(Thumb *thumb, uint32_t across, ThumbSpan rows, const uint8_t rgba[4]) {
    for (uint32_t down = rows.first; down < rows.end; down++) {
        uint32_t *sums
            = thumb->sums[down / THUMB_SAMPLES_PER_CELL][across / THUMB_SAMPLES_PER_CELL];
        for (int channel = 0; channel < 3; channel++)
            sums[channel] += (uint32_t)rgba[channel] * rgba[3];
        sums[3] += rgba[3];
    }
}

void thumb_add_rgba_row(Thumb *thumb, uint32_t y, const uint8_t *row) {
    ThumbSpan rows = thumb_span(thumb, 0, y);
    if (rows.first == rows.end) return;
    const ThumbAxis *axis = &thumb->across[0];
    for (uint32_t across = 0; across < axis->count; across++)
        thumb_add_pixel(thumb, across, rows, row + (size_t)4 * axis->at[across]);
}

uint8_t thumb_mean(const Thumb *thumb, uint32_t column, uint32_t row, int channel) {
    uint32_t sum = thumb->sums[row][column][channel];
    return (uint8_t)((sum + SAMPLES_PER_CELL / 2) / SAMPLES_PER_CELL);
}

void thumb_finish_planes(Thumb *thumb, int channels) {
    uint8_t *out = thumb->rgba;
    for (uint32_t row = 0; row < thumb->rows; row++)
        for (uint32_t column = 0; column < thumb->columns; column++, out += 4)
            for (int channel = 0; channel < channels; channel++)
                out[channel] = thumb_mean(thumb, column, row, channel);
}

void thumb_finish_pixels(Thumb *thumb) {
    uint8_t *out = thumb->rgba;
    for (uint32_t row = 0; row < thumb->rows; row++)
        for (uint32_t column = 0; column < thumb->columns; column++, out += 4) {
            const uint32_t *sums = thumb->sums[row][column];
            for (int channel = 0; channel < 3; channel++)
                out[channel] = sums[3] ? (uint8_t)((sums[channel] + sums[3] / 2) / sums[3]) : 0;
            out[3] = thumb_mean(thumb, column, row, 3);
        }
}

void thumb_report(const Thumb *thumb, CodecImageInfo *picture) {
    picture->thumbnail = thumb->rgba;
    picture->thumbnailColumns = thumb->columns;
    picture->thumbnailRows = thumb->rows;
}
