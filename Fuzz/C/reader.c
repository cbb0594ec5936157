// Whether any bytes have a reader, or what reads pixels again, do what it may not. Compiled once for each format; the bytes are
// a file as it came, so that what is found is one, and how it comes in pieces follows from its length.
//
// Beside what the sanitizers see these are held to: a picture that comes in pieces is the same, or fails the same; whether
// somebody wants rows makes no difference; nothing is larger than its limits; pixels are as many as the header says.
#include "CCodecs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PIXELS (1u << 20)
#define MAX_SIDE 20000u
#define MAX_MEMORY ((size_t)128 * 1024 * 1024)
#define MAX_STEPS 1000000

#define JOINED(one, other) one##other
#define NAMED(one, other) JOINED(one, other)
#define OF(name) NAMED(FORMAT, name)

#ifdef IS_ICON
typedef BMPReader Reader;
#else
typedef READER Reader;
#endif

static void expect(bool is_so, const char *what) {
    if (is_so) return;
    fprintf(stderr, "not held: %s\n", what);
    abort();
}

static volatile uint8_t sink;

static void touch(const uint8_t *bytes, size_t count) {
    uint8_t sum = 0;
    for (size_t index = 0; index < count; index++) sum ^= bytes[index];
    sink = sum;
}

static Reader *create(void) {
#if defined(IS_ICON)
    return bmp_reader_create(true, MAX_MEMORY);
#elif defined(IS_BITMAP)
    return bmp_reader_create(false, MAX_MEMORY);
#elif defined(IS_AVIF)
    return avif_reader_create(MAX_MEMORY, 100);
#else
    return OF(_reader_create)(MAX_MEMORY);
#endif
}

#ifdef IS_ICON
#define READ(name) NAMED(bmp, name)
#else
#define READ(name) OF(name)
#endif

static void bound(Reader *reader) {
    (void)reader;
#if defined(HAS_FRAMES)
    READ(_reader_allow_frames)(reader, (CodecFrameLimits){100, MAX_PIXELS, 16 * (uint64_t)MAX_PIXELS});
#elif defined(IS_JPEG)
    jpeg_reader_allow_scans(reader, 20);
#endif
}

static void want_preview(Reader *reader) {
    (void)reader;
#if defined(IS_JPEG) || defined(IS_PNG)
    READ(_reader_want_preview)(reader, 1);
#elif defined(IS_HEIC)
    heic_reader_want_preview(reader);
#endif
}

static void take_preview(Reader *reader) {
    (void)reader;
#if defined(IS_JPEG) || defined(IS_PNG) || defined(IS_HEIC)
    CodecPreview preview = READ(_reader_preview)(reader);
    if (!preview.bytes) return;
    touch(preview.bytes, preview.count);
    READ(_reader_drop_preview)(reader);
#endif
}

static void take_rows(Reader *reader) {
    (void)reader;
#if defined(IS_JPEG) || defined(IS_PNG)
    CodecPixels pixels = READ(_reader_pixels)(reader);
    if (pixels.icc) touch(pixels.icc, pixels.icc_count);
    expect(pixels.planes > 0 && pixels.planes <= CODEC_MAX_PLANES, "planes");
    for (int plane = 0; plane < pixels.planes; plane++) {
        CodecRows rows = READ(_reader_rows)(reader, plane);
        for (int row = 0; row < rows.count; row++) touch(rows.rows[row], (size_t)rows.width * (size_t)pixels.channels);
    }
#endif
}

typedef struct {
    CodecStatus status; // NeedsBytes: over a limit of ours
    CodecFault fault;
    // libjpeg-turbo warns of such a one only where it has few bytes at once: with many it is a 0.
    bool is_odd_code;
    CodecPicture picture;
    uint8_t thumbnail[4 * 32 * 32];
} Verdict;

