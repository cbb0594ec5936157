// TIFF over libtiff. Bytes are gathered, as a picture may lie anywhere in the file, and looked at here; what is not refused by
// its directory libtiff decodes, a strip or a row of tiles after the other. The first picture counts.
#include "CCodecs.h"
#include "gathered.h"
#include "avif_decoder.h"
#include "slice.h"
#include "thumb.h"
#include "tiff_bands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The library's own state, whatever the picture.
#define BASE_MEMORY ((uint64_t)2 * 1024 * 1024)

typedef enum { LOOK, GATHER, DECODE, FINISHED, FAILED } Stage;

struct TIFFReader {
    Stage stage;
    CodecFault fault;
    CodecPicture picture;
    TIFFFile file;
    uint8_t *bytes;
    size_t count, capacity, max_memory;
    size_t retry_at; // so that bytes that drip in don't have it looked for each time
    TIFFBands *bands;
    uint8_t *row;    // RGBA
    uint32_t next_row;
    Thumb thumb;
    char message[120];
};

// A failure is told by the stage; callers return at once.
static void fail(TIFFReader *reader, CodecFault fault, const char *message) {
    if (reader->stage == FAILED) return;
    reader->stage = FAILED;
    reader->fault = fault;
    snprintf(reader->message, sizeof reader->message, "%s", message);
}

TIFFReader *tiff_reader_create(size_t max_memory) {
    TIFFReader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->max_memory = max_memory;
    return reader;
}

static void release(TIFFReader *reader) {
    tiff_bands_close(reader->bands);
    reader->bands = NULL;
    free(reader->row);
    reader->row = NULL;
    free(reader->bytes);
    reader->bytes = NULL;
    reader->count = reader->capacity = 0;
}

void tiff_reader_destroy(TIFFReader *reader) {
    if (!reader) return;
    release(reader);
    free(reader);
}

CodecPicture tiff_reader_picture(const TIFFReader *reader) {
    CodecPicture picture = reader->picture;
    if (reader->stage == FINISHED) thumb_tell(&reader->thumb, &picture);
    return picture;
}

const char *tiff_reader_message(const TIFFReader *reader) {
    return reader->message;
}

// Adds what is needed of these bytes.
static void gather(TIFFReader *reader, const uint8_t *bytes, size_t count) {
    uint64_t most = reader->stage == LOOK ? AVIF_MAX_UNPARSED : reader->file.end;
    if (most > reader->max_memory) most = reader->max_memory;
    size_t room = most > reader->count ? (size_t)most - reader->count : 0;
    if (count > room && reader->stage == LOOK) {
        fail(reader, CodecFaultTooMuchMemory, "too much before the picture's directory");
        return;
    }
    if (count > room) count = room;
    if (!gathered_append(&reader->bytes, &reader->count, &reader->capacity, bytes, count))
        fail(reader, CodecFaultTooMuchMemory, "out of memory");
}

// True: the header was read, or there is a failure.
static bool look(TIFFReader *reader, bool ended) {
    if (!ended && reader->count < reader->retry_at) return false;
    CodecFault fault = tiff_look(&reader->file, reader->bytes, reader->count);
    if (fault == CodecFaultCutShort && !ended) {
        reader->retry_at = reader->count + reader->count / 8 + 1;
        return false;
    }
    if (fault) {
        fail(reader, fault,
            fault == CodecFaultCutShort          ? "the bytes end before the directory"
                : fault == CodecFaultUnsupported ? "of a kind that is not decoded"
                                                 : "a directory that tells of no picture");
        return true;
    }
    CodecPicture *picture = &reader->picture;
    const TIFFFile *file = &reader->file;
    picture->width = file->width;
    picture->height = file->height;
    picture->containerOrientation = (uint8_t)file->orientation;
    picture->fileBytes = file->end > SIZE_MAX ? SIZE_MAX : (size_t)file->end;
    // Its tags' values are copied.
    uint64_t held = BASE_MEMORY + file->memory + 4 * (uint64_t)file->width;
    bool is_small = file->end <= (SIZE_MAX - held) / 2;
    picture->decodingMemory = is_small ? (size_t)(held + 2 * file->end) : SIZE_MAX;
    reader->stage = GATHER;
    return true;
}

static void start(TIFFReader *reader) {
    if (!tiff_has_few_scans(&reader->file, reader->bytes)) {
        fail(reader, CodecFaultUnsupported, "a JPEG of many scans");
        return;
    }
    CodecFault fault;
    char message[sizeof reader->message] = "";
    reader->bands = tiff_bands_open(&reader->file, reader->bytes, reader->count, &fault, message, sizeof message);
    if (!reader->bands) {
        fail(reader, fault, message);
        return;
    }
    reader->row = malloc((size_t)4 * reader->file.width);
    if (!reader->row) {
        fail(reader, CodecFaultTooMuchMemory, "out of memory");
        return;
    }
    reader->picture.hasAlpha = tiff_bands_channels(reader->bands) == 4;
    thumb_start(&reader->thumb, reader->file.width, reader->file.height);
    reader->stage = DECODE;
}

static void decode(TIFFReader *reader) {
    if (!tiff_bands_next(reader->bands)) {
        fail(reader, CodecFaultBroken, tiff_bands_message(reader->bands));
        return;
    }
    for (; tiff_bands_have(reader->bands, reader->next_row); reader->next_row++) {
        ThumbSpan span = thumb_span(&reader->thumb, 0, reader->next_row);
        if (span.first == span.end) continue;
        tiff_bands_row(reader->bands, reader->next_row, 4, reader->row);
        thumb_add_rgba_row(&reader->thumb, reader->next_row, reader->row);
    }
    if (reader->next_row < reader->file.height) return;
    thumb_finish_pixels(&reader->thumb);
    reader->stage = FINISHED;
}

static CodecStatus run(TIFFReader *reader, bool ended) {
    if (reader->stage == LOOK) {
        if (!look(reader, ended)) return CodecStatusNeedsBytes;
        return reader->stage == FAILED ? CodecStatusFailed : CodecStatusHeader;
    }
    if (reader->stage == GATHER) {
        if (reader->count >= reader->file.end) start(reader);
        else if (ended) fail(reader, CodecFaultCutShort, "the bytes end before the image");
        else return CodecStatusNeedsBytes;
    }
    Slice slice = slice_start();
    while (reader->stage == DECODE && !slice_is_over(slice)) decode(reader);
    return reader->stage == FINISHED ? CodecStatusFinished
        : reader->stage == FAILED    ? CodecStatusFailed
                                     : CodecStatusHasMore;
}

CodecStep tiff_reader_step(TIFFReader *reader, const uint8_t *bytes, size_t count, bool ended) {
    if (reader->stage == FINISHED) return (CodecStep){CodecStatusFinished, CodecFaultNone, count};
    if (reader->stage == FAILED) return (CodecStep){CodecStatusFailed, reader->fault, count};
    gather(reader, bytes, count);
    CodecStatus status = reader->stage == FAILED ? CodecStatusFailed : run(reader, ended);
    // What it holds is not needed once there is nothing more to decode.
    if (status == CodecStatusFinished || status == CodecStatusFailed) release(reader);
    return (CodecStep){status, reader->fault, count};
}
