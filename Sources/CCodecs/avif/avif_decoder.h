// Sets up libavif and feeds it a file's bytes. The decoder and the later reader of pixels share this code, so
// that both find the same image in a file.
#ifndef AVIF_DECODER_H
#define AVIF_DECODER_H

#include <stdbool.h>
#include <stdint.h>

#include <avif/avif.h>

/// How many bytes are collected while the boxes are not found. In a file with its boxes at the end, nothing is
/// known before.
#define AVIF_MAX_UNPARSED ((size_t)64 * 1024 * 1024)
/// The decoder's own state, which does not depend on the image.
#define AVIF_BASE_MEMORY ((size_t)4 * 1024 * 1024)

/// The received bytes of a file, from its start.
typedef struct {
    avifIO io;
    const uint8_t *bytes;
    size_t count;
    bool is_whole;     // no more bytes will arrive
    bool was_clipped;  // the library asked for bytes beyond the end of the complete file
    uint64_t retry_at; // the number of bytes at which another try is worthwhile
} AVIFSource;

/// Creates a decoder that does not read EXIF and XMP blocks. The source and its bytes must not move afterwards.
/// - Parameter max_frames: a file with more frames is refused before they are listed.
/// - Returns: NULL if out of memory.
avifDecoder *avif_decoder_open(AVIFSource *source, uint32_t max_frames);
/// Limits the pixels that AV1 may code for one frame of an image with these sides. AV1 may code more than is
/// shown; for small images, many times more.
void avif_decoder_limit(avifDecoder *decoder, uint32_t width, uint32_t height);
/// Memory for a frame's planes, in bytes. Call it after the boxes were read.
uint64_t avif_decoder_frame_memory(const avifDecoder *decoder);
/// The part of the image that is shown, which is its clean aperture. If that is missing or breaks the rules
/// (for instance, begins within a chroma sample), the whole image is shown.
/// - Returns: false if the part is so small that reading it takes more memory than avif_pixels_memory()
///   computes.
bool avif_decoder_shown(const avifDecoder *decoder, avifCropRect *shown);
/// A view of the shown part of a decoded frame. It points into the frame's memory.
avifImage avif_decoder_crop(const avifImage *frame, avifCropRect shown);
/// Converts a decoded frame to RGB. Returns false if its format can't be converted.
bool avif_decoder_convert(const avifImage *image, avifRGBImage *rgb);

#endif
