// The colour profile of a JPEG, from its APP2 segments.
#ifndef JPEG_PROFILE_H
#define JPEG_PROFILE_H

#include <stddef.h>
#include <stdint.h>

/// A profile that is gathered while the segments come: zero it first.
typedef struct {
    uint8_t *segments;
    size_t segments_count;
    uint8_t *bytes; // NULL where there is none that is whole and of sound size
    size_t count;
} JPEGProfile;

/// A segment from its length on; what is no part of a profile is passed over.
void jpeg_profile_take(JPEGProfile *profile, const uint8_t *segment, size_t count);
/// After the last segment.
void jpeg_profile_join(JPEGProfile *profile);
void jpeg_profile_free(JPEGProfile *profile);

#endif
