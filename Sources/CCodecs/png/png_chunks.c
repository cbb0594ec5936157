// Sorts the chunks of a PNG: some are passed to libpng, some are kept, the others are skipped.
#include "png_profile.h"
#include "png_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// PLTE has 768 bytes, tRNS 256. libpng collects chunks other than IDAT before it reads them.
#define MAX_SMALL_CHUNK 1024
#define MAX_EXIF 65535

static void pass_on(PNGReader *reader, const uint8_t *bytes, size_t count) {
    // libpng's parameter lacks a const; it only reads.
    png_process_data(reader->png, reader->info, (png_bytep)(uintptr_t)bytes, count);
}

static bool is_type(const PNGReader *reader, const char *type) {
    return !memcmp(reader->head + 4, type, 4);
}

static bool is_letter(uint8_t byte) {
    return (byte | 32) >= 'a' && (byte | 32) <= 'z';
}

static void fail_at_chunk(PNGReader *reader, CodecFault fault, const char *what) {
    char message[64];
    snprintf(message, sizeof message, "%s %.4s", what, (const char *)reader->head + 4);
    png_reader_fail(reader, fault, message);
}

// Handles a critical chunk: libpng reads it, or the image is refused.
static Stage stage_of_critical(PNGReader *reader, uint32_t length) {
    bool data = is_type(reader, "IDAT");
    bool known = data || is_type(reader, "IHDR") || is_type(reader, "PLTE")
        || is_type(reader, "IEND");
    if (is_type(reader, "CgBI"))
        png_reader_fail(reader, CodecFaultUnsupported, "Apple's CgBI variant");
    if (!known) fail_at_chunk(reader, CodecFaultBroken, "unknown critical chunk");
    if (!data && length > MAX_SMALL_CHUNK)
        fail_at_chunk(reader, CodecFaultBroken, "too long a chunk");
    if (data && reader->after_data)
        png_reader_fail(reader, CodecFaultBroken, "IDAT chunks are not consecutive");
    return PASS;
}

static Stage stage_of_ancillary(PNGReader *reader, uint32_t length) {
    if (is_type(reader, "tRNS") && length <= MAX_SMALL_CHUNK) return PASS;
    if (png_frames_begins(&reader->frames, reader->head, length)) return FRAME;
    // Only the first chunk of each type counts.
    bool *saw = is_type(reader, "eXIf") ? &reader->saw_exif
        : is_type(reader, "iCCP") && reader->rows_out.is_wanted ? &reader->saw_profile : NULL;
    size_t most = is_type(reader, "eXIf") ? MAX_EXIF : MAX_PNG_PROFILE;
    if (!saw || *saw || !length || length > most) return SKIP;
    *saw = true;
    reader->kept = malloc(length);
    if (!reader->kept) png_reader_fail(reader, CodecFaultTooMuchMemory, "out of memory");
    reader->kept_count = 0;
    return KEEP;
}

// A broken animation is ignored, and the default image remains. Exceeded limits are still errors.
static void check_frames(PNGReader *reader, bool is_fine) {
    if (is_fine) return;
    if (reader->frames.fault != CodecFaultBroken)
        png_reader_fail(reader, reader->frames.fault, reader->frames.message);
    png_frames_discard(&reader->frames);
    if (reader->stage == FRAME) reader->stage = SKIP;
}

static void begin_chunk(PNGReader *reader) {
    const uint8_t *head = reader->head;
    uint32_t length = png_get_uint_32(head);
    for (int index = 4; index < 8; index++)
        if (!is_letter(head[index])) png_reader_fail(reader, CodecFaultBroken, "a chunk type without letters");
    if (length > PNG_UINT_31_MAX) fail_at_chunk(reader, CodecFaultBroken, "too long a chunk");
    bool ancillary = head[4] & 32;
    reader->stage = ancillary ? stage_of_ancillary(reader, length)
                              : stage_of_critical(reader, length);
    reader->left = (uint64_t)length + 4;
    bool data = is_type(reader, "IDAT");
    reader->after_data = reader->after_data || (reader->in_data && !data);
    reader->in_data = data;
    if (data) png_frames_begin_image(&reader->frames);
    if (reader->stage == PASS) pass_on(reader, head, sizeof reader->head);
}

