// A tiny picture of a GIF's first frame on its canvas, from the indices as they are decoded.
#ifndef GIF_THUMB_H
#define GIF_THUMB_H

#include "gif_format.h"
#include "thumb.h"

typedef struct {
    Thumb thumb;
    GIFColours colours;
    GIFArea image;
    GIFRow row;           // of the frame, the one whose indices come next
    uint32_t column;
    uint32_t first;       // of the samples across, the first that is not left of the frame
    uint32_t across;      // the first that is still to come in this row
    ThumbSpan down;       // the row's
} GIFThumb;

/// - Parameters:
///   - table: the frame's own colours or else the file's, `size` bytes of them.
///   - transparent: an index; -1: none is.
void gif_thumb_start(
    GIFThumb *gif, GIFArea screen, GIFArea image, const uint8_t *table, uint32_t size,
    int transparent);
/// The frame's next indices, in the file's order.
void gif_thumb_add(GIFThumb *gif, const uint8_t *indices, size_t count);

#endif
