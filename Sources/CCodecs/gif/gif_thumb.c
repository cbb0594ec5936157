#include "gif_thumb.h"

// Computes the row's samples once; they are the same for all pieces of the row.
static void begin_row(GIFThumb *gif) {
    gif->column = 0;
    gif->across = gif->first;
    gif->down = thumb_span(&gif->thumb, 0, gif->image.top + gif->row.place);
}

void gif_thumb_start(
    GIFThumb *gif, GIFArea screen, GIFArea image, const uint8_t *table, uint32_t size,
    int transparent) {
    thumb_start(&gif->thumb, screen.width, screen.height);
    gif_set_colours(&gif->colours, table, size);
    if (transparent >= 0) memset(gif->colours.rgba[transparent], 0, 4);
    gif->image = image;
    gif->row = (GIFRow){0};
    const ThumbAxis *axis = &gif->thumb.across[0];
    gif->first = 0;
    while (gif->first < axis->count && axis->at[gif->first] < image.left) gif->first++;
    begin_row(gif);
}

// Adds indices of one row, from `column` on.
static void add_piece(GIFThumb *gif, const uint8_t *indices, uint32_t count) {
    const ThumbAxis *axis = &gif->thumb.across[0];
    uint32_t start = gif->image.left + gif->column;
    while (gif->across < axis->count && axis->at[gif->across] - start < count) {
        uint8_t index = indices[axis->at[gif->across] - start];
        thumb_add_pixel(&gif->thumb, gif->across, gif->down, gif->colours.rgba[index]);
        gif->across++;
    }
}

void gif_thumb_add(GIFThumb *gif, const uint8_t *indices, size_t count) {
    while (count) {
        uint32_t left = gif->image.width - gif->column;
        uint32_t piece = count < left ? (uint32_t)count : left;
        if (gif->down.first < gif->down.end) add_piece(gif, indices, piece);
        gif->column += piece;
        indices += piece;
        count -= piece;
        if (gif->column < gif->image.width) continue;
        gif_next_row(&gif->row, gif->image);
        begin_row(gif);
    }
}
