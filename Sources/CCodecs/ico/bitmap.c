#include "bitmap.h"

#include <string.h>

enum { PLAIN, FIELDS = 3, ALPHA_FIELDS = 6 };

static uint32_t u16(const uint8_t *bytes) {
    return bytes[0] | (uint32_t)bytes[1] << 8;
}

static uint32_t u32(const uint8_t *bytes) {
    return u16(bytes) | u16(bytes + 2) << 16;
}

static bool is_there(uint64_t at, uint64_t size, size_t count) {
    return at <= count && size <= count - at;
}

// Reads the masks that assign bits to colors: those in the file, or the default ones.
static CodecFault read_masks(Bitmap *bitmap, const uint8_t *header, uint32_t header_size, uint32_t compression, const uint8_t *bytes, size_t count, uint64_t *at) {
    static const uint32_t usual16[3] = {0x7C00, 0x03E0, 0x001F}, usual32[3] = {0xFF0000, 0xFF00, 0xFF};
    bool is_told = compression == FIELDS || compression == ALPHA_FIELDS;
    int channels = compression == ALPHA_FIELDS || header_size >= 56 ? 4 : 3;
    if (!is_told) {
        memcpy(bitmap->masks, bitmap->bits == 16 ? usual16 : usual32, sizeof usual16);
        // The fourth byte is alpha if any pixel uses it; see bitmap_open().
        if (bitmap->bits == 32) bitmap->masks[3] = 0xFF000000;
        return CodecFaultNone;
    }
    // The masks follow a header of 40 bytes. Longer headers contain them at the same offset.
    const uint8_t *masks = header + 40;
    uint64_t size = (uint64_t)4 * (uint64_t)channels;
    if (!is_there((uint64_t)(masks - bytes), size, count)) return CodecFaultCutShort;
    if (header_size == 40) *at += size;
    for (int channel = 0; channel < channels; channel++) bitmap->masks[channel] = u32(masks + 4 * channel);
    return CodecFaultNone;
}

// Checks for the known header sizes, because the field could have any value.
static bool is_header(uint32_t size) {
    switch (size) {
    case 12: case 40: case 52: case 56: case 64: case 108: case 124: return true;
    default: return false;
    }
}

CodecFault bitmap_read_header(Bitmap *bitmap, const uint8_t *bytes, size_t count, uint64_t at) {
    *bitmap = (Bitmap){.colour_bytes = 4};
    if (!is_there(at, 4, count)) return CodecFaultCutShort;
    uint32_t size = u32(bytes + at), compression = PLAIN, colours = 0;
    if (!is_header(size)) return CodecFaultUnsupported;
    if (!is_there(at, size, count)) return CodecFaultCutShort;
    const uint8_t *header = bytes + at;
    int64_t height;
    if (size == 12) {
        bitmap->width = u16(header + 4);
        height = u16(header + 6);
        bitmap->bits = (int)u16(header + 10);
        bitmap->colour_bytes = 3;
    } else {
        bitmap->width = u32(header + 4);
        height = (int32_t)u32(header + 8);
        bitmap->bits = (int)u16(header + 14);
        compression = u32(header + 16);
        colours = u32(header + 32);
    }
    bitmap->is_top_down = height < 0;
    if (height < 0) height = -height;
    // The height includes the mask.
    height /= 2;
    if (!bitmap->width || bitmap->width > INT32_MAX || !height) return CodecFaultBroken;
    bitmap->height = (uint32_t)height;
    int bits = bitmap->bits;
    bool is_known = compression == PLAIN ? bits == 1 || bits == 4 || bits == 8 || bits == 16 || bits == 24 || bits == 32
                                         : (compression == FIELDS || compression == ALPHA_FIELDS) && (bits == 16 || bits == 32);
    if (!is_known) return CodecFaultUnsupported;
    at += size;
    if (bits == 16 || bits == 32) {
        CodecFault fault = read_masks(bitmap, header, size, compression, bytes, count, &at);
        if (fault) return fault;
    }
    if (bits <= 8 && (!colours || colours > 1u << bits)) colours = 1u << bits;
    bitmap->palette = at;
    bitmap->colours = bits <= 8 ? colours : 0;
    bitmap->pixels = at + (uint64_t)colours * (uint64_t)bitmap->colour_bytes;
    bitmap->stride = ((uint64_t)bitmap->width * (uint64_t)bits + 31) / 32 * 4;
    bitmap->mask = bitmap->pixels + bitmap->stride * bitmap->height;
    bitmap->mask_stride = ((uint64_t)bitmap->width + 31) / 32 * 4;
    bitmap->end = bitmap->mask + (bits < 32 ? bitmap->mask_stride * bitmap->height : 0);
    return CodecFaultNone;
}

