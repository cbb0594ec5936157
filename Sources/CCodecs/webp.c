// WebP over libwebp's incremental decoder.
//
// The container (RFC 9649, 2) is read here: chunks that no pixel depends on are passed over, EXIF is kept
// when it is small enough, and each frame's own chunks go to a decoder of its own. Frames are not
// composed: that is copying and blending of pixels already decoded and cannot fail.
//
// Each frame comes out at THUMBNAIL pixels a side at the most: the decoder averages rows as it makes them,
// so that a picture needs no buffer of its size beyond what the library itself keeps.
#include "CCodecs.h"
#include "slice.h"
#include "webp_frame.h"
#include "webp_thumb.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RIFF_HEAD 12
#define CHUNK_HEAD 8
#define TAG_RIFF WEBP_TAG('R', 'I', 'F', 'F')
#define TAG_WEBP WEBP_TAG('W', 'E', 'B', 'P')
#define TAG_VP8X WEBP_TAG('V', 'P', '8', 'X')
#define TAG_ANMF WEBP_TAG('A', 'N', 'M', 'F')
#define TAG_EXIF WEBP_TAG('E', 'X', 'I', 'F')
#define VP8X_SIZE 10
#define ANMF_SIZE 16
#define FLAG_ANIMATION 0x02
#define MAX_EXIF 65535
#define THUMBNAIL 128u
// Bytes moved to the frame between looks at the clock.
#define PIECE ((size_t)64 * 1024)

typedef enum { RIFF, CHUNK, HEADER, SKIP, EXIF, IMAGE, FINISHED, FAILED } Stage;

struct WebPReader {
    Stage stage;
    CodecFault fault;
    CodecPicture picture;
    uint64_t offset;           // in the file, of the next byte to come
    uint64_t riff_end;
    uint64_t frame_end;        // of an ANMF chunk; 0: outside of one
    uint64_t content_end;      // of the chunk being read
    uint64_t chunk_end;        // with its padding
    bool has_canvas, is_animated;
    bool has_header, has_image, has_alpha_chunk;
    WebPPlace place;           // of the frame
    uint64_t max_frames, pixels_left;
    WebPFrame frame;
    Thumb thumb;               // of the first one
    uint8_t *exif;
    size_t exif_count;
    bool exif_done;
    char message[80];
};

// A failure is told by the stage; callers return at once.
static void fail(WebPReader *reader, CodecFault fault, const char *message) {
    if (reader->stage == FAILED) return;
    reader->stage = FAILED;
    reader->fault = fault;
    snprintf(reader->message, sizeof reader->message, "%s", message);
    webp_frame_reset(&reader->frame);
}

WebPReader *webp_reader_create(size_t max_memory) {
    (void)max_memory; // The library allocates as the header says, and that is judged first.
    WebPReader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->max_frames = UINT64_MAX;
    reader->pixels_left = UINT64_MAX;
    return reader;
}

void webp_reader_destroy(WebPReader *reader) {
    if (!reader) return;
    webp_frame_reset(&reader->frame);
    free(reader->exif);
    free(reader);
}

void webp_reader_allow_frames(WebPReader *reader, uint64_t max_frames, uint64_t max_pixels) {
    reader->max_frames = max_frames;
    reader->pixels_left = max_pixels;
}

CodecPicture webp_reader_picture(const WebPReader *reader) {
    CodecPicture picture = reader->picture;
    if (reader->stage == FINISHED) thumb_tell(&reader->thumb, &picture);
    picture.exif = reader->exif_done ? reader->exif : NULL;
    picture.exifCount = reader->exif_done ? reader->exif_count : 0;
    return picture;
}

const char *webp_reader_message(const WebPReader *reader) {
    return reader->message;
}

static void read_riff(WebPReader *reader, const uint8_t *bytes) {
    uint64_t size = webp_u32(bytes + 4);
    if (webp_u32(bytes) != TAG_RIFF || webp_u32(bytes + 8) != TAG_WEBP || size < 4 + CHUNK_HEAD) {
        fail(reader, CodecFaultBroken, "bad RIFF header");
        return;
    }
    reader->riff_end = size + 8;
    reader->offset = RIFF_HEAD;
    reader->stage = CHUNK;
}

static void read_canvas(WebPReader *reader, const uint8_t *content) {
    reader->has_canvas = true;
    reader->is_animated = content[0] & FLAG_ANIMATION;
    reader->picture.width = webp_u24(content + 4) + 1;
    reader->picture.height = webp_u24(content + 7) + 1;
    reader->place.width = reader->picture.width;
    reader->place.height = reader->picture.height;
    reader->stage = SKIP;
}

