// Finds the image of a BMP, or the largest image of an ICO.
#ifndef BMP_FILE_H
#define BMP_FILE_H

#include "bitmap.h"

typedef struct {
    bool is_icon;
    /// An icon may contain a PNG instead of a bitmap. Its offset and its maximum length in the file.
    bool is_png;
    uint64_t png, png_count;
    Bitmap bitmap;
    /// Where the image's bytes end, counted from the file's start. UINT64_MAX: at the end of the file.
    uint64_t end;
} BMPFile;

/// Returns CodecFaultCutShort if more bytes are needed.
CodecFault bmp_look(BMPFile *file, bool is_icon, const uint8_t *bytes, size_t count);

#endif
