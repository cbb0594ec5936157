// Decodes WebP with libwebp's incremental decoder.
//
// Container chunks that no pixel depends on are skipped. EXIF is kept if it is small enough. Each frame's
// chunks go to a decoder of their own. Frames are not composed, because copying and blending decoded pixels
// cannot fail.
//
// Each frame is decoded to at most THUMBNAIL pixels a side: the decoder averages rows on the way. So an image
// needs no buffer of its size, except what the library itself keeps.
#include "CCodecs.h"
#include "frame_budget.h"
#include "slice.h"
#include "webp_container.h"
#include "webp_thumb.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EXIF 65535
#define THUMBNAIL 128u
// How many bytes are passed to the frame between checks of the clock.
#define PIECE ((size_t)64 * 1024)

typedef enum { CHUNK, HEADER, SKIP, EXIF, IMAGE, FINISHED, FAILED } Stage;

struct WebPReader {
    Stage stage;
    CodecFault fault;
    CodecImageInfo picture;
    WebPContainer container;
    bool has_header;
    FrameBudget budget;
    WebPFrame frame;
    Thumb thumb;               // of the first frame
    uint8_t *exif;
    size_t exif_count;
    bool exif_done;
    char message[80];
};

// Records a failure in `stage`. Callers must return at once.
static void fail(WebPReader *reader, CodecFault fault, const char *message) {
    if (reader->stage == FAILED) return;
    reader->stage = FAILED;
    reader->fault = fault;
    snprintf(reader->message, sizeof reader->message, "%s", message);
    webp_frame_reset(&reader->frame);
}

WebPReader *webp_reader_create(size_t max_memory) {
    (void)max_memory; // the library allocates as the header says, and the header is checked first
    WebPReader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->budget = frame_budget_unbounded();
    return reader;
}

void webp_reader_destroy(WebPReader *reader) {
    if (!reader) return;
    webp_frame_reset(&reader->frame);
    free(reader->exif);
    free(reader);
}

void webp_reader_allow_frames(WebPReader *reader, CodecFrameLimits limits) {
    reader->budget.limits = limits;
}

CodecImageInfo webp_reader_picture(const WebPReader *reader) {
    CodecImageInfo picture = reader->picture;
    picture.frames = reader->budget.frames;
    picture.maxFrames = reader->budget.told;
    if (reader->stage == FINISHED) thumb_report(&reader->thumb, &picture);
    picture.exif = reader->exif_done ? reader->exif : NULL;
    picture.exifCount = reader->exif_done ? reader->exif_count : 0;
    return picture;
}

const char *webp_reader_message(const WebPReader *reader) {
    return reader->message;
}

static void begin_image(WebPReader *reader) {
    const WebPContainer *container = &reader->container;
    uint32_t width = container->place.width, height = container->place.height;
    if (!frame_budget_count(&reader->budget, (uint64_t)width * height, container->offset)) {
        fail(reader, CodecFaultTooManyFrames, "too many frames");
        return;
    }
    bool is_lossless = container->tag == WEBP_VP8L;
    // Discards a previous ALPH chunk.
    if (!container->has_alpha_chunk) webp_frame_reset(&reader->frame);
    reader->picture.hasAlpha = container->has_alpha;
    size_t total = reader->frame.count + (size_t)(container->chunk_end - container->offset);
    bool is_small = width <= THUMBNAIL && height <= THUMBNAIL;
    uint32_t longer = width > height ? width : height;
    uint32_t across = (uint32_t)((uint64_t)width * THUMBNAIL / longer);
    uint32_t down = (uint32_t)((uint64_t)height * THUMBNAIL / longer);
    reader->stage = IMAGE;
    if (!webp_frame_start(
            &reader->frame, total, height, is_lossless, MODE_RGBA,
            is_small ? 0 : across | !across, is_small ? 0 : down | !down))
        fail(reader, CodecFaultTooMuchMemory, "out of memory");
}

// Reports the header before the first chunk of pixels, because the memory depends on the type of that chunk.
static void report_header(WebPReader *reader, WebPChunk chunk) {
    const WebPContainer *container = &reader->container;
    CodecImageInfo *picture = &reader->picture;
    picture->width = container->width;
    picture->height = container->height;
    // In an animation, any frame may be of the more expensive type and nearly as large as the file.
    bool any = chunk == WebPAnimationFrame;
    picture->decodingMemory = webp_frame_memory(
        picture->width, picture->height, any || container->tag == WEBP_VP8L,
        any || chunk == WebPAlpha, container->riff_end);
    reader->has_header = true;
    reader->stage = HEADER;
}

static void begin_exif(WebPReader *reader) {
    WebPContainer *container = &reader->container;
    uint64_t size = container->content_end - container->offset - WEBP_CHUNK_HEAD;
    bool wanted = !reader->exif && size && size <= MAX_EXIF;
    reader->stage = wanted ? EXIF : SKIP;
    if (!wanted) return;
    reader->exif = malloc((size_t)size);
    if (!reader->exif) fail(reader, CodecFaultTooMuchMemory, "out of memory");
    container->offset += WEBP_CHUNK_HEAD;
}

static void begin_pixels(WebPReader *reader, WebPChunk chunk, const uint8_t *bytes) {
    if (!reader->has_header) {
        report_header(reader, chunk);
    } else if (!webp_container_enter(&reader->container, chunk, bytes)) {
        fail(reader, CodecFaultBroken, reader->container.wrong);
    } else if (chunk == WebPImage) {
        begin_image(reader);
    } else {
        // Discards an earlier frame's ALPH chunk.
        webp_frame_reset(&reader->frame);
        if (chunk == WebPAlpha) reader->stage = IMAGE;
    }
}