// Collects the eight bytes at the start of a chunk or of the file.
size_t png_reader_collect_head(PNGReader *reader, const uint8_t *bytes, size_t count) {
    size_t wanted = sizeof reader->head - reader->head_count;
    size_t taken = count < wanted ? count : wanted;
    memcpy(reader->head + reader->head_count, bytes, taken);
    reader->head_count += taken;
    if (reader->head_count < sizeof reader->head) return taken;
    reader->head_count = 0;
    if (reader->stage == SIGNATURE) {
        pass_on(reader, reader->head, sizeof reader->head);
        reader->stage = HEAD;
    } else {
        begin_chunk(reader);
    }
    return taken;
}

static void end_kept(PNGReader *reader) {
    if (is_type(reader, "eXIf")) {
        reader->exif = reader->kept;
        reader->exif_count = reader->kept_count;
    } else {
        reader->profile = png_profile(reader->kept, reader->kept_count, &reader->profile_count);
        free(reader->kept);
    }
    reader->kept = NULL;
}

static void end_chunk(PNGReader *reader) {
    if (reader->stage == KEEP) end_kept(reader);
    reader->stage = HEAD;
    if (!reader->saw_end) return;
    if (reader->rows != reader->rows_wanted)
        png_reader_fail(reader, CodecFaultBroken, "not enough image data");
    check_frames(reader, png_frames_end(&reader->frames));
    thumb_finish_pixels(&reader->thumb);
    reader->stage = FINISHED;
}

// Processes a piece of the chunk's content or checksum.
size_t png_reader_process_content(PNGReader *reader, const uint8_t *bytes, size_t count) {
    size_t taken = count < reader->left ? count : (size_t)reader->left;
    if (reader->stage == PASS) {
        if (taken > reader->piece) taken = reader->piece;
        pass_on(reader, bytes, taken);
    } else if (reader->stage == FRAME) {
        if (taken > PNG_PIECE) taken = PNG_PIECE;
        check_frames(reader, png_frames_process(&reader->frames, bytes, taken, reader->offset));
    } else if (reader->stage == KEEP) {
        size_t content = reader->left > 4 ? (size_t)reader->left - 4 : 0;
        size_t kept = taken < content ? taken : content;
        memcpy(reader->kept + reader->kept_count, bytes, kept);
        reader->kept_count += kept;
    }
    reader->left -= taken;
    if (!reader->left) end_chunk(reader);
    return taken;
}

// Completes a file that ends before IEND. Only libpng knows whether the compressed data has ended, and it
// reports that at the next chunk. So it is given an IEND, or the missing part of one. This is not done within
// another chunk: a missing checksum of image data is an error.
void png_reader_end_early(PNGReader *reader) {
    static const uint8_t end[12] = {0, 0, 0, 0, 'I', 'E', 'N', 'D', 0xAE, 0x42, 0x60, 0x82};
    bool is_in_end = reader->stage == PASS && is_type(reader, "IEND") && reader->left <= 4;
    bool is_behind_data = reader->stage != PASS && (reader->in_data || reader->after_data);
    if (!is_in_end && !is_behind_data) {
        bool has_all_rows = reader->has_header && reader->rows == reader->rows_wanted;
        png_reader_fail(
            reader, has_all_rows ? CodecFaultBroken : CodecFaultCutShort,
            has_all_rows ? "the image data ends before its checksum" : "the bytes end before the image");
    }
    size_t given = is_in_end ? sizeof end - (size_t)reader->left : 0;
    reader->made_end = true;
    // An incomplete chunk is ignored.
    if (reader->stage == FRAME) png_frames_discard(&reader->frames);
    reader->stage = HEAD;
    pass_on(reader, end + given, sizeof end - given);
    end_chunk(reader);
    if (reader->stage != FINISHED) png_reader_fail(reader, CodecFaultBroken, "no IEND chunk");
}

// Whether IHDR and its checksum were just read.
bool png_reader_reaches_header(PNGReader *reader) {
    if (reader->has_header || reader->stage != HEAD || !is_type(reader, "IHDR")) return false;
    if (reader->left || reader->head_count) return false;
    png_reader_read_header(reader);
    return true;
}
