#include "heif_image.h"

#include "heif_orientation.h"
#include "profile.h"

#include <string.h>

#define GRID HEIF_TYPE('g', 'r', 'i', 'd')
#define HVC1 HEIF_TYPE('h', 'v', 'c', '1')
#define HEV1 HEIF_TYPE('h', 'e', 'v', '1')

// Reads an item's sides from its property.
static bool sides(const HEIFFile *file, const HEIFProperties *properties, uint32_t *width, uint32_t *height) {
    HEIFPart part;
    if (!heif_property(properties, HEIF_TYPE('i', 's', 'p', 'e'), &part)) return false;
    HEIFCursor cursor = heif_cursor(file, part);
    (void)heif_read(&cursor, 4);
    *width = (uint32_t)heif_read(&cursor, 4);
    *height = (uint32_t)heif_read(&cursor, 4);
    return !cursor.is_short && *width && *height;
}

// Reads the configuration and the place of a coded image.
static bool coded(const HEIFFile *file, uint32_t item, const HEIFProperties *properties, HEIFCoded *out) {
    return heif_property(properties, HEIF_TYPE('h', 'v', 'c', 'C'), &out->setup) && heif_extents(file, item, &out->extents);
}

HEIFFinding heif_read_format(const HEIFFile *file, HEIFImage *picture) {
    HEIFCursor setup = heif_cursor(file, picture->first.setup);
    if (setup.is_short) return HEIFNotYet;
    CodecFault fault = hevc_format(setup.at, (size_t)(setup.end - setup.at), &picture->format);
    if (fault == CodecFaultUnsupported || fault == CodecFaultTooLarge) return HEIFUnknown;
    bool is_same = picture->format.shown_width == picture->tile_width && picture->format.shown_height == picture->tile_height;
    return fault || !is_same ? HEIFBroken : HEIFFound;
}

// Reads a grid (ISO/IEC 23008-12, 6.6.2.3).
static HEIFFinding read_grid(const HEIFFile *file, HEIFImage *picture) {
    HEIFExtents extents;
    if (!heif_extents(file, picture->item, &extents) || extents.count != 1) return HEIFBroken;
    if (extents.end > file->count) return HEIFNotYet;
    HEIFCursor cursor = heif_cursor(file, extents.parts[0]);
    uint64_t head = heif_read(&cursor, 2);
    int size = head & 1 ? 4 : 2;
    picture->rows = (uint32_t)heif_read(&cursor, 1) + 1;
    picture->columns = (uint32_t)heif_read(&cursor, 1) + 1;
    picture->width = (uint32_t)heif_read(&cursor, size);
    picture->height = (uint32_t)heif_read(&cursor, size);
    if (cursor.is_short || head >> 8 || !picture->width || !picture->height) return HEIFBroken;
    if (picture->rows * picture->columns > HEIF_MAX_TILES) return HEIFUnknown;
    HEIFCursor tiles;
    int id_size;
    uint32_t count = heif_references(file, picture->item, HEIF_TYPE('d', 'i', 'm', 'g'), &tiles, &id_size);
    if (count != picture->rows * picture->columns) return HEIFBroken;
    uint32_t tile = (uint32_t)heif_read(&tiles, id_size), type = heif_item_type(file, tile);
    HEIFProperties properties;
    if (type != HVC1 && type != HEV1) return HEIFUnknown;
    if (!heif_properties(file, tile, &properties) || !coded(file, tile, &properties, &picture->first)) return HEIFBroken;
    if (!sides(file, &properties, &picture->tile_width, &picture->tile_height)) return HEIFBroken;
    // Tiles must cover the image, and no tile may lie outside it.
    uint64_t across = (uint64_t)picture->columns * picture->tile_width, down = (uint64_t)picture->rows * picture->tile_height;
    bool covers = across >= picture->width && across - picture->tile_width < picture->width && down >= picture->height
        && down - picture->tile_height < picture->height;
    return covers ? HEIFFound : HEIFBroken;
}

