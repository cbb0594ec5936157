// Fuzzes scaling, turning and encoding with arbitrary sizes, boxes and filters. The first bytes of the input
// are numbers; the rest is repeated as pixels.
//
// In addition to the sanitizers, this checks that: the kernels for AVX2, for SSE2 and in C give the same image;
// and the result does not depend on how rows are added and pulled: interleaved or in planes, and up to the
// slack in advance.
#include "CCodecs.h"
#include "target.h"

#include <math.h>

// Compiles the resampler again with the C kernels, which other processors use, under different names.
#define resampler_memory plain_memory
#define resampler_open plain_open
#define resampler_close plain_close
#define resampler_push plain_push
#define resampler_push_planes plain_push_planes
#define resampler_is_ready plain_is_ready
#define resampler_pull plain_pull
#define resampler_pull_planes plain_pull_planes
#define kernel_pair plain_kernel_pair
#define kernel_pair_lines plain_kernel_pair_lines
#define kernel_down plain_kernel_down
#define kernel_add plain_kernel_add
#define kernel_settle plain_kernel_settle
#define kernel_across plain_kernel_across
#define kernel_across_lines plain_kernel_across_lines
#undef __x86_64__
void resampler_close(Resampler *resampler);
#include "../../Sources/CCodecs/pixels/resampler.c"
#include "../../Sources/CCodecs/pixels/resampler_kernels.c"
#undef resampler_open
#undef resampler_close
#undef resampler_push
#undef resampler_push_planes
#undef resampler_is_ready
#undef resampler_pull
#undef resampler_pull_planes

// Small, so that many inputs are tried. A single side may still be long.
#define MAX_SIDE 700
#define MAX_PIXELS (1 << 14)
// The most rows that a decoder returns at once and that planes wait for.
#define MAX_SLACK 64

typedef struct {
    uint16_t width, height, out_width, out_height;
    uint8_t channels, has_alpha, filter, quality, orientation, batch, format, slack;
    uint16_t left, top, right, bottom;
} Numbers;

typedef struct {
    const Numbers *numbers;
    const uint8_t *pixels;
    size_t stride, out_stride;
    int channels;
    bool has_alpha;
    ResamplerBox box;
} Picture;

static Encoder *open_encoder(const Numbers *numbers, int channels) {
    int quality = numbers->quality % 100 + 1, format = numbers->format % 3;
    uint32_t width = numbers->out_width, height = numbers->out_height;
    if (!format && channels % 2) return jpeg_encoder_open(width, height, channels, quality);
    return (format < 2 ? png_encoder_open : raw_encoder_open)(width, height, channels, quality);
}

static void encode(const Numbers *numbers, const uint8_t *rows, int channels) {
    Encoder *encoder = open_encoder(numbers, channels);
    expect(encoder, "an encoder");
    size_t stride = (size_t)numbers->out_width * (size_t)channels;
    int batch = numbers->batch % RESAMPLER_BATCH + 1;
    for (int row = 0; row < numbers->out_height; row += batch) {
        int left = numbers->out_height - row, count = left < batch ? left : batch;
        expect(encoder->rows(encoder, rows + (size_t)row * stride, stride, count), "rows to be accepted");
    }
    expect(encoder->finish(encoder) && encoder->count, "a file");
    encoder->close(encoder);
}

static void turn(const Picture *picture) {
    const Numbers *numbers = picture->numbers;
    int orientation = numbers->orientation % 8 + 1;
    bool is_on_its_side = orientation > 4;
    uint32_t width = is_on_its_side ? numbers->height : numbers->width;
    uint32_t height = is_on_its_side ? numbers->width : numbers->height;
    int count = (int)(height < 9 ? height : 9);
    size_t stride = (size_t)width * (size_t)picture->channels;
    uint8_t *out = malloc(stride * (size_t)count);
    uint32_t first = height > 9 ? numbers->top % (height - 8) : 0;
    orientation_rows(picture->pixels, numbers->width, numbers->height, picture->channels, orientation, first, count,
        out, stride);
    free(out);
}

// Adds one row whenever a row is needed. Returns false if the resampler refuses the parameters.
// - Parameter is_in_c: whether to use the C kernels. Only sometimes, because they are slow under sanitizers.
static bool scale_plainly(const Picture *picture, uint8_t *out, bool is_in_c) {
    const Numbers *numbers = picture->numbers;
    ResamplerFilter filter = (ResamplerFilter)(numbers->filter % 3);
    Resampler *resampler = (is_in_c ? plain_open : resampler_open)(numbers->width, numbers->height, picture->channels,
        picture->has_alpha, picture->box, numbers->out_width, numbers->out_height, 0, filter);
    if (!resampler) return false;
    for (uint32_t next = 0, written = 0; written < numbers->out_height;) {
        uint8_t *row = out + written * picture->out_stride;
        int got = (is_in_c ? plain_pull : resampler_pull)(resampler, row, picture->out_stride, 1);
        written += (uint32_t)got;
        if (got) continue;
        expect(next < numbers->height, "no request for a row beyond the image");
        const uint8_t *rows = picture->pixels + next++ * picture->stride;
        (is_in_c ? plain_push : resampler_push)(resampler, rows, picture->stride, 1);
    }
    resampler_close(resampler);
    return true;
}

