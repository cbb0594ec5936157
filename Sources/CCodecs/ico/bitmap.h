// Reads a device-independent bitmap in an ICO ([MS-WMF] 2.2.2.9): its pixels, and the mask below them. No library
// is used: the format is a simple table of numbers, and libraries that read it also read a hundred other formats.
#ifndef BITMAP_H
#define BITMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

typedef struct {
    uint32_t width, height;
    /// Where the bitmap's bytes end, counted from the file's start.
    uint64_t end;
    bool is_top_down, has_mask;
    int bits;
    uint32_t masks[4]; // red, green, blue, alpha; for 16 and 32 bits
    uint64_t palette, pixels, mask; // offsets in the file
    uint32_t colours;
    int colour_bytes;
    uint64_t stride, mask_stride;
    const uint8_t *bytes;
} Bitmap;

/// Reads the header, before anything is allocated. Returns CodecFaultCutShort if more bytes are needed.
/// - Parameter at: the offset of the header.
CodecFault bitmap_read_header(Bitmap *bitmap, const uint8_t *bytes, size_t count, uint64_t at);
/// Call it once all bytes are present; they must not move afterwards.
/// - Parameter count: the end of the bytes that may belong to this image. Another image may follow.
CodecFault bitmap_open(Bitmap *bitmap, const uint8_t *bytes, size_t count);
/// Writes one row, counted from the top, as RGBA, not premultiplied.
void bitmap_row(const Bitmap *bitmap, uint32_t y, uint8_t *rgba);

#endif
