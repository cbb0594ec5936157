// Decodes JPEG XL with libjxl's streaming decoder on the caller's thread.
//
// The library consumes bytes as they arrive and decodes groups of 256 × 256 pixels as soon as their bytes are
// present. It composes frames on their canvas and reports only shown frames. A frame can consist of many layers
// of a few bytes each, and composing a layer costs as much as the whole canvas. So a second decoder, the scout,
// runs ahead without decoding pixels and counts the layers.
//
// A group cannot be interrupted, and no header says how much memory the library keeps. A hostile file can make
// it use more than computed. So it runs only in a decoder process, where the kernel limits time and memory (see
// docs/operating.md).
#include "CCodecs.h"
#include "frame_budget.h"
#include "jxl_decoder.h"
#include "slice.h"
#include "thumb.h"

#include <stdio.h>
#include <stdlib.h>

typedef enum { HEADER, DECODE, FINISHED, FAILED } Stage;

struct JXLReader {
    Stage stage;
    CodecFault fault;
    CodecImageInfo picture;
    JXLSource source, scout;
    size_t taken, scouted;   // bytes of the input, consumed by each decoder
    bool is_scouted;         // the scout waits for the header check, or has reached the last frame
    JxlBasicInfo info;
    uint64_t offset;         // how many bytes of the file were consumed
    FrameBudget budget;      // counts all layers
    uint64_t frames;         // shown frames
    Thumb thumb;             // of the first frame
    char message[80];
};

// Records a failure in `stage`. Callers must return at once.
static void fail(JXLReader *reader, CodecFault fault, const char *message) {
    if (reader->stage == FAILED) return;
    reader->stage = FAILED;
    reader->fault = fault;
    snprintf(reader->message, sizeof reader->message, "%s", message);
}

JXLReader *jxl_reader_create(size_t max_memory) {
    (void)max_memory; // the library allocates as the header says, and the header is checked first
    JXLReader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->budget = frame_budget_unbounded();
    if (jxl_open(&reader->source) && jxl_open_scout(&reader->scout)) return reader;
    jxl_reader_destroy(reader);
    return NULL;
}

void jxl_reader_destroy(JXLReader *reader) {
    if (!reader) return;
    jxl_close(&reader->source);
    jxl_close(&reader->scout);
    free(reader);
}

void jxl_reader_allow_frames(JXLReader *reader, CodecFrameLimits limits) {
    reader->budget.limits = limits;
}

CodecImageInfo jxl_reader_picture(const JXLReader *reader) {
    CodecImageInfo picture = reader->picture;
    picture.frames = reader->frames;
    picture.maxFrames = reader->budget.told;
    if (reader->stage != HEADER) picture.extraMemory = jxl_extra_memory(&reader->info, reader->frames);
    if (reader->stage == FINISHED) thumb_report(&reader->thumb, &picture);
    return picture;
}

const char *jxl_reader_message(const JXLReader *reader) {
    return reader->message;
}

static void read_header(JXLReader *reader) {
    JxlDecoder *decoder = reader->source.decoder;
    JxlBasicInfo *info = &reader->info;
    CodecImageInfo *picture = &reader->picture;
    if (JxlDecoderGetBasicInfo(decoder, info) != JXL_DEC_SUCCESS || !info->xsize || !info->ysize) {
        fail(reader, CodecFaultBroken, "no size");
        return;
    }
    if (!jxl_is_supported(decoder, info)) {
        fail(reader, CodecFaultUnsupported, "CMYK colors");
        return;
    }
    picture->width = info->xsize;
    picture->height = info->ysize;
    picture->hasAlpha = info->alpha_bits > 0;
    // The codestream's orientation; EXIF's does not count (ISO/IEC 18181-2).
    picture->containerOrientation = (uint8_t)info->orientation;
    uint64_t needed
        = jxl_memory(info->xsize, info->ysize, info->num_extra_channels, info->have_animation);
    picture->decodingMemory = needed > SIZE_MAX ? SIZE_MAX : (size_t)needed;
    reader->stage = DECODE;
}

// Counts the layers in these bytes before any of them is decoded.
static void count_layers(JXLReader *reader, const uint8_t *bytes, size_t count) {
    uint64_t pixels = (uint64_t)reader->picture.width * reader->picture.height;
    while (!reader->is_scouted && reader->stage != FAILED) {
        size_t at = reader->scouted;
        switch (jxl_advance(&reader->scout, bytes + at, count - at, &reader->scouted)) {
        case JXL_DEC_NEED_MORE_INPUT:
            if (reader->scout.is_dry) return;
            break;
        case JXL_DEC_BASIC_INFO:
            reader->is_scouted = true;
            break;
        case JXL_DEC_FRAME:
            if (!frame_budget_count(&reader->budget, pixels, reader->offset + reader->scouted))
                fail(reader, CodecFaultTooManyFrames, "too many frames");
            break;
        case JXL_DEC_SUCCESS:
            reader->is_scouted = true;
            jxl_close(&reader->scout);
            break;
        default:
            fail(reader, CodecFaultBroken, "no JPEG XL codestream");
        }
    }
}

