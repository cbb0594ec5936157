#include "png_preview.h"

#include "exif.h"

#include <setjmp.h>

#include <png.h>

const uint8_t pass_step_across[8] = {8, 8, 4, 4, 2, 2, 1, 1};
const uint8_t pass_step_down[8] = {8, 8, 8, 4, 4, 2, 2, 1};

#define LAST_SHOWN_PASS 6

struct PNGPreview {
    png_structp png;
    png_infop info;
    jmp_buf escape;
    const PassGrid *grid;
    int passes;
    int channels;
    uint32_t next;
    uint8_t *row;
    Encoded encoded;
};

static uint32_t steps(uint32_t side, uint32_t step) {
    return side / step + (side % step != 0);
}

size_t pass_grid_bytes(const PassGrid *grid) {
    return (size_t)4 * grid->columns * grid->rows;
}

PassGrid pass_grid_plan(uint32_t width, uint32_t height, size_t max_bytes) {
    PassGrid grid = {.width = width, .height = height};
    for (int passes = LAST_SHOWN_PASS; passes > 0; passes--) {
        grid.columns = steps(width, pass_step_across[passes]);
        grid.rows = steps(height, pass_step_down[passes]);
        if ((uint64_t)grid.columns * grid.rows > max_bytes / 4) continue;
        grid.passes = passes;
        break;
    }
    return grid;
}

_Noreturn static void on_error(png_structp png, png_const_charp message) {
    (void)message;
    longjmp(((PNGPreview *)png_get_error_ptr(png))->escape, 1);
}

static void on_warning(png_structp png, png_const_charp message) {
    (void)png, (void)message;
}

static void write_bytes(png_structp png, png_bytep bytes, size_t count) {
    PNGPreview *preview = png_get_io_ptr(png);
    if (!encoded_append(&preview->encoded, bytes, count)) longjmp(preview->escape, 1);
}

static void flush_nothing(png_structp png) {
    (void)png;
}

static void write_orientation(png_structp png, int orientation) {
    static const png_byte name[5] = "eXIf";
    uint8_t block[EXIF_ORIENTATION_SIZE];
    if (orientation <= 1) return;
    exif_of_orientation(orientation, block);
    png_write_chunk(png, name, block, sizeof block);
}

// Most rows equal the row above; with the filter UP they need almost no bytes.
static void start(PNGPreview *preview, int orientation) {
    png_structp png = preview->png;
    png_set_write_fn(png, preview, write_bytes, flush_nothing);
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_IHDR(
        png, preview->info, preview->grid->width, preview->grid->height, 8,
        preview->channels == 4 ? PNG_COLOR_TYPE_RGBA : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
        PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_compression_level(png, 1);
    png_set_filter(png, PNG_FILTER_TYPE_BASE, PNG_FILTER_UP);
    png_write_info(png, preview->info);
    write_orientation(png, orientation);
}

PNGPreview *png_preview_create(
    const PassGrid *grid, int passes, bool has_alpha, int orientation, size_t max_bytes) {
    PNGPreview *preview = calloc(1, sizeof *preview);
    if (!preview) return NULL;
    preview->grid = grid;
    preview->passes = passes;
    preview->channels = has_alpha ? 4 : 3;
    preview->encoded.limit = max_bytes;
    if (setjmp(preview->escape)) {
        png_preview_destroy(preview);
        return NULL;
    }
    preview->row = malloc((size_t)preview->channels * grid->width);
    preview->png = png_create_write_struct(PNG_LIBPNG_VER_STRING, preview, on_error, on_warning);
    if (preview->png) preview->info = png_create_info_struct(preview->png);
    if (!preview->info || !preview->row) longjmp(preview->escape, 1);
    start(preview, orientation);
    return preview;
}

// Fills a row of the image from the grid's nearest known row above it.
static void fill_row(PNGPreview *preview) {
    const PassGrid *grid = preview->grid;
    uint32_t across = pass_step_across[preview->passes], down = pass_step_down[preview->passes];
    uint32_t apart = across / pass_step_across[grid->passes];
    uint32_t y = preview->next / down * (down / pass_step_down[grid->passes]);
    const uint8_t *known = grid->pixels + (size_t)4 * grid->columns * y;
    uint8_t *out = preview->row;
    size_t channels = (size_t)preview->channels;
    for (uint32_t x = 0; x < grid->width; known += (size_t)4 * apart)
        for (uint32_t end = x + across; x < end && x < grid->width; x++, out += channels)
            memcpy(out, known, channels);
}

bool png_preview_write_row(PNGPreview *preview) {
    if (setjmp(preview->escape)) return false;
    if (preview->next % pass_step_down[preview->passes] == 0) fill_row(preview);
    png_write_row(preview->png, preview->row);
    preview->next++;
    if (png_preview_is_whole(preview)) png_write_end(preview->png, NULL);
    return true;
}

bool png_preview_is_whole(const PNGPreview *preview) {
    return preview->next == preview->grid->height;
}

int png_preview_passes(const PNGPreview *preview) {
    return preview->passes;
}

const Encoded *png_preview_encoded(const PNGPreview *preview) {
    return &preview->encoded;
}

void png_preview_destroy(PNGPreview *preview) {
    if (!preview) return;
    if (!setjmp(preview->escape)) png_destroy_write_struct(&preview->png, &preview->info);
    free(preview->row);
    encoded_free(&preview->encoded);
    free(preview);
}
