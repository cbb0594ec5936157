// A picture of a HEIF file: of one coded picture, or of a grid of them, and what is shown of it.
#ifndef HEIF_PICTURE_H
#define HEIF_PICTURE_H

#include "heif_boxes.h"
#include "hevc.h"

/// More tiles are none that a camera makes: 48 are 12 megapixels, 192 are 48.
#define HEIF_MAX_TILES 4096

/// One coded picture: a tile, or all there is.
typedef struct {
    HEIFPart setup;      // its decoder's configuration
    HEIFExtents extents; // its slices
} HEIFCoded;

typedef struct {
    uint32_t item; // 0: the first picture of a sequence that has no items
    HEIFCoded first;
    /// Tiles, row by row; 1 × 1 where it is no grid.
    uint32_t columns, rows;
    uint32_t tile_width, tile_height;
    HEVCFormat format; // of the first tile; others must be of the same
    /// Before it is cropped.
    uint32_t width, height;
    /// What is shown of that, and how it is turned, as EXIF counts.
    uint32_t left, top, shown_width, shown_height;
    uint8_t orientation;
    /// Its colours; a matrix of 0 where only the coded pictures tell.
    bool has_matrix, is_full_range;
    uint16_t matrix;
    HEIFPart icc;
} HEIFPicture;

typedef enum { HEIFFound, HEIFNotThere, HEIFNotYet, HEIFBroken, HEIFUnknown } HEIFFinding;

/// An item's picture, by what boxes tell. `HEIFNotYet`: bytes of the file are needed that haven't come.
HEIFFinding heif_picture(const HEIFFile *file, uint32_t item, HEIFPicture *picture);
/// The first picture of a sequence.
HEIFFinding heif_first_of_sequence(const HEIFFile *file, HEIFPicture *picture);
/// Reads the format of a picture's first tile, which must be as large as the boxes say.
HEIFFinding heif_read_format(const HEIFFile *file, HEIFPicture *picture);
/// The pictures that a sequence's table tells of; 1 where it is none.
uint64_t heif_frames(const HEIFFile *file);
/// Where the bytes of those reach.
uint64_t heif_frames_end(const HEIFFile *file);
/// The item that has a picture's transparency, which is as large. 0: none.
uint32_t heif_alpha(const HEIFFile *file, uint32_t item, bool *is_premultiplied);
/// The item that has a small one of it. 0: none.
uint32_t heif_thumbnail(const HEIFFile *file, uint32_t item);
/// A tile of it. False: it isn't one like the first.
bool heif_tile(const HEIFFile *file, const HEIFPicture *picture, uint32_t number, HEIFCoded *coded);

#endif
