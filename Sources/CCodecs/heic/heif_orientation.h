// The orientation of a HEIF image. AVIF uses the same properties.
#ifndef HEIF_TURN_H
#define HEIF_TURN_H

#include <stdint.h>

/// Returns the orientation as EXIF counts. irot turns anticlockwise, then imir mirrors (ISO/IEC 23008-12,
/// 6.5.10 and 6.5.12). If the file mirrors first, the caller passes the opposite angle.
/// - Parameters:
///   - angle: quarter turns.
///   - mirror: imir's axis; -1 if there is none.
static inline uint8_t heif_orientation(int angle, int mirror) {
    static const uint8_t turned[4] = {1, 8, 3, 6};
    static const uint8_t top_to_bottom[4] = {4, 5, 2, 7};
    static const uint8_t left_to_right[4] = {2, 7, 4, 5};
    if (mirror < 0) return turned[angle];
    return mirror ? left_to_right[angle] : top_to_bottom[angle];
}

#endif
