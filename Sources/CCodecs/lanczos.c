#include "lanczos.h"

#include <math.h>

#define LOBES 3

Axis axis_make(uint32_t size, double start, double end, uint32_t out_size) {
    double scale = (end - start) / out_size;
    // Enlarging, the kernel keeps its width in the source; else it covers what an output pixel does.
    return (Axis){start, scale, LOBES * fmax(scale, 1), size};
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

static double sinc(double x) {
    x *= M_PI;
    return sin(x) / x;
}

static double lanczos(double x) {
    x = fabs(x);
    if (x < 1e-8) return 1;
    return x < LOBES ? sinc(x) * sinc(x / LOBES) : 0;
}

void axis_weights(Axis axis, uint32_t index, Taps taps, float *weights) {
    double middle = middle_of(axis, index), unit = axis.support / LOBES, sum = 0;
    for (uint32_t tap = 0; tap < taps.count; tap++) {
        double weight = lanczos((taps.first + tap + 0.5 - middle) / unit);
        weights[tap] = (float)weight;
        sum += weight;
    }
    // Only rounding at the kernel's very edge could leave nothing.
    if (fabs(sum) < 1e-6) {
        for (uint32_t tap = 0; tap < taps.count; tap++) weights[tap] = 1.0f / taps.count;
        return;
    }
    for (uint32_t tap = 0; tap < taps.count; tap++) weights[tap] = (float)(weights[tap] / sum);
}
