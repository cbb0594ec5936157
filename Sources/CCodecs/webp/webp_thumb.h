// Makes a thumbnail of a WebP's first frame on its canvas.
#ifndef WEBP_THUMB_H
#define WEBP_THUMB_H

#include "thumb.h"
#include "webp_container.h"

#include <webp/decode.h>

/// - Parameter frame: the whole frame as RGBA, at any scale.
void webp_thumb_make(
    Thumb *thumb, uint32_t width, uint32_t height, WebPPlace place, const WebPDecBuffer *frame);

#endif
