// The decoded samples of an image, as rows of planes.
#ifndef ROWS_H
#define ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

/// The most planes that an image may have.
#define CODEC_MAX_PLANES 4

/// The meaning of the channels.
typedef enum CODECS_CLOSED {
    CodecColoursGrey,
    CodecColoursRGB,
    /// JFIF's luma and its blue and red chroma.
    CodecColoursYCC,
    /// Cyan, magenta, yellow, black; 255 means no ink.
    CodecColoursInks,
    /// Inks whose first three channels are coded like JFIF's luma and chroma.
    CodecColoursYCCInks,
} CodecColours;

/// The layout of an image's samples, at the scale of decoding.
typedef struct {
    CodecColours colours;
    /// Whether the last channel is alpha, not premultiplied.
    bool has_alpha;
    /// Interleaved channels in a row; 1 if each channel is a plane.
    int channels;
    int planes;
    /// The scale of decoding, in eighths of the image's sides.
    int eighths;
    /// The color profile, valid as long as the reader. NULL if there is none.
    const uint8_t *icc;
    size_t icc_count;
} CodecPixels;

/// The next rows of a plane, without padding. Valid until the next step.
typedef struct {
    uint32_t width, height; // of the plane, in samples
    /// How many pixels of the whole image one sample covers, along each side; 0 if not known.
    uint32_t across, down;
    const uint8_t *const *rows;
    int count;
} CodecRows;

#endif