// Reads a chunk's head. Returns false if it needs bytes.
static bool read_chunk(WebPReader *reader, const uint8_t *bytes, size_t count) {
    WebPChunk chunk = webp_container_inspect(&reader->container, bytes, count);
    switch (chunk) {
    case WebPNeedsBytes:
        return false;
    case WebPWrong:
        fail(reader, CodecFaultBroken, reader->container.wrong);
        return true;
    case WebPEXIF:
        begin_exif(reader);
        return true;
    case WebPAnimationFrame:
    case WebPAlpha:
    case WebPImage:
        begin_pixels(reader, chunk, bytes);
        return true;
    case WebPFileEnd:
        reader->stage = FINISHED;
        return true;
    default:
        reader->stage = SKIP;
        return true;
    }
}

// Called when the frame is complete. Its scaled RGBA rows are in `config.output` until this function returns.
static void end_image(WebPReader *reader) {
    const WebPContainer *container = &reader->container;
    if (reader->budget.frames == 1)
        webp_thumb_make(
            &reader->thumb, container->width, container->height, container->place,
            &reader->frame.config.output);
    webp_frame_reset(&reader->frame);
    reader->stage = SKIP;
}

static void append_image(WebPReader *reader, const uint8_t *bytes, size_t count) {
    WebPFrame *frame = &reader->frame;
    if (count && !webp_frame_append(frame, bytes, count))
        fail(reader, CodecFaultTooMuchMemory, "out of memory");
    // The bytes of an ALPH chunk are only collected.
    const WebPContainer *container = &reader->container;
    if (!frame->decoder && container->offset == container->chunk_end && reader->stage == IMAGE)
        reader->stage = CHUNK;
}

// Decodes a piece of the collected bytes. Returns false if it needs bytes.
static bool decode(WebPReader *reader) {
    if (reader->stage != IMAGE || !reader->frame.decoder) return false;
    const char *message;
    CodecFault fault;
    switch (webp_frame_advance(&reader->frame)) {
    case WebPFrameNeedsBytes:
        return false;
    case WebPFrameHasMore:
        return true;
    case WebPFrameDone:
        end_image(reader);
        return true;
    default:
        fault = webp_frame_fault(&reader->frame, &message);
        fail(reader, fault, message);
        return true;
    }
}

// Consumes some of the chunk's bytes. Returns how many.
static size_t consume_content(WebPReader *reader, const uint8_t *bytes, size_t count) {
    WebPContainer *container = &reader->container;
    uint64_t left = container->chunk_end - container->offset;
    size_t taken = count < left ? count : (size_t)left;
    if (reader->stage == IMAGE && taken > PIECE) taken = PIECE;
    uint64_t start = container->offset;
    container->offset += taken;
    if (reader->stage == IMAGE) {
        append_image(reader, bytes, taken);
        return taken;
    }
    if (reader->stage == EXIF) {
        uint64_t content = container->content_end > start ? container->content_end - start : 0;
        size_t kept = taken < content ? taken : (size_t)content;
        memcpy(reader->exif + reader->exif_count, bytes, kept);
        reader->exif_count += kept;
        reader->exif_done = container->offset == container->chunk_end;
    }
    if (container->offset == container->chunk_end) reader->stage = CHUNK;
    return taken;
}

// Performs one action. Returns false if it needs bytes.
static bool advance(WebPReader *reader, const uint8_t *bytes, size_t count, size_t *consumed) {
    const WebPContainer *container = &reader->container;
    uint64_t start = container->offset;
    bool moved = true;
    if (reader->stage == CHUNK) {
        moved = read_chunk(reader, bytes, count);
    } else if (!decode(reader)) {
        bool is_over = container->offset == container->chunk_end;
        if (!count && !is_over) return false;
        consume_content(reader, bytes, count);
    }
    *consumed += (size_t)(container->offset - start);
    return moved;
}

static CodecStatus run(WebPReader *reader, const uint8_t *bytes, size_t count, size_t *consumed) {
    Slice slice = slice_start();
    do {
        bool moved = advance(reader, bytes + *consumed, count - *consumed, consumed);
        switch (reader->stage) {
        case HEADER:
            reader->stage = CHUNK;
            return CodecStatusHeader;
        case FINISHED:
            return CodecStatusFinished;
        case FAILED:
            return CodecStatusFailed;
        default:
            if (!moved) return CodecStatusNeedsBytes;
        }
    } while (!slice_is_over(slice));
    return CodecStatusHasMore;
}

CodecStep webp_reader_step(WebPReader *reader, const uint8_t *bytes, size_t count, bool ended) {
    if (reader->stage == FINISHED) return (CodecStep){CodecStatusFinished, CodecFaultNone, count};
    if (reader->stage == FAILED) return (CodecStep){CodecStatusFailed, reader->fault, count};
    static const uint8_t none = 0;
    size_t consumed = 0;
    CodecStatus status = run(reader, bytes ? bytes : &none, count, &consumed);
    if (status == CodecStatusNeedsBytes && ended) {
        fail(reader, CodecFaultCutShort, "the bytes end before the image");
        status = CodecStatusFailed;
    }
    bool is_over = status == CodecStatusFinished || status == CodecStatusFailed;
    return (CodecStep){status, reader->fault, is_over ? count : consumed};
}
