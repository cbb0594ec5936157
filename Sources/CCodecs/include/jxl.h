// JPEG XL: the functions that CCodecs.h declares for other formats.
#ifndef JXL_H
#define JXL_H

typedef struct JXLReader JXLReader;

/// Returns NULL if out of memory.
JXLReader *jxl_reader_create(size_t max_memory);
void jxl_reader_destroy(JXLReader *reader);
/// Like `webp_reader_allow_frames`.
void jxl_reader_allow_frames(JXLReader *reader, CodecFrameLimits limits);
/// Like `jpeg_reader_step`. But the library cannot be interrupted within a group of 256 × 256 pixels; a step
/// takes about 80 ms. If a frame is transformed as a whole, a step can take as long as the whole frame.
CodecStep jxl_reader_step(JXLReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecImageInfo jxl_reader_picture(const JXLReader *reader);
/// A message for the fault.
const char *jxl_reader_message(const JXLReader *reader);

/// Like `webp_pixels_open`. Gray or RGB, with alpha if the image has it. Never scales. Decodes the whole image
/// before the first row.
Pixels *jxl_pixels_open(const uint8_t *bytes, size_t count, CheckedImage checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault);
/// An upper bound of the memory that the reader takes at once, without the file's bytes, in bytes. Valid for
/// images with only color and alpha channels, and for animations with more than one frame. For other images,
/// add `extraMemory`.
size_t jxl_pixels_memory(uint32_t width, uint32_t height, bool has_alpha, bool is_animated);

/// The version of the linked libjxl, such as `0.7.0`. Call it from one thread at a time.
const char *codecs_jxl_version(void);

#endif
