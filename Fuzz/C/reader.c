// Fuzzes the readers of one format; compiled once for each format. The input is a file exactly as it would
// arrive, so every finding is a valid test file. The length and the last bytes of the input decide how it is
// cut into pieces and which options are used.
//
// In addition to the sanitizers, this checks that: the result does not depend on how bytes arrive, on whether
// rows or previews are requested, or on the length of slices; nothing exceeds its limit or the values in the
// header; the number of pixels and frames equals the reported number; and the pixels of a decoded image can be
// read again.
#include "CCodecs.h"
#include "target.h"

#define MAX_PIXELS (1u << 20)
#define MAX_SIDE 20000u
#define MAX_MEMORY ((size_t)128 * 1024 * 1024)
#define MAX_STEPS 1000000
// With this pace, every second check of the clock ends the slice.
#define SHORT_SLICES 12000000

#define JOINED(one, other) one##other
#define NAMED(one, other) JOINED(one, other)
#define OF(name) NAMED(FORMAT, name)

typedef READER Reader;

#if defined(IS_JPEG) || defined(IS_PNG)
#define HAS_ROWS
#endif

// How a file arrives, and which options are used.
typedef struct {
    size_t piece, max_memory;
    bool is_careless;  // continues although the header needs more memory than allowed
    bool ends_apart;   // the end is reported separately after the last byte
    bool wants_rows, wants_previews, wants_no_previews, wants_no_frames;
    int eighths;       // 0: not set
    uint64_t max_frames;
    uint64_t pace;     // of the clock
    uint64_t steps;    // the reader is abandoned after this many steps
    Chance chance;
} Manner;

typedef struct {
    CodecStatus status; // NeedsBytes: over one of our limits, or abandoned
    CodecFault fault;
    bool is_odd;        // see tells_oddly
    bool is_within;     // within the limits, according to the header
    CodecImageInfo header, picture;
    uint8_t thumbnail[4 * 32 * 32];
    // For each plane: the rows received, and the rows it has.
    uint32_t rows[CODEC_MAX_PLANES], heights[CODEC_MAX_PLANES];
} Verdict;

// Whether a fault depends on how bytes arrive. libjpeg-turbo reports a bad Huffman code only if it has few
// bytes; with many it reads a 0. It also counts extraneous bytes after a scan without the bytes that it has
// read ahead. libpng reports damage at the end of deflated data only if no excess data precedes it.
static bool tells_oddly(const char *message) {
    return strstr(message, "bad Huffman code") || strstr(message, "extraneous bytes")
        || strstr(message, "Truncated compressed data");
}

static Reader *create(size_t max_memory) {
#if defined(IS_AVIF)
    return avif_reader_create(max_memory, 100);
#else
    return OF(_reader_create)(max_memory);
#endif
}

static void prepare(Reader *reader, const Manner *manner) {
    (void)reader, (void)manner;
#ifdef HAS_ROWS
    if (manner->wants_rows) OF(_reader_request_rows)(reader);
#endif
#ifdef IS_PNG
    if (manner->wants_no_previews) png_reader_disable_previews(reader);
    if (manner->wants_no_frames) png_reader_skip_animation(reader);
#endif
}

// Sets the limits. Call it after the header.
static void bound(Reader *reader, const Manner *manner) {
    (void)reader, (void)manner;
#if defined(HAS_FRAMES)
    CodecFrameLimits limits = {manner->max_frames, MAX_PIXELS, 16 * (uint64_t)MAX_PIXELS};
    OF(_reader_allow_frames)(reader, limits);
#elif defined(IS_JPEG)
    jpeg_reader_allow_scans(reader, manner->max_frames < 20 ? (int)manner->max_frames : 20);
    if (manner->eighths) jpeg_reader_scale(reader, manner->eighths);
#endif
}

// Requests, fetches and drops previews at random times.
static void try_previews(Reader *reader, const CodecImageInfo *picture, Manner *manner) {
    (void)reader, (void)picture, (void)manner;
#if defined(IS_JPEG) || defined(IS_PNG) || defined(IS_HEIC)
    if (!manner->wants_previews) return;
    uint64_t what = chance_below(&manner->chance, 16);
    CodecPreview preview = OF(_reader_preview)(reader);
    if (preview.bytes) touch(preview.bytes, preview.count);
    expect(!preview.bytes || preview.count, "bytes of a preview");
    if ((preview.bytes && what < 12) || !what) OF(_reader_discard_preview)(reader);
    if (!picture->scansToShow && what != 15) return;
#ifdef IS_HEIC
    heic_reader_request_preview(reader);
#else
    OF(_reader_request_preview)(reader, (int)chance_below(&manner->chance, 10));
#endif
#endif
}

