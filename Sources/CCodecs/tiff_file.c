#include "tiff_file.h"

#include "CCodecs.h"

#include <string.h>

#define ENTRY 12
// As many as libtiff reads.
#define MAX_ENTRIES 4096
// What tags may share of their values.
#define SHARED ((uint64_t)64 * 1024)
// A fifth one may be alpha beside four inks.
#define MAX_SAMPLES 5
// A tile may be larger than its picture, but no larger than this.
#define MAX_EMPTY_TILE 1024
// Free looks at what other directories tell.
#define MAX_LOOKS ((uint64_t)1 << 20)
// A scan for each component.
#define MAX_SCANS 4

enum {
    SUBFILE = 254, WIDTH = 256, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC = 262, OFFSETS = 273, ORIENTATION, SAMPLES = 277, ROWS,
    LENGTHS, PLANES = 284, TILE_WIDTH = 322, TILE_HEIGHT, TILE_OFFSETS, TILE_LENGTHS, SAMPLE_FORMAT = 339, TAGS = 340,
};

enum { BYTE = 1, SHORT = 3, LONG = 4 };

typedef struct {
    const uint8_t *bytes;
    size_t count;
    bool is_big_endian;
    // By tag; a count of 0 where there is none.
    TIFFValues tags[TAGS];
    uint64_t end, sum;
} Directory;

static uint64_t number(const uint8_t *at, int size, bool is_big_endian) {
    uint64_t value = 0;
    for (int index = 0; index < size; index++) value |= (uint64_t)at[index] << 8 * (is_big_endian ? size - 1 - index : index);
    return value;
}

static int size_of(uint64_t type) {
    static const uint8_t sizes[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8};
    return type < sizeof sizes ? sizes[type] : 0;
}

static void take_entry(Directory *directory, uint64_t entry) {
    const uint8_t *at = directory->bytes + entry;
    bool is_big_endian = directory->is_big_endian;
    uint64_t tag = number(at, 2, is_big_endian), type = number(at + 2, 2, is_big_endian);
    TIFFValues values = {entry + 8, number(at + 4, 4, is_big_endian), size_of(type)};
    uint64_t size = values.count * (uint64_t)values.size;
    if (size > 4) {
        values.at = number(at + 8, 4, is_big_endian);
        directory->sum += size;
        if (values.at + size > directory->end) directory->end = values.at + size;
    }
    bool is_number = type == BYTE || type == SHORT || type == LONG;
    // Of those that are there twice the first counts, as in libtiff.
    if (tag < TAGS && is_number && !directory->tags[tag].count) directory->tags[tag] = values;
}

// - Parameter place: of the place of a directory; then of the next one's.
static CodecFault read_directory(Directory *directory, uint64_t *place) {
    const uint8_t *bytes = directory->bytes;
    if (*place + 4 > directory->count) return CodecFaultCutShort;
    uint64_t at = number(bytes + *place, 4, directory->is_big_endian);
    if (at < 8) return CodecFaultBroken;
    if (at + 2 > directory->count) return CodecFaultCutShort;
    uint64_t entries = number(bytes + at, 2, directory->is_big_endian);
    if (!entries || entries > MAX_ENTRIES) return CodecFaultBroken;
    at += 2;
    directory->end = at + entries * ENTRY + 4;
    if (directory->end > directory->count) return CodecFaultCutShort;
    *place = directory->end - 4;
    for (uint64_t entry = 0; entry < entries; entry++) take_entry(directory, at + entry * ENTRY);
    // Each of them is copied.
    return directory->sum > directory->end + SHARED ? CodecFaultBroken : CodecFaultNone;
}

// One of a tag's values; `usual` where there is none. False: it isn't there yet.
static bool value(const Directory *directory, int tag, uint64_t index, uint32_t usual, uint32_t *value) {
    const TIFFValues *values = &directory->tags[tag];
    *value = usual;
    if (index >= values->count) return true;
    uint64_t at = values->at + index * (uint64_t)values->size;
    if (at + (uint64_t)values->size > directory->count) return false;
    *value = (uint32_t)number(directory->bytes + at, values->size, directory->is_big_endian);
    return true;
}

