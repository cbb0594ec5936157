// Decodes JPEG with libjpeg-turbo and a suspending source.
//
// Components are decoded as they are stored (raw_data_out). Only a JPEG's markers and its entropy coding can be
// wrong, and every coefficient passes the entropy decoder. The inverse DCT, upsampling and color conversion
// cannot fail, because `check_header` refuses what the library could not convert. So if no rows are requested,
// the image is decoded at an eighth of its sides for the thumbnail, without upsampling or conversion.
//
// An image with a single scan is decoded as it arrives. One with several scans is read by jpeg_consume_input,
// one row of MCUs at a time, and output after its end was read. So no call into the library takes longer than
// one row of MCUs.
//
// A preview is an output pass between two scans or within one, on the coefficients received so far.
#include "jpeg_reader.h"
#include "slice.h"

#include <limits.h>
#include <stdlib.h>

// How many bytes the library may read at once, so that a long run of markers cannot exceed a step.
#define WINDOW ((size_t)64 * 1024)
// The most bytes that the library may leave unread. A marker segment has at most 2 + 65,535 bytes, and an MCU
// far fewer. If the library needs more, the file has an endless run of fill bytes.
#define MAX_BACKLOG ((size_t)70000)

JPEGReader *jpeg_reader_create(size_t max_memory) {
    JPEGReader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->max_scans = 1;
    reader->max_memory = max_memory;
    jpeg_reader_set_errors(reader);
    reader->cinfo.client_data = reader;
    if (setjmp(reader->escape)) {
        jpeg_reader_destroy(reader);
        return NULL;
    }
    jpeg_create_decompress(&reader->cinfo);
    reader->cinfo.mem->max_memory_to_use = (long)(max_memory > LONG_MAX ? LONG_MAX : max_memory);
    jpeg_reader_set_source(reader);
    return reader;
}

void jpeg_reader_destroy(JPEGReader *reader) {
    if (!reader) return;
    if (!setjmp(reader->escape)) jpeg_destroy_decompress(&reader->cinfo);
    jpeg_preview_destroy(reader->preview);
    jpeg_profile_free(&reader->profile);
    free(reader->exif);
    free(reader);
}

void jpeg_reader_scale(JPEGReader *reader, int eighths) {
    reader->eighths = eighths;
}

void jpeg_reader_allow_scans(JPEGReader *reader, int max_scans) {
    reader->max_scans = max_scans;
}

CodecImageInfo jpeg_reader_picture(const JPEGReader *reader) {
    CodecImageInfo picture = {
        .width = reader->cinfo.image_width,
        .height = reader->cinfo.image_height,
        .decodingMemory = reader->memory,
        .maxBacklog = reader->cinfo.arith_code ? MAX_ARITHMETIC_BACKLOG : 0,
        .isProgressive = reader->cinfo.progressive_mode,
        .hasAlpha = false,
        .exif = reader->exif,
        .exifCount = reader->exif_count,
        .scansToShow = jpeg_reader_scans_to_show(reader),
    };
    if (reader->has_thumb) thumb_report(&reader->thumb, &picture);
    return picture;
}

CodecPixels jpeg_reader_pixels(const JPEGReader *reader) {
    CodecPixels pixels = jpeg_planes_pixels(&reader->cinfo);
    pixels.eighths = reader->eighths;
    pixels.icc = reader->profile.bytes;
    pixels.icc_count = reader->profile.count;
    return pixels;
}

CodecRows jpeg_reader_rows(const JPEGReader *reader, int plane) {
    JPEGPlaneSides sides = jpeg_planes_sides(&reader->cinfo, plane, reader->eighths, reader->many_scans);
    CodecRows rows = {
        .width = sides.width, .height = sides.height, .across = sides.across, .down = sides.down,
        .rows = (const uint8_t *const *)reader->rows[plane]};
    uint32_t first = reader->mcu_row * (uint32_t)sides.lines;
    uint32_t left = rows.height > first ? rows.height - first : 0;
    if (reader->has_rows) rows.count = (uint32_t)sides.lines < left ? sides.lines : (int)left;
    return rows;
}

const char *jpeg_reader_message(const JPEGReader *reader) {
    return reader->message;
}

// Gives the library the bytes that it refused before and one more window. Returns how many bytes remain.
static size_t show(JPEGReader *reader, const uint8_t *end) {
    if (reader->made_end) return 0;
    struct jpeg_source_mgr *source = &reader->source;
    size_t left = (size_t)(end - source->next_input_byte);
    size_t skipped = reader->to_skip < left ? reader->to_skip : left;
    source->next_input_byte += skipped;
    reader->to_skip -= skipped;
    left -= skipped;
    bool all = jpeg_reader_needs_all(reader) || left <= reader->refused + WINDOW;
    source->bytes_in_buffer = all ? left : reader->refused + WINDOW;
    return left - source->bytes_in_buffer;
}

