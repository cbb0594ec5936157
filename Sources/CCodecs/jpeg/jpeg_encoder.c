// Encodes baseline JPEG with libjpeg-turbo to memory.
#include "encoder.h"
#include "jpeg_window.h"
#include "output.h"

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#define PIECE ((size_t)16 * 1024)
// From this quality on, chroma is not subsampled.
#define WHOLE_CHROMA 90

typedef struct {
    Encoder encoder;
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_destination_mgr destination;
    jmp_buf escape;
    Output output;
    bool failed;
    JPEGWindow window; // for separate planes
} Writer;

_Noreturn static void fail(Writer *writer) {
    writer->failed = true;
    longjmp(writer->escape, 1);
}

static void on_error(j_common_ptr cinfo) {
    fail(cinfo->client_data);
}

static void ignore(j_common_ptr cinfo) {
    (void)cinfo;
}

static void ignore_level(j_common_ptr cinfo, int level) {
    (void)cinfo, (void)level;
}

static void more_room(j_compress_ptr cinfo) {
    Writer *writer = cinfo->client_data;
    Output *output = &writer->output;
    size_t left = output->limit - output->count;
    if (!left || !output_reserve(output, left < PIECE ? left : PIECE)) fail(writer);
    cinfo->dest->next_output_byte = output->bytes + output->count;
    cinfo->dest->free_in_buffer = output->room - output->count;
}

// Called when the buffer is full.
static boolean flush(j_compress_ptr cinfo) {
    Writer *writer = cinfo->client_data;
    writer->output.count = writer->output.room;
    more_room(cinfo);
    return TRUE;
}

static void finish_destination(j_compress_ptr cinfo) {
    Output *output = &((Writer *)cinfo->client_data)->output;
    output->count = output->room - cinfo->dest->free_in_buffer;
}

static bool rows(Encoder *encoder, const uint8_t *bytes, size_t stride, int count) {
    Writer *writer = encoder->context;
    if (writer->failed || setjmp(writer->escape)) return false;
    for (int row = 0; row < count; row++) {
        // The library's parameter lacks a const; it only reads.
        JSAMPROW pointer = (JSAMPROW)(uintptr_t)(bytes + (size_t)row * stride);
        jpeg_write_scanlines(&writer->cinfo, &pointer, 1);
    }
    return true;
}

static bool finish(Encoder *encoder) {
    Writer *writer = encoder->context;
    if (writer->failed || setjmp(writer->escape)) return false;
    if (writer->cinfo.raw_data_in && writer->cinfo.next_scanline < writer->cinfo.image_height) fail(writer);
    jpeg_finish_compress(&writer->cinfo);
    encoder->bytes = writer->output.bytes;
    encoder->count = writer->output.count;
    return true;
}

static void close_writer(Encoder *encoder) {
    Writer *writer = encoder->context;
    if (!setjmp(writer->escape)) jpeg_destroy_compress(&writer->cinfo);
    jpeg_window_free(&writer->window);
    free(writer->output.bytes);
    free(writer);
}

bool jpeg_encoder_add_row(Encoder *encoder, int plane, const uint8_t *row) {
    Writer *writer = encoder->context;
    if (writer->failed || setjmp(writer->escape)) return false;
    if (!jpeg_window_add(&writer->window, plane, row)) fail(writer);
    JSAMPARRAY planes[MAX_COMPONENTS];
    while (jpeg_window_show(&writer->window, planes))
        jpeg_write_raw_data(
            &writer->cinfo, planes, (JDIMENSION)writer->cinfo.max_v_samp_factor * DCTSIZE);
    return true;
}

uint32_t jpeg_encoder_chroma(int quality) {
    return quality >= WHOLE_CHROMA ? 1 : 2;
}

static void start(
    Writer *writer, uint32_t width, uint32_t height, int channels, int quality, bool is_planes) {
    j_compress_ptr cinfo = &writer->cinfo;
    jpeg_create_compress(cinfo);
    writer->destination = (struct jpeg_destination_mgr){
        .init_destination = more_room, .empty_output_buffer = flush, .term_destination = finish_destination};
    cinfo->dest = &writer->destination;
    cinfo->image_width = width;
    cinfo->image_height = height;
    cinfo->input_components = channels;
    J_COLOR_SPACE colours = is_planes ? JCS_YCbCr : JCS_RGB;
    cinfo->in_color_space = channels == 1 ? JCS_GRAYSCALE : colours;
    jpeg_set_defaults(cinfo);
    jpeg_set_quality(cinfo, quality, TRUE);
    if (jpeg_encoder_chroma(quality) == 1)
        cinfo->comp_info[0].h_samp_factor = cinfo->comp_info[0].v_samp_factor = 1;
    // Huffman tables optimized for the image save 4 %, but take 2.8 times as long and need all coefficients in
    // memory.
    cinfo->optimize_coding = FALSE;
    cinfo->raw_data_in = is_planes;
    jpeg_start_compress(cinfo, TRUE);
    if (is_planes && !jpeg_window_start(&writer->window, cinfo)) fail(writer);
}

size_t jpeg_encoder_max_bytes(uint32_t width, uint32_t height, int channels, int quality) {
    // The worst case is black and white noise: 1.1 bytes per pixel at quality 89. At 100, 1.6 bytes per sample
    // in color and 1.9 in gray.
    size_t each = quality >= WHOLE_CHROMA ? 2 * (size_t)channels + 1 : 2;
    size_t across = (size_t)width + 16, down = (size_t)height + 16;
    return across * down * each + PIECE;
}

static Encoder *open_encoder(
    uint32_t width, uint32_t height, int channels, int quality, bool is_planes) {
    if (channels != 1 && channels != 3) return NULL;
    Writer *writer = calloc(1, sizeof *writer);
    if (!writer) return NULL;
    writer->encoder = (Encoder){
        .context = writer, .rows = rows, .finish = finish, .close = close_writer};
    writer->output.limit = jpeg_encoder_max_bytes(width, height, channels, quality);
    writer->cinfo.err = jpeg_std_error(&writer->errors);
    writer->errors.error_exit = on_error;
    writer->errors.output_message = ignore;
    writer->errors.emit_message = ignore_level;
    writer->cinfo.client_data = writer;
    if (setjmp(writer->escape)) {
        close_writer(&writer->encoder);
        return NULL;
    }
    start(writer, width, height, channels, quality, is_planes);
    return &writer->encoder;
}

Encoder *jpeg_encoder_open(uint32_t width, uint32_t height, int channels, int quality) {
    return open_encoder(width, height, channels, quality, false);
}

Encoder *jpeg_planes_encoder_open(uint32_t width, uint32_t height, int planes, int quality) {
    return open_encoder(width, height, planes, quality, true);
}
