// Decodes HEIC. libde265 decodes HEVC; the boxes are read in heif_boxes.c.
//
// Bytes are collected, because the images may be anywhere in the file. Each tile is decoded as soon as its
// bytes are present, sampled for the thumbnail, and freed. So a tiled image needs memory for its bytes and for
// one tile.
#include "CCodecs.h"
#include "collected.h"
#include "avif_decoder.h"
#include "avif_thumb.h"
#include "frame_budget.h"
#include "heic_file.h"
#include "heic_thumbnail.h"
#include "slice.h"

#include <libde265/de265.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The decoder's own state, which does not depend on the image.
#define BASE_MEMORY ((size_t)4 * 1024 * 1024)

typedef enum { LOOK, DECODE, FINISHED, FAILED } Stage;

struct HEICReader {
    Stage stage;
    CodecFault fault;
    CodecImageInfo picture;
    HEICFile file;
    uint8_t *bytes;
    size_t count, capacity;
    uint64_t needed;         // where the images' bytes end in the file
    size_t max_memory;
    bool is_whole;           // no more bytes will arrive
    HEVCDecoder *decoder;    // of the current tile
    int layer;
    uint32_t tile;
    FrameBudget slices;
    uint64_t max_frames;
    uint64_t frames;
    bool is_told;            // the error for too many frames was reported
    HEICThumbnail thumbnail; // the thumbnail stored in the file
    avifImage colours;       // the color format of the first tile
    uint8_t samples[THUMB_SAMPLES][THUMB_SAMPLES][THUMB_CHANNELS];
    Thumb thumb;
    char message[80];
};

// Records a failure in `stage`. Callers must return at once.
static void fail(HEICReader *reader, CodecFault fault, const char *message) {
    if (reader->stage == FAILED) return;
    reader->stage = FAILED;
    reader->fault = fault;
    snprintf(reader->message, sizeof reader->message, "%s", message);
}

HEICReader *heic_reader_create(size_t max_memory) {
    HEICReader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->max_memory = max_memory;
    reader->slices = frame_budget_unbounded();
    reader->max_frames = UINT64_MAX;
    return reader;
}

static void release(HEICReader *reader) {
    hevc_close(reader->decoder);
    reader->decoder = NULL;
    heic_thumbnail_discard(&reader->thumbnail);
    free(reader->bytes);
    reader->bytes = NULL;
    reader->count = reader->capacity = 0;
}

void heic_reader_destroy(HEICReader *reader) {
    if (!reader) return;
    release(reader);
    free(reader);
}

void heic_reader_allow_frames(HEICReader *reader, CodecFrameLimits limits) {
    reader->max_frames = limits.count;
    reader->slices.limits = limits;
    reader->slices.limits.count = UINT64_MAX;
}

CodecImageInfo heic_reader_picture(const HEICReader *reader) {
    CodecImageInfo picture = reader->picture;
    if (reader->is_told) picture.maxFrames = reader->max_frames;
    if (reader->stage == DECODE && !reader->is_whole && heic_thumbnail_is_new(&reader->thumbnail, &reader->file.boxes))
        picture.scansToShow = 1;
    if (reader->stage == FINISHED) thumb_report(&reader->thumb, &picture);
    return picture;
}

const char *heic_reader_message(const HEICReader *reader) {
    return reader->message;
}

// Appends the bytes that are still needed.
static void gather(HEICReader *reader, const uint8_t *bytes, size_t count) {
    uint64_t most = reader->stage == LOOK ? AVIF_MAX_UNPARSED : reader->needed;
    if (most > reader->max_memory) most = reader->max_memory;
    size_t room = most > reader->count ? (size_t)most - reader->count : 0;
    if (count > room && reader->stage == LOOK) {
        fail(reader, CodecFaultTooMuchMemory, "too many bytes before the image's boxes");
        return;
    }
    if (count > room) count = room;
    if (!collected_append(&reader->bytes, &reader->count, &reader->capacity, bytes, count)) {
        fail(reader, CodecFaultTooMuchMemory, "out of memory");
        return;
    }
    reader->file.boxes.bytes = reader->bytes;
    reader->file.boxes.count = reader->count;
}

// Computes where the bytes of all images end. Returns false if one has no place in the file.
static bool find_end(HEICReader *reader) {
    HEICFile *file = &reader->file;
    for (int layer = 0; layer < file->layer_count; layer++)
        for (uint32_t tile = 0; tile < heic_tiles(file, layer); tile++) {
            HEIFCoded coded;
            if (!heif_tile(&file->boxes, &file->layers[layer], tile, &coded)) return false;
            if (coded.extents.end > reader->needed) reader->needed = coded.extents.end;
        }
    uint64_t end = file->boxes.has_movie ? heif_frames_end(&file->boxes) : 0;
    if (end == UINT64_MAX) return false;
    if (end > reader->needed) reader->needed = end;
    if (reader->file.boxes.passed > reader->needed) reader->needed = reader->file.boxes.passed;
    return true;
}

