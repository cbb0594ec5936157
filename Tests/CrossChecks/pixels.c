// Decodes image files, renders a test pattern, and writes every sample to standard output. `.ci/check-arm64` builds this for
// x86-64 and for AArch64 and compares the two outputs.
//
// The output is a sequence of records: a line `FILE NAME BYTES`, then that many bytes.
//
// All files are read before the first is decoded, and all records are written after the last. Between two writes to
// descriptor -1, the only system calls are those of the codecs.
#include "CCodecs.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_MEMORY ((size_t)512 << 20)
#define MAX_FILES 512

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "pixels: %s\n", what);
    exit(1);
}

// Records

static uint8_t *output;
static size_t output_count, output_room;
static const char *current;

static uint8_t *append(size_t count) {
    if (output_room - output_count < count) {
        output_room = 2 * (output_room + count);
        output = realloc(output, output_room);
        if (!output) fail("no memory");
    }
    output_count += count;
    return output + output_count - count;
}

static void record(const void *bytes, size_t count, const char *format, ...) {
    char what[128], line[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    int length = snprintf(line, sizeof line, "%s %s %zu\n", current, what, count);
    memcpy(append((size_t)length), line, (size_t)length);
    memcpy(append(count), bytes, count);
}

/// A buffer for samples whose number is not known in advance.
typedef struct {
    uint8_t *bytes;
    size_t count, room;
} Samples;

static void add(Samples *samples, const uint8_t *bytes, size_t count) {
    if (samples->room - samples->count < count) {
        samples->room = 2 * (samples->room + count);
        samples->bytes = realloc(samples->bytes, samples->room);
        if (!samples->bytes) fail("no memory");
    }
    memcpy(samples->bytes + samples->count, bytes, count);
    samples->count += count;
}

// The test pattern: gradients, edges and noise, with alpha in the last of 2 or 4 channels.

#define PATTERN_WIDTH 253u
#define PATTERN_HEIGHT 141u

static uint8_t pattern[PATTERN_WIDTH * PATTERN_HEIGHT * 4];

static void draw(int channels) {
    uint32_t noise = 1;
    uint8_t *sample = pattern;
    for (uint32_t y = 0; y < PATTERN_HEIGHT; y++)
        for (uint32_t x = 0; x < PATTERN_WIDTH; x++)
            for (int channel = 0; channel < channels; channel++) {
                noise = noise * 1664525u + 1013904223u;
                uint32_t value = x * (uint32_t)(channel + 1) + y;
                if (x / 32 % 2) value = y / 16 % 2 ? 255 : 0;
                if (y > 96) value = noise >> 24;
                *sample++ = (uint8_t)(value > 255 ? 511 - value % 512 : value);
            }
}

static void resample(int channels, bool has_alpha, ResamplerBox box, uint32_t width, uint32_t height, ResamplerFilter filter) {
    Resampler *resampler =
        resampler_open(PATTERN_WIDTH, PATTERN_HEIGHT, channels, has_alpha, box, width, height, 0, filter);
    if (!resampler) fail("no resampler");
    size_t stride = (size_t)PATTERN_WIDTH * (size_t)channels, out_stride = (size_t)width * (size_t)channels;
    uint8_t *row = malloc(out_stride);
    Samples samples = {0};
    for (uint32_t y = 0; y < PATTERN_HEIGHT; y++) {
        while (resampler_pull(resampler, row, out_stride, 1) > 0) add(&samples, row, out_stride);
        resampler_push(resampler, pattern + y * stride, stride, 1);
    }
    while (resampler_pull(resampler, row, out_stride, 1) > 0) add(&samples, row, out_stride);
    if (samples.count != out_stride * height) fail("the resampler wrote too few rows");
    record(samples.bytes, samples.count, "resampled-%d-%ux%u-%d", channels, width, height, filter);
    free(samples.bytes);
    free(row);
    resampler_close(resampler);
}

typedef Encoder *OpenEncoder(uint32_t width, uint32_t height, int channels, int quality);

static void encode(const char *format, OpenEncoder *open, int channels, int quality) {
    Encoder *encoder = open(PATTERN_WIDTH, PATTERN_HEIGHT, channels, quality);
    if (!encoder) fail("no encoder");
    if (!encoder->rows(encoder, pattern, (size_t)PATTERN_WIDTH * (size_t)channels, (int)PATTERN_HEIGHT)) fail("rows");
    if (!encoder->finish(encoder)) fail("finish");
    record(encoder->bytes, encoder->count, "encoded-%s-%d-%d", format, channels, quality);
    encoder->close(encoder);
}

static void convert_colours(void) {
    const size_t pixels = PATTERN_WIDTH * PATTERN_HEIGHT;
    uint8_t *out = malloc(4 * pixels), *planes[4];
    for (int is_inked = 0; is_inked < 2; is_inked++) {
        draw(3);
        memcpy(out, pattern, 3 * pixels);
        for (size_t plane = 0; plane < 3; plane++) planes[plane] = out + plane * pixels;
        colour_from_ycc(planes, pixels, is_inked);
        record(out, 3 * pixels, "from-ycc-%d", is_inked);
    }
    const uint8_t background[] = {250, 128, 3};
    for (int channels = 2; channels <= 4; channels += 2) {
        draw(channels);
        colour_flatten(pattern, channels, out, 3, pixels, background);
        record(out, 3 * pixels, "flattened-%d", channels);
    }
    colour_print(pattern, out, pixels);
    record(out, 3 * pixels, "printed");
    free(out);
}

static void render_pattern(void) {
    const ResamplerBox whole = {0, 0, PATTERN_WIDTH, PATTERN_HEIGHT}, part = {10.25, 3.5, 200.75, 120};
    for (int channels = 1; channels <= 4; channels++) {
        draw(channels);
        bool has_alpha = channels % 2 == 0;
        resample(channels, has_alpha, whole, 64, 36, ResamplerFilterLanczos);
        resample(channels, has_alpha, part, 117, 101, ResamplerFilterLanczos);
        resample(channels, has_alpha, whole, 400, 300, ResamplerFilterLanczos);
        resample(channels, has_alpha, whole, 506, 282, ResamplerFilterLinear);
        resample(channels, has_alpha, whole, 506, 282, ResamplerFilterNearest);
        encode("png", png_encoder_open, channels, 80);
        if (channels >= 3) encode("webp", webp_encoder_open, channels, 80);
        if (channels % 2 == 1) encode("jpeg", jpeg_encoder_open, channels, 80);
        if (channels % 2 == 1) encode("jpeg", jpeg_encoder_open, channels, 95);
    }
    convert_colours();
}

/// Converts the pattern from a profile's colors to sRGB.
static void apply_profile(const uint8_t *icc, size_t count) {
    if (!icc) return;
    const size_t pixels = PATTERN_WIDTH * PATTERN_HEIGHT;
    uint8_t *out = malloc(4 * pixels);
    for (int channels = 1; channels <= 4; channels++)
        for (int is_cmyk = 0; is_cmyk <= (channels == 4); is_cmyk++) {
            ColourTransform *transform = colour_transform_open(icc, count, channels, is_cmyk);
            if (!transform) continue;
            draw(channels);
            colour_transform_run(transform, pattern, out, pixels);
            record(out, pixels * (size_t)(is_cmyk ? 3 : channels), "profile-%d-%d", channels, is_cmyk);
            colour_transform_close(transform);
        }
    free(out);
}

// Files

typedef struct {
    const char *name;
    uint8_t *bytes;
    size_t count;
} File;

static File load(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) fail(path);
    const char *slash = strrchr(path, '/');
    File loaded = {.name = slash ? slash + 1 : path, .count = (size_t)ftell(file)};
    rewind(file);
    loaded.bytes = malloc(loaded.count + 1);
    if (!loaded.bytes || fread(loaded.bytes, 1, loaded.count, file) != loaded.count) fail(path);
    fclose(file);
    return loaded;
}

