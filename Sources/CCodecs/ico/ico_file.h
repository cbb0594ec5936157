// Finds the largest image of an ICO.
#ifndef ICO_FILE_H
#define ICO_FILE_H

#include "bitmap.h"

typedef struct {
    /// An icon may contain a PNG instead of a bitmap. Its offset and its maximum length in the file.
    bool is_png;
    uint64_t png, png_count;
    Bitmap bitmap;
    /// Where the image's bytes end, counted from the file's start. UINT64_MAX: at the end of the file.
    uint64_t end;
} ICOFile;

/// Returns CodecFaultCutShort if more bytes are needed.
CodecFault ico_read_header(ICOFile *file, const uint8_t *bytes, size_t count);

#endif
