// Reads the color profile of a PNG from its iCCP chunk.
#ifndef PNG_PROFILE_H
#define PNG_PROFILE_H

#include "profile.h"

// Enough for profiles of screens and cameras. Profiles for printing are larger, but do not occur in PNG.
#define MAX_PNG_PROFILE (MAX_PROFILE / 4)

/// Inflates a profile for gray or RGB, up to the size that its header declares.
/// - Parameter content: the chunk's content.
/// - Returns: the profile, which the caller must free; NULL if there is none of valid size.
uint8_t *png_profile(const uint8_t *content, size_t count, size_t *profile_count);

#endif
