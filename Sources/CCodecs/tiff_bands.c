// libtiff's own conversion to RGBA, which knows what its codecs give: depths, palettes, inks, subsampled chroma. It reads from
// memory alone, and no allocation of it is larger than what was reckoned before.
#include "tiff_bands.h"

#include "CCodecs.h"
#include "profile.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tiffio.h>

// Tables of colours, and what a codec has beside its strip.
#define BESIDE ((uint64_t)2 * 1024 * 1024)

struct TIFFBands {
    TIFFFile file;
    const uint8_t *bytes;
    size_t count, at; // what libtiff reads, and where it is
    TIFF *tiff;
    TIFFRGBAImage image;
    bool is_begun;      // `image` has to be ended
    bool is_decoding, is_damaged;
    bool has_alpha, is_premultiplied, is_grey;
    uint32_t *raster;   // of a band
    uint32_t first, rows, next;
    char message[120];
};

static tmsize_t read_bytes(thandle_t handle, void *out, tmsize_t size) {
    TIFFBands *bands = handle;
    size_t left = bands->at < bands->count ? bands->count - bands->at : 0;
    size_t count = size < 0 ? 0 : (size_t)size < left ? (size_t)size : left;
    if (count) memcpy(out, bands->bytes + bands->at, count);
    bands->at += count;
    return (tmsize_t)count;
}

static tmsize_t write_nothing(thandle_t handle, void *bytes, tmsize_t size) {
    (void)handle, (void)bytes, (void)size;
    return 0;
}

static toff_t seek(thandle_t handle, toff_t to, int from) {
    TIFFBands *bands = handle;
    uint64_t base = from == SEEK_CUR ? bands->at : from == SEEK_END ? bands->count : 0;
    if (to > SIZE_MAX - base) return (toff_t)-1;
    bands->at = (size_t)(base + to);
    return bands->at;
}

static int close_nothing(thandle_t handle) {
    (void)handle;
    return 0;
}

static toff_t size_of(thandle_t handle) {
    return ((TIFFBands *)handle)->count;
}

static int map(thandle_t handle, void **base, toff_t *size) {
    TIFFBands *bands = handle;
    // It is only read.
    *base = (void *)(uintptr_t)bands->bytes;
    *size = bands->count;
    return 1;
}

static void unmap(thandle_t handle, void *base, toff_t size) {
    (void)handle, (void)base, (void)size;
}

static void keep_word(TIFFBands *bands, const char *format, va_list arguments) {
    if (bands->message[0]) return;
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wformat-nonliteral"
    vsnprintf(bands->message, sizeof bands->message, format, arguments);
#pragma clang diagnostic pop
}

static int take_error(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments) {
    (void)tiff, (void)module;
    TIFFBands *bands = user;
    keep_word(bands, format, arguments);
    bands->is_damaged = true;
    return 1;
}

// Codecs warn of codes that make no sense, and go on with what they have: damage. But not what an old or a careless program
// wrote that is whole; nor tags that nobody knows, of which the directory is full.
static int take_warning(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments) {
    TIFFBands *bands = user;
    bool is_whole = module && (!strcmp(module, "LZWPreDecode") || (!strcmp(module, "JPEGPreDecode") && strstr(format, "exceeds")));
    if (!bands->is_decoding || is_whole) return 1;
    return take_error(tiff, user, module, format, arguments);
}

static bool open(TIFFBands *bands) {
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (!options) return false;
    uint64_t most = bands->file.memory + bands->count + BESIDE;
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, most > INT64_MAX ? INT64_MAX : (tmsize_t)most);
    TIFFOpenOptionsSetErrorHandlerExtR(options, take_error, bands);
    TIFFOpenOptionsSetWarningHandlerExtR(options, take_warning, bands);
    bands->tiff = TIFFClientOpenExt(
        "image", "r", bands, read_bytes, write_nothing, seek, close_nothing, size_of, map, unmap, options);
    TIFFOpenOptionsFree(options);
    return bands->tiff;
}

static uint32_t tag(TIFF *tiff, uint32_t name, bool is_long) {
    uint32_t number = 0;
    uint16_t word = 0;
    if (is_long) TIFFGetFieldDefaulted(tiff, name, &number);
    else TIFFGetFieldDefaulted(tiff, name, &word);
    return is_long ? number : word;
}

