// AVIF over libavif, with dav1d for AV1.
//
// The library can say that it waits for bytes, but not decode a part of a frame. So the boxes are
// parsed as soon as they are there, which tells the size and how far into the file its frames reach;
// then bytes are gathered up to there, and frames are decoded one by one, each in one go.
#include "CCodecs.h"
#include "avif_decoder.h"
#include "avif_thumb.h"
#include "slice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Of a file whose boxes come last, nothing is known until then.
#define MAX_UNPARSED ((size_t)64 * 1024 * 1024)
// From here on, bytes that drip in are not parsed from the file's start each time.
#define MIN_DRIP 4096
// The decoders' own state, whatever the picture.
#define BASE_MEMORY ((size_t)4 * 1024 * 1024)
// An animation's decoder keeps eight pictures to predict from beside the one decoded. A still picture is
// one, or one and a grid's cells; what it hides besides to take more memory is bounded by the eight, too.
#define PICTURES_OF_ANIMATION 10
#define PICTURES_OF_STILL 3
// Frames whose places in the file are looked up; each look passes all since the last key frame.
#define MAX_LOOKUPS 1000

typedef enum { PARSE, GATHER, DECODE, FINISHED, FAILED } Stage;

struct AVIFReader {
    Stage stage;
    CodecFault fault;
    CodecPicture picture;
    avifDecoder *decoder;
    avifIO io;
    bool ended, was_clipped;
    uint8_t *bytes;
    size_t count, capacity;
    size_t needed;           // bytes from the file's start that frames are in
    uint64_t retry_at;       // how many bytes make another try to parse worth while
    size_t max_memory;
    uint32_t max_listed;
    uint64_t max_frames, max_pixels;
    int frames;              // in the file
    Thumb thumb;             // of the first one
    char message[AVIF_DIAGNOSTICS_ERROR_BUFFER_SIZE];
};

// A failure is told by the stage; callers return at once.
static void fail(AVIFReader *reader, CodecFault fault, const char *message) {
    if (reader->stage == FAILED) return;
    reader->stage = FAILED;
    reader->fault = fault;
    snprintf(reader->message, sizeof reader->message, "%s", message);
}

static CodecFault fault_of(avifResult result, const char *words) {
    // These have no codes of their own.
    if (strstr(words, "imageCountLimit")) return CodecFaultTooManyFrames;
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
    bool is_short = reader->was_clipped || result == AVIF_RESULT_TRUNCATED_DATA;
    bool is_cut = reader->stage == PARSE && is_short;
    CodecFault fault = is_cut ? CodecFaultCutShort : fault_of(result, words);
    fail(reader, fault, words[0] ? words : avifResultToString(result));
}

static avifResult read_bytes(
    avifIO *io, uint32_t flags, uint64_t offset, size_t size, avifROData *out) {
    AVIFReader *reader = io->data;
    if (flags) return AVIF_RESULT_IO_ERROR;
    bool is_there = offset <= reader->count && size <= reader->count - offset;
    if (!is_there && !reader->ended) {
        reader->retry_at = offset > UINT64_MAX - size ? UINT64_MAX : offset + size;
        return AVIF_RESULT_WAITING_ON_IO;
    }
    if (!is_there && offset != reader->count) reader->was_clipped = true;
    if (offset > reader->count) return AVIF_RESULT_IO_ERROR;
    out->data = reader->bytes + offset;
    out->size = is_there ? size : (size_t)(reader->count - offset);
    return AVIF_RESULT_OK;
}

AVIFReader *avif_reader_create(size_t max_memory, uint32_t max_frames) {
    AVIFReader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->io.read = read_bytes;
    reader->io.data = reader;
    reader->max_memory = max_memory;
    reader->max_listed = max_frames;
    reader->max_frames = UINT64_MAX;
    reader->max_pixels = UINT64_MAX;
    return reader;
}

void avif_reader_destroy(AVIFReader *reader) {
    if (!reader) return;
    if (reader->decoder) avifDecoderDestroy(reader->decoder);
    free(reader->bytes);
    free(reader);
}

