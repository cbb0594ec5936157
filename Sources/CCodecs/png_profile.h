// The colour profile of a PNG, from its iCCP chunk.
#ifndef PNG_PROFILE_H
#define PNG_PROFILE_H

#include "profile.h"

// Profiles of screens and cameras; those for printing, which are larger, don't occur here.
#define MAX_PNG_PROFILE (MAX_PROFILE / 4)

/// Inflates a profile of grey or RGB: what its header calls its size is all that is inflated.
/// - Parameter content: the chunk's.
/// - Returns: the profile, to be freed; NULL where there is none of sound size.
uint8_t *png_profile(const uint8_t *content, size_t count, size_t *profile_count);

#endif
