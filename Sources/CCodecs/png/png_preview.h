// Encodes the first passes of an interlaced image as a PNG. Each pixel has the color of the last known pixel to
// its left and above.
#ifndef PNG_PREVIEW_H
#define PNG_PREVIEW_H

#include "encoded.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Memory for deflate's window and tables and for libpng's structures.
#define PNG_PREVIEW_MEMORY ((size_t)512 * 1024)

// The pixels of all passes up to `passes`, RGBA.
typedef struct {
    uint32_t width, height;     // the image's sides
    uint32_t columns, rows;     // the grid's size in `pixels`
    int passes;
    uint8_t *pixels;
} PassGrid;

/// The distance between known pixels after each pass; index 0 is before the first.
extern const uint8_t pass_step_across[8], pass_step_down[8];

/// Plans a grid for the first passes that fit into `max_bytes`. `passes` is 0 if none fit. The last pass is
/// never included, because the image is complete after it. Allocates nothing.
PassGrid pass_grid_plan(uint32_t width, uint32_t height, size_t max_bytes);
size_t pass_grid_bytes(const PassGrid *grid);

typedef struct PNGPreview PNGPreview;

/// Returns NULL if out of memory. `grid` must outlive the preview.
PNGPreview *png_preview_create(
    const PassGrid *grid, int passes, bool has_alpha, int orientation, size_t max_bytes);
/// Encodes the next row. Returns false if the preview cannot be made.
bool png_preview_write_row(PNGPreview *preview);
/// Whether the last row was encoded.
bool png_preview_is_whole(const PNGPreview *preview);
int png_preview_passes(const PNGPreview *preview);
const Encoded *png_preview_encoded(const PNGPreview *preview);
void png_preview_destroy(PNGPreview *preview);

#endif
