// Decodes AVIF with libavif, which uses dav1d for AV1.
//
// libavif can wait for bytes, but cannot decode a part of a frame. So the boxes are parsed as soon as they are
// present: they give the size, and where in the file the frames end. Then bytes are collected up to that point,
// and the frames are decoded one by one, each in one call.
#include "CCodecs.h"
#include "avif_decoder.h"
#include "avif_thumb.h"
#include "frame_budget.h"
#include "collected.h"
#include "heif_orientation.h"
#include "slice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// If fewer bytes than this arrive at once, the file is not parsed again each time.
#define MIN_DRIP 4096
// How many frames are in memory. For an animation, the decoder keeps eight reference frames in addition to the
// current one. A still image has one frame, or one and a cell of its grid. Eight also bounds a still image that
// uses hidden references.
#define PICTURES_OF_ANIMATION 10
#define PICTURES_OF_STILL 3
// How many frames are located in the file. Locating one passes all frames since the last key frame.
#define MAX_LOOKUPS 1000

typedef enum { PARSE, GATHER, DECODE, FINISHED, FAILED } Stage;

struct AVIFReader {
    Stage stage;
    CodecFault fault;
    CodecImageInfo picture;
    avifDecoder *decoder;
    AVIFSource source;
    uint8_t *bytes;
    size_t capacity;
    uint32_t width, height;  // as stored
    avifCropRect shown;      // the shown part of it
    avifPixelFormat format;  // of the planes, according to the boxes
    uint32_t depth;
    size_t needed;           // where the frames' bytes end in the file
    size_t max_memory;
    uint32_t max_listed;
    FrameBudget budget;
    int frames;              // in the file
    Thumb thumb;             // of the first frame
    char message[AVIF_DIAGNOSTICS_ERROR_BUFFER_SIZE];
};

// Records a failure in `stage`. Callers must return at once.
static void fail(AVIFReader *reader, CodecFault fault, const char *message) {
    if (reader->stage == FAILED) return;
    reader->stage = FAILED;
    reader->fault = fault;
    snprintf(reader->message, sizeof reader->message, "%s", message);
}

static bool is_over_count(const char *words) {
    return strstr(words, "imageCountLimit") != NULL;
}

static CodecFault fault_of(avifResult result, const char *words) {
    // These errors have no codes of their own in libavif.
    if (is_over_count(words)) return CodecFaultTooManyFrames;
    if (strstr(words, "dimensions") && strstr(words, "large")) return CodecFaultTooMuchMemory;
    switch (result) {
    case AVIF_RESULT_OUT_OF_MEMORY:
        return CodecFaultTooMuchMemory;
    case AVIF_RESULT_NOT_IMPLEMENTED:
    case AVIF_RESULT_UNSUPPORTED_DEPTH:
    case AVIF_RESULT_NO_CODEC_AVAILABLE:
        return CodecFaultUnsupported;
    default:
        return CodecFaultBroken;
    }
}

static void fail_as(AVIFReader *reader, avifResult result) {
    const char *words = reader->decoder->diag.error;
    if (is_over_count(words)) reader->budget.told = reader->max_listed;
    bool is_short = reader->source.was_clipped || result == AVIF_RESULT_TRUNCATED_DATA;
    bool is_cut = reader->stage == PARSE && is_short;
    CodecFault fault = is_cut ? CodecFaultCutShort : fault_of(result, words);
    fail(reader, fault, words[0] ? words : avifResultToString(result));
}

AVIFReader *avif_reader_create(size_t max_memory, uint32_t max_frames) {
    AVIFReader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->max_memory = max_memory;
    reader->max_listed = max_frames;
    reader->budget = frame_budget_unbounded();
    return reader;
}

void avif_reader_destroy(AVIFReader *reader) {
    if (!reader) return;
    if (reader->decoder) avifDecoderDestroy(reader->decoder);
    free(reader->bytes);
    free(reader);
}

void avif_reader_allow_frames(AVIFReader *reader, CodecFrameLimits limits) {
    reader->budget.limits = limits;
}

CodecImageInfo avif_reader_picture(const AVIFReader *reader) {
    CodecImageInfo picture = reader->picture;
    picture.maxFrames = reader->budget.told;
    if (reader->stage == FINISHED) thumb_report(&reader->thumb, &picture);
    return picture;
}