void avif_reader_allow_frames(AVIFReader *reader, uint64_t max_frames, uint64_t max_pixels) {
    reader->max_frames = max_frames;
    reader->max_pixels = max_pixels;
}

CodecPicture avif_reader_picture(const AVIFReader *reader) {
    CodecPicture picture = reader->picture;
    if (reader->stage == FINISHED) thumb_tell(&reader->thumb, &picture);
    return picture;
}

const char *avif_reader_message(const AVIFReader *reader) {
    return reader->message;
}

// A decoder over the bytes that are there, which must stay where they are from then on.
static bool open_decoder(AVIFReader *reader) {
    if (reader->decoder) avifDecoderDestroy(reader->decoder);
    reader->decoder = avif_decoder_create();
    if (!reader->decoder) {
        fail(reader, CodecFaultTooMuchMemory, "out of memory");
        return false;
    }
    reader->io.persistent = AVIF_TRUE;
    reader->io.sizeHint = MAX_UNPARSED;
    reader->decoder->imageCountLimit = reader->max_listed;
    avifDecoderSetIO(reader->decoder, &reader->io);
    return true;
}

// irot turns anticlockwise, then imir mirrors (ISO/IEC 23008-12, 6.5.10 and 6.5.12).
static uint8_t orientation_of(const avifImage *image) {
    static const uint8_t turned[4] = {1, 8, 3, 6};
    static const uint8_t top_to_bottom[4] = {4, 5, 2, 7};
    static const uint8_t left_to_right[4] = {2, 7, 4, 5};
    int angle = image->transformFlags & AVIF_TRANSFORM_IROT ? image->irot.angle & 3 : 0;
    if (!(image->transformFlags & AVIF_TRANSFORM_IMIR)) return turned[angle];
    return image->imir.mode ? left_to_right[angle] : top_to_bottom[angle];
}

// AV1 decodes to whole blocks.
static uint64_t aligned(uint64_t side) {
    return (side + 127) / 128 * 128;
}

static uint64_t frame_memory(const avifDecoder *decoder) {
    const avifImage *image = decoder->image;
    uint64_t pixels = aligned(image->width) * aligned(image->height);
    uint64_t halves = image->yuvFormat == AVIF_PIXEL_FORMAT_YUV444 ? 6
        : image->yuvFormat == AVIF_PIXEL_FORMAT_YUV422             ? 4
        : image->yuvFormat == AVIF_PIXEL_FORMAT_YUV400             ? 2
                                                                   : 3;
    if (decoder->alphaPresent) halves += 2;
    return pixels * halves / 2 * (image->depth > 8 ? 2 : 1);
}

static size_t bytes_needed(AVIFReader *reader) {
    int count = reader->decoder->imageCount;
    if (count > MAX_LOOKUPS) return MAX_UNPARSED;
    uint64_t needed = 0;
    for (int frame = 0; frame < count; frame++) {
        avifExtent extent;
        if (avifDecoderNthImageMaxExtent(reader->decoder, (uint32_t)frame, &extent)) return MAX_UNPARSED;
        uint64_t end = extent.offset + extent.size;
        if (extent.size && end > needed) needed = end;
    }
    return needed > SIZE_MAX ? SIZE_MAX : (size_t)needed;
}

static void read_header(AVIFReader *reader) {
    const avifDecoder *decoder = reader->decoder;
    CodecPicture *picture = &reader->picture;
    picture->width = decoder->image->width;
    picture->height = decoder->image->height;
    picture->hasAlpha = decoder->alphaPresent;
    picture->containerOrientation = orientation_of(decoder->image);
    reader->frames = decoder->imageCount;
    reader->needed = bytes_needed(reader);
    uint64_t pictures = reader->frames > 1 ? PICTURES_OF_ANIMATION : PICTURES_OF_STILL;
    uint64_t sum = BASE_MEMORY + pictures * frame_memory(decoder) + reader->needed;
    picture->decodingMemory = sum < reader->needed || sum > SIZE_MAX ? SIZE_MAX : (size_t)sum;
    reader->stage = GATHER;
}

