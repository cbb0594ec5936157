// Readers of pixels: rows of 8-bit samples from an image's bytes, top row first.
#ifndef PIXELS_H
#define PIXELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

/// What a decoder found when it decoded an image whole. A reader takes up no other picture: it compares before it
/// allocates anything of the picture's size, and otherwise fails as broken.
typedef struct {
    uint32_t width, height; // as stored; no picture has a side of 0
    bool has_alpha, is_progressive;
    uint64_t frames;
    uint64_t extra_memory; // that is reckoned beside what a picture of the above takes
} CheckedPicture;

/// Whether a picture that a reader found is the one that was checked.
static inline bool checked_is(
    const CheckedPicture *checked, uint32_t width, uint32_t height, bool has_alpha,
    bool is_progressive) {
    return width && height && width == checked->width && height == checked->height
        && has_alpha == checked->has_alpha && is_progressive == checked->is_progressive;
}

/// One picture being read, which `close` frees. It is as stored: not turned, in its own colours.
typedef struct Pixels {
    uint32_t width, height;
    /// 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha (not premultiplied).
    int channels;
    /// The colour profile, as long as the reader lives; NULL where there is none.
    const uint8_t *icc;
    size_t icc_count;
    void *context;
    int (*rows)(struct Pixels *, uint8_t *out, size_t stride, int count); /* rows written, 0 at the end, -1 on failure */
    void (*close)(struct Pixels *);
} Pixels;

/// What `rows` may say besides: nothing yet, call again. A reader that has to take in all of the
/// picture before its first row does so in slices.
#define PIXELS_NOT_YET (-2)

#endif
