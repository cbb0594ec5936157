// A picture's samples as they are decoded, for those who want them: rows of planes.
#ifndef ROWS_H
#define ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

/// The most planes of a picture.
#define CODEC_MAX_PLANES 4

/// What its channels mean.
typedef enum CODECS_CLOSED {
    CodecColoursGrey,
    CodecColoursRGB,
    /// JFIF's luma, blue and red differences.
    CodecColoursYCC,
    /// Cyan, magenta, yellow, black; 255 is no ink.
    CodecColoursInks,
    /// The first three of them as JFIF's.
    CodecColoursYCCInks,
} CodecColours;

/// How a picture's samples come, at the scale that it is decoded at.
typedef struct {
    CodecColours colours;
    /// The last channel is alpha, not premultiplied.
    bool has_alpha;
    /// In a row side by side; 1 where each channel is a plane.
    int channels;
    int planes;
    /// Of the picture's sides, the eighths that are decoded.
    int eighths;
    /// The colour profile, as long as the reader lives; NULL where there is none.
    const uint8_t *icc;
    size_t icc_count;
} CodecPixels;

/// Next rows of a plane, as long as it lies in the picture; until the next step.
typedef struct {
    uint32_t width, height; // of the plane, in samples
    /// Pixels of the whole image that a sample stands for, along each side; 0: not known.
    uint32_t across, down;
    const uint8_t *const *rows;
    int count;
} CodecRows;

#endif
