// TIFF: what CCodecs.h has for each format, in one place.
#ifndef TIFF_READER_H
#define TIFF_READER_H

typedef struct TIFFReader TIFFReader;

/// NULL when there is no memory.
TIFFReader *tiff_reader_create(size_t max_memory);
void tiff_reader_destroy(TIFFReader *reader);
/// As `jpeg_reader_step`, but that a strip or a row of tiles can't be left: where the whole picture is one, it takes some 2 to
/// 23 ms a megapixel.
CodecStep tiff_reader_step(TIFFReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecPicture tiff_reader_picture(const TIFFReader *reader);
/// The library's word for the fault.
const char *tiff_reader_message(const TIFFReader *reader);

/// As `webp_pixels_open`, grey or RGB, with alpha where there is; never scales.
Pixels *tiff_pixels_open(const uint8_t *bytes, size_t count, CheckedPicture checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault);
/// An upper bound of what they hold at once, the file's bytes not counted, in bytes.
size_t tiff_pixels_memory(uint32_t width, uint32_t height);

/// libtiff's version as linked, such as `4.5.0`. Call it from one thread at a time.
const char *codecs_tiff_version(void);

#endif