static void record_end(CodecStep step, CodecImageInfo picture) {
    char text[160];
    int length = snprintf(text, sizeof text, "%s, fault %d: %u x %u, alpha %d, progressive %d, frames %llu, turned %d",
        step.status == CodecStatusFinished ? "decoded" : "refused", step.fault, picture.width, picture.height,
        picture.hasAlpha, picture.isProgressive, (unsigned long long)picture.frames, picture.containerOrientation);
    record(text, (size_t)length, "end");
    if (step.status == CodecStatusFinished)
        record(picture.thumbnail, (size_t)4 * picture.thumbnailColumns * picture.thumbnailRows, "thumbnail-%ux%u",
            picture.thumbnailColumns, picture.thumbnailRows);
}

static void record_pixels(Pixels *pixels) {
    size_t stride = (size_t)pixels->width * (size_t)pixels->channels;
    uint8_t *row = malloc(stride);
    Samples samples = {0};
    int got;
    while ((got = pixels->rows(pixels, row, stride, 1)) != 0 && got != -1)
        if (got == 1) add(&samples, row, stride);
    if (got != 0) fail("pixels of a decoded image failed");
    record(samples.bytes, samples.count, "pixels-%ux%u-%d", pixels->width, pixels->height, pixels->channels);
    apply_profile(pixels->icc, pixels->icc_count);
    free(samples.bytes);
    free(row);
    pixels->close(pixels);
}

