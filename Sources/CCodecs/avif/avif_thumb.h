// Makes a thumbnail from a frame's planes as they are stored. Only the colors of its cells are converted to
// RGB.
#ifndef AVIF_THUMB_H
#define AVIF_THUMB_H

#include "thumb.h"

#include <stdbool.h>

#include <avif/avif.h>

/// Returns false if out of memory or if the format of the planes is not supported.
bool avif_thumb_make(Thumb *thumb, const avifImage *image);

// The same in parts, for an image that arrives in tiles.

/// One channel of the image at one position, as 8 bits. Channels: luma, two of chroma, alpha.
uint8_t avif_thumb_sample(const avifImage *image, int channel, uint32_t x, uint32_t y);
/// Adds one sampled pixel. Straight colors are weighted by their alpha; premultiplied colors are not.
void avif_thumb_add(Thumb *thumb, uint32_t across, uint32_t down, const uint8_t yuva[4], bool is_straight);
/// - Parameter image: provides the color format; its planes are not read.
bool avif_thumb_finish(Thumb *thumb, const avifImage *image, bool is_straight);

#endif
