#include "heic_file.h"

#include "CCodecs.h"

#include <stdlib.h>
#include <string.h>

uint64_t heic_strip_bytes(const HEICFile *file, int layer) {
    const HEIFImage *picture = &file->layers[layer];
    uint32_t rows = picture->tile_height < picture->height ? picture->tile_height : picture->height;
    return (uint64_t)rows * picture->width * (layer ? 1 : 3);
}

// Whether reading the pixels takes no more memory than computed from the shown part. A tile, and a row of
// tiles, can be much larger than the shown part.
static bool is_as_reckoned(const HEICFile *file) {
    uint64_t strips = 0, tile = 0;
    for (int layer = 0; layer < file->layer_count; layer++) {
        uint64_t memory = hevc_memory(&file->layers[layer].format);
        if (memory > tile) tile = memory;
        strips += heic_strip_bytes(file, layer);
    }
    const HEIFImage *picture = &file->layers[0];
    return tile + strips <= heic_pixels_memory(picture->shown_width, picture->shown_height, file->layer_count > 1);
}

static HEIFFinding find(HEICFile *file) {
    HEIFImage *picture = &file->layers[0], *alpha = &file->layers[1];
    HEIFFinding finding = file->boxes.primary ? heif_picture(&file->boxes, file->boxes.primary, picture) : HEIFNotThere;
    file->layer_count = 1;
    if (finding == HEIFNotThere) return heif_first_of_sequence(&file->boxes, picture);
    uint32_t item = finding == HEIFFound ? heif_alpha(&file->boxes, picture->item, &file->is_premultiplied) : 0;
    if (!item) return finding;
    finding = heif_picture(&file->boxes, item, alpha);
    if (finding != HEIFFound) return finding == HEIFNotThere ? HEIFBroken : finding;
    file->layer_count = 2;
    return alpha->width == picture->width && alpha->height == picture->height ? HEIFFound : HEIFUnknown;
}

HEIFFinding heic_find(HEICFile *file) {
    HEIFFinding finding = find(file);
    return finding == HEIFFound && !is_as_reckoned(file) ? HEIFUnknown : finding;
}

uint32_t heic_tiles(const HEICFile *file, int layer) {
    return file->layers[layer].rows * file->layers[layer].columns;
}

// Joins bytes that lie in several places.
static uint8_t *join(const HEICFile *file, const HEIFExtents *extents) {
    uint8_t *bytes = malloc((size_t)extents->bytes), *at = bytes;
    for (int index = 0; bytes && index < extents->count; index++) {
        HEIFPart part = extents->parts[index];
        memcpy(at, file->boxes.bytes + part.at, (size_t)part.count);
        at += part.count;
    }
    return bytes;
}

HEVCDecoder *heic_open_tile(const HEICFile *file, int layer, uint32_t tile, HEVCUse use, CodecFault *fault) {
    const HEIFImage *picture = &file->layers[layer];
    HEIFCoded coded;
    *fault = CodecFaultBroken;
    if (!heif_tile(&file->boxes, picture, tile, &coded)) return NULL;
    *fault = CodecFaultCutShort;
    // Each part lies within the file. So all parts together have no more bytes than the file, unless they
    // overlap.
    if (coded.extents.end > file->boxes.count) return NULL;
    *fault = CodecFaultBroken;
    if (coded.extents.bytes > file->boxes.count) return NULL;
    uint8_t *joined = coded.extents.count > 1 ? join(file, &coded.extents) : NULL;
    *fault = CodecFaultTooMuchMemory;
    if (coded.extents.count > 1 && !joined) return NULL;
    const uint8_t *bytes = joined ? joined : file->boxes.bytes + coded.extents.parts[0].at;
    HEIFCursor setup = heif_cursor(&file->boxes, coded.setup);
    HEVCDecoder *decoder = hevc_open(
        use, setup.at, (size_t)(setup.end - setup.at), &picture->format, bytes, (size_t)coded.extents.bytes, fault);
    free(joined); // the library has copies
    return decoder;
}

bool heic_tile_image(const HEICFile *file, int layer, const HEVCDecoder *decoder, avifImage *image) {
    const HEIFImage *picture = &file->layers[layer];
    if (!hevc_image(decoder, image)) return false;
    if (picture->has_matrix) {
        image->matrixCoefficients = (avifMatrixCoefficients)picture->matrix;
        image->yuvRange = picture->is_full_range ? AVIF_RANGE_FULL : AVIF_RANGE_LIMITED;
    }
    return true;
}
