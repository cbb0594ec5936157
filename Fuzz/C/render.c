// Whether any sides, boxes and filters have what scales, turns and encodes do what it may not. The first bytes are numbers, the
// rest is repeated as the picture.
#include "CCodecs.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    uint16_t width, height, out_width, out_height;
    uint8_t channels, has_alpha, filter, quality, orientation, batch, format, slack;
    uint16_t left, top, right, bottom;
} Numbers;

static Encoder *open_encoder(const Numbers *numbers, int channels) {
    int quality = numbers->quality % 100 + 1;
    switch (numbers->format % 3) {
    case 0: return channels % 2 ? jpeg_encoder_open(numbers->out_width, numbers->out_height, channels, quality) : NULL;
    case 1: return png_encoder_open(numbers->out_width, numbers->out_height, channels, quality);
    default: return raw_encoder_open(numbers->out_width, numbers->out_height, channels, quality);
    }
}

static void turn(const Numbers *numbers, const uint8_t *picture, int channels) {
    int orientation = numbers->orientation % 8 + 1;
    uint32_t width = orientation > 4 ? numbers->height : numbers->width, height = orientation > 4 ? numbers->width : numbers->height;
    int count = (int)(height < 9 ? height : 9);
    size_t stride = (size_t)width * (size_t)channels;
    uint8_t *out = malloc(stride * (size_t)count);
    uint32_t first = height > 9 ? numbers->top % (height - 8) : 0;
    orientation_rows(picture, numbers->width, numbers->height, channels, orientation, first, count, out, stride);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    Numbers numbers;
    if (count < sizeof numbers + 1) return 0;
    memcpy(&numbers, bytes, sizeof numbers);
    bytes += sizeof numbers;
    count -= sizeof numbers;
    numbers.width %= 700, numbers.height %= 700, numbers.out_width %= 700, numbers.out_height %= 700;
    int channels = numbers.channels % 4 + 1;
    bool has_alpha = channels % 2 == 0 && numbers.has_alpha % 2;
    if (!numbers.width || !numbers.height) return 0;
    size_t stride = (size_t)numbers.width * (size_t)channels;
    uint8_t *picture = malloc(stride * numbers.height);
    for (size_t index = 0; index < stride * numbers.height; index++) picture[index] = bytes[index % count];
    turn(&numbers, picture, channels);
    ResamplerBox box = {numbers.left / 64.0, numbers.top / 64.0, numbers.right / 64.0, numbers.bottom / 64.0};
    Resampler *resampler = resampler_open(numbers.width, numbers.height, channels, has_alpha, box, numbers.out_width,
        numbers.out_height, numbers.slack % 4, (ResamplerFilter)(numbers.filter % 3));
    Encoder *encoder = resampler ? open_encoder(&numbers, channels) : NULL;
    if (encoder) {
        size_t out_stride = (size_t)numbers.out_width * (size_t)channels;
        uint8_t *rows = malloc(out_stride * RESAMPLER_BATCH);
        uint32_t next = 0, written = 0;
        while (written < numbers.out_height) {
            int got = resampler_pull(resampler, rows, out_stride, numbers.batch % RESAMPLER_BATCH + 1);
            if (got) {
                if (!encoder->rows(encoder, rows, out_stride, got)) break;
                written += (uint32_t)got;
                continue;
            }
            // It asks for no row beyond the picture.
            if (next == numbers.height) abort();
            int pushed = numbers.height - next < 3 ? 1 : 3;
            resampler_push(resampler, picture + next * stride, stride, pushed);
            next += (uint32_t)pushed;
        }
        if (written == numbers.out_height && encoder->finish(encoder) && !encoder->count) abort();
        free(rows);
        encoder->close(encoder);
    }
    resampler_close(resampler);
    free(picture);
    return 0;
}