// True: the boxes were read, or there is a failure.
static bool parse(AVIFReader *reader) {
    if (!reader->ended && reader->count < reader->retry_at) return false;
    if (!open_decoder(reader)) return true;
    avifResult result = avifDecoderParse(reader->decoder);
    if (result == AVIF_RESULT_WAITING_ON_IO) {
        uint64_t worth_while = (uint64_t)reader->count + reader->count / 8;
        if (reader->count > MIN_DRIP && reader->retry_at < worth_while)
            reader->retry_at = worth_while;
        return false;
    }
    if (result == AVIF_RESULT_OK) read_header(reader);
    else fail_as(reader, result);
    return true;
}

// Adds what is needed of these bytes.
static void gather(AVIFReader *reader, const uint8_t *bytes, size_t count) {
    size_t most = reader->stage == PARSE ? MAX_UNPARSED : reader->needed;
    if (most > reader->max_memory) most = reader->max_memory;
    size_t room = most > reader->count ? most - reader->count : 0;
    if (count > room && reader->stage == PARSE) {
        fail(reader, CodecFaultTooMuchMemory, "too much before the picture's boxes");
        return;
    }
    if (count > room) count = room;
    if (count > reader->capacity - reader->count) {
        size_t capacity = reader->count + count + reader->capacity / 2;
        uint8_t *grown = realloc(reader->bytes, capacity);
        if (!grown) {
            fail(reader, CodecFaultTooMuchMemory, "out of memory");
            return;
        }
        reader->bytes = grown;
        reader->capacity = capacity;
    }
    if (count) memcpy(reader->bytes + reader->count, bytes, count);
    reader->count += count;
}

// Every byte is there: begins to decode them, with what the header told as the limit.
static void start(AVIFReader *reader) {
    uint64_t pixels = (uint64_t)reader->picture.width * reader->picture.height;
    uint64_t frames = (uint64_t)reader->frames;
    if (frames > reader->max_frames || pixels > reader->max_pixels / frames) {
        fail(reader, CodecFaultTooManyFrames, "too many frames");
        return;
    }
    if (!open_decoder(reader)) return;
    avif_decoder_limit(reader->decoder, reader->picture.width, reader->picture.height);
    avifResult result = avifDecoderParse(reader->decoder);
    if (result == AVIF_RESULT_OK) reader->stage = DECODE;
    else fail_as(reader, result);
}

// The frame's planes are in `image` until the next one is decoded.
static void take_frame(AVIFReader *reader, const avifImage *image) {
    bool is_same = image->width == reader->picture.width && image->height == reader->picture.height;
    if (!is_same) {
        fail(reader, CodecFaultBroken, "a frame of another size than the image");
        return;
    }
    if (!reader->picture.frames && !avif_thumb_make(&reader->thumb, image)) {
        fail(reader, CodecFaultTooMuchMemory, "out of memory");
        return;
    }
    reader->picture.frames++;
    if (reader->picture.frames == (uint64_t)reader->frames) reader->stage = FINISHED;
}

static void decode(AVIFReader *reader) {
    avifResult result = avifDecoderNextImage(reader->decoder);
    if (result == AVIF_RESULT_OK) take_frame(reader, reader->decoder->image);
    else fail_as(reader, result);
}

static bool has_all(const AVIFReader *reader) {
    bool is_known = reader->needed < MAX_UNPARSED;
    return is_known ? reader->count >= reader->needed : reader->ended;
}

static CodecStatus run(AVIFReader *reader) {
    if (reader->stage == PARSE) {
        if (parse(reader)) return reader->stage == FAILED ? CodecStatusFailed : CodecStatusHeader;
        if (reader->ended) fail(reader, CodecFaultCutShort, "the bytes end before the image");
        return reader->ended ? CodecStatusFailed : CodecStatusNeedsBytes;
    }
    if (reader->stage == GATHER) {
        if (has_all(reader)) start(reader);
        else if (reader->ended) fail(reader, CodecFaultCutShort, "the bytes end before the image");
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
    reader->ended = ended;
    if (reader->stage == PARSE || reader->stage == GATHER) gather(reader, bytes, count);
    CodecStatus status = reader->stage == FAILED ? CodecStatusFailed : run(reader);
    return (CodecStep){status, reader->fault, count};
}
