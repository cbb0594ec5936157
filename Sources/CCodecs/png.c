// PNG over libpng's progressive reader.
//
// The chunks are told apart here, and libpng is shown only those that pixels depend on: IHDR, PLTE,
// tRNS, IDAT, IEND. Every other ancillary chunk is passed over unread (libpng would first gather it
// whole, then inflate it), but for eXIf, which is kept when it is small enough. Of an animated PNG
// that leaves the default image.
//
// Rows of each pass are taken as they are stored, without transformations and without a whole image. Of an
// interlaced picture the pixels of the first passes are kept, for previews: as many as memory allows.
#include "CCodecs.h"
#include "png_pixel.h"
#include "png_preview.h"
#include "png_profile.h"
#include "png_rows.h"
#include "slice.h"
#include "thumb.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

// Compressed bytes given to libpng between looks at the clock: they inflate to 1 MiB at the most. Where rows are wanted
// that is their size once they have 8 bits a sample, but for so few bytes.
#define PIECE 1024
#define LEAST_PIECE 64
// PLTE has 768 bytes, tRNS 256; libpng gathers chunks other than IDAT before it reads them.
#define MAX_SMALL_CHUNK 1024
#define MAX_EXIF 65535
// zlib's window and tables, libpng's structures.
#define BASE_MEMORY ((size_t)192 * 1024)
// The pixels that are kept of an interlaced picture's passes: 4 MP.
#define MAX_GRID ((size_t)16 * 1024 * 1024)
// A preview of noise has as many bytes as its pixels; most have a fraction of that.
#define MAX_PREVIEW ((size_t)8 * 1024 * 1024)
#define MIN_PREVIEW ((size_t)64 * 1024)
// The bytes while they grow, and once more where the caller keeps those of the one before.
#define PREVIEW_COPIES 3

typedef enum { SIGNATURE, HEAD, PASS, KEEP, SKIP, FINISHED, FAILED } Stage;

struct PNGReader {
    png_structp png;
    png_infop info;
    jmp_buf escape;
    Stage stage;
    CodecFault fault;
    bool out_of_memory;
    bool has_header, in_data, after_data, saw_end;
    uint8_t head[8];  // length and type of the chunk being read
    size_t head_count;
    uint64_t left;    // of that chunk, with its checksum
    uint64_t rows, rows_wanted;
    size_t allocated, max_memory;
    CodecPicture picture;
    PNGPixels pixels;
    Thumb thumb;
    PassGrid grid;
    int whole_passes; // that were read to their end
    int shown_passes; // of which there was a preview
    bool preview_wanted, is_last_bytes;
    int orientation;  // for the preview
    size_t max_preview;
    PNGPreview *preview;
    PNGRows rows_out;
    size_t piece;
    size_t burst;     // rows that may come of a piece
    uint8_t *kept;    // the chunk that is being read, where it is kept
    size_t kept_count;
    uint8_t *exif, *profile;
    size_t exif_count, profile_count;
    bool saw_exif, saw_profile;
    char message[160];
};

_Noreturn static void fail(PNGReader *reader, CodecFault fault, const char *message) {
    reader->fault = reader->out_of_memory ? CodecFaultTooMuchMemory : fault;
    snprintf(reader->message, sizeof reader->message, "%s", message);
    longjmp(reader->escape, 1);
}

static void on_error(png_structp png, png_const_charp message) {
    fail(png_get_error_ptr(png), CodecFaultBroken, message);
}

// Damaged image data is only a warning once libpng has its rows, or for any error of zlib's that
// it takes for a wrong checksum.
static void on_warning(png_structp png, png_const_charp message) {
    if (!strncmp(message, "IDAT:", 5) || !strncmp(message, "Truncated compressed data", 25))
        fail(png_get_error_ptr(png), CodecFaultBroken, message);
}

// Each block starts with its size, so that what is given back can be counted.
#define BLOCK_HEAD 16

static png_voidp allocate(png_structp png, png_alloc_size_t size) {
    PNGReader *reader = png_get_mem_ptr(png);
    size_t room = reader->max_memory - reader->allocated;
    uint8_t *block = size > room || room - size < BLOCK_HEAD ? NULL : malloc(size + BLOCK_HEAD);
    if (!block) {
        reader->out_of_memory = true;
        return NULL;
    }
    size_t whole = size + BLOCK_HEAD;
    memcpy(block, &whole, sizeof whole);
    reader->allocated += whole;
    return block + BLOCK_HEAD;
}

