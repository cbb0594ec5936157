// Uses the rows of a PNG as they are stored: for the thumbnail, for previews, and for variants.
#include "png_reader.h"

#include <stdlib.h>

// Makes libpng convert stored samples to 8 bits.
static void request_8_bit_samples(PNGReader *reader) {
    png_structp png = reader->png;
    CodecImageInfo *picture = &reader->picture;
    png_set_expand(png);
    png_set_scale_16(png);
    png_read_update_info(png, reader->info);
    png_rows_start(&reader->rows_out, picture->width, picture->height, png_get_channels(png, reader->info),
        picture->hasAlpha, picture->isProgressive, reader->burst);
}

// Called before the first row, because libpng allocates rows here.
void png_reader_on_info(png_structp png, png_infop info) {
    PNGReader *reader = png_get_progressive_ptr(png);
    reader->picture.hasAlpha = (png_get_color_type(png, info) & PNG_COLOR_MASK_ALPHA)
        || png_get_valid(png, info, PNG_INFO_tRNS);
    if (reader->rows_out.is_wanted) request_8_bit_samples(reader);
    reader->pixels = png_pixels(png, info);
    // libpng has converted the transparent color to alpha.
    if (reader->rows_out.is_wanted) reader->pixels.has_key = false;
    thumb_start(
        &reader->thumb, png_get_image_width(png, info), png_get_image_height(png, info));
    if (reader->grid.passes) {
        reader->grid.pixels = calloc(1, pass_grid_bytes(&reader->grid));
        if (!reader->grid.pixels) reader->grid.passes = 0;
    }
    if (!reader->rows_out.is_wanted) png_start_read_image(png);
}

// The positions of a pass's pixels.
typedef struct {
    uint32_t x, y, across, down;
} PassPlace;

static PassPlace place_of(const PNGReader *reader, int pass) {
    if (!reader->picture.isProgressive) return (PassPlace){0, 0, 1, 1};
    return (PassPlace){
        PNG_PASS_START_COL(pass), PNG_PASS_START_ROW(pass), PNG_PASS_COL_OFFSET(pass),
        PNG_PASS_ROW_OFFSET(pass)};
}

static void add_to_thumb(PNGReader *reader, const uint8_t *row, uint32_t y, PassPlace place) {
    Thumb *thumb = &reader->thumb;
    ThumbSpan rows = thumb_span(thumb, 0, y);
    if (rows.first == rows.end) return;
    for (uint32_t across = 0; across < thumb->across[0].count; across++) {
        uint32_t x = thumb->across[0].at[across];
        if (x < place.x || (x - place.x) % place.across) continue;
        uint8_t rgba[4];
        png_pixel(&reader->pixels, row, (x - place.x) / place.across, rgba);
        thumb_add_pixel(thumb, across, rows, rgba);
    }
}

static void add_to_grid(PNGReader *reader, const uint8_t *row, uint32_t y, PassPlace place) {
    PassGrid *grid = &reader->grid;
    uint32_t apart = pass_step_across[grid->passes];
    uint8_t *out = grid->pixels
        + (size_t)4 * grid->columns * (y / pass_step_down[grid->passes]);
    uint32_t index = 0;
    for (uint32_t x = place.x; x < grid->width; x += place.across)
        png_pixel(&reader->pixels, row, index++, out + (size_t)4 * (x / apart));
}

void png_reader_on_row(png_structp png, png_bytep row, png_uint_32 number, int pass) {
    PNGReader *reader = png_get_progressive_ptr(png);
    if (!row) return;
    reader->rows++;
    PassPlace place = place_of(reader, pass);
    uint32_t y = place.y + number * place.down;
    add_to_thumb(reader, row, y, place);
    PNGRows *rows = &reader->rows_out;
    if (rows->is_wanted && rows->is_canvas) png_rows_place(rows, row, y, place.x, place.across);
    else if (rows->is_wanted) png_rows_add(rows, row);
    if (pass >= reader->grid.passes) return;
    add_to_grid(reader, row, y, place);
    if (number + 1 == PNG_PASS_ROWS(reader->grid.height, pass)) reader->whole_passes = pass + 1;
}
