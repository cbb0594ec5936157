// Whether what was deflated is whole. libtiff takes as many pixels as it wants and leaves the rest, the checksum with it: damage
// in the middle would be a picture of other colours.
#include "tiff_file.h"

#include <zlib.h>

#define COMPRESSION_DEFLATE 8
#define COMPRESSION_OLD_DEFLATE 32946

static bool is_whole(const uint8_t *bytes, uint64_t count, uint64_t most) {
    z_stream stream = {0};
    if (inflateInit(&stream) != Z_OK) return false;
    uint8_t out[16 * 1024];
    int status = Z_OK;
    while (status == Z_OK) {
        if (!stream.avail_in) {
            stream.next_in = (uint8_t *)(uintptr_t)bytes;
            stream.avail_in = count > UINT32_MAX ? UINT32_MAX : (uInt)count;
            bytes += stream.avail_in;
            count -= stream.avail_in;
        }
        stream.next_out = out;
        stream.avail_out = sizeof out;
        status = inflate(&stream, Z_NO_FLUSH);
        if (stream.total_out > most) break;
    }
    inflateEnd(&stream);
    return status == Z_STREAM_END;
}

bool tiff_is_whole(const TIFFFile *file, const uint8_t *bytes, uint32_t y) {
    if (file->compression != COMPRESSION_DEFLATE && file->compression != COMPRESSION_OLD_DEFLATE) return true;
    uint64_t across = ((uint64_t)file->width + file->unit_width - 1) / file->unit_width;
    uint64_t planes = file->is_separate ? file->samples : 1, plane_units = file->units / planes;
    // Some fill a strip up to its height; subsampled colours have less.
    uint64_t bits = (uint64_t)file->unit_width * file->bits * (file->is_separate ? 1 : file->samples);
    uint64_t most = (bits + 7) / 8 * file->unit_height;
    for (uint64_t plane = 0; plane < planes; plane++)
        for (uint64_t column = 0; column < across; column++) {
            uint64_t unit = plane * plane_units + y / file->unit_height * across + column;
            if (!is_whole(bytes + tiff_unit_start(file, bytes, unit), tiff_unit_length(file, bytes, unit), most)) return false;
        }
    return true;
}
