// Decodes HEVC with libde265 on the caller's thread; the library starts no threads by default. If a slice ends
// too early, the library continues and shows uninitialized memory there. So HEVCProof decodes into planes
// filled with noise, and searches for the noise afterwards.
#include "hevc.h"

#include "CCodecs.h"
#include "heif_boxes.h"
#include "hevc_units.h"

#include <libde265/de265.h>
#include <stdlib.h>
#include <string.h>

// Padding of a plane; the library may read beyond its end.
#define PADDING 64
#define BASE_MEMORY ((uint64_t)4 * 1024 * 1024)
// The smallest unit of a slice, in pixels.
#define BLOCK 16
#define NOISE 256

struct HEVCDecoder {
    de265_decoder_context *context;
    HEVCFormat format;
    uint8_t *planes[3];
    size_t strides[3]; // in bytes
    bool is_proof, is_taken, has_failed;
    uint64_t slices;
    const struct de265_image *image; // set once decoding is done
    const char *message;
};

static HEVCState fail(HEVCDecoder *decoder, const char *message) {
    decoder->has_failed = true;
    decoder->message = message;
    return HEVCFailed;
}

static size_t sample_bytes(const HEVCFormat *format) {
    return format->depth > 8 ? 2 : 1;
}

// Fills a table with pseudorandom bytes, which do not occur in images.
static void make_noise(uint8_t noise[2 * NOISE]) {
    uint32_t state = 0x9E3779B9;
    for (int index = 0; index < NOISE; index++) {
        state = state * 1664525 + 1013904223;
        noise[index] = noise[index + NOISE] = (uint8_t)(state >> 24);
    }
}

static size_t noise_start(size_t row) {
    return row * 29 % NOISE;
}

static void fill(uint8_t *plane, size_t stride, uint32_t rows) {
    uint8_t noise[2 * NOISE];
    make_noise(noise);
    for (size_t row = 0; row < rows; row++)
        for (size_t at = 0; at < stride; at += NOISE) {
            size_t count = stride - at < NOISE ? stride - at : NOISE;
            memcpy(plane + row * stride + at, noise + noise_start(row), count);
        }
}

// Whether a block still has the noise: checks eight samples inside it, in two rows.
static bool is_untouched(const HEVCDecoder *decoder, const uint8_t *noise, uint32_t x, uint32_t y) {
    size_t bytes = sample_bytes(&decoder->format), at = (x + 3) * bytes;
    for (uint32_t row = y + 3; row < y + 6; row += 2) {
        const uint8_t *samples = decoder->planes[0] + row * decoder->strides[0] + at;
        const uint8_t *expected = noise + noise_start(row);
        for (size_t index = 0; index < 4 * bytes; index++)
            if (samples[index] != expected[(at + index) % NOISE]) return false;
    }
    return true;
}

// Whether a part was not decoded. Sides are multiples of eight; the library refuses others.
static bool has_gap(const HEVCDecoder *decoder) {
    uint8_t noise[2 * NOISE];
    make_noise(noise);
    for (uint32_t y = 0; y + 8 <= decoder->format.height; y += BLOCK)
        for (uint32_t x = 0; x + 8 <= decoder->format.width; x += BLOCK)
            if (is_untouched(decoder, noise, x, y)) return true;
    return false;
}

// Provides the planes of the only frame. Returns 0 for any other frame.
static int provide_planes(de265_decoder_context *context, struct de265_image_spec *spec, struct de265_image *image, void *user) {
    (void)context;
    HEVCDecoder *decoder = user;
    const HEVCFormat *format = &decoder->format;
    bool is_known = spec->width == (int)format->width && spec->height == (int)format->height
        && (int)de265_get_chroma_format(image) == format->chroma && de265_get_bits_per_pixel(image, 0) == format->depth;
    if (decoder->is_taken || !is_known) return 0;
    for (int plane = 0; plane < (format->chroma ? 3 : 1); plane++) {
        uint32_t width = format->width, height = format->height;
        if (plane && format->chroma < 3) width = (width + 1) / 2;
        if (plane && format->chroma == 1) height = (height + 1) / 2;
        size_t samples = ((size_t)width + 15) / 16 * 16, stride = samples * sample_bytes(format);
        void *memory = NULL;
        if (posix_memalign(&memory, 64, stride * height + PADDING)) return 0;
        decoder->planes[plane] = memory;
        decoder->strides[plane] = stride;
        fill(memory, stride, height);
        de265_set_image_plane(image, plane, memory, (int)stride, NULL);
    }
    if (!format->chroma)
        for (int plane = 1; plane < 3; plane++) de265_set_image_plane(image, plane, NULL, 0, NULL);
    decoder->is_taken = true;
    return 1;
}