static void record_frames(Frames *frames) {
    const uint8_t *rgba;
    uint32_t milliseconds;
    int got, shown = 0;
    while ((got = frames->next(frames, &rgba, &milliseconds)) != 0 && got != -1)
        if (got == 1)
            record(rgba, (size_t)4 * frames->width * frames->height, "frame-%d-%ums", ++shown, milliseconds);
    if (got != 0) fail("frames of a decoded image failed");
    frames->close(frames);
}

static const CodecFrameLimits frame_limits = {1000, 1u << 26, 1u << 30};

/// Steps through a whole file. `bound` is called after the header, `rows` when there are rows.
#define DECODE(Reader, name, bound, rows)                                                           \
    CodecStep step;                                                                                 \
    for (size_t start = 0;;) {                                                                      \
        step = name##_reader_step(reader, file->bytes + start, file->count - start, true);          \
        start += step.consumed;                                                                     \
        if (step.status == CodecStatusHeader) bound;                                                \
        if (step.status == CodecStatusRows) rows;                                                   \
        if (step.status == CodecStatusNeedsBytes) fail("it needs bytes after the end");             \
        if (step.status == CodecStatusFinished || step.status == CodecStatusFailed) break;          \
    }                                                                                               \
    CodecImageInfo picture = name##_reader_picture(reader);                                           \
    record_end(step, picture)

