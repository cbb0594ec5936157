// Decodes and encodes images, over libjpeg-turbo, libpng, libwebp, libavif, libjxl, libde265 and Little CMS.
// ICO, GIF, and the HEIF container are read without a library.
//
// Input: the bytes of a file, in pieces of any size. Output: the header, a thumbnail, previews, rows of pixels,
// and encoded files. Each format has a decoder (`jpeg_reader_step` and so on; jpeg.c, png.c, webp.c, gif.c,
// avif.c, heic.c, jxl.c, ico.c). Some have a reader of pixels for stored files (`webp_pixels_open` and so on;
// *_pixels.c). resampler.c scales rows, colour_transform.c converts them, *_encoder.c writes them.
//
// Read this header first, then gif.c as the simplest decoder, then the decoder that you need.
//
// Everything runs on the caller's thread. A step takes about 10 ms, unless noted otherwise. libjpeg-turbo and
// libpng report errors by longjmp. Every function here sets its own setjmp before it calls them and returns a
// value, so no jump leaves this module. Nothing here calls back into the caller. A decoder keeps no pointer to
// its input after a step returns.
#ifndef CCODECS_H
#define CCODECS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "animation.h"
#include "colour.h"
#include "encoder.h"
#include "encoder_formats.h"
#include "fault.h"
#include "orientation.h"
#include "pixels.h"
#include "pixels_formats.h"
#include "resampler.h"
#include "rows.h"

/// The caller's next action after a step.
typedef enum CODECS_CLOSED {
    /// Call again with more bytes, after the bytes that were not consumed.
    CodecStatusNeedsBytes,
    /// The header is read. Nothing of the image's size is allocated yet. Reported once.
    CodecStatusHeader,
    /// The slice is over. Call again with the bytes that were not consumed.
    CodecStatusHasMore,
    /// Rows are ready, if they were requested. Use them, then call again with the bytes that were not consumed.
    CodecStatusRows,
    /// The image is decoded completely.
    CodecStatusFinished,
    /// The image cannot be decoded; see the fault. Every later step returns the same.
    CodecStatusFailed,
} CodecStatus;

/// The outcome of one step.
typedef struct {
    CodecStatus status;
    CodecFault fault;
    /// How many bytes at the start of the input are not needed again.
    size_t consumed;
} CodecStep;

/// The image's properties, as far as they are known.
typedef struct {
    uint32_t width;
    uint32_t height;
    /// An upper bound of the memory that decoding takes at once, in bytes. Input bytes are included only up to
    /// `maxBacklog`.
    size_t decodingMemory;
    /// Memory that a reader of the pixels needs in addition to the result of the format's `_pixels_memory`
    /// function, in bytes.
    uint64_t extraMemory;
    /// How many bytes the file has up to the end of its last frame, if the header says so; otherwise 0.
    size_t fileBytes;
    /// The most input bytes that may stay unconsumed, in a format that waits for the last byte. 0 if bytes are
    /// consumed as they arrive.
    size_t maxBacklog;
    bool isProgressive;
    bool hasAlpha;
    /// The frames of an animation that have begun so far. 1 or 0 for a still image.
    uint64_t frames;
    /// After CodecFaultTooManyFrames: how many frames are allowed.
    uint64_t maxFrames;
    /// After CodecFaultFrameTooLarge: the sides of that frame.
    uint32_t frameWidth;
    uint32_t frameHeight;
    /// The orientation in the container, 1 to 8 as EXIF counts. 0 if only an EXIF block could have it.
    uint8_t containerOrientation;
    /// The EXIF block (a TIFF file), valid as long as the decoder. NULL if there is none so far.
    const uint8_t *exif;
    size_t exifCount;
    /// How many scans or passes a preview started now would show. 0 if no preview is possible or it would show
    /// nothing new.
    int scansToShow;
    /// A thumbnail of the image or of the first frame, top row first, RGBA, alpha not premultiplied. Set once
    /// the image is decoded completely; valid as long as the decoder. NULL before.
    const uint8_t *thumbnail;
    uint32_t thumbnailColumns;
    uint32_t thumbnailRows;
} CodecImageInfo;

