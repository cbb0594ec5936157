// A TIFF's pixels by libtiff, a strip or a row of tiles at a time.
#ifndef TIFF_BANDS_H
#define TIFF_BANDS_H

#include "tiff_file.h"

typedef struct TIFFBands TIFFBands;

/// Allocates nothing of the picture's size.
/// - Parameter bytes: have to stay.
/// - Returns: NULL with the fault and a word for it.
TIFFBands *tiff_bands_open(
    const TIFFFile *file, const uint8_t *bytes, size_t count, CodecFault *fault, char *message, size_t room);
void tiff_bands_close(TIFFBands *bands);
/// 1 grey, 3 RGB, 4 RGB and alpha.
int tiff_bands_channels(const TIFFBands *bands);
/// The colour profile, as long as they are open; NULL where there is none that fits the channels.
const uint8_t *tiff_bands_profile(const TIFFBands *bands, size_t *count);
/// Decodes the next ones. False: they are damaged.
bool tiff_bands_next(TIFFBands *bands);
/// Whether the band that was decoded last has it.
bool tiff_bands_have(const TIFFBands *bands, uint32_t y);
/// Writes a row that they have, its alpha not premultiplied, in so many channels (or 4, with grey thrice).
void tiff_bands_row(const TIFFBands *bands, uint32_t y, int channels, uint8_t *out);
/// The library's word for the damage.
const char *tiff_bands_message(const TIFFBands *bands);

#endif