// Allocates a row in planes, each in a block of its own.
static void allocate_planes(uint8_t *planes[4], int channels, size_t width) {
    for (int channel = 0; channel < channels; channel++) planes[channel] = malloc(width);
}

static void free_planes(uint8_t *planes[4], int channels) {
    for (int channel = 0; channel < channels; channel++) free(planes[channel]);
}

static void push_apart(Resampler *resampler, const Picture *picture, const uint8_t *row) {
    uint8_t *planes[4];
    allocate_planes(planes, picture->channels, picture->numbers->width);
    for (size_t index = 0; index < picture->stride; index++)
        planes[index % (size_t)picture->channels][index / (size_t)picture->channels] = row[index];
    resampler_push_planes(resampler, (const uint8_t *const *)planes);
    free_planes(planes, picture->channels);
}

static int pull_apart(Resampler *resampler, const Picture *picture, uint8_t *out) {
    uint8_t *planes[4];
    allocate_planes(planes, picture->channels, picture->numbers->out_width);
    int got = resampler_pull_planes(resampler, planes);
    if (got) colour_join((const uint8_t *const *)planes, picture->channels, out, picture->numbers->out_width);
    free_planes(planes, picture->channels);
    return got;
}

// Adds and pulls rows in random order, including rows of the slack while others could be pulled.
static bool scale_by_chance(const Picture *picture, uint8_t *out, Chance *chance) {
    const Numbers *numbers = picture->numbers;
    uint32_t slack = numbers->slack % (MAX_SLACK + 1), next = 0, written = 0, ahead = 0;
    bool may_be_apart = chance_below(chance, 2);
    Resampler *resampler = resampler_open(numbers->width, numbers->height, picture->channels, picture->has_alpha,
        picture->box, numbers->out_width, numbers->out_height, slack, (ResamplerFilter)(numbers->filter % 3));
    if (!resampler) return false;
    while (written < numbers->out_height) {
        bool is_ready = resampler_is_ready(resampler);
        if (!is_ready) ahead = 0;
        uint32_t most = is_ready ? slack - ahead : RESAMPLER_BATCH, left = numbers->height - next;
        if (most > RESAMPLER_BATCH) most = RESAMPLER_BATCH;
        if (most > left) most = left;
        bool is_apart = may_be_apart && chance_below(chance, 2);
        if (most && (!is_ready || chance_below(chance, 4))) {
            uint32_t count = is_apart ? 1 : 1 + (uint32_t)chance_below(chance, most);
            const uint8_t *rows = picture->pixels + next * picture->stride;
            if (is_apart) push_apart(resampler, picture, rows);
            else resampler_push(resampler, rows, picture->stride, (int)count);
            next += count;
            if (is_ready) ahead += count;
            continue;
        }
        expect(is_ready, "no request for a row beyond the image");
        uint8_t *rows = out + written * picture->out_stride;
        uint32_t lacking = numbers->out_height - written;
        int wanted = 1 + (int)chance_below(chance, lacking < RESAMPLER_BATCH ? lacking : RESAMPLER_BATCH);
        int got = is_apart ? pull_apart(resampler, picture, rows)
                           : resampler_pull(resampler, rows, picture->out_stride, wanted);
        expect(got > 0, "a row that is ready");
        written += (uint32_t)got;
    }
    resampler_close(resampler);
    return true;
}

static void scale(const Picture *picture, Chance *chance) {
    const Numbers *numbers = picture->numbers;
    size_t size = picture->out_stride * numbers->out_height;
    uint8_t *plain = malloc(size), *out = malloc(size);
    machine_allow_avx2(false);
    bool is_scaled = scale_plainly(picture, plain, !chance_below(chance, 4));
    machine_allow_avx2(chance_below(chance, 4));
    expect(scale_by_chance(picture, out, chance) == is_scaled, "the same parameters refused");
    expect(!is_scaled || !memcmp(plain, out, size), "the same image");
    if (is_scaled) encode(numbers, out, picture->channels);
    free(plain);
    free(out);
}

static void limit(uint16_t *width, uint16_t *height) {
    *width %= MAX_SIDE, *height %= MAX_SIDE;
    if (*width * *height > MAX_PIXELS) *height = (uint16_t)(MAX_PIXELS / *width);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    Numbers numbers;
    Chance chance = chance_of(bytes, count);
    if (count < sizeof numbers + 1) return 0;
    memcpy(&numbers, bytes, sizeof numbers);
    bytes += sizeof numbers;
    count -= sizeof numbers;
    limit(&numbers.width, &numbers.height);
    limit(&numbers.out_width, &numbers.out_height);
    if (!numbers.width || !numbers.height) return 0;
    Picture picture = {.numbers = &numbers, .channels = numbers.channels % 4 + 1};
    picture.has_alpha = picture.channels % 2 == 0 && numbers.has_alpha % 2;
    picture.box = (ResamplerBox){numbers.left / 64.0, numbers.top / 64.0, numbers.right / 64.0, numbers.bottom / 64.0};
    picture.stride = (size_t)numbers.width * (size_t)picture.channels;
    picture.out_stride = (size_t)numbers.out_width * (size_t)picture.channels;
    uint8_t *pixels = repeated(bytes, count, picture.stride * numbers.height);
    picture.pixels = pixels;
    turn(&picture);
    scale(&picture, &chance);
    free(pixels);
    return 0;
}

