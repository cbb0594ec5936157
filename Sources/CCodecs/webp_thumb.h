// A tiny picture of a WebP's first frame on its canvas.
#ifndef WEBP_THUMB_H
#define WEBP_THUMB_H

#include "thumb.h"

#include <webp/decode.h>

/// Where a frame is on its canvas.
typedef struct {
    uint32_t left, top, width, height;
} WebPPlace;

/// - Parameter frame: all of it as RGBA, at any scale.
void webp_thumb_make(
    Thumb *thumb, uint32_t width, uint32_t height, WebPPlace place, const WebPDecBuffer *frame);

#endif