// Whether libtiff found what was found here, by which memory was reckoned.
static bool is_same(const TIFFBands *bands) {
    TIFF *tiff = bands->tiff;
    const TIFFFile *file = &bands->file;
    bool is_tiled = TIFFIsTiled(tiff);
    bool is_separate = tag(tiff, TIFFTAG_PLANARCONFIG, false) == PLANARCONFIG_SEPARATE;
    if (tag(tiff, TIFFTAG_IMAGEWIDTH, true) != file->width || tag(tiff, TIFFTAG_IMAGELENGTH, true) != file->height) return false;
    if (tag(tiff, TIFFTAG_BITSPERSAMPLE, false) != file->bits || tag(tiff, TIFFTAG_SAMPLESPERPIXEL, false) != file->samples) return false;
    if (tag(tiff, TIFFTAG_COMPRESSION, false) != file->compression || is_tiled != file->is_tiled) return false;
    if (is_separate != file->is_separate && file->samples > 1) return false;
    // One strip without codes is read as several.
    if (!is_tiled) return tag(tiff, TIFFTAG_ROWSPERSTRIP, true) <= file->unit_height || file->unit_height == file->height;
    return tag(tiff, TIFFTAG_TILEWIDTH, true) == file->unit_width && tag(tiff, TIFFTAG_TILELENGTH, true) == file->unit_height;
}

static bool is_alpha(uint16_t kind) {
    return kind == EXTRASAMPLE_ASSOCALPHA || kind == EXTRASAMPLE_UNASSALPHA;
}

// What the samples beside the colours are. That of unmixed alpha is told to libtiff as if it were mixed: it passes that on as it
// is, and would mix the other, which loses what is dark then. False: there is alpha that libtiff leaves out.
static bool look_at_alpha(TIFFBands *bands) {
    uint16_t count = 0, *kinds = NULL;
    TIFFGetFieldDefaulted(bands->tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds);
    bool is_told = false;
    for (uint16_t index = 0; index < count; index++) is_told |= is_alpha(kinds[index]);
    if (!is_told) return true;
    uint32_t colours = bands->file.samples - count;
    bool is_grey = bands->is_grey && bands->file.bits == 8 && bands->file.samples == 2;
    bool is_rgb = bands->file.photometric == PHOTOMETRIC_RGB && bands->file.bits >= 8 && colours == 3;
    bands->has_alpha = is_alpha(kinds[0]) && (is_grey || is_rgb);
    bands->is_premultiplied = kinds[0] == EXTRASAMPLE_ASSOCALPHA;
    uint16_t mixed[8];
    if (!bands->has_alpha || bands->is_premultiplied || count > sizeof mixed / sizeof *mixed) return bands->has_alpha;
    memcpy(mixed, kinds, count * sizeof *mixed);
    mixed[0] = EXTRASAMPLE_ASSOCALPHA;
    TIFFSetField(bands->tiff, TIFFTAG_EXTRASAMPLES, count, mixed);
    return true;
}

static CodecFault begin(TIFFBands *bands) {
    if (!open(bands)) return CodecFaultBroken;
    bands->message[0] = 0;
    if (!is_same(bands)) return CodecFaultBroken;
    bands->is_grey = bands->file.photometric <= PHOTOMETRIC_MINISBLACK;
    if (!look_at_alpha(bands)) {
        snprintf(bands->message, sizeof bands->message, "alpha beside colours of its kind");
        return CodecFaultUnsupported;
    }
    char word[1024] = "";
    if (!TIFFRGBAImageOK(bands->tiff, word) || !TIFFRGBAImageBegin(&bands->image, bands->tiff, 1, word)) {
        snprintf(bands->message, sizeof bands->message, "%s", word);
        return CodecFaultUnsupported;
    }
    bands->is_begun = true;
    // As stored: whoever shows it turns it.
    bands->image.req_orientation = bands->image.orientation;
    uint32_t rows = bands->file.is_tiled ? bands->file.unit_height : tag(bands->tiff, TIFFTAG_ROWSPERSTRIP, true);
    bands->rows = rows < bands->file.height ? rows : bands->file.height;
    bands->is_damaged = false;
    bands->is_decoding = true;
    return bands->rows ? CodecFaultNone : CodecFaultBroken;
}