static void release(png_structp png, png_voidp pointer) {
    if (!pointer) return;
    uint8_t *block = (uint8_t *)pointer - BLOCK_HEAD;
    size_t whole;
    memcpy(&whole, block, sizeof whole);
    ((PNGReader *)png_get_mem_ptr(png))->allocated -= whole;
    free(block);
}

static uint64_t count_rows(uint32_t width, uint32_t height, bool interlaced) {
    if (!interlaced) return height;
    uint64_t sum = 0;
    for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; pass++)
        if (PNG_PASS_COLS(width, pass)) sum += PNG_PASS_ROWS(height, pass);
    return sum;
}

// Has libpng make samples of 8 bits of what is stored.
static void want_pixels(PNGReader *reader) {
    png_structp png = reader->png;
    CodecPicture *picture = &reader->picture;
    png_set_expand(png);
    png_set_scale_16(png);
    png_read_update_info(png, reader->info);
    png_rows_start(&reader->rows_out, picture->width, picture->height, png_get_channels(png, reader->info),
        picture->hasAlpha, picture->isProgressive, reader->burst);
}

// Before the first row: this is where libpng allocates rows.
static void on_info(png_structp png, png_infop info) {
    PNGReader *reader = png_get_progressive_ptr(png);
    reader->picture.hasAlpha = (png_get_color_type(png, info) & PNG_COLOR_MASK_ALPHA)
        || png_get_valid(png, info, PNG_INFO_tRNS);
    if (reader->rows_out.is_wanted) want_pixels(reader);
    reader->pixels = png_pixels(png, info);
    // A transparent colour has become alpha.
    if (reader->rows_out.is_wanted) reader->pixels.has_key = false;
    thumb_start(
        &reader->thumb, png_get_image_width(png, info), png_get_image_height(png, info));
    if (reader->grid.passes) {
        reader->grid.pixels = calloc(1, pass_grid_bytes(&reader->grid));
        if (!reader->grid.pixels) reader->grid.passes = 0;
    }
    if (!reader->rows_out.is_wanted) png_start_read_image(png);
}

// Where a pass has its pixels.
typedef struct {
    uint32_t x, y, across, down;
} PassPlace;

static PassPlace place_of(const PNGReader *reader, int pass) {
    if (!reader->picture.isProgressive) return (PassPlace){0, 0, 1, 1};
    return (PassPlace){
        PNG_PASS_START_COL(pass), PNG_PASS_START_ROW(pass), PNG_PASS_COL_OFFSET(pass),
        PNG_PASS_ROW_OFFSET(pass)};
}

static void add_to_thumb(PNGReader *reader, const uint8_t *row, uint32_t y, PassPlace place) {
    Thumb *thumb = &reader->thumb;
    ThumbSpan rows = thumb_span(thumb, 0, y);
    if (rows.first == rows.end) return;
    for (uint32_t across = 0; across < thumb->across[0].count; across++) {
        uint32_t x = thumb->across[0].at[across];
        if (x < place.x || (x - place.x) % place.across) continue;
        uint8_t rgba[4];
        png_pixel(&reader->pixels, row, (x - place.x) / place.across, rgba);
        thumb_add_pixel(thumb, across, rows, rgba);
    }
}

static void add_to_grid(PNGReader *reader, const uint8_t *row, uint32_t y, PassPlace place) {
    PassGrid *grid = &reader->grid;
    uint32_t apart = pass_step_across[grid->passes];
    uint8_t *out = grid->pixels
        + (size_t)4 * grid->columns * (y / pass_step_down[grid->passes]);
    uint32_t index = 0;
    for (uint32_t x = place.x; x < grid->width; x += place.across)
        png_pixel(&reader->pixels, row, index++, out + (size_t)4 * (x / apart));
}

static void on_row(png_structp png, png_bytep row, png_uint_32 number, int pass) {
    PNGReader *reader = png_get_progressive_ptr(png);
    if (!row) return;
    reader->rows++;
    PassPlace place = place_of(reader, pass);
    uint32_t y = place.y + number * place.down;
    add_to_thumb(reader, row, y, place);
    PNGRows *rows = &reader->rows_out;
    if (rows->is_wanted && rows->is_canvas) png_rows_place(rows, row, y, place.x, place.across);
    else if (rows->is_wanted) png_rows_add(rows, row);
    if (pass >= reader->grid.passes) return;
    add_to_grid(reader, row, y, place);
    if (number + 1 == PNG_PASS_ROWS(reader->grid.height, pass)) reader->whole_passes = pass + 1;
}

