// Fuzzes the reader of color profiles with arbitrary bytes, for each pixel format.
#include "CCodecs.h"
#include "target.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    uint8_t in[4 * 64], out[4 * 64];
    for (size_t index = 0; index < sizeof in; index++) in[index] = (uint8_t)(index * 7);
    for (int kind = 1; kind <= 5; kind++) {
        int channels = kind > 4 ? 4 : kind;
        ColourTransform *transform = colour_transform_open(bytes, count, channels, kind == 5);
        if (!transform) continue;
        colour_transform_run(transform, in, out, 64);
        colour_transform_close(transform);
    }
    return 0;
}
