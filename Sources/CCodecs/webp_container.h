// The chunks of a WebP file (RFC 9649, 2), told apart in one place: whoever decodes it and whoever reads its pixels
// later must mean the same picture by it.
#ifndef WEBP_CONTAINER_H
#define WEBP_CONTAINER_H

#include "webp_frame.h"

#define WEBP_CHUNK_HEAD 8

/// What stands at the offset.
typedef enum {
    /// More bytes will tell.
    WebPNeedsBytes,
    /// The file breaks the rules: see `wrong`.
    WebPWrong,
    /// No pixel depends on what comes up to `chunk_end`.
    WebPOther,
    /// The file's, not a frame's.
    WebPEXIF,
    WebPProfile,
    /// Chunks that pixels depend on, to be entered.
    WebPAnimationFrame,
    WebPAlpha,
    WebPImage,
    /// Every frame has its image.
    WebPFileEnd,
} WebPChunk;

/// Where a frame is on its canvas.
typedef struct {
    uint32_t left, top, width, height;
} WebPPlace;

/// All 0 at the file's start.
typedef struct {
    uint64_t offset;      // of the next byte to come; whoever takes a chunk's bytes moves it
    uint64_t content_end; // of the chunk there
    uint64_t chunk_end;   // with its padding
    uint64_t riff_end;
    uint64_t frame_end;   // of an ANMF chunk; 0: outside of one
    uint32_t tag;         // of the chunk there
    uint32_t width, height; // of the canvas, once an image, a frame or VP8X told it
    WebPPlace place;      // of the frame that was entered
    WebPBitstream bitstream; // of the image there
    uint64_t images;      // entered so far
    bool has_canvas, is_animated, has_alpha_chunk, has_image;
    bool has_alpha;       // an image entered so far has, or the first leaves some of the canvas free
    const char *wrong;
} WebPContainer;

/// Looks at what stands at the offset and moves nothing: asked again it says the same.
/// - Parameter bytes: those from the offset on.
WebPChunk webp_container_look(WebPContainer *container, const uint8_t *bytes, size_t count);
/// Enters what `webp_container_look` found in these bytes: of a frame the offset moves behind its head, of the others
/// their bytes are to be taken, head and all. False: see `wrong`.
bool webp_container_enter(WebPContainer *container, WebPChunk chunk, const uint8_t *bytes);

#endif
