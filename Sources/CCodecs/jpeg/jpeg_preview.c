#include "jpeg_preview.h"

#include "exif.h"

#include <setjmp.h>

#include <jerror.h>

// Close to the image's quality; the last scans are still missing.
#define QUALITY 85
// How many bytes the encoder writes at a time.
#define PIECE ((size_t)4096)

struct JPEGPreview {
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_destination_mgr destination;
    jmp_buf escape;
    Encoded encoded;
    JOCTET piece[PIECE];
};

static JPEGPreview *preview_of(void *cinfo) {
    return ((j_common_ptr)cinfo)->client_data;
}

_Noreturn static void on_error(j_common_ptr cinfo) {
    longjmp(preview_of(cinfo)->escape, 1);
}

static void on_message(j_common_ptr cinfo, int level) {
    (void)cinfo, (void)level;
}

static void next_piece(JPEGPreview *preview) {
    preview->destination.next_output_byte = preview->piece;
    preview->destination.free_in_buffer = PIECE;
}

static void append_piece(j_compress_ptr cinfo, size_t count) {
    JPEGPreview *preview = preview_of(cinfo);
    if (!encoded_append(&preview->encoded, preview->piece, count)) longjmp(preview->escape, 1);
    next_piece(preview);
}

static void destination_start(j_compress_ptr cinfo) {
    next_piece(preview_of(cinfo));
}

static boolean destination_flush(j_compress_ptr cinfo) {
    append_piece(cinfo, PIECE);
    return TRUE;
}

static void destination_end(j_compress_ptr cinfo) {
    append_piece(cinfo, PIECE - cinfo->dest->free_in_buffer);
}

bool jpeg_preview_fits(const struct jpeg_decompress_struct *source) {
    // The encoder's maximum sides are smaller than the decoder's.
    if (source->image_width > JPEG_MAX_DIMENSION || source->image_height > JPEG_MAX_DIMENSION)
        return false;
    if (source->num_components == 1) return true;
    int blocks = 0;
    for (int index = 0; index < source->num_components; index++)
        blocks += source->comp_info[index].h_samp_factor * source->comp_info[index].v_samp_factor;
    return source->num_components <= MAX_COMPS_IN_SCAN && blocks <= C_MAX_BLOCKS_IN_MCU;
}

static void write_orientation(j_compress_ptr cinfo, int orientation) {
    uint8_t block[6 + EXIF_ORIENTATION_SIZE] = "Exif\0";
    if (orientation <= 1) return;
    exif_of_orientation(orientation, block + 6);
    jpeg_write_marker(cinfo, JPEG_APP0 + 1, block, sizeof block);
}

// Uses the same components and sampling, but its own quantization, because the source's may have any values.
static void start(JPEGPreview *preview, const struct jpeg_decompress_struct *source, int orientation) {
    j_compress_ptr cinfo = &preview->cinfo;
    cinfo->image_width = source->image_width;
    cinfo->image_height = source->image_height;
    cinfo->input_components = source->num_components;
    cinfo->in_color_space = source->jpeg_color_space;
    jpeg_set_defaults(cinfo);
    jpeg_set_colorspace(cinfo, source->jpeg_color_space);
    jpeg_set_quality(cinfo, QUALITY, TRUE);
    // This marker shows decoders whether CMYK is stored inverted.
    if (source->num_components == 4) cinfo->write_Adobe_marker = source->saw_Adobe_marker;
    for (int index = 0; index < source->num_components; index++) {
        cinfo->comp_info[index].h_samp_factor = source->comp_info[index].h_samp_factor;
        cinfo->comp_info[index].v_samp_factor = source->comp_info[index].v_samp_factor;
    }
    cinfo->raw_data_in = TRUE;
    jpeg_start_compress(cinfo, TRUE);
    write_orientation(cinfo, orientation);
}

JPEGPreview *jpeg_preview_create(
    const struct jpeg_decompress_struct *source, int orientation, size_t max_bytes) {
    JPEGPreview *preview = calloc(1, sizeof *preview);
    if (!preview) return NULL;
    preview->encoded.limit = max_bytes;
    preview->cinfo.err = jpeg_std_error(&preview->errors);
    preview->errors.error_exit = on_error;
    preview->errors.emit_message = on_message;
    preview->cinfo.client_data = preview;
    if (setjmp(preview->escape)) {
        jpeg_preview_destroy(preview);
        return NULL;
    }
    jpeg_create_compress(&preview->cinfo);
    preview->destination.init_destination = destination_start;
    preview->destination.empty_output_buffer = destination_flush;
    preview->destination.term_destination = destination_end;
    preview->cinfo.dest = &preview->destination;
    start(preview, source, orientation);
    return preview;
}

bool jpeg_preview_write(JPEGPreview *preview, JSAMPARRAY *rows) {
    if (setjmp(preview->escape)) return false;
    JDIMENSION lines = preview->cinfo.max_v_samp_factor * DCTSIZE;
    return jpeg_write_raw_data(&preview->cinfo, rows, lines) > 0;
}

bool jpeg_preview_finish(JPEGPreview *preview) {
    if (setjmp(preview->escape)) return false;
    jpeg_finish_compress(&preview->cinfo);
    return true;
}

const Encoded *jpeg_preview_encoded(const JPEGPreview *preview) {
    return &preview->encoded;
}

void jpeg_preview_destroy(JPEGPreview *preview) {
    if (!preview) return;
    if (!setjmp(preview->escape)) jpeg_destroy_compress(&preview->cinfo);
    encoded_free(&preview->encoded);
    free(preview);
}