TIFFBands *tiff_bands_open(
    const TIFFFile *file, const uint8_t *bytes, size_t count, CodecFault *fault, char *message, size_t room) {
    TIFFBands *bands = calloc(1, sizeof *bands);
    *fault = CodecFaultTooMuchMemory;
    if (!bands) return NULL;
    bands->file = *file;
    bands->bytes = bytes;
    bands->count = count;
    *fault = begin(bands);
    if (!*fault) return bands;
    if (message) snprintf(message, room, "%s", bands->message[0] ? bands->message : "no TIFF directory");
    tiff_bands_close(bands);
    return NULL;
}

void tiff_bands_close(TIFFBands *bands) {
    if (!bands) return;
    if (bands->is_begun) TIFFRGBAImageEnd(&bands->image);
    if (bands->tiff) TIFFClose(bands->tiff);
    free(bands->raster);
    free(bands);
}

int tiff_bands_channels(const TIFFBands *bands) {
    if (bands->has_alpha) return 4;
    return bands->is_grey ? 1 : 3;
}

const uint8_t *tiff_bands_profile(const TIFFBands *bands, size_t *count) {
    uint32_t size = 0;
    void *profile = NULL;
    *count = 0;
    // Of inks and of Lab the library has made colours already.
    uint32_t photometric = bands->file.photometric;
    bool is_as_stored = photometric <= PHOTOMETRIC_PALETTE || photometric == PHOTOMETRIC_YCBCR;
    if (!is_as_stored || !TIFFGetField(bands->tiff, TIFFTAG_ICCPROFILE, &size, &profile) || size > MAX_PROFILE) return NULL;
    if (!profile_is_of(profile, size, tiff_bands_channels(bands) == 1 ? "GRAY" : "RGB ")) return NULL;
    *count = size;
    return profile;
}

bool tiff_bands_next(TIFFBands *bands) {
    uint32_t left = bands->file.height - bands->next, rows = bands->rows < left ? bands->rows : left;
    size_t pixels = (size_t)bands->file.width * rows;
    if (!bands->raster) bands->raster = malloc(4 * pixels);
    if (!bands->raster || !rows) return false;
    bands->image.row_offset = (int)bands->next;
    bands->first = bands->next;
    if (!tiff_is_whole(&bands->file, bands->bytes, bands->next)) {
        snprintf(bands->message, sizeof bands->message, "deflated data that is damaged");
        return false;
    }
    if (!TIFFRGBAImageGet(&bands->image, bands->raster, bands->file.width, rows) || bands->is_damaged) return false;
    bands->next += rows;
    return true;
}

bool tiff_bands_have(const TIFFBands *bands, uint32_t y) {
    return y >= bands->first && y < bands->next;
}

static uint8_t straight(uint32_t colour, uint32_t alpha) {
    uint32_t value = alpha ? (colour * 255 + alpha / 2) / alpha : 0;
    return value > 255 ? 255 : (uint8_t)value;
}

void tiff_bands_row(const TIFFBands *bands, uint32_t y, int channels, uint8_t *out) {
    const uint32_t *row = bands->raster + (size_t)(y - bands->first) * bands->file.width;
    for (uint32_t x = 0; x < bands->file.width; x++, out += channels) {
        uint32_t pixel = row[x], alpha = bands->has_alpha ? TIFFGetA(pixel) : 255;
        out[0] = (uint8_t)TIFFGetR(pixel);
        if (channels == 1) continue;
        out[1] = (uint8_t)TIFFGetG(pixel);
        out[2] = (uint8_t)TIFFGetB(pixel);
        if (bands->has_alpha && bands->is_premultiplied)
            for (int channel = 0; channel < 3; channel++) out[channel] = straight(out[channel], alpha);
        if (channels == 4) out[3] = (uint8_t)alpha;
    }
}

const char *tiff_bands_message(const TIFFBands *bands) {
    return bands->message[0] ? bands->message : "out of memory";
}

// "LIBTIFF, Version 4.5.0", and lines of copyright.
const char *codecs_tiff_version(void) {
    static char text[32];
    const char *told = TIFFGetVersion(), *number = strstr(told, "Version ");
    if (number) snprintf(text, sizeof text, "%.*s", (int)strcspn(number + 8, "\n"), number + 8);
    return text;
}
