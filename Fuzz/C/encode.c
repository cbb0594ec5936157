// Fuzzes color conversion and encoders with arbitrary sizes, pixels and colors. The first bytes of the input
// are numbers; the rest is repeated as pixels.
//
// In addition to the sanitizers, this checks that: every valid image can be encoded, within the maximum number
// of bytes; planes may be ahead of one another by the documented number of rows; a file can be read again with
// the same sides and at most the same number of frames.
#include "CCodecs.h"
#include "target.h"

#define MAX_SIDE 400
// The limit for slow formats: WebP and AVIF.
#define MAX_SLOW_SIDE 64
// WebP stores durations in 24 bits.
#define MAX_MILLISECONDS 0xFFFFFFu

enum { JPEG, JPEG_PLANES, PNG, WEBP, AVIF, ANIMATION, FORMATS };
enum { AS_THEY_ARE, FLATTEN, WIDEN, PRINT, FROM_YCC, CONVERSIONS };

typedef struct {
    uint16_t width, height;
    uint8_t format, channels, quality, conversion, background[3], batch;
} Numbers;

// Makes a reader read a whole file.
#define DEFINE_CHECK(format, Reader, created)                                                                         \
    static void check_##format(const Numbers *numbers, const uint8_t *bytes, size_t count, uint64_t max_frames) {     \
        Reader *reader = created;                                                                                     \
        CodecStep step = {CodecStatusHasMore, CodecFaultNone, 0};                                                     \
        for (size_t at = 0; step.status != CodecStatusFinished; at += step.consumed) {                                \
            expect(step.status == CodecStatusHasMore || step.status == CodecStatusHeader, "a valid " #format);        \
            step = format##_reader_step(reader, bytes + at, count - at, true);                                        \
        }                                                                                                             \
        CodecImageInfo picture = format##_reader_picture(reader);                                                       \
        bool is_same = picture.width == numbers->width && picture.height == numbers->height;                          \
        expect(is_same, "a " #format " of the same sides");                                                           \
        expect(picture.frames <= max_frames, "no more frames than were added");                                       \
        format##_reader_destroy(reader);                                                                              \
    }

DEFINE_CHECK(jpeg, JPEGReader, jpeg_reader_create(SIZE_MAX))
DEFINE_CHECK(png, PNGReader, png_reader_create(SIZE_MAX))
DEFINE_CHECK(webp, WebPReader, webp_reader_create(SIZE_MAX))
DEFINE_CHECK(avif, AVIFReader, avif_reader_create(SIZE_MAX, 1))

static void check(const Numbers *numbers, const uint8_t *bytes, size_t count, uint64_t max_frames) {
    switch (numbers->format) {
    case JPEG:
    case JPEG_PLANES: check_jpeg(numbers, bytes, count, max_frames); break;
    case PNG: check_png(numbers, bytes, count, max_frames); break;
    case AVIF: check_avif(numbers, bytes, count, max_frames); break;
    default: check_webp(numbers, bytes, count, max_frames);
    }
}

// How many channels a conversion returns. If the conversion does not apply to the pixels, they stay unchanged.
static int channels_after(const Numbers *numbers) {
    int channels = numbers->channels;
    bool is_grey = numbers->background[0] == numbers->background[1] && numbers->background[1] == numbers->background[2];
    switch (numbers->conversion) {
    case FLATTEN: return channels % 2 ? channels : channels == 2 && is_grey ? 1 : 3;
    case WIDEN: return channels < 3 ? channels + 2 : channels;
    case PRINT: return channels == 4 ? 3 : channels;
    default: return channels;
    }
}

// Converts pixels as separate planes of luma and chroma.
static void convert_planes(const uint8_t *in, int channels, uint8_t *out, size_t pixels, bool is_inked) {
    uint8_t *planes[4];
    for (int channel = 0; channel < channels; channel++) {
        planes[channel] = malloc(pixels);
        for (size_t pixel = 0; pixel < pixels; pixel++)
            planes[channel][pixel] = in[pixel * (size_t)channels + (size_t)channel];
    }
    if (channels > 2) colour_from_ycc(planes, pixels, is_inked);
    colour_join((const uint8_t *const *)planes, channels, out, pixels);
    for (int channel = 0; channel < channels; channel++) free(planes[channel]);
}

static uint8_t *converted(const Numbers *numbers, const uint8_t *in, int out_channels) {
    int channels = numbers->channels;
    size_t pixels = (size_t)numbers->width * numbers->height, size = pixels * (size_t)out_channels;
    if (numbers->conversion != FROM_YCC && channels == out_channels) return repeated(in, size, size);
    uint8_t *out = malloc(size);
    switch (numbers->conversion) {
    case FLATTEN: colour_flatten(in, channels, out, out_channels, pixels, numbers->background); break;
    case WIDEN: colour_widen(in, channels, out, pixels); break;
    case PRINT: colour_print(in, out, pixels); break;
    default: convert_planes(in, channels, out, pixels, numbers->background[0] % 2);
    }
    return out;
}

static bool take_rows(Encoder *encoder, const Numbers *numbers, const uint8_t *rows, size_t stride) {
    int batch = numbers->batch % 8 + 1;
    for (int row = 0; row < numbers->height; row += batch) {
        int left = numbers->height - row, count = left < batch ? left : batch;
        if (!encoder->rows(encoder, rows + (size_t)row * stride, stride, count)) return false;
    }
    return true;
}

// Adds rows to any plane that is not too far ahead. The contents of the rows do not matter.
static bool take_planes(Encoder *encoder, const Numbers *numbers, const uint8_t *pixels, int planes, Chance *chance) {
    uint32_t chroma = jpeg_encoder_chroma(numbers->quality), factors[3] = {1, chroma, chroma}, next[3] = {0};
    for (;;) {
        uint32_t least = numbers->height;
        for (int plane = 0; plane < planes; plane++)
            if (next[plane] * factors[plane] < least) least = next[plane] * factors[plane];
        if (least == numbers->height) return true;
        int plane = (int)chance_below(chance, (uint64_t)planes);
        for (uint64_t rows = chance_below(chance, 200); rows; rows--) {
            uint32_t row = next[plane] * factors[plane];
            if (row >= numbers->height || row > least + JPEG_ENCODER_AHEAD) break;
            // Each row has a block of its own, so that the sanitizer detects a read beyond it.
            size_t width = (numbers->width + factors[plane] - 1) / factors[plane];
            uint8_t *block = repeated(pixels + row, width, width);
            bool is_taken = jpeg_encoder_add_row(encoder, plane, block);
            free(block);
            if (!is_taken) return false;
            next[plane]++;
        }
    }
}

static Encoder *open_encoder(const Numbers *numbers, int channels) {
    switch (numbers->format) {
    case JPEG: return jpeg_encoder_open(numbers->width, numbers->height, channels, numbers->quality);
    case JPEG_PLANES: return jpeg_planes_encoder_open(numbers->width, numbers->height, channels, numbers->quality);
    case PNG: return png_encoder_open(numbers->width, numbers->height, channels, numbers->quality);
    case WEBP: return webp_encoder_open(numbers->width, numbers->height, channels, numbers->quality);
    default: return avif_encoder_open(numbers->width, numbers->height, channels, numbers->quality);
    }
}

static void encode(const Numbers *numbers, const uint8_t *pixels, int channels, Chance *chance) {
    bool is_jpeg = numbers->format <= JPEG_PLANES;
    bool is_for = is_jpeg ? channels % 2 : numbers->format == PNG || channels > 2;
    Encoder *encoder = open_encoder(numbers, channels);
    expect((encoder != NULL) == (is_for && numbers->width && numbers->height), "an encoder for valid parameters");
    if (!encoder) return;
    bool is_taken = numbers->format == JPEG_PLANES
        ? take_planes(encoder, numbers, pixels, channels, chance)
        : take_rows(encoder, numbers, pixels, (size_t)numbers->width * (size_t)channels);
    expect(is_taken, "all rows to be accepted");
    expect(encoder->finish(encoder) && encoder->count, "a file");
    check(numbers, encoder->bytes, encoder->count, 1);
    encoder->close(encoder);
}

// Adds some frames with random changes and durations.
static void animate(const Numbers *numbers, uint8_t *pixels, int channels, Chance *chance) {
    static const uint32_t longest[] = {2, 1000, MAX_MILLISECONDS};
    uint64_t frames = chance_below(chance, 6);
    size_t size = (size_t)numbers->width * numbers->height * (size_t)channels, count = 0;
    if (channels < 3 || !numbers->width || !numbers->height) return;
    WebPAnimation *animation = webp_animation_open(
        numbers->width, numbers->height, numbers->quality, (uint32_t)chance_below(chance, 70000));
    expect(animation, "an animation");
    for (uint64_t frame = 0; frame < frames; frame++) {
        for (uint64_t changes = chance_below(chance, 64); changes; changes--)
            pixels[chance_below(chance, size)] ^= (uint8_t)changes;
        uint32_t milliseconds = (uint32_t)chance_below(chance, longest[chance_below(chance, 3)] + 1);
        expect(webp_animation_add(animation, pixels, channels, milliseconds), "a frame to be added");
    }
    const uint8_t *file = webp_animation_finish(animation, &count);
    expect((file != NULL) == (frames > 0), "a file of frames");
    if (file) check(numbers, file, count, frames);
    webp_animation_close(animation);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    Numbers numbers;
    if (count < sizeof numbers + 1) return 0;
    Chance chance = chance_of(bytes, count);
    memcpy(&numbers, bytes, sizeof numbers);
    numbers.format %= FORMATS;
    uint16_t most = numbers.format < WEBP ? MAX_SIDE + 1 : MAX_SLOW_SIDE + 1;
    numbers.width %= most, numbers.height %= most;
    numbers.channels = numbers.channels % 4 + 1;
    numbers.quality = numbers.quality % 100 + 1;
    numbers.conversion %= CONVERSIONS;
    size_t size = (size_t)numbers.width * numbers.height * numbers.channels;
    uint8_t *in = repeated(bytes + sizeof numbers, count - sizeof numbers, size);
    int channels = channels_after(&numbers);
    uint8_t *pixels = converted(&numbers, in, channels);
    if (numbers.format == ANIMATION) animate(&numbers, pixels, channels, &chance);
    else encode(&numbers, pixels, channels, &chance);
    free(pixels);
    free(in);
    return 0;
}
