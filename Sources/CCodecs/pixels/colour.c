#include "colour.h"

#include "plane_rows.h"

void colour_print(const uint8_t *in, uint8_t *out, size_t pixels) {
    for (size_t pixel = 0; pixel < pixels; pixel++, in += 4, out += 3) {
        int black = in[3];
        for (int channel = 0; channel < 3; channel++)
            out[channel] = (uint8_t)((in[channel] * black + 127) / 255);
    }
}

void colour_flatten(const uint8_t *in, int channels, uint8_t *out, int out_channels, size_t pixels,
    const uint8_t background[3]) {
    int step = channels == 4 ? 1 : 0;
    for (size_t pixel = 0; pixel < pixels; pixel++, in += channels, out += out_channels) {
        int alpha = in[channels - 1];
        for (int channel = 0; channel < out_channels; channel++) {
            int mixed = in[channel * step] * alpha + background[channel] * (255 - alpha);
            out[channel] = (uint8_t)((mixed + 127) / 255);
        }
    }
}

void colour_widen(const uint8_t *in, int channels, uint8_t *out, size_t pixels) {
    for (size_t pixel = 0; pixel < pixels; pixel++, in += channels, out += channels + 2) {
        out[0] = out[1] = out[2] = in[0];
        if (channels == 2) out[3] = in[1];
    }
}

static uint8_t clamped(int value) {
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

// JFIF's factors, with 16 fractional bits.
void colour_from_ycc(uint8_t *const *planes, size_t pixels, bool is_inked) {
    uint8_t *restrict first = planes[0], *restrict second = planes[1], *restrict third = planes[2];
    int mask = is_inked ? 255 : 0;
    for (size_t pixel = 0; pixel < pixels; pixel++) {
        int light = (first[pixel] << 16) + 32768, blue = second[pixel] - 128, red = third[pixel] - 128;
        first[pixel] = (uint8_t)(clamped((light + 91881 * red) >> 16) ^ mask);
        second[pixel] = (uint8_t)(clamped((light - 22554 * blue - 46802 * red) >> 16) ^ mask);
        third[pixel] = (uint8_t)(clamped((light + 116130 * blue) >> 16) ^ mask);
    }
}

void colour_join(const uint8_t *const *planes, int channels, uint8_t *out, size_t pixels) {
    planes_join(planes, channels, pixels, out);
}
