// A TIFF's first directory (TIFF 6.0, section 2), read here before libtiff sees a byte: so sides, strips and what they take
// are known before anything is allocated, and what nobody makes is refused.
#ifndef TIFF_FILE_H
#define TIFF_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

typedef struct {
    /// Values of a tag, one after the other; `size` bytes each.
    uint64_t at, count;
    int size;
} TIFFValues;

typedef struct {
    uint32_t width, height;
    uint32_t bits, samples, compression, photometric;
    /// 1 to 8.
    uint32_t orientation;
    bool is_big_endian, is_separate, is_tiled;
    /// The sides of a strip or a tile.
    uint32_t unit_width, unit_height;
    /// How many there are of those.
    uint64_t units;
    TIFFValues offsets, lengths;
    /// Bytes from the file's start that the picture and all that is told of it are in.
    uint64_t end;
    /// What decoding a strip or a row of tiles takes, with its pixels.
    uint64_t memory;
} TIFFFile;

#define TIFF_COMPRESSION_JPEG 7

/// CodecFaultCutShort: more bytes would tell.
CodecFault tiff_look(TIFFFile *file, const uint8_t *bytes, size_t count);
/// Once all bytes up to its end are there: whether JPEGs in it have no more scans than a still picture needs, as each costs
/// its picture's pixels however few bytes it has.
bool tiff_has_few_scans(const TIFFFile *file, const uint8_t *bytes);

/// Where the bytes of a strip or a tile are.
uint64_t tiff_unit_start(const TIFFFile *file, const uint8_t *bytes, uint64_t unit);
uint64_t tiff_unit_length(const TIFFFile *file, const uint8_t *bytes, uint64_t unit);
/// Whether the strips or tiles that have a row are whole by their checksum, where they have one.
bool tiff_is_whole(const TIFFFile *file, const uint8_t *bytes, uint32_t y);

#endif
