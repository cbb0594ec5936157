// A tiny picture made on the way of a decode, from some of the pixels that pass by.
//
// Each of its cells is the mean of 16 pixels spread evenly over what it stands for. So the cost is bounded whatever the
// picture's size: 16,384 pixels at the most are looked at. Rows may come in any order, as those of interlaced pictures do.
#ifndef THUMB_H
#define THUMB_H

#include <stddef.h>
#include <stdint.h>

#include "CCodecs.h"

#define THUMB_SIDE 32
// Along each side, so 16 a cell.
#define THUMB_SAMPLES_PER_CELL 4
#define THUMB_SAMPLES (THUMB_SIDE * THUMB_SAMPLES_PER_CELL)
#define THUMB_CHANNELS 4

// Which of a side's pixels are looked at: never falling, and with repetitions where there are few.
typedef struct {
    uint32_t count;
    uint32_t at[THUMB_SAMPLES];
} ThumbAxis;

// Samples from `first` up to `end` are at one position.
typedef struct {
    uint32_t first, end;
} ThumbSpan;

typedef struct {
    uint32_t columns, rows;
    // A channel each, for planes of sides of their own; pixels of four channels go by the first.
    ThumbAxis across[THUMB_CHANNELS], down[THUMB_CHANNELS];
    uint32_t sums[THUMB_SIDE][THUMB_SIDE][THUMB_CHANNELS];
    uint8_t rgba[4 * THUMB_SIDE * THUMB_SIDE];
} Thumb;

/// Starts a tiny picture of the proportions of a picture of these sides, neither of them 0.
void thumb_start(Thumb *thumb, uint32_t width, uint32_t height);
/// The sides of a channel's plane, where they aren't the picture's.
void thumb_set_plane(Thumb *thumb, int channel, uint32_t width, uint32_t height);

/// The samples that row `y` of a channel's plane has; none where `first` is `end`.
ThumbSpan thumb_span(const Thumb *thumb, int channel, uint32_t y);
/// A row of a channel's plane.
void thumb_add_plane_row(Thumb *thumb, int channel, uint32_t y, const uint8_t *row);
/// One pixel, alpha not premultiplied, for the sample `across` in the rows of a span.
void thumb_add_pixel(Thumb *thumb, uint32_t across, ThumbSpan rows, const uint8_t rgba[4]);
/// A row of pixels, alpha not premultiplied, 8 bits a channel.
void thumb_add_rgba_row(Thumb *thumb, uint32_t y, const uint8_t *row);

/// What planes added up to: the mean of a cell's channel, 0 to 255.
uint8_t thumb_mean(const Thumb *thumb, uint32_t column, uint32_t row, int channel);
/// Fills `rgba` from planes that were added, the first `channels` of each pixel: the caller knows their colour space.
void thumb_finish_planes(Thumb *thumb, int channels);
/// Fills `rgba` from pixels that were added.
void thumb_finish_pixels(Thumb *thumb);
/// Tells of a finished one, which has to live as long as the picture is looked at.
void thumb_tell(const Thumb *thumb, CodecPicture *picture);

#endif
