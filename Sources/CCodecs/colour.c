#include "colour.h"

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