static void take_rows(Reader *reader, Verdict *verdict) {
    (void)reader, (void)verdict;
#ifdef HAS_ROWS
    CodecPixels pixels = OF(_reader_pixels)(reader);
    if (pixels.icc) touch(pixels.icc, pixels.icc_count);
    expect(pixels.planes > 0 && pixels.planes <= CODEC_MAX_PLANES, "planes");
    for (int plane = 0; plane < pixels.planes; plane++) {
        CodecRows rows = OF(_reader_rows)(reader, plane);
        for (int row = 0; row < rows.count; row++) touch(rows.rows[row], (size_t)rows.width * (size_t)pixels.channels);
        verdict->rows[plane] += (uint32_t)rows.count;
        verdict->heights[plane] = rows.height;
    }
#endif
}

// All rows must have arrived, or none if there was no memory for them.
static void check_rows(const Verdict *verdict, const Manner *manner) {
    (void)verdict, (void)manner;
#ifdef HAS_ROWS
    if (!manner->wants_rows) return;
    expect(verdict->heights[0] || manner->max_memory < MAX_MEMORY, "rows");
    for (int plane = 0; plane < CODEC_MAX_PLANES; plane++)
        expect(verdict->rows[plane] == verdict->heights[plane], "all rows");
#endif
}

// The memory in the header must be an upper bound.
static void check_memory(const Verdict *verdict, const Manner *manner) {
    (void)verdict, (void)manner;
#ifdef HAS_ROWS
    bool is_held = verdict->is_within && !manner->is_careless;
    expect(!is_held || verdict->fault != CodecFaultTooMuchMemory, "no more memory than in the header");
#endif
}

static bool is_within(const CodecImageInfo *picture, const Manner *manner) {
    bool is_held = manner->is_careless || picture->decodingMemory <= manner->max_memory;
    return is_held && (uint64_t)picture->width * picture->height <= MAX_PIXELS && picture->width <= MAX_SIDE
        && picture->height <= MAX_SIDE;
}

// Call it after the header.
static void check_facts(const CodecImageInfo *header, const CodecImageInfo *picture, const Manner *manner) {
    expect(picture->width == header->width && picture->height == header->height, "the sides from the header");
    expect(picture->frames <= manner->max_frames, "no more frames than allowed");
}

static Verdict read_all(const uint8_t *bytes, size_t count, Manner manner) {
    Verdict verdict = {.status = CodecStatusNeedsBytes};
    machine_set_pace(manner.pace, chance_below(&manner.chance, UINT32_MAX));
    Reader *reader = create(manner.max_memory);
    if (!reader) return verdict;
    prepare(reader, &manner);
    size_t start = 0, end = 0;
    bool is_over = false, has_ended = false;
    int headers = 0;
    for (uint64_t steps = 0; !is_over && steps < manner.steps; steps++) {
        expect(steps < MAX_STEPS, "that reading ends");
        // Each piece has a block of its own, so that the sanitizer detects a read beyond it. An empty piece is
        // sometimes NULL.
        uint8_t *part = end > start || chance_below(&manner.chance, 2) ? malloc(end - start) : NULL;
        if (end > start) memcpy(part, bytes + start, end - start);
        CodecStep step = OF(_reader_step)(reader, part, end - start, has_ended);
        expect(step.consumed <= end - start, "no more bytes consumed than given");
        CodecImageInfo picture = OF(_reader_picture)(reader);
        switch (step.status) {
        case CodecStatusNeedsBytes: expect(!has_ended, "no request for bytes beyond the end"); break;
        case CodecStatusHeader:
            expect(++headers == 1, "one header");
            expect(picture.width && picture.height, "sides");
            verdict.header = picture;
            verdict.is_within = is_within(&picture, &manner);
            is_over = !verdict.is_within;
            bound(reader, &manner);
            break;
        case CodecStatusRows: take_rows(reader, &verdict); break;
        case CodecStatusHasMore: break;
        case CodecStatusFinished:
            expect(headers == 1 && picture.thumbnail, "a header and a thumbnail before the end");
            expect(picture.thumbnailColumns * picture.thumbnailRows <= 32 * 32, "a thumbnail within its limits");
            memcpy(verdict.thumbnail, picture.thumbnail, 4 * picture.thumbnailColumns * picture.thumbnailRows);
            verdict.status = step.status;
            is_over = true;
            check_rows(&verdict, &manner);
            break;
        case CodecStatusFailed:
            verdict.is_odd = tells_oddly(OF(_reader_message)(reader));
            expect(step.fault != CodecFaultNone, "a fault after a failure");
            verdict.status = step.status;
            verdict.fault = step.fault;
            is_over = true;
            check_memory(&verdict, &manner);
        }
        if (headers && step.status != CodecStatusFailed) check_facts(&verdict.header, &picture, &manner);
        try_previews(reader, &picture, &manner);
        if (picture.exif) touch(picture.exif, picture.exifCount);
        free(part);
        verdict.picture = picture;
        start += step.consumed;
        if (step.status != CodecStatusNeedsBytes) continue;
        // Sometimes passes no new bytes, as happens when a preview is requested while waiting for bytes.
        if (manner.wants_previews && !chance_below(&manner.chance, 4)) continue;
        has_ended = end == count;
        end = manner.piece < count - end ? end + manner.piece : count;
        if (end == count && !manner.ends_apart) has_ended = true;
    }
    OF(_reader_destroy)(reader);
    return verdict;
}

