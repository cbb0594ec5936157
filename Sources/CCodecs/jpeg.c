// JPEG over libjpeg-turbo, with a suspending source.
//
// Each component's samples are decoded as stored (raw_data_out). What can fail in a JPEG is its markers and
// its entropy coding, and every coefficient passes that decoder. The inverse DCT, upsampling and colour
// conversion are arithmetic on what came out of it and cannot fail, once the checks in `check_header` have
// refused what the library could not convert. So nobody's pixels are decoded at an eighth of their sides,
// of which the tiny picture is made, and nothing is upsampled or converted.
//
// A picture in one scan is decoded as it arrives. One in several is taken in through
// jpeg_consume_input, a row of MCUs at a time, and put out when its end was read, so that no call into
// the library runs longer than one such row.
//
// A preview is an output pass between two scans, or within one, over the coefficients as they are then.
#include "CCodecs.h"
#include "jpeg_planes.h"
#include "jpeg_preview.h"
#include "jpeg_profile.h"
#include "jpeg_thumb.h"
#include "slice.h"

#include <limits.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

// What the library may look at in one go, so that a run of markers cannot fill a step.
#define WINDOW ((size_t)64 * 1024)
// A marker segment is at most 2 + 65,535 bytes and an MCU far less: who asks for more than this
// before it takes anything follows a run of fill bytes without end.
#define MAX_BACKLOG ((size_t)70000)
// An arithmetic-coded picture is held whole before it is decoded: at most so much of it.
#define MAX_ARITHMETIC_BACKLOG ((size_t)8 * 1024 * 1024)
// Between the end of a scan's data and the next marker; cameras pad there.
#define MAX_PADDING 512
// What the library and this file hold whatever the picture: tables, EXIF, buffers of small size.
#define BASE_MEMORY ((size_t)256 * 1024)
// A preview may have so many bytes, and no more than two bits a sample.
#define MAX_PREVIEW ((size_t)8 * 1024 * 1024)
#define MIN_PREVIEW ((size_t)64 * 1024)
// The bytes while they grow, and once more where the caller keeps those of the one before.
#define PREVIEW_COPIES 3
// Pixels along the longer side that the tiny picture is made of, where the picture has so many.
#define LEAST_DECODED 64

typedef enum { HEADER, START, ROWS, SCANS, PREVIEW, OUTPUT, FINISH, FINISHED, FAILED } Stage;

struct JPEGReader {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    jmp_buf escape;
    Stage stage;
    CodecFault fault;
    bool many_scans;
    bool in_scan;    // of a picture with many scans: between SOS and the scan's last MCU
    bool ended;      // no bytes follow those in the window
    bool made_end;   // the library was given an EOI that was not there
    size_t to_skip;  // bytes that the library wants skipped and that have not come yet
    size_t refused;  // bytes that the library looked at last and could not use yet
    size_t retry_at; // the backlog that makes another try worth while
    int eighths;     // of its sides that the picture is decoded at; 0: as few as the tiny picture wants
    int max_scans;
    unsigned seen;   // components that have had a scan, a bit each
    int whole_scans; // that were read to their end
    int shown_scans; // of which there was a preview
    bool complete;   // each component has had a whole scan
    bool preview_wanted;
    int orientation; // for the preview
    size_t max_preview; // 0: there can be none
    JPEGPreview *preview;
    size_t max_memory, memory;
    Thumb thumb;
    bool has_thumb;
    JSAMPARRAY rows[MAX_COMPONENTS];
    bool wants_rows, has_rows;
    JDIMENSION mcu_row; // of `rows`
    JPEGProfile profile;
    uint8_t *exif;
    size_t exif_count;
    char message[JMSG_LENGTH_MAX];
};

static JPEGReader *reader_of(void *cinfo) {
    return ((j_common_ptr)cinfo)->client_data;
}

_Noreturn static void fail(JPEGReader *reader, CodecFault fault, const char *message) {
    reader->fault = reader->made_end ? CodecFaultCutShort : fault;
    if (message) snprintf(reader->message, sizeof reader->message, "%s", message);
    longjmp(reader->escape, 1);
}