static CodecStatus out_of_bytes(JPEGReader *reader) {
    if (reader->ended) jpeg_reader_fail(reader, CodecFaultCutShort, "the bytes end before the image");
    // Avoids reading a long marker again for every few bytes that arrive.
    reader->retry_at = reader->refused < 4096 ? 0 : reader->refused + reader->refused / 16;
    return CodecStatusNeedsBytes;
}

static JPEGFrame frame_of(const struct jpeg_decompress_struct *cinfo) {
    return (JPEGFrame){cinfo->image_width, cinfo->image_height, cinfo->num_components, cinfo->data_precision,
        cinfo->progressive_mode, cinfo->arith_code};
}

// The library refuses a second frame header, but only after it has stored its values. If the bytes end within
// that header, a preview would use the wrong sides and read beyond the rows.
static void forget_other_frame(JPEGReader *reader) {
    if (reader->frame.width == 0) return;
    struct jpeg_decompress_struct *cinfo = &reader->cinfo;
    cinfo->image_width = reader->frame.width;
    cinfo->image_height = reader->frame.height;
    cinfo->num_components = reader->frame.components;
    cinfo->data_precision = reader->frame.precision;
    cinfo->progressive_mode = reader->frame.progressive;
    cinfo->arith_code = reader->frame.arithmetic;
}

static CodecStatus run(JPEGReader *reader, const uint8_t *end) {
    Slice slice = slice_start();
    // The image itself takes precedence over previews.
    if (reader->ended && reader->stage == PREVIEW) jpeg_reader_end_preview(reader, false);
    if (reader->preview_wanted && jpeg_reader_scans_to_show(reader)) jpeg_reader_start_preview(reader);
    do {
        Stage stage = reader->stage;
        if (reader->cinfo.arith_code && stage == START && !reader->ended)
            return CodecStatusNeedsBytes;
        size_t unseen = show(reader, end);
        if (jpeg_reader_advance(reader)) {
            reader->refused = 0;
        } else {
            forget_other_frame(reader);
            reader->refused = reader->source.bytes_in_buffer;
            if (reader->refused >= MAX_BACKLOG)
                jpeg_reader_fail(reader, CodecFaultBroken, "a marker without an end");
            if (!unseen) return out_of_bytes(reader);
        }
        if (stage == HEADER && reader->stage == START) {
            reader->frame = frame_of(&reader->cinfo);
            return CodecStatusHeader;
        }
        if (reader->stage == FINISHED) return CodecStatusFinished;
        if (reader->has_rows) return CodecStatusRows;
    } while (!slice_is_over(slice));
    return CodecStatusHasMore;
}

CodecStep jpeg_reader_step(JPEGReader *reader, const uint8_t *bytes, size_t count, bool ended) {
    if (reader->stage == FINISHED) return (CodecStep){CodecStatusFinished, CodecFaultNone, count};
    if (reader->stage == FAILED) return (CodecStep){CodecStatusFailed, reader->fault, count};
    if (setjmp(reader->escape)) {
        forget_other_frame(reader);
        reader->stage = FAILED;
        return (CodecStep){CodecStatusFailed, reader->fault, count};
    }
    bool previews = reader->preview_wanted || reader->stage == PREVIEW;
    if (!ended && !previews && count < reader->retry_at)
        return (CodecStep){CodecStatusNeedsBytes, CodecFaultNone, 0};
    static const uint8_t none = 0;
    reader->has_rows = false;
    if (!bytes) bytes = &none;
    reader->ended = ended;
    if (!reader->made_end) {
        reader->source.next_input_byte = bytes;
        reader->source.bytes_in_buffer = 0;
    }
    CodecStatus status = run(reader, bytes + count);
    bool taken = reader->made_end || status == CodecStatusFinished;
    size_t consumed = taken ? count : (size_t)(reader->source.next_input_byte - bytes);
    return (CodecStep){status, CodecFaultNone, consumed};
}

void jpeg_reader_request_preview(JPEGReader *reader, int orientation) {
    reader->orientation = orientation;
    reader->preview_wanted = jpeg_reader_scans_to_show(reader) > 0;
}

void jpeg_reader_discard_preview(JPEGReader *reader) {
    reader->preview_wanted = false;
    if (setjmp(reader->escape)) {
        reader->stage = FAILED;
        return;
    }
    if (reader->stage == PREVIEW) jpeg_reader_end_preview(reader, false);
    jpeg_preview_destroy(reader->preview);
    reader->preview = NULL;
}

CodecPreview jpeg_reader_preview(const JPEGReader *reader) {
    if (!reader->preview || reader->stage == PREVIEW) return (CodecPreview){0};
    const Encoded *encoded = jpeg_preview_encoded(reader->preview);
    return (CodecPreview){encoded->bytes, encoded->count, reader->shown_scans};
}
