// The thumbnail stored in a HEIC file, as a baseline JPEG. It serves as the preview until the image is
// complete.
#ifndef HEIC_THUMBNAIL_H
#define HEIC_THUMBNAIL_H

#include "heic_file.h"

typedef struct {
    HEIFImage picture;
    bool is_there, is_wanted, was_made;
    /// The memory that decoding and encoding it take, in bytes.
    uint64_t memory;
    uint8_t *file; // the JPEG, once it is made
    size_t count;
} HEICThumbnail;

/// Looks for a thumbnail in the file.
void heic_thumbnail_find(HEICThumbnail *thumbnail, const HEIFFile *boxes);
/// Whether a thumbnail can be made from the bytes present and was not made before.
bool heic_thumbnail_is_new(const HEICThumbnail *thumbnail, const HEIFFile *boxes);
/// Makes the thumbnail if it is wanted. Takes some milliseconds.
void heic_thumbnail_step(HEICThumbnail *thumbnail, const HEIFFile *boxes);
/// Frees the thumbnail and stops making it.
void heic_thumbnail_discard(HEICThumbnail *thumbnail);

#endif