#ifndef HAS_ROWS
// - Parameter is_sound: whether `checked` comes from a complete decoding of these bytes.
static void read_pixels(const uint8_t *bytes, size_t count, CheckedImage checked, bool is_sound, Chance *chance) {
    CodecFault fault = CodecFaultNone;
    uint32_t least = (uint32_t)(chance_below(chance, 2) ? 0 : 1 + chance_below(chance, 64));
    Pixels *pixels = OF(_pixels_open)(bytes, count, checked, least, least, &fault);
    expect(pixels || fault, "a fault if there are no pixels");
    expect(pixels || !is_sound || fault == CodecFaultTooMuchMemory, "pixels of a decoded image");
    if (!pixels) return;
    bool is_whole = pixels->width == checked.width && pixels->height == checked.height;
    bool is_within = pixels->width <= checked.width && pixels->height <= checked.height;
    expect(is_whole || (least && is_within), "the checked image, scaled only if allowed");
    if (pixels->icc) touch(pixels->icc, pixels->icc_count);
    size_t stride = (size_t)pixels->width * (size_t)pixels->channels;
    int batch = 1 + (int)chance_below(chance, 8);
    uint8_t *rows = malloc((size_t)batch * stride);
    uint32_t sum = 0, left_at = chance_below(chance, 16) ? UINT32_MAX : (uint32_t)chance_below(chance, 64);
    for (uint32_t steps = 0; steps < left_at; steps++) {
        expect(steps < MAX_STEPS, "that rows end");
        int got = pixels->rows(pixels, rows, stride, batch);
        if (got == PIXELS_NOT_YET) continue;
        expect(got <= batch, "no more rows than requested");
        if (got <= 0) {
            expect((got < 0 && !is_sound) || sum == pixels->height, "all rows, or a failure");
            break;
        }
        touch(rows, (size_t)got * stride);
        sum += (uint32_t)got;
    }
    free(rows);
    pixels->close(pixels);
}
#endif

#ifdef IS_ANIMATED
static void read_frames(const uint8_t *bytes, size_t count, CheckedImage checked, bool is_sound, Chance *chance) {
    CodecFault fault = CodecFaultNone;
    Frames *frames = OF(_frames_open)(bytes, count, checked, &fault);
    expect(frames || fault, "a fault if there are no frames");
    // libwebpdemux refuses some files that webp.c accepts: those with an image between frames.
    if (!frames) return;
    expect(frames->width == checked.width && frames->height == checked.height, "the canvas that was checked");
    if (frames->icc) touch(frames->icc, frames->icc_count);
    const uint8_t *rgba;
    uint32_t milliseconds;
    uint64_t shown = 0, left_at = chance_below(chance, 16) ? 1000 : chance_below(chance, 4);
    int got = 1;
    for (int steps = 0; got != 0 && got != -1 && shown < left_at; steps++) {
        expect(steps < MAX_STEPS, "that frames end");
        got = frames->next(frames, &rgba, &milliseconds);
        if (got != 1) continue;
        touch(rgba, (size_t)4 * frames->width * frames->height);
        shown++;
    }
    if (is_sound) expect(got != -1 && (got || shown == checked.frames), "as many frames as were decoded");
    frames->close(frames);
}
#endif