/// Defines a format whose pixels are read again after decoding.
#define DEFINE_AGAIN(function, Reader, name, pixels_of, create, and_frames)                         \
    static void function(const File *file) {                                                        \
        Reader *reader = create;                                                                    \
        if (!reader) fail("no reader");                                                             \
        DECODE(Reader, name, name##_reader_allow_frames(reader, frame_limits), (void)0);            \
        CheckedImage checked = {picture.width, picture.height, picture.hasAlpha,                  \
            picture.isProgressive, picture.frames, picture.extraMemory};                            \
        name##_reader_destroy(reader);                                                              \
        if (step.status != CodecStatusFinished) return;                                             \
        CodecFault fault = CodecFaultNone;                                                          \
        Pixels *pixels = pixels_of##_pixels_open(file->bytes, file->count, checked, 0, 0, &fault);  \
        if (!pixels) fail("no pixels of a decoded image");                                          \
        record_pixels(pixels);                                                                      \
        and_frames                                                                                  \
    }

#define FRAMES_OF(name)                                                                             \
    if (checked.frames > 1) {                                                                       \
        Frames *frames = name##_frames_open(file->bytes, file->count, checked, &fault);             \
        if (frames) record_frames(frames);                                                          \
    }

DEFINE_AGAIN(decode_webp, WebPReader, webp, webp, webp_reader_create(MAX_MEMORY), FRAMES_OF(webp))
DEFINE_AGAIN(decode_gif, GIFReader, gif, gif, gif_reader_create(MAX_MEMORY), FRAMES_OF(gif))
DEFINE_AGAIN(decode_avif, AVIFReader, avif, avif, avif_reader_create(MAX_MEMORY, 1000), )
DEFINE_AGAIN(decode_jxl, JXLReader, jxl, jxl, jxl_reader_create(MAX_MEMORY), )
DEFINE_AGAIN(decode_heic, HEICReader, heic, heic, heic_reader_create(MAX_MEMORY), )
DEFINE_AGAIN(decode_ico, ICOReader, ico, ico, ico_reader_create(MAX_MEMORY), )

/// Adds the rows of each plane.
#define ADD_ROWS(name)                                                                              \
    for (int plane = 0, planes = name##_reader_pixels(reader).planes; plane < planes; plane++) {    \
        CodecRows rows = name##_reader_rows(reader, plane);                                         \
        for (int row = 0; row < rows.count; row++)                                                  \
            add(&samples[plane], rows.rows[row],                                                    \
                (size_t)rows.width * (size_t)name##_reader_pixels(reader).channels);                \
    }

/// Defines a format that returns rows during decoding. For a refused image, it records the rows before the
/// fault.
#define DEFINE_ROWS(name, Reader, bound, format, ...)                                               \
    Reader *reader = name##_reader_create(MAX_MEMORY);                                              \
    Samples samples[CODEC_MAX_PLANES] = {0};                                                        \
    if (!reader) fail("no reader");                                                                 \
    name##_reader_request_rows(reader);                                                                \
    DECODE(Reader, name, bound, ADD_ROWS(name));                                                    \
    for (int plane = 0; plane < CODEC_MAX_PLANES; plane++) {                                        \
        if (samples[plane].count)                                                                   \
            record(samples[plane].bytes, samples[plane].count, "plane-%d" format, plane, ##__VA_ARGS__); \
        free(samples[plane].bytes);                                                                 \
    }                                                                                               \
    if (step.status == CodecStatusFinished) {                                                       \
        CodecPixels pixels = name##_reader_pixels(reader);                                          \
        apply_profile(pixels.icc, pixels.icc_count);                                                \
    }                                                                                               \
    name##_reader_destroy(reader)

static void decode_png(const File *file) {
    DEFINE_ROWS(png, PNGReader, png_reader_allow_frames(reader, frame_limits), "");
}

static void decode_jpeg_at(const File *file, int eighths) {
    DEFINE_ROWS(jpeg, JPEGReader, (jpeg_reader_allow_scans(reader, 1000), jpeg_reader_scale(reader, eighths)),
        "-at-%d", eighths);
}

static void decode_jpeg(const File *file) {
    for (int eighths = 1; eighths <= 8; eighths *= 2) decode_jpeg_at(file, eighths);
}

static const struct {
    const char *extension;
    void (*decode)(const File *);
} formats[] = {
    {"jpg", decode_jpeg}, {"png", decode_png}, {"webp", decode_webp}, {"gif", decode_gif}, {"avif", decode_avif},
    {"jxl", decode_jxl}, {"heic", decode_heic}, {"ico", decode_ico},
};

/// libaom uses floating point, so its files differ between processors. The decoded pixels are compared instead.
static void encode_avif(int channels) {
    draw(channels);
    Encoder *encoder = avif_encoder_open(PATTERN_WIDTH, PATTERN_HEIGHT, channels, 60);
    if (!encoder || !encoder->rows(encoder, pattern, (size_t)PATTERN_WIDTH * (size_t)channels, (int)PATTERN_HEIGHT)
        || !encoder->finish(encoder))
        fail("an AVIF is not encoded");
    decode_avif(&(File){"encoded.avif", (uint8_t *)encoder->bytes, encoder->count});
    encoder->close(encoder);
}

static void decode(const File *file) {
    current = file->name;
    const char *dot = strrchr(file->name, '.');
    for (size_t format = 0; format < sizeof formats / sizeof *formats; format++)
        if (dot && strcmp(dot + 1, formats[format].extension) == 0) {
            formats[format].decode(file);
            return;
        }
    fail(file->name);
}

static int compare(const void *one, const void *other) { return memcmp(one, other, 1); }

/// Does what the service does before it forks decoders (zygote.c in CIsolation, DecoderZygote.swift). It reads
/// the time zone, makes qsort() read the memory size, decodes and encodes JPEG, PNG and WebP, and encodes AVIF.
static void warm_up(const File *files, int count) {
    static uint8_t many[2048];
    tzset();
    qsort(many, sizeof many, 1, compare);
    for (int index = 0; index < count; index++)
        if (strncmp(files[index].name, "photo.", 6) == 0) decode(&files[index]);
    draw(3);
    encode("jpeg", jpeg_encoder_open, 3, 80);
    encode("png", png_encoder_open, 3, 80);
    encode("webp", webp_encoder_open, 3, 80);
    encode_avif(3);
    output_count = 0;
}

/// Marks a place in qemu's log of system calls.
static void mark(const char *text) {
    if (write(-1, text, strlen(text)) >= 0) fail("descriptor -1 is open");
}

int main(int count, char **paths) {
    static File files[MAX_FILES];
    if (count < 2 || count > MAX_FILES) fail("name some files");
    for (int index = 1; index < count; index++) files[index - 1] = load(paths[index]);
    warm_up(files, count - 1);
    mark("begin");
    for (int index = 1; index < count; index++) decode(&files[index - 1]);
    current = "pattern";
    render_pattern();
    current = "encoded.avif";
    encode_avif(3);
    encode_avif(4);
    mark("end");
    if (fwrite(output, 1, output_count, stdout) != output_count || fflush(stdout) != 0) fail("standard output");
    return 0;
}
