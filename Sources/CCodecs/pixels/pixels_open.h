// Opens readers of pixels. The context of each begins with its `Pixels`.
#ifndef PIXELS_OPEN_H
#define PIXELS_OPEN_H

#include "pixels.h"

#include <stdlib.h>

/// The input of a reader.
typedef struct {
    const uint8_t *bytes;
    size_t count;
    CheckedImage checked;
    uint32_t min_width, min_height;
} PixelsFile;

typedef struct {
    size_t context_size;
    /// Reads up to the image's sides, channels and profile.
    CodecFault (*start)(void *context, const PixelsFile *file);
    int (*rows)(Pixels *pixels, uint8_t *out, size_t stride, int count);
    /// Frees everything, including the context, even if `start` failed.
    void (*close)(Pixels *pixels);
} PixelsReader;

/// - Returns: NULL with the fault.
static inline Pixels *pixels_open(const PixelsReader *reader, PixelsFile file, CodecFault *fault) {
    Pixels *pixels = calloc(1, reader->context_size);
    *fault = CodecFaultTooMuchMemory;
    if (!pixels) return NULL;
    pixels->context = pixels;
    pixels->rows = reader->rows;
    pixels->close = reader->close;
    *fault = reader->start(pixels, &file);
    if (!*fault) return pixels;
    reader->close(pixels);
    return NULL;
}

#endif