static Manner manner_of(Chance *chance, size_t count, const Verdict *whole, const Manner *plain) {
    static const size_t pieces[] = {1, 13, 700, 5000};
    static const int scales[] = {0, 0, 0, 0, 1, 2, 4, 8};
    Manner manner = *plain;
    manner.piece = count > 4000 ? pieces[2 + chance_below(chance, 2)] : pieces[chance_below(chance, 4)];
    manner.ends_apart = chance_below(chance, 2);
    manner.wants_rows = chance_below(chance, 4);
    manner.wants_previews = chance_below(chance, 4);
    manner.wants_no_previews = !manner.wants_previews && chance_below(chance, 2);
    manner.eighths = scales[chance_below(chance, 8)];
    manner.pace = chance_below(chance, 2) ? SHORT_SLICES : 0;
    // So little memory that previews and rows must be left out and libraries may fail.
    if (!chance_below(chance, 4) && whole->picture.decodingMemory < MAX_MEMORY)
        manner.max_memory = whole->picture.decodingMemory / 8 * (1 + chance_below(chance, 8));
    manner.is_careless = manner.max_memory < MAX_MEMORY && chance_below(chance, 2);
    if (!chance_below(chance, 16)) manner.steps = chance_below(chance, 64);
    manner.wants_no_frames = !chance_below(chance, 8);
    manner.chance = (Chance){chance_below(chance, UINT32_MAX)};
    return manner;
}

// Compares the result of reading in pieces with that of reading at once.
static void compare(const Verdict *whole, const Verdict *parts, const Manner *manner) {
    bool is_told = whole->status != CodecStatusNeedsBytes && parts->status != CodecStatusNeedsBytes;
    // A skipped animation exceeds no limits.
    if (manner->wants_no_frames && (whole->fault || whole->picture.frames)) return;
    bool lacks_memory = parts->fault && (manner->is_careless || parts->fault == CodecFaultTooMuchMemory);
    if (!is_told || lacks_memory || whole->is_odd || parts->is_odd) return;
    expect(whole->status == parts->status, "the same result in pieces");
    if (whole->status != CodecStatusFinished) return;
    const CodecImageInfo *one = &whole->picture, *other = &parts->picture;
    expect(one->width == other->width && one->height == other->height, "sides");
    expect(one->frames == other->frames && one->hasAlpha == other->hasAlpha, "facts");
    expect(one->isProgressive == other->isProgressive && one->extraMemory == other->extraMemory, "more facts");
    // The thumbnail depends on the scale of decoding.
    if (manner->eighths) return;
    expect(!memcmp(whole->thumbnail, parts->thumbnail, sizeof whole->thumbnail), "the same thumbnail");
}

#ifndef HAS_ROWS
// Reads pixels with a description from an untrusted decoder. The bytes may have been refused, or the
// description may belong to other bytes.
static void read_again(const uint8_t *bytes, size_t count, const Verdict *whole, Chance *chance) {
    const CodecImageInfo *picture = &whole->picture;
    CheckedImage checked = {
        picture->width, picture->height, picture->hasAlpha, picture->isProgressive,
        picture->frames ? picture->frames : 1, picture->extraMemory};
    bool is_sound = whole->status == CodecStatusFinished;
    if (!is_sound) {
        checked.has_alpha = chance_below(chance, 2);
        checked.is_progressive = !chance_below(chance, 4);
        if (!chance_below(chance, 4)) checked.frames = chance_below(chance, 4);
    } else if (!chance_below(chance, 8)) {
        is_sound = false;
        switch (chance_below(chance, 6)) {
        case 0: checked.width = (uint32_t)(checked.width * (1 + chance_below(chance, 3)) + 1); break;
        case 1: checked.height = (uint32_t)chance_below(chance, checked.height); break;
        case 2: checked.has_alpha = !checked.has_alpha; break;
        case 3: checked.is_progressive = !checked.is_progressive; break;
        case 4: checked.extra_memory = chance_below(chance, 2 * checked.extra_memory + 1); break;
        default: checked.frames = chance_below(chance, 2 * checked.frames + 2);
        }
    }
    machine_set_pace(chance_below(chance, 2) ? SHORT_SLICES : 0, count);
    read_pixels(bytes, count, checked, is_sound, chance);
#ifdef IS_ANIMATED
    // The service never requests a single frame this way.
    read_frames(bytes, count, checked, is_sound && checked.frames > 1, chance);
#endif
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    if (count < 4) return 0;
    Chance chance = chance_of(bytes, count);
    Manner plain = {.piece = count, .max_memory = MAX_MEMORY, .steps = UINT64_MAX, .max_frames = 100};
    plain.ends_apart = chance_below(&chance, 2);
    if (!chance_below(&chance, 8)) plain.max_frames = 1 + chance_below(&chance, 3);
    Verdict whole = read_all(bytes, count, plain);
    Manner manner = manner_of(&chance, count, &whole, &plain);
    Verdict parts = read_all(bytes, count, manner);
    compare(&whole, &parts, &manner);
#ifndef HAS_ROWS
    if (whole.is_within) read_again(bytes, count, &whole, &chance);
#endif
    return 0;
}
