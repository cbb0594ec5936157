// Readers of pixels: an image's bytes in, rows of 8-bit samples out, top row first.
#ifndef PIXELS_H
#define PIXELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

/// The properties that a decoder found when it decoded the image completely. A reader compares them before it
/// allocates memory of the image's size, and fails as broken if they differ.
typedef struct {
    uint32_t width, height; // as stored; never 0 for a real image
    bool has_alpha, is_progressive;
    uint64_t frames;
    uint64_t extra_memory; // in addition to the memory computed from the fields above
} CheckedImage;

/// Whether the image that a reader found is the one that was checked.
static inline bool checked_is(
    const CheckedImage *checked, uint32_t width, uint32_t height, bool has_alpha,
    bool is_progressive) {
    return width && height && width == checked->width && height == checked->height
        && has_alpha == checked->has_alpha && is_progressive == checked->is_progressive;
}

/// A reader of one image. Free it with `close`. Pixels are as stored: not turned upright, in the image's own
/// colors.
typedef struct Pixels {
    uint32_t width, height;
    /// 1 gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha (not premultiplied).
    int channels;
    /// The color profile, valid as long as the reader. NULL if there is none.
    const uint8_t *icc;
    size_t icc_count;
    void *context;
    int (*rows)(struct Pixels *, uint8_t *out, size_t stride, int count); /* rows written, 0 at the end, -1 on failure */
    void (*close)(struct Pixels *);
} Pixels;

/// A further result of `rows`: nothing is ready yet, call again. Returned by readers that must decode the whole
/// image in slices before the first row.
#define PIXELS_NOT_YET (-2)

#endif