/// Limits for the frames of an animation.
typedef struct {
    uint64_t count;
    /// The most pixels of one frame, and of all frames in a file of any size.
    uint64_t freePixels;
    /// The most pixels of all frames, however long the file is. Each byte adds CODEC_PIXELS_A_BYTE to
    /// `freePixels`, up to this.
    uint64_t maxPixels;
} CodecFrameLimits;

/// The most pixels that one byte of a PNG can encode. With this limit, an animation costs no more time per byte
/// than a still image. Ordinary animations have 10 to 200.
#define CODEC_PIXELS_A_BYTE 1024

/// The encoded preview. Valid until the next call for the same decoder.
typedef struct {
    /// NULL if there is none.
    const uint8_t *bytes;
    size_t count;
    /// How many scans or passes it shows.
    int scan;
} CodecPreview;

typedef struct JPEGReader JPEGReader;

/// Returns NULL if out of memory.
JPEGReader *jpeg_reader_create(size_t max_memory);
void jpeg_reader_destroy(JPEGReader *reader);
/// Limits the number of scans. Call it before the step that follows the header.
void jpeg_reader_allow_scans(JPEGReader *reader, int max_scans);
/// Sets the scale of decoding, in eighths of the sides: 1, 2, 4 or 8. Call it before the step that follows the
/// header. The default is the smallest scale that suffices for the thumbnail. Whether a file is accepted does
/// not depend on it.
void jpeg_reader_scale(JPEGReader *reader, int eighths);
/// Whether a side may be decoded at 1/2, 1/4 or 1/8. `least` is twice the shown size. At 1/2, 1.5 times the
/// shown size suffices, at 1/4 1.75 times. Quality: about 2 dB below twice the size, and at least 43 dB
/// relative to a Lanczos scaling of the whole image.
bool jpeg_may_shrink(uint32_t side, uint32_t factor, uint32_t least);
/// Makes the reader return rows and keep a color profile. Call it before the first step.
void jpeg_reader_request_rows(JPEGReader *reader);
/// The layout of the samples. Call it once the header is known and the scale is set.
CodecPixels jpeg_reader_pixels(const JPEGReader *reader);
/// The sides of a plane, and after CodecStatusRows its rows.
CodecRows jpeg_reader_rows(const JPEGReader *reader, int plane);
/// Decodes for some milliseconds.
/// - Parameters:
///   - bytes: the bytes that the previous step did not consume, then new ones.
///   - ended: whether no more bytes will follow.
CodecStep jpeg_reader_step(JPEGReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecImageInfo jpeg_reader_picture(const JPEGReader *reader);
/// Makes the next steps encode the scans counted in `scansToShow` as a baseline JPEG, before they consume more
/// bytes. `orientation` is EXIF's. The preview is discarded once all bytes are present or if it fails.
void jpeg_reader_request_preview(JPEGReader *reader, int orientation);
/// The last complete preview; none while a new one is being encoded.
CodecPreview jpeg_reader_preview(const JPEGReader *reader);
/// Frees the preview, or stops encoding it.
void jpeg_reader_discard_preview(JPEGReader *reader);
/// The library's message for the fault.
const char *jpeg_reader_message(const JPEGReader *reader);

typedef struct PNGReader PNGReader;

/// Returns NULL if out of memory.
PNGReader *png_reader_create(size_t max_memory);
void png_reader_destroy(PNGReader *reader);
/// Like `webp_reader_allow_frames`.
void png_reader_allow_frames(PNGReader *reader, CodecFrameLimits limits);
/// Like `jpeg_reader_step`.
CodecStep png_reader_step(PNGReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecImageInfo png_reader_picture(const PNGReader *reader);
/// Like the functions of `jpeg_reader`. Samples have 8 bits, and palette indices are replaced by colors. Rows
/// of an interlaced image are returned after its last pass. They are kept in memory if `max_memory` allows it;
/// `decodingMemory` includes them.
void png_reader_request_rows(PNGReader *reader);
/// Call it once there are rows.
CodecPixels png_reader_pixels(const PNGReader *reader);
CodecRows png_reader_rows(const PNGReader *reader, int plane);
/// Disables previews, which saves memory. Call it before the first step.
void png_reader_disable_previews(PNGReader *reader);
/// Skips an animation. Call it before the first step.
void png_reader_skip_animation(PNGReader *reader);
/// Like the functions of `jpeg_reader`; the preview is a PNG.
void png_reader_request_preview(PNGReader *reader, int orientation);
CodecPreview png_reader_preview(const PNGReader *reader);
void png_reader_discard_preview(PNGReader *reader);
/// The library's message for the fault.
const char *png_reader_message(const PNGReader *reader);

typedef struct WebPReader WebPReader;

/// Returns NULL if out of memory.
WebPReader *webp_reader_create(size_t max_memory);
void webp_reader_destroy(WebPReader *reader);
/// Limits the frames. Call it before the step that follows the header.
void webp_reader_allow_frames(WebPReader *reader, CodecFrameLimits limits);
/// Like `jpeg_reader_step`. But a lossless image cannot be interrupted while the library decodes bytes that it
/// has already. A few bytes can be an image of one color, at some milliseconds per megapixel.
CodecStep webp_reader_step(WebPReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecImageInfo webp_reader_picture(const WebPReader *reader);
/// A message for the fault.
const char *webp_reader_message(const WebPReader *reader);

typedef struct GIFReader GIFReader;

/// Returns NULL if out of memory.
GIFReader *gif_reader_create(size_t max_memory);
void gif_reader_destroy(GIFReader *reader);
/// Like `webp_reader_allow_frames`.
void gif_reader_allow_frames(GIFReader *reader, CodecFrameLimits limits);
/// Like `jpeg_reader_step`.
CodecStep gif_reader_step(GIFReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecImageInfo gif_reader_picture(const GIFReader *reader);
/// A message for the fault.
const char *gif_reader_message(const GIFReader *reader);

typedef struct AVIFReader AVIFReader;

/// Returns NULL if out of memory. A file with more than `max_frames` frames is refused before they are listed.
AVIFReader *avif_reader_create(size_t max_memory, uint32_t max_frames);
void avif_reader_destroy(AVIFReader *reader);
/// Like `webp_reader_allow_frames`.
void avif_reader_allow_frames(AVIFReader *reader, CodecFrameLimits limits);
/// Like `jpeg_reader_step`. But a frame is decoded in one call, once all bytes are present: the library cannot
/// be interrupted and takes 15 to 60 ms per megapixel.
CodecStep avif_reader_step(AVIFReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecImageInfo avif_reader_picture(const AVIFReader *reader);
/// The library's message for the fault.
const char *avif_reader_message(const AVIFReader *reader);

/// The version of the linked libpng, such as `1.6.39`.
const char *codecs_png_version(void);
/// The version of libjpeg-turbo at compile time, such as `2.1.5`. Call it from one thread at a time.
const char *codecs_jpeg_version(void);
/// The version of the linked Little CMS, such as `2.14`. Call it from one thread at a time.
const char *codecs_lcms_version(void);
/// The version of the linked libwebp decoder, such as `1.2.4`. Call it from one thread at a time.
const char *codecs_webp_version(void);
/// The versions of the linked libavif and its AV1 codecs, such as `0.11.1 (dav1d [dec]:1.0.0)`. Call it from
/// one thread at a time.
const char *codecs_avif_version(void);

#include "heic.h"
#include "ico.h"
#include "jxl.h"

#endif