const char *avif_reader_message(const AVIFReader *reader) {
    return reader->message;
}

static bool open_decoder(AVIFReader *reader) {
    if (reader->decoder) avifDecoderDestroy(reader->decoder);
    reader->source.bytes = reader->bytes;
    reader->decoder = avif_decoder_open(&reader->source, reader->max_listed);
    if (!reader->decoder) fail(reader, CodecFaultTooMuchMemory, "out of memory");
    return reader->decoder != NULL;
}

// libavif 1.0 renamed the field.
#if AVIF_VERSION >= 1000000
#define MIRROR_AXIS(imir) (imir).axis
#else
#define MIRROR_AXIS(imir) (imir).mode
#endif

static uint8_t orientation_of(const avifImage *image) {
    int angle = image->transformFlags & AVIF_TRANSFORM_IROT ? image->irot.angle & 3 : 0;
    return heif_orientation(angle, image->transformFlags & AVIF_TRANSFORM_IMIR ? MIRROR_AXIS(image->imir) != 0 : -1);
}

static size_t bytes_needed(AVIFReader *reader) {
    int count = reader->decoder->imageCount;
    if (count > MAX_LOOKUPS) return AVIF_MAX_UNPARSED;
    uint64_t needed = 0;
    for (int frame = 0; frame < count; frame++) {
        avifExtent extent;
        if (avifDecoderNthImageMaxExtent(reader->decoder, (uint32_t)frame, &extent)) return AVIF_MAX_UNPARSED;
        uint64_t end = extent.offset + extent.size;
        if (extent.size && end > needed) needed = end;
    }
    return needed > SIZE_MAX ? SIZE_MAX : (size_t)needed;
}

static void read_header(AVIFReader *reader) {
    const avifDecoder *decoder = reader->decoder;
    CodecImageInfo *picture = &reader->picture;
    reader->width = decoder->image->width;
    reader->height = decoder->image->height;
    reader->format = decoder->image->yuvFormat;
    reader->depth = decoder->image->depth;
    if (!reader->width || !reader->height) {
        fail(reader, CodecFaultBroken, "width or height is 0");
        return;
    }
    if (!avif_decoder_shown(decoder, &reader->shown)) {
        fail(reader, CodecFaultUnsupported, "the crop is too small");
        return;
    }
    picture->width = reader->shown.width;
    picture->height = reader->shown.height;
    picture->hasAlpha = decoder->alphaPresent;
    picture->containerOrientation = orientation_of(decoder->image);
    reader->frames = decoder->imageCount;
    reader->needed = bytes_needed(reader);
    uint64_t pictures = reader->frames > 1 ? PICTURES_OF_ANIMATION : PICTURES_OF_STILL;
    picture->fileBytes = reader->needed < AVIF_MAX_UNPARSED ? reader->needed : 0;
    // The library also copies the color profile, with the size that the profile declares.
    uint64_t sum = AVIF_BASE_MEMORY + decoder->image->icc.size + pictures * avif_decoder_frame_memory(decoder) + reader->needed;
    picture->decodingMemory = sum < reader->needed || sum > SIZE_MAX ? SIZE_MAX : (size_t)sum;
    reader->stage = GATHER;
}

// Returns true once the boxes are read or parsing has failed.
static bool parse(AVIFReader *reader) {
    if (!reader->source.is_whole && reader->source.count < reader->source.retry_at) return false;
    if (!open_decoder(reader)) return true;
    avifResult result = avifDecoderParse(reader->decoder);
    if (result == AVIF_RESULT_WAITING_ON_IO) {
        uint64_t worth_while = (uint64_t)reader->source.count + reader->source.count / 8;
        if (reader->source.count > MIN_DRIP && reader->source.retry_at < worth_while)
            reader->source.retry_at = worth_while;
        return false;
    }
    if (result == AVIF_RESULT_OK) read_header(reader);
    else fail_as(reader, result);
    return true;
}