static CodecFault read_tags(const Directory *directory, TIFFFile *file) {
    uint32_t planes, rows, format, subfile;
    bool is_there = value(directory, WIDTH, 0, 0, &file->width) && value(directory, HEIGHT, 0, 0, &file->height)
        && value(directory, BITS, 0, 1, &file->bits) && value(directory, SAMPLES, 0, 1, &file->samples)
        && value(directory, COMPRESSION, 0, 1, &file->compression) && value(directory, PHOTOMETRIC, 0, UINT32_MAX, &file->photometric)
        && value(directory, ORIENTATION, 0, 1, &file->orientation) && value(directory, PLANES, 0, 1, &planes)
        && value(directory, ROWS, 0, UINT32_MAX, &rows) && value(directory, SAMPLE_FORMAT, 0, 1, &format)
        && value(directory, TILE_WIDTH, 0, 0, &file->unit_width) && value(directory, TILE_HEIGHT, 0, 0, &file->unit_height)
        && value(directory, SUBFILE, 0, 0, &subfile);
    if (!is_there) return CodecFaultCutShort;
    if (!file->width || !file->height || file->width > INT32_MAX || file->height > INT32_MAX || !rows) return CodecFaultBroken;
    if (file->orientation < 1 || file->orientation > 8) file->orientation = 1;
    file->is_separate = planes == 2;
    file->is_tiled = file->unit_width || file->unit_height;
    if (file->is_tiled && (!file->unit_width || !file->unit_height)) return CodecFaultBroken;
    file->offsets = directory->tags[file->is_tiled ? TILE_OFFSETS : OFFSETS];
    file->lengths = directory->tags[file->is_tiled ? TILE_LENGTHS : LENGTHS];
    if (!file->is_tiled) {
        file->unit_width = file->width;
        file->unit_height = rows < file->height ? rows : file->height;
    }
    // Numbers that are no counts of light; a small version of what other directories have, as raw files begin with.
    bool is_known = (format == 1 || format == 4) && !(subfile & 1) && (planes == 1 || planes == 2);
    return is_known ? CodecFaultNone : CodecFaultUnsupported;
}

// Whether libtiff is asked to decode such a one: of its codecs and colours those that pictures are made with.
static bool is_supported(const TIFFFile *file) {
    switch (file->compression) {
    case 1: case 2: case 3: case 4: case 5: case TIFF_COMPRESSION_JPEG: case 8: case 32773: case 32946: break;
    default: return false;
    }
    if (file->photometric > 3 && file->photometric != 5 && file->photometric != 6 && file->photometric != 8) return false;
    if (file->bits != 1 && file->bits != 2 && file->bits != 4 && file->bits != 8 && file->bits != 16) return false;
    if (!file->samples || file->samples > MAX_SAMPLES) return false;
    // White as 0 it takes for black there.
    if (file->is_separate && file->samples > 1 && !file->photometric) return false;
    uint32_t width = file->unit_width, height = file->unit_height;
    if (file->is_tiled && width > MAX_EMPTY_TILE && width > file->width + 16) return false;
    if (file->is_tiled && height > MAX_EMPTY_TILE && height > file->height + 16) return false;
    if (file->compression != TIFF_COMPRESSION_JPEG) return true;
    // Blocks that are filled up cost as much as those that are seen.
    return file->samples < MAX_SAMPLES && file->bits == 8 && (height % 8 == 0 || height >= file->height)
        && (width % 8 == 0 || width >= file->width);
}

static uint64_t memory_of(const TIFFFile *file) {
    uint64_t width = file->unit_width, height = file->unit_height;
    uint64_t sum = width * height * file->samples * (file->bits > 8 ? 2 : 1);
    // Of several scans the coefficients are kept.
    if (file->compression == TIFF_COMPRESSION_JPEG) sum += (width + 16) * (height + 16) * file->samples * 2;
    return sum + 4 * (uint64_t)file->width * (height < file->height ? height : file->height);
}

static uint64_t nth(const TIFFValues *values, const uint8_t *bytes, uint64_t index, bool is_big_endian) {
    return number(bytes + values->at + index * (uint64_t)values->size, values->size, is_big_endian);
}

static bool is_there(const TIFFValues *values, uint64_t count, size_t bytes) {
    return values->at + count * (uint64_t)values->size <= bytes;
}

uint64_t tiff_unit_start(const TIFFFile *file, const uint8_t *bytes, uint64_t unit) {
    return nth(&file->offsets, bytes, unit, file->is_big_endian);
}

uint64_t tiff_unit_length(const TIFFFile *file, const uint8_t *bytes, uint64_t unit) {
    return nth(&file->lengths, bytes, unit, file->is_big_endian);
}

// As many as a strip's or a tile's pixels take at least: where there are no codes libtiff takes those behind them for the rest.
static uint64_t least_bytes(const TIFFFile *file, uint64_t unit, uint64_t down) {
    if (file->compression != 1 || file->photometric == 6) return 1;
    uint64_t across = file->units / down / (file->is_separate ? file->samples : 1), row = unit / across % down;
    uint64_t rows = file->height - row * file->unit_height;
    if (file->is_tiled || rows > file->unit_height) rows = file->unit_height;
    uint64_t bits = (uint64_t)file->unit_width * file->bits * (file->is_separate ? 1 : file->samples);
    return (bits + 7) / 8 * rows;
}

