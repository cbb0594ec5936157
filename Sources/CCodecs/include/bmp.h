// BMP and ICO: what CCodecs.h has for each format, in one place.
#ifndef BMP_H
#define BMP_H

typedef struct BMPReader BMPReader;

/// NULL when there is no memory.
BMPReader *bmp_reader_create(bool is_icon, size_t max_memory);
void bmp_reader_destroy(BMPReader *reader);
/// As `webp_reader_allow_frames`: those of a PNG in an icon, of which the first is shown.
void bmp_reader_allow_frames(BMPReader *reader, CodecFrameLimits limits);
/// As `jpeg_reader_step`; bytes are gathered, and looked at once all are there. A bitmap is decoded in one go.
CodecStep bmp_reader_step(BMPReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecPicture bmp_reader_picture(const BMPReader *reader);
/// A word for the fault.
const char *bmp_reader_message(const BMPReader *reader);

/// As `webp_pixels_open`, RGB, with alpha where there may be; never scales.
Pixels *bmp_pixels_open(const uint8_t *bytes, size_t count, CheckedPicture checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault);
Pixels *ico_pixels_open(const uint8_t *bytes, size_t count, CheckedPicture checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault);
/// An upper bound of what they hold at once, the file's bytes not counted, in bytes.
size_t bmp_pixels_memory(uint32_t width, uint32_t height);

#endif
