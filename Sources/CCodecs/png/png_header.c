// Reads IHDR and computes the memory that decoding will take.
#include "png_reader.h"

// Memory for zlib's window and tables, for the image and for an animation's frames, and for libpng's
// structures.
#define BASE_MEMORY ((size_t)256 * 1024)
// A piece is smaller if the stored rows have fewer than 8 bits per sample, but never smaller than this.
#define LEAST_PIECE 64
// The most pixels of an interlaced image's passes that are kept: 4 MP.
#define MAX_GRID ((size_t)16 * 1024 * 1024)
// A preview of noise has as many bytes as its pixels; most previews have far fewer.
#define MAX_PREVIEW ((size_t)8 * 1024 * 1024)
#define MIN_PREVIEW ((size_t)64 * 1024)
// The growing buffer, and the previous copy that the caller may still keep.
#define PREVIEW_COPIES 3

static uint64_t count_rows(uint32_t width, uint32_t height, bool interlaced) {
    if (!interlaced) return height;
    uint64_t sum = 0;
    for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; pass++)
        if (PNG_PASS_COLS(width, pass)) sum += PNG_PASS_ROWS(height, pass);
    return sum;
}

// Previews are optional: they never make an image exceed the memory limit.
static void allow_previews(PNGReader *reader) {
    CodecImageInfo *picture = &reader->picture;
    if (!picture->isProgressive || reader->has_no_previews) return;
    PassGrid grid = pass_grid_plan(picture->width, picture->height, MAX_GRID);
    if (!grid.passes) return;
    size_t pixels = pass_grid_bytes(&grid), bytes = pixels + MIN_PREVIEW;
    if (bytes > MAX_PREVIEW) bytes = MAX_PREVIEW;
    // The encoder keeps two rows in addition to the preview's row.
    size_t memory = PNG_PREVIEW_MEMORY + (size_t)3 * 4 * picture->width + pixels
        + PREVIEW_COPIES * bytes;
    if (picture->decodingMemory > reader->max_memory
        || memory > reader->max_memory - picture->decodingMemory)
        return;
    reader->grid = grid;
    reader->max_preview = bytes;
    picture->decodingMemory += memory;
}

// Rows are optional too: without them, variants are made later from the stored bytes.
static void allow_rows(PNGReader *reader) {
    CodecImageInfo *picture = &reader->picture;
    if (!reader->rows_out.is_wanted) return;
    size_t stored = png_get_rowbytes(reader->png, reader->info);
    size_t piece = PNG_PIECE * stored / ((size_t)4 * picture->width);
    reader->piece = piece > PNG_PIECE ? PNG_PIECE : piece < LEAST_PIECE ? LEAST_PIECE : piece;
    reader->burst = png_rows_burst(picture->height, stored, reader->piece);
    size_t memory = png_rows_memory(
        picture->width, picture->height, picture->isProgressive, reader->burst);
    reader->rows_out.is_wanted = picture->decodingMemory <= reader->max_memory
        && memory <= reader->max_memory - picture->decodingMemory;
    if (reader->rows_out.is_wanted) picture->decodingMemory += memory;
}

void png_reader_read_header(PNGReader *reader) {
    png_structp png = reader->png;
    CodecImageInfo *picture = &reader->picture;
    picture->width = png_get_image_width(png, reader->info);
    picture->height = png_get_image_height(png, reader->info);
    picture->isProgressive = png_get_interlace_type(png, reader->info) != PNG_INTERLACE_NONE;
    reader->frames.width = picture->width;
    reader->frames.height = picture->height;
    reader->frames.is_interlaced = picture->isProgressive;
    reader->frames.bits_a_pixel = png_get_channels(png, reader->info) * png_get_bit_depth(png, reader->info);
    reader->rows_wanted = count_rows(picture->width, picture->height, picture->isProgressive);
    // Two rows, each with libpng's padding, rounding and alignment.
    picture->decodingMemory = BASE_MEMORY + 2 * (png_get_rowbytes(png, reader->info) + 1024);
    allow_rows(reader);
    allow_previews(reader);
    reader->has_header = true;
}
