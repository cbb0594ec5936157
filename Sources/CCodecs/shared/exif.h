// Writes the smallest EXIF block that contains an orientation: a TIFF file with one directory of one entry.
#ifndef EXIF_H
#define EXIF_H

#include <stdint.h>

#define EXIF_ORIENTATION_SIZE 26

static inline void exif_of_orientation(int orientation, uint8_t tiff[EXIF_ORIENTATION_SIZE]) {
    static const uint8_t block[EXIF_ORIENTATION_SIZE] = {
        'M', 'M', 0, 42, 0, 0, 0, 8, // big-endian, the directory follows
        0, 1, 0x01, 0x12, 0, 3, 0, 0, 0, 1, // one entry: orientation, one SHORT
    };
    for (int index = 0; index < EXIF_ORIENTATION_SIZE; index++) tiff[index] = block[index];
    tiff[19] = (uint8_t)orientation;
}

#endif