// Does nothing: the planes are freed with the decoder.
static void release_planes(de265_decoder_context *context, struct de265_image *image, void *user) {
    (void)context, (void)image, (void)user;
}

static bool is_same(const HEVCFormat *one, const HEVCFormat *other) {
    return one->width == other->width && one->height == other->height && one->shown_width == other->shown_width
        && one->shown_height == other->shown_height && one->chroma == other->chroma && one->depth == other->depth;
}

// Passes a NAL unit to the library. A parameter set makes the library allocate memory, so it is checked first.
static CodecFault push(HEVCDecoder *decoder, HEVCUnit unit) {
    if (unit.type == HEVC_SEQUENCE_SET) {
        HEVCFormat format;
        CodecFault fault = hevc_read_format(unit.bytes, unit.count, &format);
        if (fault) return fault;
        if (!is_same(&format, &decoder->format)) return CodecFaultBroken;
    }
    if (unit.type < HEVC_SLICES) {
        bool is_first = unit.count > 2 && unit.bytes[2] & 0x80;
        if (is_first != !decoder->slices) return CodecFaultBroken;
        decoder->slices++;
    }
    de265_error error = de265_push_NAL(decoder->context, unit.bytes, (int)unit.count, 0, NULL);
    return error == DE265_OK ? CodecFaultNone : CodecFaultTooMuchMemory;
}

static CodecFault push_setup(HEVCDecoder *decoder, const uint8_t *setup, size_t count, int *length_size) {
    HEIFCursor cursor;
    int arrays;
    if (!hevc_setup(setup, count, &cursor, length_size, &arrays)) return CodecFaultBroken;
    for (; arrays; arrays--) {
        (void)heif_read(&cursor, 1);
        for (uint64_t left = heif_read(&cursor, 2); left; left--) {
            HEVCUnit unit;
            if (!hevc_next_unit(&cursor, 2, &unit)) return CodecFaultBroken;
            CodecFault fault = unit.type < HEVC_SLICES ? CodecFaultBroken : push(decoder, unit);
            if (fault) return fault;
        }
    }
    return CodecFaultNone;
}

static CodecFault push_all(
    HEVCDecoder *decoder, const uint8_t *setup, size_t setup_count, const uint8_t *bytes, size_t count) {
    int length_size;
    CodecFault fault = push_setup(decoder, setup, setup_count, &length_size);
    HEIFCursor cursor = {bytes, bytes + count, false};
    while (!fault && cursor.at < cursor.end) {
        HEVCUnit unit;
        fault = hevc_next_unit(&cursor, length_size, &unit) ? push(decoder, unit) : CodecFaultBroken;
    }
    if (!fault && !decoder->slices) fault = CodecFaultBroken;
    if (!fault) de265_flush_data(decoder->context);
    return fault;
}

// The library counts its users and frees the tables after the last one. This use is never released, so
// the tables stay. If this call fails for lack of memory, each decoder builds its own tables.
void heic_build_tables(void) { (void)de265_init(); }

HEVCDecoder *hevc_open(
    HEVCUse use, const uint8_t *setup, size_t setup_count, const HEVCFormat *format, const uint8_t *bytes,
    size_t count, CodecFault *fault) {
    *fault = CodecFaultTooMuchMemory;
    HEVCDecoder *decoder = calloc(1, sizeof *decoder);
    if (!decoder) return NULL;
    decoder->format = *format;
    decoder->is_proof = use == HEVCProof;
    decoder->context = de265_new_decoder();
    if (decoder->context) {
        if (decoder->is_proof) {
            struct de265_image_allocation planes = {provide_planes, release_planes};
            de265_set_image_allocation_functions(decoder->context, &planes, decoder);
            de265_set_parameter_bool(decoder->context, DE265_DECODER_PARAM_DISABLE_DEBLOCKING, 1);
            de265_set_parameter_bool(decoder->context, DE265_DECODER_PARAM_DISABLE_SAO, 1);
        }
        *fault = push_all(decoder, setup, setup_count, bytes, count);
        if (!*fault) return decoder;
    }
    hevc_close(decoder);
    return NULL;
}

