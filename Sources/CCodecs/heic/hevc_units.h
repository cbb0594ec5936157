// The NAL units of an HEVC stream.
#ifndef HEVC_UNITS_H
#define HEVC_UNITS_H

#include "heif_boxes.h"
#include "hevc.h"

// Types of NAL units (ITU-T H.265, 7.4.2.2). Types below 32 are slices.
#define HEVC_SLICES 32
#define HEVC_SEQUENCE_SET 33
// The longest side in level 6.2.
#define HEVC_MAX_SIDE 16888

typedef struct {
    const uint8_t *bytes;
    size_t count;
    int type;
} HEVCUnit;

/// Reads the next unit, which is preceded by its length. Returns false if the unit is cut.
bool hevc_next_unit(HEIFCursor *cursor, int length_size, HEVCUnit *unit);
/// Reads a decoder configuration record: sets a cursor to its arrays of units, and the number of bytes of a
/// unit's length in the stream.
bool hevc_setup(const uint8_t *setup, size_t count, HEIFCursor *arrays, int *length_size, int *array_count);
/// Reads a sequence parameter set.
CodecFault hevc_read_format(const uint8_t *unit, size_t count, HEVCFormat *format);

#endif
