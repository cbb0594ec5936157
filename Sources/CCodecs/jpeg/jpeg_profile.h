// Collects the color profile of a JPEG from its APP2 segments.
#ifndef JPEG_PROFILE_H
#define JPEG_PROFILE_H

#include <stddef.h>
#include <stdint.h>

/// A profile that is collected while segments arrive. Initialize it with zeros.
typedef struct {
    uint8_t *segments;
    size_t segments_count;
    uint8_t *bytes; // NULL if there is no complete profile of valid size
    size_t count;
} JPEGProfile;

/// Adds a segment, which starts at its length field. Segments that are not part of a profile are ignored.
void jpeg_profile_add(JPEGProfile *profile, const uint8_t *segment, size_t count);
/// Call it after the last segment.
void jpeg_profile_join(JPEGProfile *profile);
void jpeg_profile_free(JPEGProfile *profile);

#endif
