// One still picture of a WebP file or one frame of its animation, over libwebp's incremental decoder.
#ifndef WEBP_FRAME_H
#define WEBP_FRAME_H

#include "CCodecs.h"

#include <webp/decode.h>

#define WEBP_TAG(a, b, c, d) \
    ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)
#define WEBP_ALPH WEBP_TAG('A', 'L', 'P', 'H')
#define WEBP_VP8 WEBP_TAG('V', 'P', '8', ' ')
#define WEBP_VP8L WEBP_TAG('V', 'P', '8', 'L')

static inline uint32_t webp_u24(const uint8_t *bytes) {
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16;
}

static inline uint32_t webp_u32(const uint8_t *bytes) {
    return webp_u24(bytes) | (uint32_t)bytes[3] << 24;
}

/// What the first bytes of a VP8 or VP8L chunk's content tell.
typedef struct {
    uint32_t width, height;
    bool has_alpha;
} WebPBitstream;

/// How many of its content's bytes `webp_bitstream_read` looks at; 0 for any other chunk.
size_t webp_bitstream_head(uint32_t tag);
bool webp_bitstream_read(uint32_t tag, const uint8_t *content, WebPBitstream *bitstream);

/// An upper bound of what the library holds for a picture whose chunks have `count` bytes; 0: so many as
/// is not known, and not counted.
size_t webp_frame_memory(
    uint32_t width, uint32_t height, bool is_lossless, bool has_alpha_chunk, uint64_t count);

typedef enum { WebPFrameNeedsBytes, WebPFrameHasMore, WebPFrameDone, WebPFrameFailed } WebPFrameState;

/// The chunks of one picture and its decoder. The library must have them in one block, kept here where they come
/// one by one; it looks at them piece by piece, so that it can be left in between.
typedef struct {
    uint8_t *kept;
    size_t capacity;    // of `kept`
    const uint8_t *bytes; // `kept`, or another's
    size_t count;
    size_t shown;       // of them, to the decoder
    size_t piece;       // how much more it is shown at once
    size_t total;       // bytes of all chunks
    bool is_lossless;
    WebPDecoderConfig config;
    WebPIDecoder *decoder;
    VP8StatusCode status;
} WebPFrame;

/// Adds bytes of an ALPH, VP8 or VP8L chunk, its head and its padding too. False: no memory.
bool webp_frame_append(WebPFrame *frame, const uint8_t *bytes, size_t count);
/// Takes chunks that stand side by side where they are, in place of appending: they have to stay there.
void webp_frame_borrow(WebPFrame *frame, const uint8_t *bytes, size_t count);
/// Begins to decode, `total` bytes in all, to RGB or RGBA of another size where that is not 0. False: no
/// memory.
bool webp_frame_start(
    WebPFrame *frame, size_t total, uint32_t height, bool is_lossless, WEBP_CSP_MODE mode,
    uint32_t scaled_width, uint32_t scaled_height);
/// Shows the decoder some more of the bytes.
WebPFrameState webp_frame_advance(WebPFrame *frame);
/// Frees everything; it can be used for another picture then.
void webp_frame_reset(WebPFrame *frame);
/// The fault that a failure is, and a word for it.
CodecFault webp_frame_fault(const WebPFrame *frame, const char **message);

#endif
