// A tiny picture of a frame from its planes as they are stored: colours are converted once, those of its cells.
#ifndef AVIF_THUMB_H
#define AVIF_THUMB_H

#include "thumb.h"

#include <stdbool.h>

#include <avif/avif.h>

/// False: no memory, or a kind of planes that can't be shown.
bool avif_thumb_make(Thumb *thumb, const avifImage *image);

#endif
