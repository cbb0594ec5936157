// Makes a thumbnail of a GIF's first frame on its canvas, from the indices as they are decoded.
#ifndef GIF_THUMB_H
#define GIF_THUMB_H

#include "gif_format.h"
#include "thumb.h"

typedef struct {
    Thumb thumb;
    GIFColours colours;
    GIFArea image;
    GIFRow row;           // the frame's row whose indices are next
    uint32_t column;
    uint32_t first;       // the first horizontal sample that is not left of the frame
    uint32_t across;      // the first sample that is still missing in this row
    ThumbSpan down;       // the samples of this row
} GIFThumb;

/// - Parameters:
///   - table: the frame's own colors, or else the file's, in `size` bytes.
///   - transparent: the transparent index; -1 if there is none.
void gif_thumb_start(
    GIFThumb *gif, GIFArea screen, GIFArea image, const uint8_t *table, uint32_t size,
    int transparent);
/// Adds the frame's next indices, in the file's order.
void gif_thumb_add(GIFThumb *gif, const uint8_t *indices, size_t count);

#endif
