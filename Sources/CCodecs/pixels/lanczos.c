#include "lanczos.h"

#include <math.h>
#include <stdbool.h>

#define LOBES 3

static double radius_of(ResamplerFilter filter) {
    switch (filter) {
    case ResamplerFilterLinear: return 1;
    case ResamplerFilterNearest: return 0.5;
    default: return LOBES;
    }
}

Axis axis_make(
    uint32_t size, double start, double end, uint32_t out_size, ResamplerFilter filter) {
    double scale = (end - start) / out_size;
    // When enlarging, the kernel has a fixed width in the source. When shrinking, it covers the width of an
    // output pixel.
    double unit = fmax(scale, 1), turn = M_PI / (LOBES * unit);
    return (Axis){
        filter, start, scale, radius_of(filter) * unit, size, sin(turn), cos(turn)};
}

uint32_t axis_max_taps(Axis axis) {
    double most = ceil(2 * axis.support) + 2;
    return most < axis.size ? (uint32_t)most : axis.size;
}

static double middle_of(Axis axis, uint32_t index) {
    return axis.start + (index + 0.5) * axis.scale;
}

Taps axis_taps(Axis axis, uint32_t index) {
    double middle = middle_of(axis, index);
    double last = axis.size - 1;
    // Includes the pixels whose centers lie within the kernel. There are no pixels beyond an edge.
    double first = fmin(fmax(ceil(middle - axis.support - 0.5), 0), last);
    double end = fmin(fmax(floor(middle + axis.support - 0.5), first), last);
    return (Taps){(uint32_t)first, (uint32_t)(end - first) + 1};
}

int axis_bits(Axis axis, int most) {
    // At an edge, a part of the kernel is missing and the rest weighs up to 1.6 times as much. The sum stays
    // below 2.
    int bits = 14;
    for (double scale = axis.scale; scale >= 2 && bits < most; scale /= 2) bits++;
    return bits;
}

// Computes sinc(x) sinc(x / 3) at each tap. Taps are equally spaced, so the sine of the slower wave is rotated
// from one tap to the next. The faster wave has three times its angle.
static double kernel(Axis axis, uint32_t index, Taps taps, double *weights) {
    double unit = fmax(axis.scale, 1), step = 1 / unit, sum = 0;
    double start = (taps.first + 0.5 - middle_of(axis, index)) / unit;
    double sine = sin(M_PI * start / LOBES), cosine = cos(M_PI * start / LOBES);
    for (uint32_t tap = 0; tap < taps.count; tap++) {
        double x = start + tap * step, weight = 1, fast = sine * (3 - 4 * sine * sine);
        if (fabs(x) >= LOBES) weight = 0;
        else if (fabs(x) > 1e-6) weight = fast * sine * LOBES / (M_PI * M_PI * x * x);
        weights[tap] = weight;
        sum += weight;
        double turned = sine * axis.turn_cosine + cosine * axis.turn_sine;
        cosine = cosine * axis.turn_cosine - sine * axis.turn_sine;
        sine = turned;
    }
    return sum;
}

// Computes weights from distances.
static double simple_kernel(Axis axis, uint32_t index, Taps taps, double *weights) {
    double middle = middle_of(axis, index), sum = 0;
    for (uint32_t tap = 0; tap < taps.count; tap++) {
        double distance = fabs(taps.first + tap + 0.5 - middle);
        weights[tap] = axis.filter == ResamplerFilterLinear ? fmax(0, 1 - distance) : 1;
        sum += weights[tap];
    }
    return sum;
}

void axis_weights(Axis axis, uint32_t index, Taps taps, int bits, double *exact, int16_t *weights) {
    double sum = axis.filter == ResamplerFilterLanczos ? kernel(axis, index, taps, exact)
                                                 : simple_kernel(axis, index, taps, exact);
    // The sum can be zero only by rounding at the kernel's very edge.
    bool is_nothing = fabs(sum) < 1e-6;
    int32_t one = 1 << bits, rest = one;
    uint32_t largest = 0;
    for (uint32_t tap = 0; tap < taps.count; tap++) {
        double weight = is_nothing ? 1.0 / taps.count : exact[tap] / sum;
        weights[tap] = (int16_t)lrint(fmin(fmax(weight * one, -INT16_MAX), INT16_MAX));
        rest -= weights[tap];
        if (weights[tap] > weights[largest]) largest = tap;
    }
    // Adds the rounding error to the largest weight, so that areas of one color stay unchanged.
    int32_t whole = weights[largest] + rest;
    weights[largest] = (int16_t)(whole > INT16_MAX ? INT16_MAX : whole);
}
