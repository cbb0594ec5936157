// Decodes JPEG, PNG, WebP, GIF, AVIF, JPEG XL, HEIC, BMP and ICO in slices, over libjpeg-turbo, libpng, libwebp, libavif, libjxl
// and libde265.
//
// The first two report errors by longjmp. Every function here sets its own setjmp before it calls
// such a library and returns a value, so no jump ever leaves this module; nothing here calls back
// into the caller. A decoder keeps no pointer to the bytes it was given once a step returns.
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

/// What to do after a step.
typedef enum CODECS_CLOSED {
    /// Come back with more bytes after those not consumed.
    CodecStatusNeedsBytes,
    /// The header is read, nothing of the image's size is allocated yet. Said once.
    CodecStatusHeader,
    /// The slice is over: come back with the bytes not consumed.
    CodecStatusHasMore,
    /// There are rows for whoever wanted them: take them, then come back with the bytes not consumed.
    CodecStatusRows,
    /// The picture was decoded to its end.
    CodecStatusFinished,
    /// No image: see the fault. Every later step says the same.
    CodecStatusFailed,
} CodecStatus;

/// The outcome of one slice of work.
typedef struct {
    CodecStatus status;
    CodecFault fault;
    /// Bytes from the start of those given that are not needed again.
    size_t consumed;
} CodecStep;

/// What is known of the picture so far.
typedef struct {
    uint32_t width;
    uint32_t height;
    /// An upper bound of what decoding holds at once, in bytes; of the bytes given only `maxBacklog`.
    size_t decodingMemory;
    /// What a reader of its pixels holds beyond what the format's `_pixels_memory` function tells, in bytes.
    uint64_t extraMemory;
    /// The bytes that the file has up to its last frame's end, where the header tells that; otherwise 0.
    size_t fileBytes;
    /// The most bytes given that may be left unconsumed, where they wait for the last one; 0 where
    /// they are consumed as they come.
    size_t maxBacklog;
    bool isProgressive;
    bool hasAlpha;
    /// Of an animation, those begun so far; of a single picture 1 or not told.
    uint64_t frames;
    /// Where there were too many: how many there may be.
    uint64_t maxFrames;
    /// Where a frame was too large: its sides.
    uint32_t frameWidth;
    uint32_t frameHeight;
    /// By the container, 1 to 8 as EXIF counts them; 0 where only an EXIF block could tell.
    uint8_t containerOrientation;
    /// The EXIF block (a TIFF file), as long as the decoder lives; NULL when none was seen.
    const uint8_t *exif;
    size_t exifCount;
    /// Scans or passes that a preview begun now would show; 0 where there can be none, or none newer.
    int scansToShow;
    /// Once the picture was decoded to its end: a tiny picture of it, of an animation's first frame, top row first, RGBA, alpha
    /// not premultiplied; as long as the decoder lives. NULL before.
    const uint8_t *thumbnail;
    uint32_t thumbnailColumns;
    uint32_t thumbnailRows;
} CodecPicture;

/// What the frames of an animation may come to.
typedef struct {
    uint64_t count;
    /// The pixels of one of them, and of all however few bytes the file has.
    uint64_t freePixels;
    /// The pixels of all of them, however many bytes the file has: each adds CODEC_PIXELS_A_BYTE to those that are free.
    uint64_t maxPixels;
} CodecFrameLimits;

/// As many as a byte of a PNG can tell: so no animation costs more a byte than a still picture may. Those that people
/// make have some 10 to 200.
#define CODEC_PIXELS_A_BYTE 1024

/// The picture so far, encoded; until the next call for the same decoder.
typedef struct {
    /// NULL: there is none.
    const uint8_t *bytes;
    size_t count;
    /// The scans or passes that it shows.
    int scan;
} CodecPreview;

typedef struct JPEGReader JPEGReader;

