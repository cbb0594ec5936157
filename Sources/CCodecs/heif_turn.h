// How a picture of a HEIF file is turned, which AVIF's are, too.
#ifndef HEIF_TURN_H
#define HEIF_TURN_H

#include <stdint.h>

/// As EXIF counts: irot turns anticlockwise, then imir mirrors (ISO/IEC 23008-12, 6.5.10 and 6.5.12). Where it mirrors first,
/// it is turned the other way after that.
/// - Parameters:
///   - angle: quarters of a turn.
///   - mirror: imir's axis; -1: it isn't mirrored.
static inline uint8_t heif_orientation(int angle, int mirror) {
    static const uint8_t turned[4] = {1, 8, 3, 6};
    static const uint8_t top_to_bottom[4] = {4, 5, 2, 7};
    static const uint8_t left_to_right[4] = {2, 7, 4, 5};
    if (mirror < 0) return turned[angle];
    return mirror ? left_to_right[angle] : top_to_bottom[angle];
}

#endif