static void begin_frame(WebPReader *reader, const uint8_t *content) {
    WebPPlace place = {
        2 * webp_u24(content), 2 * webp_u24(content + 3), webp_u24(content + 6) + 1,
        webp_u24(content + 9) + 1};
    // No sum of two exceeds 26 bits.
    if (place.left + place.width > reader->picture.width
        || place.top + place.height > reader->picture.height) {
        fail(reader, CodecFaultBroken, "a frame outside of the canvas");
        return;
    }
    bool is_first = reader->picture.frames == 0;
    bool covers = place.width == reader->picture.width && place.height == reader->picture.height;
    reader->place = place;
    if (is_first && !covers) reader->picture.hasAlpha = true;
    reader->frame_end = reader->chunk_end;
    reader->offset += CHUNK_HEAD + ANMF_SIZE;
    reader->has_image = false;
    reader->has_alpha_chunk = false;
    webp_frame_reset(&reader->frame);
}

// Counts a frame and its pixels before anything is allocated for it.
static bool admit_frame(WebPReader *reader) {
    uint64_t pixels = (uint64_t)reader->place.width * reader->place.height;
    if (reader->picture.frames >= reader->max_frames || pixels > reader->pixels_left) {
        fail(reader, CodecFaultTooManyFrames, "too many frames");
        return false;
    }
    reader->picture.frames++;
    reader->pixels_left -= pixels;
    return true;
}

static void begin_image(WebPReader *reader, uint32_t tag, const uint8_t *content) {
    WebPBitstream bitstream;
    uint32_t width = reader->place.width, height = reader->place.height;
    if (!webp_bitstream_read(tag, content, &bitstream)) {
        fail(reader, CodecFaultBroken, "bad image header");
    } else if (bitstream.width != width || bitstream.height != height) {
        fail(reader, CodecFaultBroken, "an image of another size than its frame");
    } else if (admit_frame(reader)) {
        bool is_lossless = tag == WEBP_VP8L;
        // An ALPH chunk means nothing to a lossless picture.
        if (is_lossless) webp_frame_reset(&reader->frame);
        if (bitstream.has_alpha || (!is_lossless && reader->has_alpha_chunk))
            reader->picture.hasAlpha = true;
        size_t total = reader->frame.count + (size_t)(reader->chunk_end - reader->offset);
        bool is_small = width <= THUMBNAIL && height <= THUMBNAIL;
        uint32_t longer = width > height ? width : height;
        uint32_t across = (uint32_t)((uint64_t)width * THUMBNAIL / longer);
        uint32_t down = (uint32_t)((uint64_t)height * THUMBNAIL / longer);
        reader->stage = IMAGE;
        reader->has_image = true;
        if (!webp_frame_start(
                &reader->frame, total, height, is_lossless, MODE_RGBA,
                is_small ? 0 : across | !across, is_small ? 0 : down | !down))
            fail(reader, CodecFaultTooMuchMemory, "out of memory");
    }
}

// Told before the first chunk of pixels: what decoding holds depends on its kind.
static void tell_header(WebPReader *reader, uint32_t tag, const uint8_t *content) {
    CodecPicture *picture = &reader->picture;
    if (!reader->has_canvas) {
        WebPBitstream bitstream;
        if (!webp_bitstream_read(tag, content, &bitstream)) {
            fail(reader, CodecFaultBroken, "bad image header");
            return;
        }
        picture->width = reader->place.width = bitstream.width;
        picture->height = reader->place.height = bitstream.height;
    }
    // Of an animation, any frame may be of the costlier kind and nearly as large as the file.
    bool any = tag == TAG_ANMF;
    picture->decodingMemory = webp_frame_memory(
        picture->width, picture->height, any || tag == WEBP_VP8L, any || tag == WEBP_ALPH,
        reader->riff_end);
    reader->has_header = true;
    reader->stage = HEADER;
}

static void begin_exif(WebPReader *reader) {
    uint64_t size = reader->content_end - reader->offset - CHUNK_HEAD;
    bool wanted = !reader->exif && size && size <= MAX_EXIF;
    reader->stage = wanted ? EXIF : SKIP;
    if (!wanted) return;
    reader->exif = malloc((size_t)size);
    if (!reader->exif) fail(reader, CodecFaultTooMuchMemory, "out of memory");
    reader->offset += CHUNK_HEAD;
}

static bool is_image_tag(uint32_t tag) {
    return tag == WEBP_VP8 || tag == WEBP_VP8L || tag == WEBP_ALPH;
}

// Whether the chunk is one that this file's pixels depend on, where it stands.
static bool counts(const WebPReader *reader, uint32_t tag) {
    bool in_frame = reader->frame_end != 0;
    if (tag == TAG_ANMF) return reader->is_animated && !in_frame;
    if (tag == TAG_VP8X) return reader->offset == RIFF_HEAD;
    if (!is_image_tag(tag) || reader->is_animated != in_frame || reader->has_image) return false;
    return tag != WEBP_ALPH || (reader->has_canvas && !reader->has_alpha_chunk);
}

static size_t content_needed(const WebPReader *reader, uint32_t tag) {
    if (!counts(reader, tag)) return 0;
    if (tag == TAG_VP8X) return VP8X_SIZE;
    if (tag == TAG_ANMF) return ANMF_SIZE;
    return tag == WEBP_ALPH ? 1 : webp_bitstream_head(tag);
}

