// The small picture that a HEIC has of itself, as a baseline JPEG: what is shown of it before it came whole.
#ifndef HEIC_THUMBNAIL_H
#define HEIC_THUMBNAIL_H

#include "heic_file.h"

typedef struct {
    HEIFPicture picture;
    bool is_there, is_wanted, was_made;
    /// What making it holds, in bytes.
    uint64_t memory;
    uint8_t *file; // once it was made
    size_t count;
} HEICThumbnail;

/// Looks for one.
void heic_thumbnail_find(HEICThumbnail *thumbnail, const HEIFFile *boxes);
/// Whether one that was not shown could be made of the bytes that are there.
bool heic_thumbnail_is_new(const HEICThumbnail *thumbnail, const HEIFFile *boxes);
/// Makes it, where it is wanted, in some milliseconds.
void heic_thumbnail_step(HEICThumbnail *thumbnail, const HEIFFile *boxes);
/// Frees it, and wants none.
void heic_thumbnail_drop(HEICThumbnail *thumbnail);

#endif
