// The weights of a filter along one axis, mainly Lanczos.
#ifndef LANCZOS_H
#define LANCZOS_H

#include "resampler.h"

#include <stdint.h>

/// One axis of the scaling. `size` is the length of the source; the shown part begins at `start`.
typedef struct {
    ResamplerFilter filter;
    double start;   // where the first output pixel begins, in the source
    double scale;   // source pixels per output pixel
    double support; // half the kernel's width, in source pixels
    uint32_t size;  // pixels of the source
    double turn_sine, turn_cosine; // per source pixel, the kernel's slow wave advances by this angle
} Axis;

typedef struct {
    uint32_t first;
    uint32_t count;
} Taps;

Axis axis_make(
    uint32_t size, double start, double end, uint32_t out_size, ResamplerFilter filter);
/// The most taps of an output pixel.
uint32_t axis_max_taps(Axis axis);
/// The source pixels that contribute to an output pixel; at least one.
Taps axis_taps(Axis axis, uint32_t index);
/// How many fractional bits weights of 16 bits may have; at most `most`. A kernel spread over many pixels has
/// small weights and so allows more bits.
int axis_bits(Axis axis, int most);
/// The weights of the taps in fixed point; their sum is exactly 1. `exact` is scratch space for one number per
/// tap.
void axis_weights(Axis axis, uint32_t index, Taps taps, int bits, double *exact, int16_t *weights);

#endif