static void read_header(HEICReader *reader) {
    const HEICFile *file = &reader->file;
    CodecImageInfo *picture = &reader->picture;
    if (!find_end(reader)) {
        fail(reader, CodecFaultBroken, "a tile without bytes");
        return;
    }
    picture->width = file->layers[0].shown_width;
    picture->height = file->layers[0].shown_height;
    picture->hasAlpha = file->layer_count > 1;
    picture->containerOrientation = file->layers[0].orientation;
    picture->fileBytes = reader->needed > SIZE_MAX ? SIZE_MAX : (size_t)reader->needed;
    reader->frames = heif_frames(&file->boxes);
    heic_thumbnail_find(&reader->thumbnail, &file->boxes);
    uint64_t most = 0;
    for (int layer = 0; layer < file->layer_count; layer++) {
        uint64_t memory = hevc_memory(&file->layers[layer].format);
        if (memory > most) most = memory;
    }
    // The file, and the library's copy of a part of it.
    uint64_t sum = BASE_MEMORY + most + reader->thumbnail.memory;
    bool is_small = reader->needed <= (SIZE_MAX - sum) / 2;
    picture->decodingMemory = is_small ? (size_t)(sum + 2 * reader->needed) : SIZE_MAX;
    thumb_start(&reader->thumb, picture->width, picture->height);
    reader->stage = DECODE;
}

// Returns true once the header is read or reading has failed.
static bool read_file_header(HEICReader *reader) {
    HEIFFile *boxes = &reader->file.boxes;
    if (!reader->is_whole && reader->count < boxes->retry_at) return false;
    CodecFault fault;
    HEIFScan look = heif_scan(boxes, reader->is_whole, &fault);
    if (look == HEIFWaits) return false;
    if (look == HEIFWrong) {
        fail(reader, fault, fault == CodecFaultCutShort ? "the bytes end before the image" : "no HEIF boxes");
        return true;
    }
    switch (heic_find(&reader->file)) {
    case HEIFFound:
        read_header(reader);
        return true;
    case HEIFNotYet:
        // Avoids a new search for every few bytes that arrive.
        boxes->retry_at = reader->count + reader->count / 8 + 1;
        if (reader->is_whole) fail(reader, CodecFaultCutShort, "the bytes end before the image");
        return reader->is_whole;
    case HEIFUnknown:
        fail(reader, CodecFaultUnsupported, "unsupported kind of HEIF file");
        return true;
    default:
        fail(reader, CodecFaultBroken, "the boxes describe no image");
        return true;
    }
}

// Samples the current tile for the thumbnail.
static void sample_tile(HEICReader *reader, const avifImage *image) {
    const HEIFImage *picture = &reader->file.layers[reader->layer], *shown = &reader->file.layers[0];
    uint32_t first_x = reader->tile % picture->columns * picture->tile_width;
    uint32_t first_y = reader->tile / picture->columns * picture->tile_height;
    const Thumb *thumb = &reader->thumb;
    for (uint32_t down = 0; down < thumb->down[0].count; down++) {
        uint32_t y = thumb->down[0].at[down] + shown->top - first_y;
        if (y >= image->height) continue;
        for (uint32_t across = 0; across < thumb->across[0].count; across++) {
            uint32_t x = thumb->across[0].at[across] + shown->left - first_x;
            if (x >= image->width) continue;
            uint8_t *sample = reader->samples[down][across];
            if (reader->layer) sample[3] = avif_thumb_sample(image, 0, x, y);
            else
                for (int channel = 0; channel < 3; channel++) sample[channel] = avif_thumb_sample(image, channel, x, y);
        }
    }
}

static void finish_tile(HEICReader *reader) {
    avifImage image;
    if (!heic_tile_image(&reader->file, reader->layer, reader->decoder, &image)) {
        fail(reader, CodecFaultBroken, "a tile differs from its header");
        return;
    }
    sample_tile(reader, &image);
    if (!reader->layer && !reader->tile) reader->colours = image;
    hevc_close(reader->decoder);
    reader->decoder = NULL;
    if (++reader->tile < heic_tiles(&reader->file, reader->layer)) return;
    reader->tile = 0;
    reader->layer++;
}

