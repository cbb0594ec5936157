// The fixed parts of a GIF file (GIF89a, sections 18 to 23).
#ifndef GIF_FORMAT_H
#define GIF_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GIF_SCREEN_SIZE 13
#define GIF_IMAGE_SIZE 10
// The introducer, the label, the length and the content of a graphic control extension.
#define GIF_CONTROL_SIZE 7
#define GIF_IMAGE 0x2C
#define GIF_EXTENSION 0x21
#define GIF_TRAILER 0x3B
#define GIF_CONTROL 0xF9
#define GIF_MAX_TABLE 768

/// The canvas, or the place of an image on it.
typedef struct {
    uint32_t left, top, width, height;
    bool is_interlaced;
    uint32_t table_size; // bytes of the color table that follows; 0: there is none
} GIFArea;

static inline uint32_t gif_u16(const uint8_t *bytes) {
    return bytes[0] | (uint32_t)bytes[1] << 8;
}

static inline uint32_t gif_table_size(uint8_t flags) {
    return flags & 0x80 ? 3u << ((flags & 7) + 1) : 0;
}

static inline bool gif_is_screen(const uint8_t *bytes) {
    return !memcmp(bytes, "GIF87a", 6) || !memcmp(bytes, "GIF89a", 6);
}

/// - Parameter bytes: `GIF_SCREEN_SIZE` from the file's start.
static inline GIFArea gif_screen(const uint8_t *bytes) {
    return (GIFArea){
        .width = gif_u16(bytes + 6),
        .height = gif_u16(bytes + 8),
        .table_size = gif_table_size(bytes[10]),
    };
}

/// - Parameter bytes: `GIF_IMAGE_SIZE` from the image separator.
static inline GIFArea gif_image(const uint8_t *bytes) {
    return (GIFArea){
        .left = gif_u16(bytes + 1),
        .top = gif_u16(bytes + 3),
        .width = gif_u16(bytes + 5),
        .height = gif_u16(bytes + 7),
        .is_interlaced = bytes[9] & 0x40,
        .table_size = gif_table_size(bytes[9]),
    };
}

/// The canvas. If the first frame is wider or taller than the screen, the canvas has the frame's size and the frame moves to
/// its origin, as in browsers.
static inline GIFArea gif_canvas(GIFArea screen, GIFArea *first) {
    if (first->width <= screen.width && first->height <= screen.height) return screen;
    first->left = first->top = 0;
    screen.width = first->width;
    screen.height = first->height;
    return screen;
}

static inline bool gif_covers(GIFArea image, GIFArea screen) {
    return !image.left && !image.top && image.width >= screen.width
        && image.height >= screen.height;
}

/// The index of the transparent color; -1 if there is none or if this is another extension.
/// - Parameter bytes: `GIF_CONTROL_SIZE` bytes from the extension's introducer.
static inline int gif_transparent_index(const uint8_t *bytes) {
    return bytes[1] == GIF_CONTROL && bytes[2] == 4 && bytes[3] & 1 ? bytes[6] : -1;
}

typedef struct {
    uint8_t rgba[256][4];
} GIFColours;

/// Sets opaque colors from a table of `size` bytes. Colors beyond the table are black.
static inline void gif_set_colours(GIFColours *colours, const uint8_t *table, uint32_t size) {
    for (uint32_t index = 0; index < 256; index++) {
        uint8_t *colour = colours->rgba[index];
        memset(colour, 0, 3);
        if (3 * index < size) memcpy(colour, table + 3 * (size_t)index, 3);
        colour[3] = 255;
    }
}

/// A position in a file's bytes.
typedef struct {
    const uint8_t *at, *end;
} GIFCursor;

static inline bool gif_has(const GIFCursor *cursor, size_t count) {
    return (size_t)(cursor->end - cursor->at) >= count;
}

/// The length of the next data block, limited to the bytes that the file has. 0 if there is no block.
static inline size_t gif_read_block(GIFCursor *cursor) {
    if (!gif_has(cursor, 1)) return 0;
    size_t length = *cursor->at++, left = (size_t)(cursor->end - cursor->at);
    return length < left ? length : left;
}

/// Skips data blocks, including the block that ends them. Returns false if the end is missing.
static inline bool gif_skip_blocks(GIFCursor *cursor) {
    while (gif_has(cursor, 1)) {
        size_t length = *cursor->at++;
        if (!length) return true;
        if (!gif_has(cursor, length)) return false;
        cursor->at += length;
    }
    return false;
}

/// Reads a color table of `size` bytes. If `size` is 0, colors stay as they are. Returns false if the table is
/// cut.
static inline bool gif_read_table(GIFCursor *cursor, GIFColours *colours, uint32_t size) {
    if (!gif_has(cursor, size)) return false;
    if (size) gif_set_colours(colours, cursor->at, size);
    cursor->at += size;
    return true;
}

/// How much of a side that begins at `start` lies on the canvas.
static inline uint32_t gif_seen(uint32_t start, uint32_t length, uint32_t side) {
    uint32_t room = start < side ? side - start : 0;
    return length < room ? length : room;
}

/// The position of an image's row. The first row is all zeros.
typedef struct {
    int pass;
    uint32_t place; // counted from the image's top
} GIFRow;

/// Moves to the row that is next in the file. An interlaced image is stored in four passes (GIF89a, appendix
/// E).
static inline void gif_next_row(GIFRow *row, GIFArea image) {
    static const uint8_t starts[4] = {0, 4, 2, 1}, steps[4] = {8, 8, 4, 2};
    if (!image.is_interlaced) {
        row->place++;
        return;
    }
    row->place += steps[row->pass];
    while (row->place >= image.height && row->pass < 3) row->place = starts[++row->pass];
}

#endif
