// HEIC: what CCodecs.h has for each format, in one place.
#ifndef HEIC_H
#define HEIC_H

typedef struct HEICReader HEICReader;

/// NULL when there is no memory.
HEICReader *heic_reader_create(size_t max_memory);
void heic_reader_destroy(HEICReader *reader);
/// As `webp_reader_allow_frames`; a picture's slices are held to the pixels, too, each with those of the tile that it is of.
void heic_reader_allow_frames(HEICReader *reader, CodecFrameLimits limits);
/// As `jpeg_reader_step`, but that a slice can't be left: a tile of 512 × 512 is one, of some 5 to 15 ms, and so is a picture
/// without tiles, of some 10 to 50 ms a megapixel.
CodecStep heic_reader_step(HEICReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecPicture heic_reader_picture(const HEICReader *reader);
/// A word for the fault.
const char *heic_reader_message(const HEICReader *reader);
/// As those of `jpeg_reader`; a baseline JPEG of the thumbnail that the file has, turned as that says whatever is asked for.
void heic_reader_want_preview(HEICReader *reader);
CodecPreview heic_reader_preview(const HEICReader *reader);
void heic_reader_drop_preview(HEICReader *reader);

/// As `webp_pixels_open`, RGB, with alpha where there is; never scales. Tiles are decoded a row at a time.
Pixels *heic_pixels_open(const uint8_t *bytes, size_t count, CheckedPicture checked,
    uint32_t min_width, uint32_t min_height, CodecFault *fault);
/// An upper bound of what that holds at once, the file's bytes not counted, in bytes.
size_t heic_pixels_memory(uint32_t width, uint32_t height, bool has_alpha);

/// libde265's version as linked, such as `1.0.11`.
const char *codecs_de265_version(void);

#endif