static void begin_chunk(WebPReader *reader, uint32_t tag, const uint8_t *content) {
    if (tag == TAG_EXIF && !reader->frame_end) {
        begin_exif(reader);
    } else if (!counts(reader, tag)) {
        reader->stage = SKIP;
    } else if (tag == TAG_VP8X) {
        read_canvas(reader, content);
    } else if (!reader->has_header) {
        tell_header(reader, tag, content);
    } else if (tag == TAG_ANMF) {
        begin_frame(reader, content);
    } else if (tag == WEBP_ALPH) {
        reader->has_alpha_chunk = true;
        reader->stage = IMAGE;
    } else {
        begin_image(reader, tag, content);
    }
}

// The end of a frame or of the file.
static void end_container(WebPReader *reader) {
    if (!reader->has_image) {
        fail(reader, CodecFaultBroken, reader->frame_end ? "a frame without an image" : "no image");
    } else if (reader->frame_end) {
        reader->frame_end = 0;
    } else {
        reader->stage = FINISHED;
    }
}

// Reads a chunk's head. False: it needs bytes.
static bool take_chunk(WebPReader *reader, const uint8_t *bytes, size_t count) {
    uint64_t end = reader->frame_end ? reader->frame_end : reader->riff_end;
    if (reader->offset >= end) {
        end_container(reader);
        return true;
    }
    reader->content_end = reader->chunk_end = end;
    // Fewer bytes than a chunk's head are padding.
    if (end - reader->offset < CHUNK_HEAD) {
        reader->stage = SKIP;
        return true;
    }
    if (count < CHUNK_HEAD) return false;
    uint32_t tag = webp_u32(bytes), size = webp_u32(bytes + 4);
    if (size > end - reader->offset - CHUNK_HEAD) {
        fail(reader, CodecFaultBroken, "a chunk longer than what it is in");
        return true;
    }
    reader->content_end = reader->offset + CHUNK_HEAD + size;
    // Some writers leave off the last chunk's padding.
    bool is_padded = size % 2 && reader->content_end < end;
    reader->chunk_end = reader->content_end + is_padded;
    size_t needed = content_needed(reader, tag);
    if (size < needed) {
        fail(reader, CodecFaultBroken, "too short a chunk");
        return true;
    }
    if (count < CHUNK_HEAD + needed) return false;
    begin_chunk(reader, tag, bytes + CHUNK_HEAD);
    return true;
}

// The frame's picture is whole: its RGBA rows are in `config.output` until this returns, scaled.
static void end_image(WebPReader *reader) {
    if (reader->picture.frames == 1)
        webp_thumb_make(
            &reader->thumb, reader->picture.width, reader->picture.height, reader->place,
            &reader->frame.config.output);
    webp_frame_reset(&reader->frame);
    reader->stage = SKIP;
}

static void take_image(WebPReader *reader, const uint8_t *bytes, size_t count) {
    WebPFrame *frame = &reader->frame;
    if (count && !webp_frame_append(frame, bytes, count))
        fail(reader, CodecFaultTooMuchMemory, "out of memory");
    // Of an ALPH chunk the bytes are only gathered.
    if (!frame->decoder && reader->offset == reader->chunk_end && reader->stage == IMAGE)
        reader->stage = CHUNK;
}

// Decodes a piece of what was gathered. False: it needs bytes.
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

// Takes some of the chunk's bytes. Returns how many.
static size_t take_content(WebPReader *reader, const uint8_t *bytes, size_t count) {
    uint64_t left = reader->chunk_end - reader->offset;
    size_t taken = count < left ? count : (size_t)left;
    if (reader->stage == IMAGE && taken > PIECE) taken = PIECE;
    uint64_t start = reader->offset;
    reader->offset += taken;
    if (reader->stage == IMAGE) {
        take_image(reader, bytes, taken);
        return taken;
    }
    if (reader->stage == EXIF) {
        uint64_t content = reader->content_end - start;
        size_t kept = taken < content ? taken : (size_t)content;
        memcpy(reader->exif + reader->exif_count, bytes, kept);
        reader->exif_count += kept;
        reader->exif_done = reader->offset == reader->chunk_end;
    }
    if (reader->offset == reader->chunk_end) reader->stage = CHUNK;
    return taken;
}

// Does one thing. False: it needs bytes.
static bool advance(WebPReader *reader, const uint8_t *bytes, size_t count, size_t *consumed) {
    uint64_t start = reader->offset;
    bool moved = true;
    if (reader->stage == RIFF) {
        if (count < RIFF_HEAD) return false;
        read_riff(reader, bytes);
    } else if (reader->stage == CHUNK) {
        moved = take_chunk(reader, bytes, count);
    } else if (!decode(reader)) {
        bool is_over = reader->offset == reader->chunk_end;
        if (!count && !is_over) return false;
        take_content(reader, bytes, count);
    }
    *consumed += (size_t)(reader->offset - start);
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
