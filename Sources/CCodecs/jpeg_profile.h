// The colour profile of a JPEG, from its APP2 segments.
#ifndef JPEG_PROFILE_H
#define JPEG_PROFILE_H

#include <stddef.h>
#include <stdint.h>

/// - Returns: the profile, to be freed; NULL where there is none that is whole and of sound size.
uint8_t *jpeg_profile(const uint8_t *bytes, size_t count, size_t *profile_count);

#endif