static CodecFault fault_of(int code) {
    switch (code) {
    case JERR_OUT_OF_MEMORY:
    case JERR_NO_BACKING_STORE:
        return CodecFaultTooMuchMemory;
    case JERR_IMAGE_TOO_BIG:
        return CodecFaultTooLarge;
    case JERR_SOF_UNSUPPORTED:
    case JERR_BAD_PRECISION:
    case JERR_ARITH_NOTIMPL:
    case JERR_CCIR601_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_NOT_COMPILED:
        return CodecFaultUnsupported;
    default:
        return CodecFaultBroken;
    }
}

_Noreturn static void on_error(j_common_ptr cinfo) {
    JPEGReader *reader = reader_of(cinfo);
    cinfo->err->format_message(cinfo, reader->message);
    fail(reader, fault_of(cinfo->err->msg_code), NULL);
}

// Damaged data is only a warning to the library, which goes on with grey. These are the warnings
// that sound pictures show; every other one is a failure.
static bool is_harmless(j_common_ptr cinfo) {
    const int *parameters = cinfo->err->msg_parm.i;
    switch (cinfo->err->msg_code) {
    case JWRN_ADOBE_XFORM:    // a colour transform that Adobe did not define: a guess is made
    case JWRN_JFIF_MAJOR:     // a JFIF version other than 1
    case JWRN_NOT_SEQUENTIAL: // spectral selection in a sequential scan, where it has no meaning
        return true;
    case JWRN_EXTRANEOUS_DATA: { // padding before a marker; within a scan's data it is damage
        bool restart = parameters[1] >= 0xD0 && parameters[1] <= 0xD7;
        return !restart && parameters[0] <= MAX_PADDING;
    }
    default:
        return false;
    }
}

static void on_message(j_common_ptr cinfo, int level) {
    if (level >= 0 || is_harmless(cinfo)) return;
    on_error(cinfo);
}

static void ignore_output(j_common_ptr cinfo) {
    (void)cinfo;
}

static void source_nothing(j_decompress_ptr cinfo) {
    (void)cinfo;
}

// Whether the library is within entropy-coded data that its arithmetic decoder must have whole.
static bool needs_all(const JPEGReader *reader) {
    if (!reader->cinfo.arith_code) return false;
    return reader->stage == ROWS || (reader->stage == SCANS && reader->in_scan);
}

// A picture in one scan whose last MCU came but whose EOI did not is whole. Only an EOI in its place
// lets the library decode that MCU: it looks ahead. Should bits be missing, it warns, and the
// picture is cut short. An arithmetic decoder would not warn, and of several scans any might be missing.
static bool can_make_end(const JPEGReader *reader) {
    return reader->ended && !reader->many_scans && !reader->cinfo.arith_code
        && (reader->stage == ROWS || reader->stage == FINISH);
}

static boolean source_fill(j_decompress_ptr cinfo) {
    static const JOCTET end_of_image[2] = {0xFF, JPEG_EOI};
    JPEGReader *reader = reader_of(cinfo);
    if (reader->made_end) fail(reader, CodecFaultCutShort, "the bytes end before the image");
    // The arithmetic decoder cannot suspend: it was given everything there is.
    if (needs_all(reader)) fail(reader, CodecFaultCutShort, "the bytes end before the image");
    if (!can_make_end(reader)) return FALSE;
    reader->made_end = true;
    cinfo->src->next_input_byte = end_of_image;
    cinfo->src->bytes_in_buffer = sizeof end_of_image;
    return TRUE;
}

static void source_skip(j_decompress_ptr cinfo, long count) {
    if (count <= 0) return;
    struct jpeg_source_mgr *source = cinfo->src;
    size_t now = (size_t)count;
    if (now > source->bytes_in_buffer) {
        reader_of(cinfo)->to_skip += now - source->bytes_in_buffer;
        now = source->bytes_in_buffer;
    }
    source->next_input_byte += now;
    source->bytes_in_buffer -= now;
}

// Takes an APP1 segment once it is there whole; keeps the first that is EXIF. The library's own way to
// keep markers would keep as many as the file has.
static boolean take_app1(j_decompress_ptr cinfo) {
    static const char name[6] = "Exif\0";
    JPEGReader *reader = reader_of(cinfo);
    struct jpeg_source_mgr *source = cinfo->src;
    const JOCTET *bytes = source->next_input_byte;
    if (source->bytes_in_buffer < 2) return FALSE;
    size_t length = (size_t)bytes[0] << 8 | bytes[1];
    if (length < 2) ERREXIT(cinfo, JERR_BAD_LENGTH);
    if (source->bytes_in_buffer < length) return FALSE;
    size_t head = 2 + sizeof name;
    if (!reader->exif && length > head && !memcmp(bytes + 2, name, sizeof name)) {
        reader->exif = malloc(length - head);
        if (!reader->exif) fail(reader, CodecFaultTooMuchMemory, "out of memory");
        reader->exif_count = length - head;
        memcpy(reader->exif, bytes + head, length - head);
    }
    source_skip(cinfo, (long)length);
    return TRUE;
}

