// JPEG XL: what CCodecs.h has for each format, in one place.
#ifndef JXL_H
#define JXL_H

typedef struct JXLReader JXLReader;

/// NULL when there is no memory.
JXLReader *jxl_reader_create(size_t max_memory);
void jxl_reader_destroy(JXLReader *reader);
/// As `webp_reader_allow_frames`.
void jxl_reader_allow_frames(JXLReader *reader, CodecFrameLimits limits);
/// As `jpeg_reader_step`, but that squares of 256 pixels, which a piece of the file is, are not left: some 80 ms, and
/// as long as a whole frame takes where it is transformed whole.
CodecStep jxl_reader_step(JXLReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecPicture jxl_reader_picture(const JXLReader *reader);
/// A word for the fault.
const char *jxl_reader_message(const JXLReader *reader);

/// As `webp_pixels_open`, grey or RGB, with alpha where there is; never scales. All of the picture is decoded before the
/// first row.
Pixels *jxl_pixels_open(const uint8_t *bytes, size_t count, CheckedPicture checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault);
/// An upper bound of what that holds at once, the file's bytes not counted, in bytes: of a picture that has no channels beside
/// its colours and alpha, and none of an animation that shows one frame. Others' `extraMemory` tells what they take more.
size_t jxl_pixels_memory(uint32_t width, uint32_t height, bool has_alpha, bool is_animated);

/// libjxl's version as linked, such as `0.7.0`. Call it from one thread at a time.
const char *codecs_jxl_version(void);

#endif