// Where the bytes of all strips end.
static CodecFault find_end(TIFFFile *file, const uint8_t *bytes, size_t count) {
    uint64_t across = ((uint64_t)file->width + file->unit_width - 1) / file->unit_width;
    uint64_t down = ((uint64_t)file->height + file->unit_height - 1) / file->unit_height;
    uint64_t planes = file->is_separate ? file->samples : 1;
    if (across > UINT32_MAX / down || across * down > UINT32_MAX / planes) return CodecFaultUnsupported;
    file->units = across * down * planes;
    if (file->offsets.count < file->units || file->lengths.count < file->units) return CodecFaultBroken;
    if (!is_there(&file->offsets, file->units, count) || !is_there(&file->lengths, file->units, count)) return CodecFaultCutShort;
    for (uint64_t unit = 0; unit < file->units; unit++) {
        uint64_t length = tiff_unit_length(file, bytes, unit);
        uint64_t end = tiff_unit_start(file, bytes, unit) + length;
        if (length < least_bytes(file, unit, down)) return CodecFaultBroken;
        if (end > file->end) file->end = end;
    }
    return CodecFaultNone;
}

// Of the other pictures only that their bytes are there counts. A look costs what a table has of bytes for it, but for some that are free, however often a directory
// or a table is pointed at.
static CodecFault look_at_others(TIFFFile *file, Directory first, uint64_t place) {
    uint64_t looks = first.count / 4 + MAX_LOOKS;
    while (place + 4 <= first.count && number(first.bytes + place, 4, first.is_big_endian)) {
        Directory other = {.bytes = first.bytes, .count = first.count, .is_big_endian = first.is_big_endian};
        CodecFault fault = read_directory(&other, &place);
        // What is no directory tells of nothing that is missing.
        if (fault) return fault == CodecFaultCutShort ? fault : CodecFaultNone;
        if (other.end > file->end) file->end = other.end;
        bool is_tiled = other.tags[TILE_OFFSETS].count;
        TIFFValues offsets = other.tags[is_tiled ? TILE_OFFSETS : OFFSETS], lengths = other.tags[is_tiled ? TILE_LENGTHS : LENGTHS];
        uint64_t units = offsets.count < lengths.count ? offsets.count : lengths.count;
        if (!is_there(&offsets, units, first.count) || !is_there(&lengths, units, first.count)) return CodecFaultCutShort;
        if (units + MAX_ENTRIES > looks) return CodecFaultNone;
        looks -= units + MAX_ENTRIES;
        for (uint64_t unit = 0; unit < units; unit++) {
            uint64_t end = nth(&offsets, first.bytes, unit, first.is_big_endian) + nth(&lengths, first.bytes, unit, first.is_big_endian);
            if (end > file->end) file->end = end;
        }
    }
    return CodecFaultNone;
}

CodecFault tiff_look(TIFFFile *file, const uint8_t *bytes, size_t count) {
    if (count < 8) return CodecFaultCutShort;
    Directory directory = {.bytes = bytes, .count = count, .is_big_endian = bytes[0] == 'M'};
    uint64_t place = 4;
    CodecFault fault = read_directory(&directory, &place);
    if (fault) return fault;
    *file = (TIFFFile){.is_big_endian = directory.is_big_endian, .end = directory.end};
    fault = read_tags(&directory, file);
    if (fault) return fault;
    if (!is_supported(file)) return CodecFaultUnsupported;
    file->memory = memory_of(file);
    if (file->memory > tiff_pixels_memory(file->width, file->height)) return CodecFaultUnsupported;
    fault = find_end(file, bytes, count);
    return fault ? fault : look_at_others(file, directory, place);
}

bool tiff_has_few_scans(const TIFFFile *file, const uint8_t *bytes) {
    if (file->compression != TIFF_COMPRESSION_JPEG) return true;
    for (uint64_t unit = 0; unit < file->units; unit++) {
        const uint8_t *at = bytes + tiff_unit_start(file, bytes, unit), *end = at + tiff_unit_length(file, bytes, unit);
        int scans = 0;
        // Within codes no such byte comes after 0xFF.
        while ((at = memchr(at, 0xFF, (size_t)(end - at))) && ++at < end)
            if (*at == 0xDA && ++scans > MAX_SCANS) return false;
    }
    return true;
}