/// NULL when there is no memory.
JPEGReader *jpeg_reader_create(size_t max_memory);
void jpeg_reader_destroy(JPEGReader *reader);
/// The most scans that may begin; to be set before the step that follows the header.
void jpeg_reader_allow_scans(JPEGReader *reader, int max_scans);
/// The eighths of its sides that the picture is decoded at: 1, 2, 4 or 8; to be set before the step that follows the
/// header. By default as few as the tiny picture wants. Which files are refused doesn't depend on it.
void jpeg_reader_scale(JPEGReader *reader, int eighths);
/// Whether a side may be decoded at a half, a fourth or an eighth, where `least` is twice what is shown. Of a half, one
/// and a half times that is enough, of a fourth one and three quarters: some 2 dB less than twice, 43 and more to
/// Lanczos of the whole picture.
bool jpeg_may_shrink(uint32_t side, uint32_t factor, uint32_t least);
/// Has it tell rows, and keep a colour profile; to be called before the first step.
void jpeg_reader_want_rows(JPEGReader *reader);
/// How the samples come; once the header is known and the scale is set.
CodecPixels jpeg_reader_pixels(const JPEGReader *reader);
/// A plane's sides, and after CodecStatusRows its rows.
CodecRows jpeg_reader_rows(const JPEGReader *reader, int plane);
/// Decodes for some milliseconds. `bytes`: those that an earlier step did not consume, then new ones.
/// `ended`: no more will follow them.
CodecStep jpeg_reader_step(JPEGReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecPicture jpeg_reader_picture(const JPEGReader *reader);
/// Has the next steps encode what `scansToShow` tells of, a baseline JPEG, before they take more bytes; `orientation` is
/// EXIF's. Once all bytes are there it is dropped, and where it fails there is none.
void jpeg_reader_want_preview(JPEGReader *reader, int orientation);
/// What was encoded last, unless it is under way still.
CodecPreview jpeg_reader_preview(const JPEGReader *reader);
/// Frees that, or ends what is under way.
void jpeg_reader_drop_preview(JPEGReader *reader);
/// The library's word for the fault.
const char *jpeg_reader_message(const JPEGReader *reader);

typedef struct PNGReader PNGReader;

/// NULL when there is no memory.
PNGReader *png_reader_create(size_t max_memory);
void png_reader_destroy(PNGReader *reader);
/// As `webp_reader_allow_frames`.
void png_reader_allow_frames(PNGReader *reader, CodecFrameLimits limits);
/// As `jpeg_reader_step`.
CodecStep png_reader_step(PNGReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecPicture png_reader_picture(const PNGReader *reader);
/// As those of `jpeg_reader`; samples have 8 bits, and a palette is looked up. An interlaced picture's rows come once its
/// last pass did; they are held, if `max_memory` allows. What that takes the header's memory counts.
void png_reader_want_rows(PNGReader *reader);
/// Once there are rows.
CodecPixels png_reader_pixels(const PNGReader *reader);
CodecRows png_reader_rows(const PNGReader *reader, int plane);
/// Has it hold nothing for previews; to be called before the first step.
void png_reader_want_no_previews(PNGReader *reader);
/// Has it pass over an animation; to be called before the first step.
void png_reader_want_no_frames(PNGReader *reader);
/// As those of `jpeg_reader`; a PNG.
void png_reader_want_preview(PNGReader *reader, int orientation);
CodecPreview png_reader_preview(const PNGReader *reader);
void png_reader_drop_preview(PNGReader *reader);
/// The library's word for the fault.
const char *png_reader_message(const PNGReader *reader);

typedef struct WebPReader WebPReader;

/// NULL when there is no memory.
WebPReader *webp_reader_create(size_t max_memory);
void webp_reader_destroy(WebPReader *reader);
/// To be set before the step that follows the header.
void webp_reader_allow_frames(WebPReader *reader, CodecFrameLimits limits);
/// As `jpeg_reader_step`, but that a lossless picture can't be left while the library decodes from bytes
/// that it has already: a few bytes can be a picture of one colour, at some milliseconds a megapixel.
CodecStep webp_reader_step(WebPReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecPicture webp_reader_picture(const WebPReader *reader);
/// A word for the fault.
const char *webp_reader_message(const WebPReader *reader);

typedef struct GIFReader GIFReader;

/// NULL when there is no memory.
GIFReader *gif_reader_create(size_t max_memory);
void gif_reader_destroy(GIFReader *reader);
/// As `webp_reader_allow_frames`.
void gif_reader_allow_frames(GIFReader *reader, CodecFrameLimits limits);
/// As `jpeg_reader_step`.
CodecStep gif_reader_step(GIFReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecPicture gif_reader_picture(const GIFReader *reader);
/// A word for the fault.
const char *gif_reader_message(const GIFReader *reader);

typedef struct AVIFReader AVIFReader;

/// NULL when there is no memory. `max_frames`: more than so many are not even listed.
AVIFReader *avif_reader_create(size_t max_memory, uint32_t max_frames);
void avif_reader_destroy(AVIFReader *reader);
/// As `webp_reader_allow_frames`.
void avif_reader_allow_frames(AVIFReader *reader, CodecFrameLimits limits);
/// As `jpeg_reader_step`, but that a frame is decoded in one go once all bytes are there: the library can't
/// be left, and takes some 15 to 60 ms a megapixel.
CodecStep avif_reader_step(AVIFReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecPicture avif_reader_picture(const AVIFReader *reader);
/// The library's word for the fault.
const char *avif_reader_message(const AVIFReader *reader);

/// libpng's version as linked, such as `1.6.39`.
const char *codecs_png_version(void);
/// libjpeg-turbo's version as compiled against, such as `2.1.5`. Call it from one thread at a time.
const char *codecs_jpeg_version(void);
/// Little CMS's version as linked, such as `2.14`. Call it from one thread at a time.
const char *codecs_lcms_version(void);
/// libwebp's decoder's version as linked, such as `1.2.4`. Call it from one thread at a time.
const char *codecs_webp_version(void);
/// libavif's version as linked and its AV1 codecs', such as `0.11.1 (dav1d [dec]:1.0.0)`. Call it from one
/// thread at a time.
const char *codecs_avif_version(void);

#include "bmp.h"
#include "heic.h"
#include "jxl.h"

#endif
