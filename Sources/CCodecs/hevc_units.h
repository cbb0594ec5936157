// The units that an HEVC stream is made of.
#ifndef HEVC_UNITS_H
#define HEVC_UNITS_H

#include "heif_boxes.h"
#include "hevc.h"

// Types of units (ITU-T H.265, 7.4.2.2); those below 32 are slices.
#define HEVC_SLICES 32
#define HEVC_SEQUENCE_SET 33
// As level 6.2 has it.
#define HEVC_MAX_SIDE 16888

typedef struct {
    const uint8_t *bytes;
    size_t count;
    int type;
} HEVCUnit;

/// The next one, which comes after its length. False: it is cut.
bool hevc_next_unit(HEIFCursor *cursor, int length_size, HEVCUnit *unit);
/// The arrays of units that a decoder configuration record has, and how many bytes a length has in what it is for.
bool hevc_setup(const uint8_t *setup, size_t count, HEIFCursor *arrays, int *length_size, int *array_count);
/// Reads a sequence parameter set.
CodecFault hevc_read_format(const uint8_t *unit, size_t count, HEVCFormat *format);

#endif