// Appends the bytes that are still needed.
static void gather(AVIFReader *reader, const uint8_t *bytes, size_t count) {
    size_t most = reader->stage == PARSE ? AVIF_MAX_UNPARSED : reader->needed;
    if (most > reader->max_memory) most = reader->max_memory;
    size_t room = most > reader->source.count ? most - reader->source.count : 0;
    if (count > room && reader->stage == PARSE) {
        fail(reader, CodecFaultTooMuchMemory, "too many bytes before the image's boxes");
        return;
    }
    if (count > room) count = room;
    if (!collected_append(&reader->bytes, &reader->source.count, &reader->capacity, bytes, count))
        fail(reader, CodecFaultTooMuchMemory, "out of memory");
}

// Starts decoding. All bytes are present. The sizes from the header become the limits.
static void start(AVIFReader *reader) {
    uint64_t pixels = (uint64_t)reader->width * reader->height;
    for (int frame = 0; frame < reader->frames; frame++)
        if (!frame_budget_count(&reader->budget, pixels, reader->source.count)) {
            fail(reader, CodecFaultTooManyFrames, "too many frames");
            return;
        }
    if (!open_decoder(reader)) return;
    avif_decoder_limit(reader->decoder, reader->width, reader->height);
    avifResult result = avifDecoderParse(reader->decoder);
    if (result == AVIF_RESULT_OK) reader->stage = DECODE;
    else fail_as(reader, result);
}

// Handles a decoded frame. Its planes are in `image` until the next frame is decoded.
static void handle_frame(AVIFReader *reader, const avifImage *image) {
    bool is_same = image->width == reader->width && image->height == reader->height;
    if (!is_same) {
        fail(reader, CodecFaultBroken, "a frame's size differs from the image's");
        return;
    }
    // The memory for variants was computed with this format, also for the part that is not shown.
    bool is_cropped = reader->shown.width != reader->width || reader->shown.height != reader->height;
    if (is_cropped && (image->yuvFormat != reader->format || image->depth != reader->depth)) {
        fail(reader, CodecFaultBroken, "a frame's sample format differs from the image's");
        return;
    }
    avifImage shown = avif_decoder_crop(image, reader->shown);
    if (!reader->picture.frames && !avif_thumb_make(&reader->thumb, &shown)) {
        fail(reader, CodecFaultTooMuchMemory, "out of memory");
        return;
    }
    reader->picture.frames++;
    if (reader->picture.frames == (uint64_t)reader->frames) reader->stage = FINISHED;
}

static void decode(AVIFReader *reader) {
    avifResult result = avifDecoderNextImage(reader->decoder);
    if (result == AVIF_RESULT_OK) handle_frame(reader, reader->decoder->image);
    else fail_as(reader, result);
}

static bool has_all(const AVIFReader *reader) {
    bool is_known = reader->needed < AVIF_MAX_UNPARSED;
    return is_known ? reader->source.count >= reader->needed : reader->source.is_whole;
}

static CodecStatus run(AVIFReader *reader) {
    if (reader->stage == PARSE) {
        if (parse(reader)) return reader->stage == FAILED ? CodecStatusFailed : CodecStatusHeader;
        if (reader->source.is_whole) fail(reader, CodecFaultCutShort, "the bytes end before the image");
        return reader->source.is_whole ? CodecStatusFailed : CodecStatusNeedsBytes;
    }
    if (reader->stage == GATHER) {
        if (has_all(reader)) start(reader);
        else if (reader->source.is_whole) fail(reader, CodecFaultCutShort, "the bytes end before the image");
        else return CodecStatusNeedsBytes;
    }
    Slice slice = slice_start();
    while (reader->stage == DECODE && !slice_is_over(slice)) decode(reader);
    return reader->stage == FINISHED ? CodecStatusFinished
        : reader->stage == FAILED    ? CodecStatusFailed
                                     : CodecStatusHasMore;
}

CodecStep avif_reader_step(AVIFReader *reader, const uint8_t *bytes, size_t count, bool ended) {
    if (reader->stage == FINISHED) return (CodecStep){CodecStatusFinished, CodecFaultNone, count};
    if (reader->stage == FAILED) return (CodecStep){CodecStatusFailed, reader->fault, count};
    reader->source.is_whole = ended;
    if (reader->stage == PARSE || reader->stage == GATHER) gather(reader, bytes, count);
    CodecStatus status = reader->stage == FAILED ? CodecStatusFailed : run(reader);
    return (CodecStep){status, reader->fault, count};
}
