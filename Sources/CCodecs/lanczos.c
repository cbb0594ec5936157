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
    // Enlarging, the kernel keeps its width in the source; else it covers what an output pixel does.
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
    // Pixels whose middle lies within the kernel. Beyond an edge there is nothing to weigh.
    double first = fmin(fmax(ceil(middle - axis.support - 0.5), 0), last);
    double end = fmin(fmax(floor(middle + axis.support - 0.5), first), last);
    return (Taps){(uint32_t)first, (uint32_t)(end - first) + 1};
}

int axis_bits(Axis axis, int most) {
    // Where edges cut a kernel off, what is left of it weighs up to 1.6 times as much: below 2 in all.
    int bits = 14;
    for (double scale = axis.scale; scale >= 2 && bits < most; scale /= 2) bits++;
    return bits;
}

// sinc(x) sinc(x / 3) at each tap. Taps are equally far apart, so that the sine of the slower wave turns from one to
// the next; three times its angle is the faster wave's.
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

// By distance.
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
    // Only rounding at the kernel's very edge could leave nothing.
    bool is_nothing = fabs(sum) < 1e-6;
    int32_t one = 1 << bits, rest = one;
    uint32_t largest = 0;
    for (uint32_t tap = 0; tap < taps.count; tap++) {
        double weight = is_nothing ? 1.0 / taps.count : exact[tap] / sum;
        weights[tap] = (int16_t)lrint(fmin(fmax(weight * one, -INT16_MAX), INT16_MAX));
        rest -= weights[tap];
        if (weights[tap] > weights[largest]) largest = tap;
    }
    // What rounding took: so a plain ground stays as it is.
    int32_t whole = weights[largest] + rest;
    weights[largest] = (int16_t)(whole > INT16_MAX ? INT16_MAX : whole);
}
