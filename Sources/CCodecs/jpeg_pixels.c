// JPEG's pixels over libjpeg-turbo, which can leave out detail as it decodes: at a half, a quarter or
// an eighth of the size, for less than the whole's cost.
//
// The file was decoded whole before, so whatever the library can't read now is harm that came since.
#include "colour.h"
#include "jpeg_profile.h"
#include "pixels.h"
#include "profile.h"
#include "slice.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

#include <jerror.h>

// More than any configuration lets in.
#define MAX_SCANS 10000
// Beside the coefficients of a picture in many scans: rows, tables.
#define BASE_MEMORY ((size_t)8 * 1024 * 1024)

typedef enum { START, SCANS, ROWS, END, FAILED } Stage;

typedef struct {
    Pixels pixels;
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    jmp_buf escape;
    CodecFault fault;
    Stage stage;
    bool made_end; // the library was given an EOI that was not there
    bool is_inked; // CMYK that has to become RGB here
    uint8_t *profile;
    uint8_t *inks; // a row, where `is_inked`
} Reader;

_Noreturn static void fail(Reader *reader, CodecFault fault) {
    reader->fault = fault;
    longjmp(reader->escape, 1);
}

_Noreturn static void on_error(j_common_ptr cinfo) {
    int code = cinfo->err->msg_code;
    bool memory = code == JERR_OUT_OF_MEMORY || code == JERR_NO_BACKING_STORE;
    fail(cinfo->client_data, memory ? CodecFaultTooMuchMemory : CodecFaultBroken);
}

// The warnings that mean lost pixels.
static void on_message(j_common_ptr cinfo, int level) {
    if (level >= 0) return;
    switch (cinfo->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_JPEG_EOF:
        on_error(cinfo);
    default:
        return;
    }
}

static void ignore(j_common_ptr cinfo) {
    (void)cinfo;
}

static void source_nothing(j_decompress_ptr cinfo) {
    (void)cinfo;
}

// A whole picture may lack its EOI.
static boolean source_fill(j_decompress_ptr cinfo) {
    static const JOCTET end_of_image[2] = {0xFF, JPEG_EOI};
    Reader *reader = cinfo->client_data;
    if (reader->made_end) fail(reader, CodecFaultCutShort);
    reader->made_end = true;
    cinfo->src->next_input_byte = end_of_image;
    cinfo->src->bytes_in_buffer = sizeof end_of_image;
    return TRUE;
}

static void source_skip(j_decompress_ptr cinfo, long count) {
    struct jpeg_source_mgr *source = cinfo->src;
    if (count <= 0) return;
    size_t skipped = (size_t)count;
    if (skipped > source->bytes_in_buffer) skipped = source->bytes_in_buffer;
    source->next_input_byte += skipped;
    source->bytes_in_buffer -= skipped;
}

static uint32_t shrunk(uint32_t side, uint32_t factor) {
    return (side + factor - 1) / factor;
}

static void choose_scale(j_decompress_ptr cinfo, uint32_t min_width, uint32_t min_height) {
    cinfo->scale_num = cinfo->scale_denom = 1;
    if (!min_width && !min_height) return;
    for (uint32_t factor = 8; factor > 1; factor /= 2) {
        if (shrunk(cinfo->image_width, factor) < min_width) continue;
        if (shrunk(cinfo->image_height, factor) < min_height) continue;
        cinfo->scale_denom = factor;
        break;
    }
}

static void choose_colours(Reader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    switch (cinfo->jpeg_color_space) {
    case JCS_GRAYSCALE:
        cinfo->out_color_space = JCS_GRAYSCALE;
        reader->pixels.channels = 1;
        break;
    case JCS_CMYK:
    case JCS_YCCK:
        cinfo->out_color_space = JCS_CMYK;
        reader->is_inked = !profile_is_of(reader->profile, reader->pixels.icc_count, "CMYK");
        reader->pixels.channels = reader->is_inked ? 3 : 4;
        break;
    default:
        cinfo->out_color_space = JCS_RGB;
        reader->pixels.channels = 3;
    }
}

// All coefficients at their padded size are what a picture in many scans is held in.
static size_t coefficients(j_decompress_ptr cinfo) {
    size_t blocks = 0;
    for (int index = 0; index < cinfo->num_components; index++)
        blocks += ((size_t)cinfo->comp_info[index].width_in_blocks + 4)
            * (cinfo->comp_info[index].height_in_blocks + 4);
    return blocks * (sizeof(JBLOCK) + 1);
}

