#include "orientation.h"

#include <string.h>

// Describes how the upright image runs through the stored one: the offset of upright (0, 0), and the offsets of
// a step to the right and of a step down, in pixels.
typedef struct {
    ptrdiff_t origin, across, down;
} Walk;

static Walk walk_of(ptrdiff_t width, ptrdiff_t height, int orientation) {
    ptrdiff_t right = width - 1, bottom = (height - 1) * width;
    switch (orientation) {
    case 2: return (Walk){right, -1, width};
    case 3: return (Walk){bottom + right, -1, -width};
    case 4: return (Walk){bottom, 1, -width};
    case 5: return (Walk){0, width, 1};
    case 6: return (Walk){bottom, -width, 1};
    case 7: return (Walk){bottom + right, -width, -1};
    case 8: return (Walk){right, width, -1};
    default: return (Walk){0, 1, width};
    }
}

void orientation_rows(const uint8_t *picture, uint32_t width, uint32_t height, int channels,
    int orientation, uint32_t first, int count, uint8_t *out, size_t stride) {
    Walk walk = walk_of(width, height, orientation);
    uint32_t columns = orientation >= 5 ? height : width;
    // Column by column, because pixels of several rows that are adjacent in memory are then read together.
    for (uint32_t column = 0; column < columns; column++) {
        ptrdiff_t at = walk.origin + walk.across * column + walk.down * first;
        uint8_t *target = out + (size_t)column * (size_t)channels;
        for (int row = 0; row < count; row++, at += walk.down, target += stride)
            for (int channel = 0; channel < channels; channel++)
                target[channel] = picture[at * channels + channel];
    }
}
