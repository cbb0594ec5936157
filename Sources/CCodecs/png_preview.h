// A PNG of what an interlaced picture's first passes told: each pixel the last one known to its left and above.
#ifndef PNG_PREVIEW_H
#define PNG_PREVIEW_H

#include "encoded.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Deflate's window and tables, libpng's structures.
#define PNG_PREVIEW_MEMORY ((size_t)512 * 1024)

// The pixels of the passes up to `passes`, RGBA.
typedef struct {
    uint32_t width, height;     // of the picture
    uint32_t columns, rows;     // of `pixels`
    int passes;
    uint8_t *pixels;
} PassGrid;

/// From pass to pass, 0 being before the first: how far apart known pixels are.
extern const uint8_t pass_step_across[8], pass_step_down[8];

/// Plans a grid of as many of the first passes as so many bytes hold; of none where `passes` comes out 0. The last
/// pass is never among them: after it the picture is whole. Allocates nothing.
PassGrid pass_grid_plan(uint32_t width, uint32_t height, size_t max_bytes);
size_t pass_grid_bytes(const PassGrid *grid);

typedef struct PNGPreview PNGPreview;

/// NULL when there is no memory. `grid` must outlive it.
PNGPreview *png_preview_create(
    const PassGrid *grid, int passes, bool has_alpha, int orientation, size_t max_bytes);
/// The next row. False: there will be no preview.
bool png_preview_write_row(PNGPreview *preview);
/// Whether the last row was written.
bool png_preview_is_whole(const PNGPreview *preview);
int png_preview_passes(const PNGPreview *preview);
const Encoded *png_preview_encoded(const PNGPreview *preview);
void png_preview_destroy(PNGPreview *preview);

#endif
