// The weights of a filter along one axis, of Lanczos' above all.
#ifndef LANCZOS_H
#define LANCZOS_H

#include "resampler.h"

#include <stdint.h>

/// `count` pixels of the source, each `1 / scale` of an output pixel wide, from `start` in the source.
typedef struct {
    ResamplerFilter filter;
    double start;   // where the output's first pixel begins, in the source
    double scale;   // source pixels an output pixel
    double support; // half a kernel's width, in source pixels
    uint32_t size;  // of the source
    double turn_sine, turn_cosine; // of a third of what a kernel's wave turns from one source pixel to the next
} Axis;

typedef struct {
    uint32_t first;
    uint32_t count;
} Taps;

Axis axis_make(
    uint32_t size, double start, double end, uint32_t out_size, ResamplerFilter filter);
/// The most taps that an output pixel has.
uint32_t axis_max_taps(Axis axis);
/// The source pixels that an output pixel is made of; never none.
Taps axis_taps(Axis axis, uint32_t index);
/// The bits behind the point that weights of 16 bits may have, `most` at the most: a kernel that is spread over many
/// pixels has small weights.
int axis_bits(Axis axis, int most);
/// Their weights in fixed point; their sum is exactly 1. `exact` is room for as many numbers as there are taps.
void axis_weights(Axis axis, uint32_t index, Taps taps, int bits, double *exact, int16_t *weights);

#endif
