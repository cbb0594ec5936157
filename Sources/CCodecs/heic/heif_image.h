// An image of a HEIF file: a single coded image or a grid of tiles, and which part of it is shown.
#ifndef HEIF_PICTURE_H
#define HEIF_PICTURE_H

#include "heif_boxes.h"
#include "hevc.h"

/// No camera makes more tiles: 48 tiles are 12 megapixels, 192 are 48.
#define HEIF_MAX_TILES 4096

/// One coded image: a tile, or the whole image.
typedef struct {
    HEIFPart setup;      // the decoder configuration
    HEIFExtents extents; // the slices
} HEIFCoded;

typedef struct {
    uint32_t item; // 0: the first frame of a sequence that has no items
    HEIFCoded first;
    /// The number of tiles; 1 × 1 if the image is no grid.
    uint32_t columns, rows;
    uint32_t tile_width, tile_height;
    HEVCFormat format; // of the first tile; all others must have the same format
    /// The sides before cropping.
    uint32_t width, height;
    /// The shown part, and its orientation as EXIF counts.
    uint32_t left, top, shown_width, shown_height;
    uint8_t orientation;
    /// The colors. A matrix of 0 means that only the coded image declares it.
    bool has_matrix, is_full_range;
    uint16_t matrix;
    HEIFPart icc;
} HEIFImage;

typedef enum { HEIFFound, HEIFNotThere, HEIFNotYet, HEIFBroken, HEIFUnknown } HEIFFinding;

/// Reads an item's image from the boxes. Returns `HEIFNotYet` if more bytes of the file are needed.
HEIFFinding heif_picture(const HEIFFile *file, uint32_t item, HEIFImage *picture);
/// Reads the first frame of a sequence.
HEIFFinding heif_first_of_sequence(const HEIFFile *file, HEIFImage *picture);
/// Reads the format of the first tile. Its size must equal the size in the boxes.
HEIFFinding heif_read_format(const HEIFFile *file, HEIFImage *picture);
/// The number of frames in a sequence's table; 1 if the file is no sequence.
uint64_t heif_frames(const HEIFFile *file);
/// Where the bytes of these frames end.
uint64_t heif_frames_end(const HEIFFile *file);
/// The item with the image's alpha channel, which has the same size. 0 if there is none.
uint32_t heif_alpha(const HEIFFile *file, uint32_t item, bool *is_premultiplied);
/// The item with the image's thumbnail. 0 if there is none.
uint32_t heif_thumbnail(const HEIFFile *file, uint32_t item);
/// Finds one tile of a grid. Returns false if it differs in type from the first.
bool heif_tile(const HEIFFile *file, const HEIFImage *picture, uint32_t number, HEIFCoded *coded);

#endif