void hevc_close(HEVCDecoder *decoder) {
    if (!decoder) return;
    if (decoder->context) de265_free_decoder(decoder->context);
    for (int plane = 0; plane < 3; plane++) free(decoder->planes[plane]);
    free(decoder);
}

// Whether a warning means damage. The library warns about damage and makes up the missing part. Warnings about
// entry points, threads and messages are harmless.
static bool is_damage(de265_error warning) {
    return warning != DE265_WARNING_INCORRECT_ENTRY_POINT_OFFSET && warning != DE265_WARNING_WARNING_BUFFER_FULL
        && warning != DE265_WARNING_NO_WPP_CANNOT_USE_MULTITHREADING
        && warning != DE265_WARNING_SPS_MISSING_CANNOT_DECODE_SEI;
}

HEVCState hevc_step(HEVCDecoder *decoder) {
    if (decoder->has_failed) return HEVCFailed;
    if (decoder->image) return HEVCDone;
    int more = 0;
    de265_error error = de265_decode(decoder->context, &more);
    de265_error warning;
    while ((warning = de265_get_warning(decoder->context)) != DE265_OK)
        if (is_damage(warning)) return fail(decoder, de265_get_error_text(warning));
    if (error != DE265_OK && (error < 1000 || is_damage(error))) return fail(decoder, de265_get_error_text(error));
    // The library keeps the frame and frees it with the decoder.
    decoder->image = de265_peek_next_picture(decoder->context);
    if (!decoder->image) return more ? HEVCGoesOn : fail(decoder, "no frame");
    if (decoder->is_proof && (!decoder->is_taken || has_gap(decoder))) return fail(decoder, "part of the image is missing");
    return HEVCDone;
}

const char *hevc_message(const HEVCDecoder *decoder) {
    return decoder->message;
}

uint64_t hevc_slices(const HEVCDecoder *decoder) {
    return decoder->slices;
}

bool hevc_image(const HEVCDecoder *decoder, avifImage *image) {
    static const avifPixelFormat formats[] = {
        AVIF_PIXEL_FORMAT_YUV400, AVIF_PIXEL_FORMAT_YUV420, AVIF_PIXEL_FORMAT_YUV422, AVIF_PIXEL_FORMAT_YUV444};
    const struct de265_image *from = decoder->image;
    const HEVCFormat *format = &decoder->format;
    bool is_known = (int)de265_get_chroma_format(from) == format->chroma
        && de265_get_bits_per_pixel(from, 0) == format->depth
        && de265_get_image_width(from, 0) == (int)format->shown_width
        && de265_get_image_height(from, 0) == (int)format->shown_height;
    if (!is_known) return false;
    *image = (avifImage){
        .width = format->shown_width, .height = format->shown_height, .depth = (uint32_t)format->depth,
        .yuvFormat = formats[format->chroma],
        .yuvRange = de265_get_image_full_range_flag(from) ? AVIF_RANGE_FULL : AVIF_RANGE_LIMITED,
        .colorPrimaries = (avifColorPrimaries)de265_get_image_colour_primaries(from),
        .transferCharacteristics = (avifTransferCharacteristics)de265_get_image_transfer_characteristics(from),
        .matrixCoefficients = (avifMatrixCoefficients)de265_get_image_matrix_coefficients(from),
    };
    for (int plane = 0; plane < (format->chroma ? 3 : 1); plane++) {
        int stride = 0;
        // The library's parameter lacks a const; it only reads.
        image->yuvPlanes[plane] = (uint8_t *)(uintptr_t)de265_get_image_plane(from, plane, &stride);
        image->yuvRowBytes[plane] = (uint32_t)stride;
        if (!image->yuvPlanes[plane] || stride <= 0) return false;
    }
    return true;
}

uint64_t hevc_memory(const HEVCFormat *format) {
    static const uint64_t halves[] = {2, 3, 4, 6};
    uint64_t pixels = ((uint64_t)format->width + 64) * ((uint64_t)format->height + 64);
    uint64_t planes = pixels * halves[format->chroma] / 2 * sample_bytes(format);
    // A copy of the planes while they are smoothed, and the metadata of each block of 4 × 4 pixels.
    return BASE_MEMORY + 2 * planes + 2 * pixels;
}