// Computes where a crop begins. The file gives the distance between the centers as a fraction (ISO/IEC
// 14496-12, 12.1.4).
static bool crop_side(uint32_t side, int64_t offset, int64_t offset_by, uint32_t cropped, uint32_t *start) {
    int64_t twice = ((int64_t)side - cropped) * offset_by + 2 * offset;
    if (cropped > side || twice < 0) return false;
    int64_t first = twice / (2 * offset_by);
    if (first > (int64_t)(side - cropped)) return false;
    *start = (uint32_t)first;
    return true;
}

static bool crop(const HEIFFile *file, HEIFPart part, HEIFImage *picture) {
    HEIFCursor cursor = heif_cursor(file, part);
    uint32_t values[8];
    for (int index = 0; index < 8; index++) values[index] = (uint32_t)heif_read(&cursor, 4);
    for (int index = 1; index < 8; index += 2)
        if (!values[index] || values[index] > INT32_MAX) return false;
    uint32_t width = values[0] / values[1], height = values[2] / values[3];
    if (cursor.is_short || !width || !height) return false;
    if (!crop_side(picture->width, (int32_t)values[4], values[5], width, &picture->left)) return false;
    if (!crop_side(picture->height, (int32_t)values[6], values[7], height, &picture->top)) return false;
    picture->shown_width = width;
    picture->shown_height = height;
    return true;
}

static void read_colours(const HEIFFile *file, HEIFPart part, HEIFImage *picture) {
    HEIFCursor cursor = heif_cursor(file, part);
    uint32_t kind = (uint32_t)heif_read(&cursor, 4);
    if (kind == HEIF_TYPE('n', 'c', 'l', 'x')) {
        (void)heif_read(&cursor, 4);
        picture->matrix = (uint16_t)heif_read(&cursor, 2);
        picture->is_full_range = heif_read(&cursor, 1) >> 7;
        picture->has_matrix = !cursor.is_short;
    } else if (kind == HEIF_TYPE('p', 'r', 'o', 'f') || kind == HEIF_TYPE('r', 'I', 'C', 'C')) {
        uint64_t count = part.count - 4;
        if (count && count <= MAX_PROFILE) picture->icc = (HEIFPart){part.at + 4, count};
    }
}

// Reads what is shown and how. An unknown essential property makes the image unsupported.
static HEIFFinding read_properties(const HEIFFile *file, const HEIFProperties *properties, HEIFImage *picture) {
    int angle = 0, mirror = -1;
    bool is_turned = false, mirrors_first = false, is_cropped = false;
    for (int index = 0; index < properties->count; index++) {
        HEIFBox box = properties->all[index].box;
        HEIFCursor cursor = heif_cursor(file, box.content);
        switch (box.type) {
        case HEIF_TYPE('c', 'o', 'l', 'r'):
            read_colours(file, box.content, picture);
            break;
        case HEIF_TYPE('c', 'l', 'a', 'p'):
            // It must precede the other properties (ISO/IEC 23000-22, 7.3.6.7).
            if (is_turned || mirror >= 0 || is_cropped) return HEIFUnknown;
            if (!crop(file, box.content, picture)) return HEIFBroken;
            is_cropped = true;
            break;
        case HEIF_TYPE('i', 'r', 'o', 't'):
            if (is_turned) return HEIFUnknown;
            angle = (int)heif_read(&cursor, 1) & 3;
            is_turned = true;
            mirrors_first = mirror >= 0;
            break;
        case HEIF_TYPE('i', 'm', 'i', 'r'):
            if (mirror >= 0) return HEIFUnknown;
            mirror = (int)heif_read(&cursor, 1) & 1;
            break;
        case HEIF_TYPE('h', 'v', 'c', 'C'):
        case HEIF_TYPE('i', 's', 'p', 'e'):
        case HEIF_TYPE('p', 'i', 'x', 'i'):
        case HEIF_TYPE('p', 'a', 's', 'p'):
        case HEIF_TYPE('a', 'u', 'x', 'C'):
            break;
        default:
            if (properties->all[index].is_essential) return HEIFUnknown;
        }
    }
    picture->orientation = heif_orientation(mirrors_first ? (4 - angle) & 3 : angle, mirror);
    return HEIFFound;
}

