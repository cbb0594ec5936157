// The picture of a BMP, or the largest of an ICO's.
#ifndef BMP_FILE_H
#define BMP_FILE_H

#include "bitmap.h"

typedef struct {
    bool is_icon;
    /// A PNG within an icon, in place of a bitmap: where it is, and how long it may be.
    bool is_png;
    uint64_t png, png_count;
    Bitmap bitmap;
    /// Bytes from the file's start that it is in; UINT64_MAX: all.
    uint64_t end;
} BMPFile;

/// CodecFaultCutShort: more bytes would tell.
CodecFault bmp_look(BMPFile *file, bool is_icon, const uint8_t *bytes, size_t count);

#endif