static void finish(HEICReader *reader) {
    Thumb *thumb = &reader->thumb;
    bool has_alpha = reader->picture.hasAlpha, is_straight = !has_alpha || !reader->file.is_premultiplied;
    for (uint32_t down = 0; down < thumb->down[0].count; down++)
        for (uint32_t across = 0; across < thumb->across[0].count; across++) {
            uint8_t *sample = reader->samples[down][across];
            if (!has_alpha) sample[3] = 255;
            avif_thumb_add(thumb, across, down, sample, is_straight);
        }
    reader->colours.alphaPremultiplied = !is_straight;
    if (!avif_thumb_finish(thumb, &reader->colours, is_straight)) {
        fail(reader, CodecFaultUnsupported, "unsupported color format");
        return;
    }
    reader->picture.frames = reader->frames;
    reader->stage = FINISHED;
}

// Counts the tile's slices. A slice can cost as much as its whole tile, however few bytes it has.
static bool count_slices(HEICReader *reader) {
    const HEVCFormat *format = &reader->file.layers[reader->layer].format;
    uint64_t pixels = (uint64_t)format->width * format->height;
    for (uint64_t left = hevc_slices(reader->decoder); left; left--)
        if (!frame_budget_count(&reader->slices, pixels, reader->count)) return false;
    return true;
}

// Opens the current tile. Returns false if bytes are missing.
static bool open_tile(HEICReader *reader) {
    CodecFault fault;
    reader->decoder = heic_open_tile(&reader->file, reader->layer, reader->tile, HEVCProof, &fault);
    if (reader->decoder) {
        if (!count_slices(reader)) fail(reader, CodecFaultTooMuchMemory, "too many slices");
    } else if (fault == CodecFaultCutShort && !reader->is_whole) {
        return false;
    } else {
        fail(reader, fault, fault == CodecFaultCutShort ? "the bytes end before the image" : "no HEVC frame");
    }
    return true;
}

// Decodes a slice. Returns false if bytes are missing.
static bool decode(HEICReader *reader) {
    if (reader->layer == reader->file.layer_count) {
        // Waits for the bytes of a sequence's further frames.
        if (reader->count < reader->needed && !reader->is_whole) return false;
        if (reader->count < reader->needed) fail(reader, CodecFaultCutShort, "the bytes end before the image");
        else finish(reader);
        return true;
    }
    if (!reader->decoder) return open_tile(reader);
    HEVCState state = hevc_step(reader->decoder);
    if (state == HEVCFailed) fail(reader, CodecFaultBroken, hevc_message(reader->decoder));
    if (state == HEVCDone) finish_tile(reader);
    return true;
}

static CodecStatus run(HEICReader *reader) {
    if (reader->stage == LOOK) {
        if (!read_file_header(reader)) return CodecStatusNeedsBytes;
        return reader->stage == FAILED ? CodecStatusFailed : CodecStatusHeader;
    }
    if (reader->frames > reader->max_frames) {
        reader->is_told = true;
        fail(reader, CodecFaultTooManyFrames, "too many frames");
    }
    Slice slice = slice_start();
    heic_thumbnail_step(&reader->thumbnail, &reader->file.boxes);
    while (reader->stage == DECODE && !slice_is_over(slice))
        if (!decode(reader)) return CodecStatusNeedsBytes;
    return reader->stage == FINISHED ? CodecStatusFinished
        : reader->stage == FAILED    ? CodecStatusFailed
                                     : CodecStatusHasMore;
}

CodecStep heic_reader_step(HEICReader *reader, const uint8_t *bytes, size_t count, bool ended) {
    if (reader->stage == FINISHED) return (CodecStep){CodecStatusFinished, CodecFaultNone, count};
    if (reader->stage == FAILED) return (CodecStep){CodecStatusFailed, reader->fault, count};
    reader->is_whole = ended;
    gather(reader, bytes, count);
    CodecStatus status = reader->stage == FAILED ? CodecStatusFailed : run(reader);
    // The memory is not needed once decoding has ended.
    if (status == CodecStatusFinished || status == CodecStatusFailed) release(reader);
    return (CodecStep){status, reader->fault, count};
}

void heic_reader_request_preview(HEICReader *reader) {
    if (heic_reader_picture(reader).scansToShow) reader->thumbnail.is_wanted = true;
}

CodecPreview heic_reader_preview(const HEICReader *reader) {
    return (CodecPreview){reader->thumbnail.file, reader->thumbnail.count, 1};
}

void heic_reader_discard_preview(HEICReader *reader) {
    heic_thumbnail_discard(&reader->thumbnail);
}

const char *codecs_de265_version(void) { return de265_get_version(); }
