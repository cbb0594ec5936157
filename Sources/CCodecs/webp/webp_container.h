// Reads the chunks of a WebP file (RFC 9649, 2). The decoder and the later reader of pixels share this code, so
// that both find the same image in a file.
#ifndef WEBP_CONTAINER_H
#define WEBP_CONTAINER_H

#include "webp_frame.h"

#define WEBP_CHUNK_HEAD 8

/// The content at the current offset.
typedef enum {
    /// More bytes are needed.
    WebPNeedsBytes,
    /// The file breaks the rules; see `wrong`.
    WebPWrong,
    /// Up to `chunk_end`, no pixel depends on the content.
    WebPOther,
    /// A chunk of the file, not of a frame.
    WebPEXIF,
    WebPProfile,
    /// Chunks that pixels depend on. Call `webp_container_enter` for them.
    WebPAnimationFrame,
    WebPAlpha,
    WebPImage,
    /// The end of the file; every frame has its image.
    WebPFileEnd,
} WebPChunk;

/// A frame's place on its canvas.
typedef struct {
    uint32_t left, top, width, height;
} WebPPlace;

/// All zeros at the start of the file.
typedef struct {
    uint64_t offset;      // of the next byte in the file; the caller advances it past a chunk's bytes
    uint64_t content_end; // of the current chunk
    uint64_t chunk_end;   // including its padding
    uint64_t riff_end;
    uint64_t frame_end;   // of the ANMF chunk; 0 outside of one
    uint32_t tag;         // of the current chunk
    uint32_t width, height; // of the canvas, once an image, a frame or VP8X has set it
    WebPPlace place;      // of the current frame
    WebPBitstream bitstream; // of the current image
    uint64_t images;      // images entered so far
    bool has_canvas, is_animated, has_alpha_chunk, has_image;
    bool has_alpha;       // an image so far has alpha, or the first one does not cover the canvas
    const char *wrong;
} WebPContainer;

/// Inspects the content at the offset. Changes no offset, so that calling it again returns the same.
/// - Parameter bytes: the bytes from the offset on.
WebPChunk webp_container_inspect(WebPContainer *container, const uint8_t *bytes, size_t count);
/// Enters the chunk that `webp_container_inspect` found in these bytes. For a frame, moves the offset past the
/// chunk's head. For other chunks, the caller processes all bytes, including the head. Returns false on
/// failure; see `wrong`.
bool webp_container_enter(WebPContainer *container, WebPChunk chunk, const uint8_t *bytes);

#endif
