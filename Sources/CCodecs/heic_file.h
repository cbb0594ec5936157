// What both readers of HEIC have in common: the pictures of a file, and how its tiles are decoded.
#ifndef HEIC_FILE_H
#define HEIC_FILE_H

#include "heif_picture.h"
#include "hevc.h"

/// Colours, and what they are transparent by.
#define HEIC_LAYERS 2

typedef struct {
    HEIFFile boxes;
    HEIFPicture layers[HEIC_LAYERS];
    int layer_count;
    bool is_premultiplied;
} HEICFile;

/// Finds the pictures, once `heif_look` is ready. Unknown, too, where reading their pixels takes more than
/// heic_pixels_memory() tells.
HEIFFinding heic_find(HEICFile *file);
/// Begins to decode a tile. NULL with the fault; cut short where bytes of it aren't there.
HEVCDecoder *heic_open_tile(const HEICFile *file, int layer, uint32_t tile, HEVCUse use, CodecFault *fault);
/// A tile that was decoded, in the colours that the file says. False: it isn't of the format that was told.
bool heic_tile_image(const HEICFile *file, int layer, const HEVCDecoder *decoder, avifImage *image);
uint32_t heic_tiles(const HEICFile *file, int layer);
/// Of a row of tiles as pixels: 3 bytes each, of what it is transparent by 1.
uint64_t heic_strip_bytes(const HEICFile *file, int layer);

#endif