HEIFFinding heif_picture(const HEIFFile *file, uint32_t item, HEIFImage *picture) {
    *picture = (HEIFImage){.item = item, .columns = 1, .rows = 1};
    uint32_t type = heif_item_type(file, item);
    if (!type) return HEIFNotThere;
    HEIFProperties properties;
    if (!heif_properties(file, item, &properties)) return HEIFBroken;
    if (type == GRID) {
        HEIFFinding finding = read_grid(file, picture);
        if (finding != HEIFFound) return finding;
    } else if (type == HVC1 || type == HEV1) {
        if (!coded(file, item, &properties, &picture->first)) return HEIFBroken;
        if (!sides(file, &properties, &picture->tile_width, &picture->tile_height)) return HEIFBroken;
        picture->width = picture->tile_width;
        picture->height = picture->tile_height;
    } else {
        return HEIFUnknown;
    }
    picture->shown_width = picture->width;
    picture->shown_height = picture->height;
    HEIFFinding finding = heif_read_format(file, picture);
    return finding == HEIFFound ? read_properties(file, &properties, picture) : finding;
}

bool heif_tile(const HEIFFile *file, const HEIFImage *picture, uint32_t number, HEIFCoded *out) {
    if (picture->rows * picture->columns == 1 && heif_item_type(file, picture->item) != GRID) {
        *out = picture->first;
        return true;
    }
    HEIFCursor tiles;
    int size;
    if (heif_references(file, picture->item, HEIF_TYPE('d', 'i', 'm', 'g'), &tiles, &size) <= number) return false;
    tiles.at += (size_t)number * (size_t)size;
    uint32_t tile = (uint32_t)heif_read(&tiles, size), type = heif_item_type(file, tile), width, height;
    HEIFProperties properties;
    return (type == HVC1 || type == HEV1) && heif_properties(file, tile, &properties)
        && sides(file, &properties, &width, &height) && width == picture->tile_width && height == picture->tile_height
        && coded(file, tile, &properties, out);
}

static bool is_alpha(const HEIFFile *file, uint32_t item) {
    static const char *const kinds[] = {
        "urn:mpeg:mpegB:cicp:systems:auxiliary:alpha", "urn:mpeg:hevc:2015:auxid:1"};
    HEIFProperties properties;
    HEIFPart part;
    if (!heif_properties(file, item, &properties)) return false;
    if (!heif_property(&properties, HEIF_TYPE('a', 'u', 'x', 'C'), &part)) return false;
    HEIFCursor cursor = heif_cursor(file, part);
    (void)heif_read(&cursor, 4);
    for (size_t index = 0; index < sizeof kinds / sizeof *kinds; index++) {
        size_t count = strlen(kinds[index]) + 1;
        if ((size_t)(cursor.end - cursor.at) >= count && !memcmp(cursor.at, kinds[index], count)) return true;
    }
    return false;
}

uint32_t heif_alpha(const HEIFFile *file, uint32_t item, bool *is_premultiplied) {
    *is_premultiplied = false;
    uint32_t found = 0;
    do found = heif_referrer(file, item, HEIF_TYPE('a', 'u', 'x', 'l'), found);
    while (found && !is_alpha(file, found));
    HEIFCursor items;
    int size;
    if (found && heif_references(file, item, HEIF_TYPE('p', 'r', 'e', 'm'), &items, &size))
        *is_premultiplied = heif_read(&items, size) == found;
    return found;
}

uint32_t heif_thumbnail(const HEIFFile *file, uint32_t item) {
    return heif_referrer(file, item, HEIF_TYPE('t', 'h', 'm', 'b'), 0);
}