// Takes an APP2 segment, which may have a part of a colour profile.
static boolean take_app2(j_decompress_ptr cinfo) {
    JPEGReader *reader = reader_of(cinfo);
    struct jpeg_source_mgr *source = cinfo->src;
    if (source->bytes_in_buffer < 2) return FALSE;
    size_t length = (size_t)source->next_input_byte[0] << 8 | source->next_input_byte[1];
    if (length < 2) ERREXIT(cinfo, JERR_BAD_LENGTH);
    if (source->bytes_in_buffer < length) return FALSE;
    if (reader->stage == HEADER) jpeg_profile_take(&reader->profile, source->next_input_byte, length);
    source_skip(cinfo, (long)length);
    return TRUE;
}

void jpeg_reader_want_rows(JPEGReader *reader) {
    reader->wants_rows = true;
    jpeg_set_marker_processor(&reader->cinfo, JPEG_APP0 + 2, take_app2);
}

JPEGReader *jpeg_reader_create(size_t max_memory) {
    JPEGReader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->max_scans = 1;
    reader->max_memory = max_memory;
    reader->cinfo.err = jpeg_std_error(&reader->errors);
    reader->errors.error_exit = on_error;
    reader->errors.emit_message = on_message;
    reader->errors.output_message = ignore_output;
    reader->cinfo.client_data = reader;
    if (setjmp(reader->escape)) {
        jpeg_reader_destroy(reader);
        return NULL;
    }
    jpeg_create_decompress(&reader->cinfo);
    reader->cinfo.mem->max_memory_to_use = (long)(max_memory > LONG_MAX ? LONG_MAX : max_memory);
    reader->source.init_source = source_nothing;
    reader->source.term_source = source_nothing;
    reader->source.fill_input_buffer = source_fill;
    reader->source.skip_input_data = source_skip;
    reader->source.resync_to_restart = jpeg_resync_to_restart;
    reader->cinfo.src = &reader->source;
    jpeg_set_marker_processor(&reader->cinfo, JPEG_APP0 + 1, take_app1);
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

// Scans that a preview begun now would show; 0 where an earlier one showed as many, or none can.
static int scans_to_show(const JPEGReader *reader) {
    bool may = reader->stage == SCANS && reader->max_preview && reader->complete && !reader->ended;
    return may && reader->whole_scans > reader->shown_scans ? reader->whole_scans : 0;
}

CodecPicture jpeg_reader_picture(const JPEGReader *reader) {
    CodecPicture picture = {
        .width = reader->cinfo.image_width,
        .height = reader->cinfo.image_height,
        .decodingMemory = reader->memory,
        .maxBacklog = reader->cinfo.arith_code ? MAX_ARITHMETIC_BACKLOG : 0,
        .isProgressive = reader->cinfo.progressive_mode,
        .hasAlpha = false,
        .exif = reader->exif,
        .exifCount = reader->exif_count,
        .scansToShow = scans_to_show(reader),
    };
    if (reader->has_thumb) thumb_tell(&reader->thumb, &picture);
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
    CodecRows rows = {.rows = (const uint8_t *const *)reader->rows[plane]};
    int lines = jpeg_planes_sides(&reader->cinfo, plane, reader->eighths, reader->many_scans, &rows.width,
        &rows.height);
    uint32_t first = reader->mcu_row * (uint32_t)lines;
    uint32_t left = rows.height > first ? rows.height - first : 0;
    if (reader->has_rows) rows.count = (uint32_t)lines < left ? lines : (int)left;
    return rows;
}

const char *jpeg_reader_message(const JPEGReader *reader) {
    return reader->message;
}

static size_t rounded_up(size_t value, size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// One row of MCUs of samples, and for several scans all coefficients, with a pointer a row of blocks; the
// bytes themselves where they must all be there.
static size_t memory_needed(j_decompress_ptr cinfo, bool many_scans) {
    size_t sum = BASE_MEMORY + (cinfo->arith_code ? MAX_ARITHMETIC_BACKLOG : 0);
    for (int index = 0; index < cinfo->num_components; index++) {
        const jpeg_component_info *component = &cinfo->comp_info[index];
        size_t across = component->h_samp_factor, down = component->v_samp_factor;
        size_t columns = rounded_up(component->width_in_blocks, across);
        size_t lines = rounded_up(component->height_in_blocks, down);
        sum += down * DCTSIZE * (columns * DCTSIZE + sizeof(JSAMPROW) + 64);
        if (many_scans) sum += lines * (columns * sizeof(JBLOCK) + sizeof(JBLOCKROW) + 64);
    }
    return sum;
}

// Previews are an addition: they never make a picture need more than it may.
static void allow_previews(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    if (!reader->many_scans || !jpeg_preview_fits(cinfo)) return;
    size_t samples = 0;
    for (int index = 0; index < cinfo->num_components; index++) {
        const jpeg_component_info *component = &cinfo->comp_info[index];
        samples += (size_t)component->width_in_blocks * component->height_in_blocks * DCTSIZE2;
    }
    size_t bytes = samples / 4 + MIN_PREVIEW;
    if (bytes > MAX_PREVIEW) bytes = MAX_PREVIEW;
    size_t memory = JPEG_PREVIEW_MEMORY + PREVIEW_COPIES * bytes;
    if (reader->memory > reader->max_memory || memory > reader->max_memory - reader->memory) return;
    reader->max_preview = bytes;
    reader->memory += memory;
}

// Refuses what the library could not show: its own checks would come with the conversions that
// raw output leaves out.
static void check_header(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    if (cinfo->jpeg_color_space == JCS_UNKNOWN)
        fail(reader, CodecFaultUnsupported, "a number of components other than 1, 3 and 4");
    for (int index = 0; index < cinfo->num_components; index++) {
        const jpeg_component_info *component = &cinfo->comp_info[index];
        if (cinfo->max_h_samp_factor % component->h_samp_factor
            || cinfo->max_v_samp_factor % component->v_samp_factor)
            ERREXIT(cinfo, JERR_FRACT_SAMPLE_NOTIMPL);
    }
}

static bool read_header(JPEGReader *reader) {
    if (jpeg_read_header(&reader->cinfo, TRUE) == JPEG_SUSPENDED) return false;
    check_header(reader);
    jpeg_profile_join(&reader->profile);
    reader->many_scans = jpeg_has_multiple_scans(&reader->cinfo);
    reader->memory = memory_needed(&reader->cinfo, reader->many_scans);
    allow_previews(reader);
    reader->stage = START;
    return true;
}

static void count_scan(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    reader->in_scan = true;
    if (cinfo->input_scan_number > reader->max_scans)
        fail(reader, CodecFaultTooManyScans, "too many scans");
    if (cinfo->progressive_mode && cinfo->Ss != 0) return;
    for (int index = 0; index < cinfo->comps_in_scan; index++)
        reader->seen |= 1u << cinfo->cur_comp_info[index]->component_index;
}

// The smallest scale that leaves the tiny picture enough.
static int least_eighths(j_decompress_ptr cinfo) {
    JDIMENSION longest = cinfo->image_width > cinfo->image_height ? cinfo->image_width : cinfo->image_height;
    int eighths = 1;
    while (eighths < DCTSIZE && (uint64_t)longest * eighths < (uint64_t)LEAST_DECODED * DCTSIZE) eighths *= 2;
    return eighths;
}

static void allocate_rows(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    for (int index = 0; index < cinfo->num_components; index++) {
        const jpeg_component_info *component = &cinfo->comp_info[index];
        JDIMENSION columns = rounded_up(component->width_in_blocks, component->h_samp_factor)
            * component->DCT_scaled_size;
        reader->rows[index] = cinfo->mem->alloc_sarray(
            (j_common_ptr)cinfo, JPOOL_IMAGE, columns,
            component->v_samp_factor * component->DCT_scaled_size);
    }
}

static void start(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    count_scan(reader);
    if (!reader->eighths) reader->eighths = least_eighths(cinfo);
    cinfo->raw_data_out = TRUE;
    cinfo->out_color_space = cinfo->jpeg_color_space;
    cinfo->do_fancy_upsampling = FALSE;
    cinfo->do_block_smoothing = FALSE;
    cinfo->buffered_image = reader->many_scans;
    // Previews are as large as the picture; the pass that follows them is scaled when it starts.
    cinfo->scale_num = (unsigned)(reader->max_preview ? DCTSIZE : reader->eighths);
    cinfo->scale_denom = DCTSIZE;
    if (!jpeg_start_decompress(cinfo)) fail(reader, CodecFaultBroken, "cannot start");
    allocate_rows(reader);
    if (!reader->many_scans) jpeg_thumb_start(&reader->thumb, cinfo);
    reader->stage = reader->many_scans ? SCANS : ROWS;
}

static int lines_at_once(const JPEGReader *reader) {
    return reader->cinfo.max_v_samp_factor * reader->cinfo.min_DCT_scaled_size;
}

// False: it needs bytes.
static bool read_rows(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    JDIMENSION row = cinfo->output_iMCU_row;
    if (!jpeg_read_raw_data(cinfo, reader->rows, (JDIMENSION)lines_at_once(reader))) return false;
    jpeg_thumb_add(&reader->thumb, cinfo, row, reader->rows);
    reader->mcu_row = row;
    reader->has_rows = reader->wants_rows;
    if (cinfo->output_scanline < cinfo->output_height) return true;
    // The end was read already, so this waits for nothing.
    if (reader->many_scans) jpeg_finish_output(cinfo);
    reader->stage = FINISH;
    return true;
}

static unsigned all_components(const JPEGReader *reader) {
    return (1u << reader->cinfo.num_components) - 1;
}

// What jpeg_calc_output_dimensions sets before the first pass, and what passes look at: all coefficients
// are there, so that each pass may have a scale of its own.
static void scale_pass(j_decompress_ptr cinfo, int eighths) {
    cinfo->min_DCT_scaled_size = eighths;
    cinfo->output_width = (cinfo->image_width * (uint64_t)eighths + DCTSIZE - 1) / DCTSIZE;
    cinfo->output_height = (cinfo->image_height * (uint64_t)eighths + DCTSIZE - 1) / DCTSIZE;
    for (int index = 0; index < cinfo->num_components; index++)
        cinfo->comp_info[index].DCT_scaled_size = eighths;
}

static void start_output(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    // A progressive picture need not refine every coefficient (T.81, G.1.1.1), but it needs some of each
    // component.
    if (reader->seen != all_components(reader))
        fail(reader, CodecFaultBroken, "a component without data");
    cinfo->do_block_smoothing = FALSE;
    scale_pass(cinfo, reader->eighths);
    jpeg_thumb_start(&reader->thumb, cinfo);
    if (!jpeg_start_output(cinfo, cinfo->input_scan_number))
        fail(reader, CodecFaultBroken, "cannot start output");
    reader->stage = OUTPUT;
}

static void drop_preview(JPEGReader *reader) {
    jpeg_preview_destroy(reader->preview);
    reader->preview = NULL;
}

static void start_preview(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    reader->preview_wanted = false;
    drop_preview(reader);
    reader->preview = jpeg_preview_create(cinfo, reader->orientation, reader->max_preview);
    // Also where that failed: the next one is of more scans.
    reader->shown_scans = reader->whole_scans;
    if (!reader->preview) return;
    cinfo->do_block_smoothing = TRUE;
    if (!jpeg_start_output(cinfo, reader->whole_scans))
        fail(reader, CodecFaultBroken, "cannot start output");
    // The library takes in no bytes for a pass that is behind its input, not even the markers after the scan.
    cinfo->output_scan_number = 0;
    reader->stage = PREVIEW;
}

static void end_preview(JPEGReader *reader, bool whole) {
    jpeg_finish_output(&reader->cinfo);
    reader->stage = SCANS;
    if (!whole || !jpeg_preview_finish(reader->preview)) drop_preview(reader);
}

static void render_preview(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    jpeg_read_raw_data(cinfo, reader->rows, (JDIMENSION)lines_at_once(reader));
    bool taken = jpeg_preview_write(reader->preview, reader->rows);
    if (!taken || cinfo->output_scanline >= cinfo->output_height) end_preview(reader, taken);
}

static bool read_scans(JPEGReader *reader) {
    switch (jpeg_consume_input(&reader->cinfo)) {
    case JPEG_SUSPENDED:
        return false;
    case JPEG_REACHED_SOS:
        count_scan(reader);
        return true;
    case JPEG_SCAN_COMPLETED:
        reader->in_scan = false;
        reader->whole_scans = reader->cinfo.input_scan_number;
        reader->complete = reader->seen == all_components(reader);
        return true;
    case JPEG_REACHED_EOI:
        start_output(reader);
        return true;
    default:
        return true;
    }
}

static bool finish(JPEGReader *reader) {
    if (!jpeg_finish_decompress(&reader->cinfo)) return false;
    jpeg_thumb_finish(&reader->thumb, &reader->cinfo);
    reader->has_thumb = true;
    reader->stage = FINISHED;
    return true;
}

// One call into the library. False: it needs bytes.
static bool advance(JPEGReader *reader) {
    switch (reader->stage) {
    case HEADER:
        return read_header(reader);
    case START:
        start(reader);
        return true;
    case ROWS:
    case OUTPUT:
        return read_rows(reader);
    case SCANS:
        return read_scans(reader);
    case PREVIEW:
        render_preview(reader);
        return true;
    case FINISH:
        return finish(reader);
    default:
        return true;
    }
}

// Lets the library see what it refused before and a window more. Returns how many bytes stay unseen.
static size_t show(JPEGReader *reader, const uint8_t *end) {
    if (reader->made_end) return 0;
    struct jpeg_source_mgr *source = &reader->source;
    size_t left = (size_t)(end - source->next_input_byte);
    size_t skipped = reader->to_skip < left ? reader->to_skip : left;
    source->next_input_byte += skipped;
    reader->to_skip -= skipped;
    left -= skipped;
    bool all = needs_all(reader) || left <= reader->refused + WINDOW;
    source->bytes_in_buffer = all ? left : reader->refused + WINDOW;
    return left - source->bytes_in_buffer;
}

static CodecStatus out_of_bytes(JPEGReader *reader) {
    if (reader->ended) fail(reader, CodecFaultCutShort, "the bytes end before the image");
    // Bytes that drip into a long marker are not read from its start each time.
    reader->retry_at = reader->refused < 4096 ? 0 : reader->refused + reader->refused / 16;
    return CodecStatusNeedsBytes;
}

static CodecStatus run(JPEGReader *reader, const uint8_t *end) {
    Slice slice = slice_start();
    // The picture itself comes first.
    if (reader->ended && reader->stage == PREVIEW) end_preview(reader, false);
    if (reader->preview_wanted && scans_to_show(reader)) start_preview(reader);
    do {
        Stage stage = reader->stage;
        if (reader->cinfo.arith_code && stage == START && !reader->ended)
            return CodecStatusNeedsBytes;
        size_t unseen = show(reader, end);
        if (advance(reader)) {
            reader->refused = 0;
        } else {
            reader->refused = reader->source.bytes_in_buffer;
            if (reader->refused >= MAX_BACKLOG)
                fail(reader, CodecFaultBroken, "a marker without an end");
            if (!unseen) return out_of_bytes(reader);
        }
        if (stage == HEADER && reader->stage == START) return CodecStatusHeader;
        if (reader->stage == FINISHED) return CodecStatusFinished;
        if (reader->has_rows) return CodecStatusRows;
    } while (!slice_is_over(slice));
    return CodecStatusHasMore;
}

CodecStep jpeg_reader_step(JPEGReader *reader, const uint8_t *bytes, size_t count, bool ended) {
    if (reader->stage == FINISHED) return (CodecStep){CodecStatusFinished, CodecFaultNone, count};
    if (reader->stage == FAILED) return (CodecStep){CodecStatusFailed, reader->fault, count};
    if (setjmp(reader->escape)) {
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

void jpeg_reader_want_preview(JPEGReader *reader, int orientation) {
    reader->orientation = orientation;
    reader->preview_wanted = scans_to_show(reader) > 0;
}

void jpeg_reader_drop_preview(JPEGReader *reader) {
    reader->preview_wanted = false;
    if (setjmp(reader->escape)) {
        reader->stage = FAILED;
        return;
    }
    if (reader->stage == PREVIEW) end_preview(reader, false);
    drop_preview(reader);
}

CodecPreview jpeg_reader_preview(const JPEGReader *reader) {
    if (!reader->preview || reader->stage == PREVIEW) return (CodecPreview){0};
    const Encoded *encoded = jpeg_preview_encoded(reader->preview);
    return (CodecPreview){encoded->bytes, encoded->count, reader->shown_scans};
}
