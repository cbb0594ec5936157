// ICO: the functions that CCodecs.h declares for other formats.
#ifndef ICO_H
#define ICO_H

typedef struct ICOReader ICOReader;

/// Returns NULL if out of memory.
ICOReader *ico_reader_create(size_t max_memory);
void ico_reader_destroy(ICOReader *reader);
/// Like `webp_reader_allow_frames`, for an animated PNG in an icon. Its first frame is shown.
void ico_reader_allow_frames(ICOReader *reader, CodecFrameLimits limits);
/// Like `jpeg_reader_step`. But bytes are collected and decoded once all are present. A bitmap is decoded in
/// one call.
CodecStep ico_reader_step(ICOReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecImageInfo ico_reader_picture(const ICOReader *reader);
/// A message for the fault.
const char *ico_reader_message(const ICOReader *reader);

/// Like `webp_pixels_open`. RGB, with alpha if the image may have it. Never scales.
Pixels *ico_pixels_open(const uint8_t *bytes, size_t count, CheckedImage checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault);
/// An upper bound of the memory that the readers take at once, without the file's bytes, in bytes.
size_t ico_pixels_memory(uint32_t width, uint32_t height);

#endif
