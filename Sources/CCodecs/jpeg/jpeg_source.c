// Feeds a JPEG's bytes to libjpeg-turbo, keeps some of its markers, and judges its warnings about damage.
#include "jpeg_reader.h"

#include <stdlib.h>
#include <string.h>

// The most bytes between the end of a scan's data and the next marker. Cameras and scanners write such padding.
#define MAX_PADDING 512
// The same before a restart marker. Cameras write up to 12 bytes. More may be data that a damaged interval left
// unread.
#define MAX_RESTART_PADDING 32
// The same before EOI.
#define MAX_END_PADDING 4096

static JPEGReader *reader_of(void *cinfo) {
    return ((j_common_ptr)cinfo)->client_data;
}

_Noreturn void jpeg_reader_fail(JPEGReader *reader, CodecFault fault, const char *message) {
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
#if JPEG_LIB_VERSION < 70
    case JERR_ARITH_NOTIMPL:
#endif
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
    jpeg_reader_fail(reader, fault_of(cinfo->err->msg_code), NULL);
}

// The library treats damaged data as a warning and continues with gray. The warnings listed here occur in valid
// files; all others are failures.
static bool is_harmless(j_common_ptr cinfo) {
    const int *parameters = cinfo->err->msg_parm.i;
    switch (cinfo->err->msg_code) {
    case JWRN_ADOBE_XFORM:    // a color transform that Adobe did not define; the library guesses
    case JWRN_JFIF_MAJOR:     // a JFIF version other than 1
    case JWRN_NOT_SEQUENTIAL: // spectral selection in a sequential scan, where it has no meaning
        return true;
    case JWRN_EXTRANEOUS_DATA: { // padding before a marker; a restart marker out of sequence has another warning
        int marker = parameters[1];
        bool is_restart = marker >= JPEG_RST0 && marker <= JPEG_RST0 + 7;
        // This is the only warning that an arithmetic decoder gives about damage within a scan.
        if (is_restart) return !reader_of(cinfo)->cinfo.arith_code && parameters[0] <= MAX_RESTART_PADDING;
        return parameters[0] <= (marker == JPEG_EOI ? MAX_END_PADDING : MAX_PADDING);
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

void jpeg_reader_set_errors(JPEGReader *reader) {
    reader->cinfo.err = jpeg_std_error(&reader->errors);
    reader->errors.error_exit = on_error;
    reader->errors.emit_message = on_message;
    reader->errors.output_message = ignore_output;
}

static void source_nothing(j_decompress_ptr cinfo) {
    (void)cinfo;
}

// Whether the library is within entropy-coded data that its arithmetic decoder needs as a whole.
bool jpeg_reader_needs_all(const JPEGReader *reader) {
    if (!reader->cinfo.arith_code) return false;
    return reader->stage == ROWS || (reader->stage == SCANS && reader->in_scan);
}

// Whether no later scan could add anything. A progressive image must have each coefficient at full precision,
// another image one scan of each component. The last scan may still be in progress.
static bool has_all_scans(const JPEGReader *reader) {
    const struct jpeg_decompress_struct *cinfo = &reader->cinfo;
    if (reader->seen != (1u << cinfo->num_components) - 1) return false;
    if (!cinfo->progressive_mode) return true;
    for (int component = 0; component < cinfo->num_components; component++)
        for (int coefficient = 0; coefficient < DCTSIZE2; coefficient++)
            if (cinfo->coef_bits[component][coefficient] != 0) return false;
    return true;
}

// Whether an EOI may be added to an image that lacks only its EOI. The library reads ahead, so it decodes the
// last MCU only after an EOI. If bits are missing, it warns, and the image counts as cut short. An arithmetic
// decoder would not warn.
static bool can_make_end(const JPEGReader *reader) {
    if (!reader->ended || reader->cinfo.arith_code) return false;
    if (reader->many_scans) return reader->stage == SCANS && has_all_scans(reader);
    return reader->stage == ROWS || reader->stage == FINISH;
}

static boolean source_fill(j_decompress_ptr cinfo) {
    static const JOCTET end_of_image[2] = {0xFF, JPEG_EOI};
    JPEGReader *reader = reader_of(cinfo);
    if (reader->made_end) jpeg_reader_fail(reader, CodecFaultCutShort, "the bytes end before the image");
    // The arithmetic decoder cannot suspend; it was given all bytes.
    if (jpeg_reader_needs_all(reader)) jpeg_reader_fail(reader, CodecFaultCutShort, "the bytes end before the image");
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

// Reads an APP1 segment once it is complete, and keeps the first one with EXIF. The library's own function
// would keep all segments of the file.
static boolean read_app1(j_decompress_ptr cinfo) {
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
        if (!reader->exif) jpeg_reader_fail(reader, CodecFaultTooMuchMemory, "out of memory");
        reader->exif_count = length - head;
        memcpy(reader->exif, bytes + head, length - head);
    }
    source_skip(cinfo, (long)length);
    return TRUE;
}

// Reads an APP2 segment, which may contain a part of a color profile. Other segments are skipped exactly as the
// library does. So files with a cut segment give the same result whether rows are requested or not.
static boolean read_app2(j_decompress_ptr cinfo) {
    JPEGReader *reader = reader_of(cinfo);
    struct jpeg_source_mgr *source = cinfo->src;
    if (source->bytes_in_buffer < 2) return FALSE;
    size_t length = (size_t)source->next_input_byte[0] << 8 | source->next_input_byte[1];
    if (length < 2) length = 2;
    if (reader->stage == HEADER) {
        if (source->bytes_in_buffer < length) return FALSE;
        jpeg_profile_add(&reader->profile, source->next_input_byte, length);
    }
    source_skip(cinfo, (long)length);
    return TRUE;
}

void jpeg_reader_request_rows(JPEGReader *reader) {
    reader->wants_rows = true;
    jpeg_set_marker_processor(&reader->cinfo, JPEG_APP0 + 2, read_app2);
}

void jpeg_reader_set_source(JPEGReader *reader) {
    reader->source = (struct jpeg_source_mgr){
        .init_source = source_nothing,
        .term_source = source_nothing,
        .fill_input_buffer = source_fill,
        .skip_input_data = source_skip,
        .resync_to_restart = jpeg_resync_to_restart,
    };
    reader->cinfo.src = &reader->source;
    jpeg_set_marker_processor(&reader->cinfo, JPEG_APP0 + 1, read_app1);
}
