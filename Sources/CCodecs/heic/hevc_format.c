// Reads the sides, chroma format and bit depth from a sequence parameter set (ITU-T H.265, 7.3.2.2).
#include "hevc.h"

#include "heif_boxes.h"
#include "hevc_units.h"

// Reads the bits of a NAL unit, without its emulation prevention bytes.
typedef struct {
    const uint8_t *bytes;
    size_t count, at;
    int zeros, left;
    uint8_t byte;
    bool is_short;
} Bits;

static uint32_t read_bit(Bits *bits) {
    if (!bits->left) {
        if (bits->at < bits->count && bits->zeros >= 2 && bits->bytes[bits->at] == 3) {
            bits->at++;
            bits->zeros = 0;
        }
        if (bits->at >= bits->count) {
            bits->is_short = true;
            return 0;
        }
        bits->byte = bits->bytes[bits->at++];
        bits->zeros = bits->byte ? 0 : bits->zeros + 1;
        bits->left = 8;
    }
    return bits->byte >> --bits->left & 1;
}

static uint32_t read_bits(Bits *bits, int count) {
    uint32_t value = 0;
    for (; count; count--) value = value << 1 | read_bit(bits);
    return value;
}

static void skip_bits(Bits *bits, int count) {
    for (; count; count--) (void)read_bit(bits);
}

// Reads an Exp-Golomb code. Useful codes have at most 32 bits.
static uint64_t read_code(Bits *bits) {
    int zeros = 0;
    while (!read_bit(bits))
        if (bits->is_short || ++zeros > 31) {
            bits->is_short = true;
            return 0;
        }
    return ((uint64_t)1 << zeros) - 1 + read_bits(bits, zeros);
}

static void skip_profiles(Bits *bits, int layers) {
    skip_bits(bits, 96);
    bool has_profile[8] = {0}, has_level[8] = {0};
    for (int layer = 0; layer < layers; layer++) {
        has_profile[layer] = read_bit(bits);
        has_level[layer] = read_bit(bits);
    }
    if (layers) skip_bits(bits, 2 * (8 - layers));
    for (int layer = 0; layer < layers; layer++)
        skip_bits(bits, (has_profile[layer] ? 88 : 0) + (has_level[layer] ? 8 : 0));
}

CodecFault hevc_read_format(const uint8_t *unit, size_t count, HEVCFormat *format) {
    Bits bits = {.bytes = unit, .count = count};
    skip_bits(&bits, 16 + 4);
    int layers = (int)read_bits(&bits, 3);
    skip_bits(&bits, 1);
    if (layers > 6) return CodecFaultBroken;
    skip_profiles(&bits, layers);
    (void)read_code(&bits);
    uint64_t chroma = read_code(&bits);
    if (chroma > 3 || (chroma == 3 && read_bit(&bits))) return bits.is_short ? CodecFaultBroken : CodecFaultUnsupported;
    uint64_t width = read_code(&bits), height = read_code(&bits);
    uint64_t left = 0, right = 0, top = 0, bottom = 0;
    if (read_bit(&bits)) {
        left = read_code(&bits);
        right = read_code(&bits);
        top = read_code(&bits);
        bottom = read_code(&bits);
    }
    uint64_t depth = 8 + read_code(&bits), chroma_depth = 8 + read_code(&bits);
    uint64_t across = chroma == 1 || chroma == 2 ? 2 : 1, down = chroma == 1 ? 2 : 1;
    uint64_t cut_across = across * (left + right), cut_down = down * (top + bottom);
    if (bits.is_short || cut_across >= width || cut_down >= height) return CodecFaultBroken;
    if (width > HEVC_MAX_SIDE || height > HEVC_MAX_SIDE) return CodecFaultTooLarge;
    if (depth != chroma_depth && chroma) return CodecFaultUnsupported;
    if (depth != 8 && depth != 10 && depth != 12) return CodecFaultUnsupported;
    *format = (HEVCFormat){
        .width = (uint32_t)width, .height = (uint32_t)height, .shown_width = (uint32_t)(width - cut_across),
        .shown_height = (uint32_t)(height - cut_down), .chroma = (int)chroma, .depth = (int)depth};
    return CodecFaultNone;
}

bool hevc_next_unit(HEIFCursor *cursor, int length_size, HEVCUnit *unit) {
    uint64_t count = heif_read(cursor, length_size);
    if (cursor->is_short || count > (uint64_t)(cursor->end - cursor->at) || count > INT32_MAX || count < 2) return false;
    *unit = (HEVCUnit){cursor->at, (size_t)count, cursor->at[0] >> 1 & 63};
    cursor->at += count;
    return true;
}

bool hevc_setup(const uint8_t *setup, size_t count, HEIFCursor *arrays, int *length_size, int *array_count) {
    if (count < 23) return false;
    *length_size = (setup[21] & 3) + 1;
    *array_count = setup[22];
    *arrays = (HEIFCursor){setup + 23, setup + count, false};
    return true;
}

CodecFault hevc_format(const uint8_t *setup, size_t count, HEVCFormat *format) {
    HEIFCursor cursor;
    int length_size, arrays;
    *format = (HEVCFormat){0};
    if (!hevc_setup(setup, count, &cursor, &length_size, &arrays)) return CodecFaultBroken;
    for (; arrays; arrays--) {
        (void)heif_read(&cursor, 1);
        for (uint64_t left = heif_read(&cursor, 2); left; left--) {
            HEVCUnit unit;
            if (!hevc_next_unit(&cursor, 2, &unit)) return CodecFaultBroken;
            if (unit.type == HEVC_SEQUENCE_SET) return hevc_read_format(unit.bytes, unit.count, format);
        }
    }
    return CodecFaultBroken;
}