// Whether any pixel uses the fourth byte.
static bool has_fourth(const Bitmap *bitmap) {
    const uint8_t *pixels = bitmap->bytes + bitmap->pixels;
    for (uint64_t at = 3; at < bitmap->stride * bitmap->height; at += 4)
        if (pixels[at]) return true;
    return false;
}

CodecFault bitmap_open(Bitmap *bitmap, const uint8_t *bytes, size_t count) {
    bitmap->bytes = bytes;
    if (bitmap->mask > count) return CodecFaultCutShort;
    if (bitmap->bits == 32 && !has_fourth(bitmap)) bitmap->masks[3] = 0;
    // Some icons have no mask.
    bitmap->has_mask = !bitmap->masks[3] && bitmap->mask + bitmap->mask_stride * bitmap->height <= count;
    return CodecFaultNone;
}

static void paint(const Bitmap *bitmap, uint32_t index, uint8_t *rgba) {
    memset(rgba, 0, 4);
    rgba[3] = 255;
    // Indices beyond the palette are black, as in other decoders.
    if (index >= bitmap->colours) return;
    const uint8_t *colour = bitmap->bytes + bitmap->palette + (uint64_t)index * (uint64_t)bitmap->colour_bytes;
    rgba[0] = colour[2];
    rgba[1] = colour[1];
    rgba[2] = colour[0];
}

// Scales a field's value to 8 bits.
static uint8_t field(uint32_t value, uint32_t mask) {
    if (!mask) return 0;
    int shift = __builtin_ctz(mask);
    uint64_t most = mask >> shift, part = (value & mask) >> shift;
    return (uint8_t)((part * 255 + most / 2) / most);
}

static void paint_fields(const Bitmap *bitmap, uint32_t value, uint8_t *rgba) {
    for (int channel = 0; channel < 3; channel++) rgba[channel] = field(value, bitmap->masks[channel]);
    rgba[3] = bitmap->masks[3] ? field(value, bitmap->masks[3]) : 255;
}

static void paint_pixel(const Bitmap *bitmap, const uint8_t *row, uint32_t x, uint8_t *rgba) {
    switch (bitmap->bits) {
    case 24:
        rgba[0] = row[3 * (size_t)x + 2];
        rgba[1] = row[3 * (size_t)x + 1];
        rgba[2] = row[3 * (size_t)x];
        rgba[3] = 255;
        break;
    case 16:
        paint_fields(bitmap, u16(row + 2 * (size_t)x), rgba);
        break;
    case 32:
        paint_fields(bitmap, u32(row + 4 * (size_t)x), rgba);
        break;
    default: {
        uint32_t per_byte = 8 / (uint32_t)bitmap->bits, shift = (per_byte - 1 - x % per_byte) * (uint32_t)bitmap->bits;
        paint(bitmap, row[x / per_byte] >> shift & ((1u << bitmap->bits) - 1), rgba);
    }
    }
}

void bitmap_row(const Bitmap *bitmap, uint32_t y, uint8_t *rgba) {
    size_t row = bitmap->is_top_down ? y : bitmap->height - 1 - y;
    const uint8_t *pixels = bitmap->bytes + bitmap->pixels + row * bitmap->stride;
    const uint8_t *mask = bitmap->bytes + bitmap->mask + row * bitmap->mask_stride;
    for (uint32_t x = 0; x < bitmap->width; x++, rgba += 4) {
        paint_pixel(bitmap, pixels, x, rgba);
        if (bitmap->has_mask && mask[x / 8] >> (7 - x % 8) & 1) memset(rgba, 0, 4);
    }
}