static void read_header(
    Reader *reader, const CheckedPicture *checked, uint32_t min_width, uint32_t min_height) {
    j_decompress_ptr cinfo = &reader->cinfo;
    jpeg_read_header(cinfo, TRUE);
    if (!checked_is(
            checked, cinfo->image_width, cinfo->image_height, false, cinfo->progressive_mode))
        fail(reader, CodecFaultBroken);
    choose_scale(cinfo, min_width, min_height);
    choose_colours(reader);
    jpeg_calc_output_dimensions(cinfo);
    reader->pixels.width = cinfo->output_width;
    reader->pixels.height = cinfo->output_height;
}

// Not before the first row is asked for: opening allocates nothing of the picture's size.
static void start(Reader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    cinfo->buffered_image = jpeg_has_multiple_scans(cinfo);
    size_t memory = BASE_MEMORY + (cinfo->buffered_image ? coefficients(cinfo) : 0);
    cinfo->mem->max_memory_to_use = (long)memory;
    // Where detail is left out, rows of chroma are as fine as those of luma, or will be made smaller.
    if (cinfo->scale_denom > 1) cinfo->do_fancy_upsampling = FALSE;
    if (reader->is_inked) reader->inks = malloc((size_t)cinfo->output_width * 4);
    if (reader->is_inked && !reader->inks) fail(reader, CodecFaultTooMuchMemory);
    if (!jpeg_start_decompress(cinfo)) fail(reader, CodecFaultBroken);
    reader->stage = cinfo->buffered_image ? SCANS : ROWS;
}

// Takes in the scans for a slice. True: all were.
static bool read_scans(Reader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    Slice slice = slice_start();
    do {
        if (cinfo->input_scan_number > MAX_SCANS) fail(reader, CodecFaultTooManyScans);
        if (jpeg_consume_input(cinfo) != JPEG_REACHED_EOI) continue;
        jpeg_start_output(cinfo, cinfo->input_scan_number);
        reader->stage = ROWS;
        return true;
    } while (!slice_is_over(slice));
    return false;
}

static int read_rows(Reader *reader, uint8_t *out, size_t stride, int count) {
    j_decompress_ptr cinfo = &reader->cinfo;
    int written = 0;
    while (written < count && cinfo->output_scanline < cinfo->output_height) {
        uint8_t *target = out + (size_t)written * stride;
        JSAMPROW row = reader->is_inked ? reader->inks : target;
        if (!jpeg_read_scanlines(cinfo, &row, 1)) fail(reader, CodecFaultCutShort);
        if (reader->is_inked) colour_print(reader->inks, target, cinfo->output_width);
        written++;
    }
    if (!written) reader->stage = END;
    return written;
}

static int rows(Pixels *pixels, uint8_t *out, size_t stride, int count) {
    Reader *reader = pixels->context;
    if (reader->stage == FAILED) return -1;
    if (reader->stage == END) return 0;
    if (setjmp(reader->escape)) {
        reader->stage = FAILED;
        return -1;
    }
    if (reader->stage == START) start(reader);
    if (reader->stage == SCANS && !read_scans(reader)) return PIXELS_NOT_YET;
    return read_rows(reader, out, stride, count);
}

static void close_reader(Pixels *pixels) {
    Reader *reader = pixels->context;
    if (!setjmp(reader->escape)) jpeg_destroy_decompress(&reader->cinfo);
    free(reader->profile);
    free(reader->inks);
    free(reader);
}

static void create(Reader *reader, const uint8_t *bytes, size_t count) {
    reader->cinfo.err = jpeg_std_error(&reader->errors);
    reader->errors.error_exit = on_error;
    reader->errors.emit_message = on_message;
    reader->errors.output_message = ignore;
    reader->cinfo.client_data = reader;
    reader->pixels = (Pixels){.context = reader, .rows = rows, .close = close_reader};
    reader->profile = jpeg_profile(bytes, count, &reader->pixels.icc_count);
    reader->pixels.icc = reader->profile;
    reader->source = (struct jpeg_source_mgr){
        .next_input_byte = bytes,
        .bytes_in_buffer = count,
        .init_source = source_nothing,
        .fill_input_buffer = source_fill,
        .skip_input_data = source_skip,
        .resync_to_restart = jpeg_resync_to_restart,
        .term_source = source_nothing,
    };
}

Pixels *jpeg_pixels_open(const uint8_t *bytes, size_t count, CheckedPicture checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault) {
    *fault = CodecFaultTooMuchMemory;
    Reader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    create(reader, bytes, count);
    if (setjmp(reader->escape)) {
        *fault = reader->fault;
        close_reader(&reader->pixels);
        return NULL;
    }
    jpeg_create_decompress(&reader->cinfo);
    reader->cinfo.src = &reader->source;
    read_header(reader, &checked, min_width, min_height);
    *fault = CodecFaultNone;
    return &reader->pixels;
}