// Receives a part of a row. Only the first frame is used.
static void receive_pixels(void *context, size_t x, size_t y, size_t count, const void *pixels) {
    JXLReader *reader = context;
    if (reader->frames != 1) return;
    Thumb *thumb = &reader->thumb;
    ThumbSpan rows = thumb_span(thumb, 0, (uint32_t)y);
    if (rows.first == rows.end) return;
    uint32_t channels = jxl_pixels_of(&reader->info).num_channels;
    const ThumbAxis *axis = &thumb->across[0];
    for (uint32_t across = 0; across < axis->count; across++) {
        if (axis->at[across] < x || axis->at[across] - x >= count) continue;
        const uint8_t *pixel = (const uint8_t *)pixels + (axis->at[across] - x) * channels;
        bool is_grey = channels < 3;
        const uint8_t rgba[4] = {
            pixel[0], pixel[is_grey ? 0 : 1], pixel[is_grey ? 0 : 2],
            channels % 2 ? 255 : pixel[channels - 1]};
        thumb_add_pixel(thumb, across, rows, rgba);
    }
}

static void begin_pixels(JXLReader *reader) {
    JxlPixelFormat format = jxl_pixels_of(&reader->info);
    if (reader->frames == 1) thumb_start(&reader->thumb, reader->picture.width, reader->picture.height);
    if (JxlDecoderSetImageOutCallback(reader->source.decoder, &format, receive_pixels, reader) != JXL_DEC_SUCCESS)
        fail(reader, CodecFaultBroken, "unsupported pixel format");
}

static void finish(JXLReader *reader) {
    if (reader->stage == DECODE && reader->frames) {
        thumb_finish_pixels(&reader->thumb);
        reader->stage = FINISHED;
    } else {
        fail(reader, CodecFaultBroken, "no image");
    }
}

static void handle_event(JXLReader *reader, JxlDecoderStatus event) {
    switch (event) {
    case JXL_DEC_BASIC_INFO:
        read_header(reader);
        break;
    case JXL_DEC_COLOR_ENCODING:
        jxl_request_srgb(reader->source.decoder, &reader->info);
        break;
    case JXL_DEC_FRAME:
        reader->frames++;
        break;
    case JXL_DEC_NEED_IMAGE_OUT_BUFFER:
        begin_pixels(reader);
        break;
    case JXL_DEC_FULL_IMAGE:
        break;
    case JXL_DEC_SUCCESS:
        finish(reader);
        break;
    default:
        fail(reader, CodecFaultBroken, "no JPEG XL codestream");
    }
}

static CodecStatus run(JXLReader *reader, const uint8_t *bytes, size_t count) {
    Slice slice = slice_start();
    count_layers(reader, bytes, count);
    if (reader->stage == FAILED) return CodecStatusFailed;
    do {
        size_t at = reader->taken;
        JxlDecoderStatus event = jxl_advance(&reader->source, bytes + at, count - at, &reader->taken);
        if (event == JXL_DEC_NEED_MORE_INPUT) {
            if (reader->source.is_dry) return CodecStatusNeedsBytes;
            continue;
        }
        bool is_header = reader->stage == HEADER;
        handle_event(reader, event);
        if (reader->stage == FAILED) return CodecStatusFailed;
        if (reader->stage == FINISHED) return CodecStatusFinished;
        if (is_header && reader->stage == DECODE) {
            reader->is_scouted = false;
            return CodecStatusHeader;
        }
    } while (!slice_is_over(slice));
    return CodecStatusHasMore;
}

// The bytes that neither decoder needs again.
static size_t consume(JXLReader *reader) {
    size_t consumed = reader->taken;
    if (reader->scout.decoder && reader->scouted < consumed) consumed = reader->scouted;
    reader->taken -= consumed;
    if (reader->scout.decoder) reader->scouted -= consumed;
    reader->offset += consumed;
    return consumed;
}

CodecStep jxl_reader_step(JXLReader *reader, const uint8_t *bytes, size_t count, bool ended) {
    if (reader->stage == FINISHED) return (CodecStep){CodecStatusFinished, CodecFaultNone, count};
    if (reader->stage == FAILED) return (CodecStep){CodecStatusFailed, reader->fault, count};
    static const uint8_t none = 0;
    CodecStatus status = run(reader, bytes ? bytes : &none, count);
    size_t consumed = consume(reader);
    if (status == CodecStatusNeedsBytes && ended) {
        fail(reader, CodecFaultCutShort, "the bytes end before the image");
        status = CodecStatusFailed;
    }
    bool is_over = status == CodecStatusFinished || status == CodecStatusFailed;
    // The memory is not needed once decoding has ended.
    if (is_over) {
        jxl_close(&reader->source);
        jxl_close(&reader->scout);
    }
    return (CodecStep){status, reader->fault, is_over ? count : consumed};
}
