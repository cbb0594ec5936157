// Decodes JPEG and PNG in slices, over libjpeg-turbo and libpng.
//
// Both libraries report errors by longjmp. Every function here sets its own setjmp before it calls
// the library and returns a value, so no jump ever leaves this module; nothing here calls back
// into the caller. A decoder keeps no pointer to the bytes it was given once a step returns.
#ifndef CCODECS_H
#define CCODECS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CODECS_CLOSED __attribute__((enum_extensibility(closed)))

/// What to do after a step.
typedef enum CODECS_CLOSED {
    /// Come back with more bytes after those not consumed.
    CodecStatusNeedsBytes,
    /// The header is read, nothing of the image's size is allocated yet. Said once.
    CodecStatusHeader,
    /// The slice is over: come back with the bytes not consumed.
    CodecStatusHasMore,
    /// Every pixel was decoded.
    CodecStatusFinished,
    /// No image: see the fault. Every later step says the same.
    CodecStatusFailed,
} CodecStatus;

/// Why there is no image.
typedef enum CODECS_CLOSED {
    CodecFaultNone,
    /// The bytes ended too soon.
    CodecFaultCutShort,
    /// The bytes break the format's rules.
    CodecFaultBroken,
    /// The format's rules allow it, the library does not decode it.
    CodecFaultUnsupported,
    /// A side is longer than the library decodes.
    CodecFaultTooLarge,
    /// More scans than allowed.
    CodecFaultTooManyScans,
    /// More memory than allowed, or than there is.
    CodecFaultTooMuchMemory,
} CodecFault;

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
    /// The most bytes given that may be left unconsumed, where they wait for the last one; 0 where
    /// they are consumed as they come.
    size_t maxBacklog;
    bool isProgressive;
    bool hasAlpha;
    /// The EXIF block (a TIFF file), as long as the decoder lives; NULL when none was seen.
    const uint8_t *exif;
    size_t exifCount;
} CodecPicture;

typedef struct JPEGReader JPEGReader;

/// NULL when there is no memory.
JPEGReader *jpeg_reader_create(size_t max_memory);
void jpeg_reader_destroy(JPEGReader *reader);
/// The most scans that may begin; to be set before the step that follows the header.
void jpeg_reader_allow_scans(JPEGReader *reader, int max_scans);
/// Decodes for some milliseconds. `bytes`: those that an earlier step did not consume, then new ones.
/// `ended`: no more will follow them.
CodecStep jpeg_reader_step(JPEGReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecPicture jpeg_reader_picture(const JPEGReader *reader);
/// The library's word for the fault.
const char *jpeg_reader_message(const JPEGReader *reader);

typedef struct PNGReader PNGReader;

/// NULL when there is no memory.
PNGReader *png_reader_create(size_t max_memory);
void png_reader_destroy(PNGReader *reader);
/// As `jpeg_reader_step`.
CodecStep png_reader_step(PNGReader *reader, const uint8_t *bytes, size_t count, bool ended);
CodecPicture png_reader_picture(const PNGReader *reader);
/// The library's word for the fault.
const char *png_reader_message(const PNGReader *reader);

/// libpng's version as linked, such as `1.6.39`.
const char *codecs_png_version(void);
/// libjpeg-turbo's version as compiled against, such as `2.1.5`. Call it from one thread at a time.
const char *codecs_jpeg_version(void);

// They use what is declared above.
#include "colour.h"
#include "encoder.h"
#include "orientation.h"
#include "pixels.h"
#include "resampler.h"

#endif
