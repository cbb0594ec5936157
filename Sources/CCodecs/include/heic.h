// HEIC: the functions that CCodecs.h declares for other formats.
#ifndef HEIC_H
#define HEIC_H

typedef struct HEICReader HEICReader;

/// Returns NULL if out of memory.
HEICReader *heic_reader_create(size_t max_memory);
void heic_reader_destroy(HEICReader *reader);
/// Like `webp_reader_allow_frames`. The limit of pixels also applies to slices: each counts with the pixels of
/// its tile.
void heic_reader_allow_frames(HEICReader *reader, CodecFrameLimits limits);
/// Like `jpeg_reader_step`. But a slice cannot be interrupted: a tile of 512 × 512 is one slice and takes 5 to
/// 15 ms. An image without tiles is one slice too and takes 10 to 50 ms per megapixel.
CodecStep heic_reader_step(HEICReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecImageInfo heic_reader_picture(const HEICReader *reader);
/// A message for the fault.
const char *heic_reader_message(const HEICReader *reader);
/// Like the functions of `jpeg_reader`. The preview is a baseline JPEG of the file's thumbnail, which has its
/// own orientation.
void heic_reader_request_preview(HEICReader *reader);
CodecPreview heic_reader_preview(const HEICReader *reader);
void heic_reader_discard_preview(HEICReader *reader);

/// Like `webp_pixels_open`. RGB, with alpha if the image has it. Never scales. Decodes one row of tiles at a
/// time.
Pixels *heic_pixels_open(const uint8_t *bytes, size_t count, CheckedImage checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault);
/// An upper bound of the memory that the reader takes at once, without the file's bytes, in bytes.
size_t heic_pixels_memory(uint32_t width, uint32_t height, bool has_alpha);

/// Builds libde265's tables. Otherwise each tile builds them for itself, which takes 2.4 ms. Call it at most once, before
/// threads use the library.
void heic_build_tables(void);

/// The version of the linked libde265, such as `1.0.11`.
const char *codecs_de265_version(void);

#endif
