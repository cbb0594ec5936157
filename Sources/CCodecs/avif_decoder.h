// How libavif is set up, and given a file's bytes, wherever it decodes: whoever decodes a file and whoever reads its
// pixels later must mean the same picture by it.
#ifndef AVIF_DECODER_H
#define AVIF_DECODER_H

#include <stdbool.h>
#include <stdint.h>

#include <avif/avif.h>

/// Of a file whose boxes come last, nothing is known until then: so much is waited for.
#define AVIF_MAX_UNPARSED ((size_t)64 * 1024 * 1024)
/// The decoders' own state, whatever the picture.
#define AVIF_BASE_MEMORY ((size_t)4 * 1024 * 1024)

/// The bytes that are there of a file, from its start.
typedef struct {
    avifIO io;
    const uint8_t *bytes;
    size_t count;
    bool is_whole;     // no more will come
    bool was_clipped;  // more were asked for than there are, though none will come
    uint64_t retry_at; // how many bytes make another try worth while
} AVIFSource;

/// A decoder over bytes which, as the source itself, must stay where they are from then on. EXIF and XMP blocks are not
/// read.
/// - Parameter max_frames: more are not even listed.
/// - Returns: NULL when there is no memory.
avifDecoder *avif_decoder_open(AVIFSource *source, uint32_t max_frames);
/// Of a frame: the most pixels that AV1 may code for it, for a picture of these sides. They may be more than what is
/// shown, of small pictures by far.
void avif_decoder_limit(avifDecoder *decoder, uint32_t width, uint32_t height);
/// Bytes that a frame's planes take once its boxes were read.
uint64_t avif_decoder_frame_memory(const avifDecoder *decoder);
/// What is shown of a picture whose boxes were read: its clean aperture. Where there is none, or one that breaks the rules, as
/// one within a sample of chroma does, that is all of it.
/// - Returns: false where so little is shown of so much that reading it takes more memory than avif_pixels_memory() tells.
bool avif_decoder_shown(const avifDecoder *decoder, avifCropRect *shown);
/// What is shown of a decoded frame, which all that it points to stays with.
avifImage avif_decoder_crop(const avifImage *frame, avifCropRect shown);
/// Converts a decoded frame. False: it is of a kind that can't be.
bool avif_decoder_convert(const avifImage *image, avifRGBImage *rgb);

#endif
