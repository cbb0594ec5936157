// A thumbnail made during decoding, from some of the decoded pixels.
//
// Each cell is the mean of 16 pixels, spread evenly over its area. So the cost is bounded whatever the image's
// size: at most 16,384 pixels are read. Rows may arrive in any order, as in interlaced images.
#ifndef THUMB_H
#define THUMB_H

#include <stddef.h>
#include <stdint.h>

#include "CCodecs.h"

#define THUMB_SIDE 32
// Samples per cell along each side, so 16 in a cell.
#define THUMB_SAMPLES_PER_CELL 4
#define THUMB_SAMPLES (THUMB_SIDE * THUMB_SAMPLES_PER_CELL)
#define THUMB_CHANNELS 4

// The positions that are sampled along a side, in ascending order. Short sides have repeated positions.
typedef struct {
    uint32_t count;
    uint32_t at[THUMB_SAMPLES];
} ThumbAxis;

// The samples from `first` up to `end` have the same position.
typedef struct {
    uint32_t first, end;
} ThumbSpan;

typedef struct {
    uint32_t columns, rows;
    // One axis per channel, for planes of different sizes. RGBA pixels use the first axis.
    ThumbAxis across[THUMB_CHANNELS], down[THUMB_CHANNELS];
    uint32_t sums[THUMB_SIDE][THUMB_SIDE][THUMB_CHANNELS];
    uint8_t rgba[4 * THUMB_SIDE * THUMB_SIDE];
} Thumb;

/// Starts a thumbnail for an image with these sides, which must not be 0.
void thumb_start(Thumb *thumb, uint32_t width, uint32_t height);
/// Sets the sides of a channel's plane, if they differ from the image's.
void thumb_set_plane(Thumb *thumb, int channel, uint32_t width, uint32_t height);

/// The samples in row `y` of a channel's plane. There are none if `first` equals `end`.
ThumbSpan thumb_span(const Thumb *thumb, int channel, uint32_t y);
/// Adds a row of a channel's plane.
void thumb_add_plane_row(Thumb *thumb, int channel, uint32_t y, const uint8_t *row);
/// Adds one pixel, alpha not premultiplied, for the horizontal sample `across` and the samples in `rows`.
void thumb_add_pixel(Thumb *thumb, uint32_t across, ThumbSpan rows, const uint8_t rgba[4]);
/// Adds a row of RGBA pixels, alpha not premultiplied, 8 bits per channel.
void thumb_add_rgba_row(Thumb *thumb, uint32_t y, const uint8_t *row);

/// The mean of a cell's channel, 0 to 255, from the planes that were added.
uint8_t thumb_mean(const Thumb *thumb, uint32_t column, uint32_t row, int channel);
/// Fills `rgba` from the added planes: the first `channels` of each pixel, in the planes' color space.
void thumb_finish_planes(Thumb *thumb, int channels);
/// Fills `rgba` from the added pixels.
void thumb_finish_pixels(Thumb *thumb);
/// Sets the thumbnail in `info`. The thumbnail must live as long as `info` is used.
void thumb_report(const Thumb *thumb, CodecImageInfo *info);

#endif