static void on_end(png_structp png, png_infop info) {
    (void)info;
    ((PNGReader *)png_get_progressive_ptr(png))->saw_end = true;
}

PNGReader *png_reader_create(size_t max_memory) {
    PNGReader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->max_memory = max_memory;
    reader->piece = PIECE;
    if (setjmp(reader->escape)) {
        png_reader_destroy(reader);
        return NULL;
    }
    reader->png = png_create_read_struct_2(
        PNG_LIBPNG_VER_STRING, reader, on_error, on_warning, reader, allocate, release);
    if (reader->png) reader->info = png_create_info_struct(reader->png);
    if (!reader->info) fail(reader, CodecFaultTooMuchMemory, "out of memory");
    // The sides are judged after the header, by the caller, who can say what they were.
    png_set_user_limits(reader->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_benign_errors(reader->png, 1);
    // The one ancillary chunk that comes here is tRNS, and pixels depend on it.
    png_set_crc_action(reader->png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_progressive_read_fn(reader->png, reader, on_info, on_row, on_end);
    return reader;
}

void png_reader_destroy(PNGReader *reader) {
    if (!reader) return;
    if (!setjmp(reader->escape))
        png_destroy_read_struct(&reader->png, &reader->info, NULL);
    png_preview_destroy(reader->preview);
    png_rows_free(&reader->rows_out);
    free(reader->grid.pixels);
    free(reader->kept);
    free(reader->profile);
    free(reader->exif);
    free(reader);
}

// Passes that a preview begun now would show; 0 where an earlier one showed as many, or none can.
static int passes_to_show(const PNGReader *reader) {
    bool may = reader->stage < FINISHED && reader->grid.pixels && !reader->is_last_bytes;
    bool is_idle = !reader->preview || png_preview_is_whole(reader->preview);
    bool is_newer = reader->whole_passes > reader->shown_passes;
    return may && is_idle && is_newer ? reader->whole_passes : 0;
}

CodecPicture png_reader_picture(const PNGReader *reader) {
    CodecPicture picture = reader->picture;
    picture.scansToShow = passes_to_show(reader);
    if (reader->stage == FINISHED) thumb_tell(&reader->thumb, &picture);
    picture.exif = reader->exif;
    picture.exifCount = reader->exif_count;
    return picture;
}

void png_reader_want_rows(PNGReader *reader) {
    reader->rows_out.is_wanted = true;
}

CodecPixels png_reader_pixels(const PNGReader *reader) {
    CodecPixels pixels = reader->rows_out.pixels;
    pixels.icc = reader->profile;
    pixels.icc_count = reader->profile_count;
    return pixels;
}

CodecRows png_reader_rows(const PNGReader *reader, int plane) {
    (void)plane;
    const PNGRows *rows = &reader->rows_out;
    size_t first = rows->is_canvas ? rows->given - rows->count : 0;
    return (CodecRows){rows->width, rows->height, rows->pointers + first, (int)rows->count};
}

const char *png_reader_message(const PNGReader *reader) {
    return reader->message;
}

static void pass_on(PNGReader *reader, const uint8_t *bytes, size_t count) {
    // libpng's parameter lacks a const: it only reads.
    png_process_data(reader->png, reader->info, (png_bytep)(uintptr_t)bytes, count);
}

// Previews are an addition: they never make a picture need more than it may.
static void allow_previews(PNGReader *reader) {
    CodecPicture *picture = &reader->picture;
    if (!picture->isProgressive) return;
    PassGrid grid = pass_grid_plan(picture->width, picture->height, MAX_GRID);
    if (!grid.passes) return;
    size_t pixels = pass_grid_bytes(&grid), bytes = pixels + MIN_PREVIEW;
    if (bytes > MAX_PREVIEW) bytes = MAX_PREVIEW;
    // The writer holds two rows beside that of the preview.
    size_t memory = PNG_PREVIEW_MEMORY + (size_t)3 * 4 * picture->width + pixels
        + PREVIEW_COPIES * bytes;
    if (picture->decodingMemory > reader->max_memory
        || memory > reader->max_memory - picture->decodingMemory)
        return;
    reader->grid = grid;
    reader->max_preview = bytes;
    picture->decodingMemory += memory;
}

// So are rows: without them variants are made of the kept bytes later.
static void allow_rows(PNGReader *reader) {
    CodecPicture *picture = &reader->picture;
    if (!reader->rows_out.is_wanted) return;
    size_t stored = png_get_rowbytes(reader->png, reader->info);
    size_t piece = PIECE * stored / ((size_t)4 * picture->width);
    reader->piece = piece > PIECE ? PIECE : piece < LEAST_PIECE ? LEAST_PIECE : piece;
    reader->burst = png_rows_burst(picture->height, stored, reader->piece);
    size_t memory = png_rows_memory(
        picture->width, picture->height, picture->isProgressive, reader->burst);
    reader->rows_out.is_wanted = picture->decodingMemory <= reader->max_memory
        && memory <= reader->max_memory - picture->decodingMemory;
    if (reader->rows_out.is_wanted) picture->decodingMemory += memory;
}

static void read_header(PNGReader *reader) {
    png_structp png = reader->png;
    CodecPicture *picture = &reader->picture;
    picture->width = png_get_image_width(png, reader->info);
    picture->height = png_get_image_height(png, reader->info);
    picture->isProgressive = png_get_interlace_type(png, reader->info) != PNG_INTERLACE_NONE;
    reader->rows_wanted = count_rows(picture->width, picture->height, picture->isProgressive);
    // Two rows, each with libpng's padding; it rounds up to some pixels and aligns.
    picture->decodingMemory = BASE_MEMORY + 2 * (png_get_rowbytes(png, reader->info) + 1024);
    allow_rows(reader);
    allow_previews(reader);
    reader->has_header = true;
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
    fail(reader, fault, message);
}

// A critical chunk: libpng's to read, or the end of it.
static Stage stage_of_critical(PNGReader *reader, uint32_t length) {
    bool data = is_type(reader, "IDAT");
    bool known = data || is_type(reader, "IHDR") || is_type(reader, "PLTE")
        || is_type(reader, "IEND");
    if (is_type(reader, "CgBI"))
        fail(reader, CodecFaultUnsupported, "Apple's CgBI variant");
    if (!known) fail_at_chunk(reader, CodecFaultBroken, "unknown critical chunk");
    if (!data && length > MAX_SMALL_CHUNK)
        fail_at_chunk(reader, CodecFaultBroken, "too long a chunk");
    if (data && reader->after_data)
        fail(reader, CodecFaultBroken, "IDAT chunks that do not follow one another");
    return PASS;
}

static Stage stage_of_ancillary(PNGReader *reader, uint32_t length) {
    if (is_type(reader, "tRNS") && length <= MAX_SMALL_CHUNK) return PASS;
    // There may be one of each.
    bool *saw = is_type(reader, "eXIf") ? &reader->saw_exif
        : is_type(reader, "iCCP") && reader->rows_out.is_wanted ? &reader->saw_profile : NULL;
    size_t most = is_type(reader, "eXIf") ? MAX_EXIF : MAX_PNG_PROFILE;
    if (!saw || *saw || !length || length > most) return SKIP;
    *saw = true;
    reader->kept = malloc(length);
    if (!reader->kept) fail(reader, CodecFaultTooMuchMemory, "out of memory");
    reader->kept_count = 0;
    return KEEP;
}

static void begin_chunk(PNGReader *reader) {
    const uint8_t *head = reader->head;
    uint32_t length = png_get_uint_32(head);
    for (int index = 4; index < 8; index++)
        if (!is_letter(head[index])) fail(reader, CodecFaultBroken, "a chunk type of no letters");
    if (length > PNG_UINT_31_MAX) fail_at_chunk(reader, CodecFaultBroken, "too long a chunk");
    bool ancillary = head[4] & 32;
    reader->stage = ancillary ? stage_of_ancillary(reader, length)
                              : stage_of_critical(reader, length);
    reader->left = (uint64_t)length + 4;
    bool data = is_type(reader, "IDAT");
    reader->after_data = reader->after_data || (reader->in_data && !data);
    reader->in_data = data;
    if (reader->stage == PASS) pass_on(reader, head, sizeof reader->head);
}

// Collects the eight bytes that start a chunk, or the file.
static size_t take_head(PNGReader *reader, const uint8_t *bytes, size_t count) {
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
        fail(reader, CodecFaultBroken, "not enough image data");
    thumb_finish_pixels(&reader->thumb);
    reader->stage = FINISHED;
}

// A piece of the chunk's content or checksum.
static size_t take_content(PNGReader *reader, const uint8_t *bytes, size_t count) {
    size_t taken = count < reader->left ? count : (size_t)reader->left;
    if (reader->stage == PASS) {
        if (taken > reader->piece) taken = reader->piece;
        pass_on(reader, bytes, taken);
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

// Whether IHDR was just read, its checksum too.
static bool reaches_header(PNGReader *reader) {
    if (reader->has_header || reader->stage != HEAD || !is_type(reader, "IHDR")) return false;
    if (reader->left || reader->head_count) return false;
    read_header(reader);
    return true;
}

static void start_preview(PNGReader *reader) {
    reader->preview_wanted = false;
    int passes = passes_to_show(reader);
    if (!passes) return;
    png_preview_destroy(reader->preview);
    // Also where that fails: the next one is of more passes.
    reader->shown_passes = passes;
    reader->preview = png_preview_create(
        &reader->grid, passes, reader->picture.hasAlpha, reader->orientation, reader->max_preview);
}

static void drop_preview(PNGReader *reader) {
    png_preview_destroy(reader->preview);
    reader->preview = NULL;
}

static bool is_under_way(const PNGReader *reader) {
    return reader->preview && !png_preview_is_whole(reader->preview);
}

// False: the time is over before the preview is whole.
static bool render_preview(PNGReader *reader, Slice slice) {
    if (reader->preview_wanted) start_preview(reader);
    while (is_under_way(reader)) {
        if (!png_preview_write_row(reader->preview)) drop_preview(reader);
        if (slice_is_over(slice)) return !is_under_way(reader);
    }
    return true;
}

static bool has_rows(const PNGReader *reader, size_t least) {
    const PNGRows *rows = &reader->rows_out;
    return rows->is_wanted && !rows->is_canvas && rows->count >= least;
}

// Rows that wait come first, or all of an interlaced picture's.
static CodecStep finished(PNGReader *reader, size_t count) {
    bool rows = has_rows(reader, 1) || png_rows_show(&reader->rows_out);
    return (CodecStep){rows ? CodecStatusRows : CodecStatusFinished, CodecFaultNone, count};
}

static CodecStep run(PNGReader *reader, const uint8_t *bytes, size_t count, bool ended) {
    Slice slice = slice_start();
    size_t consumed = 0;
    reader->is_last_bytes = ended;
    // The picture itself comes first.
    if (ended && is_under_way(reader)) drop_preview(reader);
    if (!render_preview(reader, slice))
        return (CodecStep){CodecStatusHasMore, CodecFaultNone, consumed};
    while (consumed < count) {
        const uint8_t *rest = bytes + consumed;
        bool at_head = reader->stage == SIGNATURE || reader->stage == HEAD;
        size_t left = count - consumed;
        consumed += at_head ? take_head(reader, rest, left) : take_content(reader, rest, left);
        if (reader->stage == FINISHED) return finished(reader, count);
        if (!at_head && reaches_header(reader))
            return (CodecStep){CodecStatusHeader, CodecFaultNone, consumed};
        if (has_rows(reader, PNG_ROWS_WAITING))
            return (CodecStep){CodecStatusRows, CodecFaultNone, consumed};
        if (slice_is_over(slice)) return (CodecStep){CodecStatusHasMore, CodecFaultNone, consumed};
    }
    if (ended) fail(reader, CodecFaultCutShort, "the bytes end before the image");
    return (CodecStep){CodecStatusNeedsBytes, CodecFaultNone, consumed};
}

CodecStep png_reader_step(PNGReader *reader, const uint8_t *bytes, size_t count, bool ended) {
    if (has_rows(reader, PNG_ROWS_WAITING) || reader->stage == FINISHED) reader->rows_out.count = 0;
    if (reader->stage == FINISHED) return finished(reader, count);
    if (reader->stage == FAILED) return (CodecStep){CodecStatusFailed, reader->fault, count};
    if (setjmp(reader->escape)) {
        reader->stage = FAILED;
        return (CodecStep){CodecStatusFailed, reader->fault, count};
    }
    return run(reader, bytes, count, ended);
}

void png_reader_want_preview(PNGReader *reader, int orientation) {
    reader->orientation = orientation;
    reader->preview_wanted = passes_to_show(reader) > 0;
}

void png_reader_drop_preview(PNGReader *reader) {
    reader->preview_wanted = false;
    drop_preview(reader);
}

CodecPreview png_reader_preview(const PNGReader *reader) {
    if (!reader->preview || is_under_way(reader)) return (CodecPreview){0};
    const Encoded *encoded = png_preview_encoded(reader->preview);
    return (CodecPreview){encoded->bytes, encoded->count, png_preview_passes(reader->preview)};
}