static Verdict read_all(const uint8_t *bytes, size_t count, size_t piece, bool wants) {
    Verdict verdict = {.status = CodecStatusNeedsBytes};
    Reader *reader = create();
    if (!reader) return verdict;
#if defined(IS_JPEG) || defined(IS_PNG)
    if (wants) READ(_reader_want_rows)(reader);
#endif
    // A block of its own, so that a byte beyond it is seen.
    size_t start = 0, end = 0;
    uint8_t *part = malloc(1);
    bool is_over = false;
    int headers = 0;
    for (int steps = 0; !is_over; steps++) {
        expect(steps < MAX_STEPS, "an end");
        CodecStep step = READ(_reader_step)(reader, part, end - start, end == count);
        expect(step.consumed <= end - start, "no more consumed than was given");
        CodecPicture picture = READ(_reader_picture)(reader);
        switch (step.status) {
        case CodecStatusNeedsBytes:
            expect(end < count, "nothing is wanted beyond the end");
            if (picture.scansToShow && wants) want_preview(reader);
            break;
        case CodecStatusHeader:
            expect(++headers == 1, "one header");
            expect(picture.width && picture.height, "sides");
            is_over = (uint64_t)picture.width * picture.height > MAX_PIXELS || picture.width > MAX_SIDE
                || picture.height > MAX_SIDE || picture.decodingMemory > MAX_MEMORY;
            bound(reader);
            break;
        case CodecStatusRows: take_rows(reader); break;
        case CodecStatusHasMore: break;
        case CodecStatusFinished:
            expect(headers == 1 && picture.thumbnail, "a header and a tiny picture before the end");
            expect(picture.thumbnailColumns * picture.thumbnailRows <= 32 * 32, "a tiny picture that is tiny");
            memcpy(verdict.thumbnail, picture.thumbnail, 4 * picture.thumbnailColumns * picture.thumbnailRows);
            verdict.status = step.status;
            is_over = true;
            break;
        case CodecStatusFailed:
            touch((const uint8_t *)READ(_reader_message)(reader), strlen(READ(_reader_message)(reader)));
            verdict.status = step.status;
            verdict.fault = step.fault;
            verdict.is_odd_code = strstr(READ(_reader_message)(reader), "bad Huffman code");
            is_over = true;
        }
        take_preview(reader);
        if (picture.exif) touch(picture.exif, picture.exifCount);
        verdict.picture = picture;
        start += step.consumed;
        if (step.status == CodecStatusNeedsBytes) end = piece < count - end ? end + piece : count;
        free(part);
        part = malloc(end - start ? end - start : 1);
        memcpy(part, bytes + start, end - start);
    }
    free(part);
    READ(_reader_destroy)(reader);
    return verdict;
}

#ifndef IS_JPEG
#ifndef IS_PNG
static void read_pixels(const uint8_t *bytes, size_t count, CheckedPicture checked) {
    CodecFault fault = CodecFaultNone;
    Pixels *pixels = OF(_pixels_open)(bytes, count, checked, count % 3 ? 0 : 8, count % 3 ? 0 : 8, &fault);
    expect(pixels || fault, "a fault where there are no pixels");
    if (!pixels) return;
    if (pixels->icc) touch(pixels->icc, pixels->icc_count);
    size_t stride = (size_t)pixels->width * (size_t)pixels->channels;
    uint8_t *rows = malloc(7 * stride);
    uint32_t sum = 0;
    for (int steps = 0;; steps++) {
        expect(steps < MAX_STEPS, "an end of rows");
        int got = pixels->rows(pixels, rows, stride, 7);
        if (got == PIXELS_NOT_YET) continue;
        if (got <= 0) {
            expect(got < 0 || sum == pixels->height, "all rows, or a failure");
            break;
        }
        touch(rows, (size_t)got * stride);
        sum += (uint32_t)got;
    }
    free(rows);
    pixels->close(pixels);
}
#endif
#endif

#ifdef IS_ANIMATED
static void read_frames(const uint8_t *bytes, size_t count, CheckedPicture checked) {
    CodecFault fault = CodecFaultNone;
    Frames *frames = OF(_frames_open)(bytes, count, checked, &fault);
    if (!frames) return;
    const uint8_t *rgba;
    uint32_t milliseconds;
    for (int number = 0; number < 1000; number++) {
        int got = frames->next(frames, &rgba, &milliseconds);
        if (got == PIXELS_NOT_YET) continue;
        if (got <= 0) break;
        touch(rgba, (size_t)4 * frames->width * frames->height);
    }
    frames->close(frames);
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    static const size_t pieces[] = {1, 13, 700, 5000};
    if (count < 4) return 0;
    size_t piece = count > 4000 ? pieces[2 + count % 2] : pieces[count % 4];
    Verdict whole = read_all(bytes, count, count, false), parts = read_all(bytes, count, piece, true);
    bool is_within = whole.status != CodecStatusNeedsBytes && parts.status != CodecStatusNeedsBytes;
    if (is_within && !whole.is_odd_code && !parts.is_odd_code) {
        expect(whole.status == parts.status, "the same end in pieces");
        if (whole.status == CodecStatusFinished) {
            expect(whole.picture.width == parts.picture.width && whole.picture.height == parts.picture.height, "sides");
            expect(whole.picture.frames == parts.picture.frames && whole.picture.hasAlpha == parts.picture.hasAlpha, "facts");
            expect(!memcmp(whole.thumbnail, parts.thumbnail, sizeof whole.thumbnail), "the same tiny picture");
        }
    }
    if (whole.status != CodecStatusFinished) return 0;
    CheckedPicture checked = {
        whole.picture.width, whole.picture.height, whole.picture.hasAlpha, whole.picture.isProgressive,
        whole.picture.frames ? whole.picture.frames : 1};
    (void)checked;
#if !defined(IS_JPEG) && !defined(IS_PNG)
    read_pixels(bytes, count, checked);
#endif
#ifdef IS_ANIMATED
    read_frames(bytes, count, checked);
#endif
    return 0;
}
