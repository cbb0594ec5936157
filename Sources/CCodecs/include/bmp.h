// BMP and ICO: the functions that CCodecs.h declares for other formats.
#ifndef BMP_H
#define BMP_H

typedef struct BMPReader BMPReader;

/// Returns NULL if out of memory.
BMPReader *bmp_reader_create(bool is_icon, size_t max_memory);
void bmp_reader_destroy(BMPReader *reader);
/// Like `webp_reader_allow_frames`, for an animated PNG in an icon. Its first frame is shown.
void bmp_reader_allow_frames(BMPReader *reader, CodecFrameLimits limits);
/// Like `jpeg_reader_step`. But bytes are collected and decoded once all are present. A bitmap is decoded in
/// one call.
CodecStep bmp_reader_step(BMPReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecImageInfo bmp_reader_picture(const BMPReader *reader);
/// A message for the fault.
const char *bmp_reader_message(const BMPReader *reader);

/// Like `webp_pixels_open`. RGB, with alpha if the image may have it. Never scales.
Pixels *bmp_pixels_open(const uint8_t *bytes, size_t count, CheckedImage checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault);
Pixels *ico_pixels_open(const uint8_t *bytes, size_t count, CheckedImage checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault);
/// An upper bound of the memory that the readers take at once, without the file's bytes, in bytes.
size_t bmp_pixels_memory(uint32_t width, uint32_t height);

#endif
