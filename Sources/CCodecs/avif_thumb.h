// A tiny picture of a frame from its planes as they are stored: colours are converted once, those of its cells.
#ifndef AVIF_THUMB_H
#define AVIF_THUMB_H

#include "thumb.h"

#include <stdbool.h>

#include <avif/avif.h>

/// False: no memory, or a kind of planes that can't be shown.
bool avif_thumb_make(Thumb *thumb, const avifImage *image);

// The same in parts, for a picture that comes in tiles.

/// A channel of a picture's sample, as 8 bits: luma, both of chroma, alpha.
uint8_t avif_thumb_sample(const avifImage *image, int channel, uint32_t x, uint32_t y);
/// Adds what was sampled at one place. Straight colours count by their alpha, premultiplied ones as they are.
void avif_thumb_add(Thumb *thumb, uint32_t across, uint32_t down, const uint8_t yuva[4], bool is_straight);
/// - Parameter image: of whose colours it is; its planes aren't looked at.
bool avif_thumb_finish(Thumb *thumb, const avifImage *image, bool is_straight);

#endif
