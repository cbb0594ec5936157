// Reads the header of a color profile (ICC.1, 7.2).
#ifndef PROFILE_H
#define PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// The maximum size in bytes. Profiles for printing have up to about 2.5 MB.
#define MAX_PROFILE ((size_t)4 * 1024 * 1024)
#define PROFILE_HEADER 128

/// Whether the profile's colors are of this space, such as "RGB ", "GRAY" or "CMYK".
static inline bool profile_is_of(const uint8_t *profile, size_t count, const char *space) {
    return count > PROFILE_HEADER && !memcmp(profile + 16, space, 4);
}

#endif
