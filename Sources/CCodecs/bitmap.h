// A device-independent bitmap, as BMP and ICO files have it ([MS-WMF] 2.2.2.9): read here, as it is a table of numbers, and the
// libraries that read it read a hundred formats beside it.
#ifndef BITMAP_H
#define BITMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

typedef struct {
    uint32_t width, height;
    bool has_alpha;
    /// Bytes from the file's start that it is in; UINT64_MAX: all, which its codes end in.
    uint64_t end;
    bool is_icon, is_top_down, is_coded, has_mask;
    int bits;
    uint32_t masks[4]; // red, green, blue, alpha, of 16 and 32 bits
    uint64_t palette, pixels, mask; // where they are
    uint32_t colours;
    int colour_bytes;
    uint64_t stride, mask_stride;
    const uint8_t *bytes;
    uint16_t *indices; // of codes
} Bitmap;

/// Reads its header, before anything is allocated. CodecFaultCutShort: more bytes would tell.
/// - Parameters:
///   - at: where the header begins.
///   - pixels: where they begin; 0: behind the palette.
CodecFault bitmap_look(Bitmap *bitmap, const uint8_t *bytes, size_t count, uint64_t at, uint64_t pixels, bool is_icon);
/// Once its bytes are there, which must stay: decodes what is coded.
/// - Parameter count: as far as the picture may reach; behind that an icon may have another one.
CodecFault bitmap_open(Bitmap *bitmap, const uint8_t *bytes, size_t count);
void bitmap_close(Bitmap *bitmap);
/// A row from the top, RGBA, not premultiplied.
void bitmap_row(const Bitmap *bitmap, uint32_t y, uint8_t *rgba);

#endif
