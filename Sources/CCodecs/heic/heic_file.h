// Shared by both readers of HEIC: finds the images of a file and decodes their tiles.
#ifndef HEIC_FILE_H
#define HEIC_FILE_H

#include "heif_image.h"
#include "hevc.h"

/// The color image and its alpha image.
#define HEIC_LAYERS 2

typedef struct {
    HEIFFile boxes;
    HEIFImage layers[HEIC_LAYERS];
    int layer_count;
    bool is_premultiplied;
} HEICFile;

/// Finds the images. Call it after `heif_scan` returned HEIFReady. Returns HEIFUnknown also if reading the
/// pixels would take more memory than heic_pixels_memory() computes.
HEIFFinding heic_find(HEICFile *file);
/// Starts to decode a tile. Returns NULL and sets the fault; CodecFaultCutShort if some of its bytes are not
/// present.
HEVCDecoder *heic_open_tile(const HEICFile *file, int layer, uint32_t tile, HEVCUse use, CodecFault *fault);
/// The planes of a decoded tile, with the colors that the file declares. Returns false if the format differs
/// from the declared one.
bool heic_tile_image(const HEICFile *file, int layer, const HEVCDecoder *decoder, avifImage *image);
uint32_t heic_tiles(const HEICFile *file, int layer);
/// The bytes of a row of tiles as pixels: 3 bytes per pixel for colors, 1 for alpha.
uint64_t heic_strip_bytes(const HEICFile *file, int layer);

#endif
