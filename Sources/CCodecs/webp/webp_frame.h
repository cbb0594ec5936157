// Decodes a still WebP image or one frame of an animation, with libwebp's incremental decoder.
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

/// The properties in the first bytes of a VP8 or VP8L chunk's content.
typedef struct {
    uint32_t width, height;
    bool has_alpha;
} WebPBitstream;

/// How many bytes of the content `webp_bitstream_read` reads. 0 for other chunks.
size_t webp_bitstream_head(uint32_t tag);
bool webp_bitstream_read(uint32_t tag, const uint8_t *content, WebPBitstream *bitstream);

/// An upper bound of the memory that the library takes for an image whose chunks have `count` bytes. If `count`
/// is 0, the length is not known, and the bytes are not included.
size_t webp_frame_memory(
    uint32_t width, uint32_t height, bool is_lossless, bool has_alpha_chunk, uint64_t count);

typedef enum { WebPFrameNeedsBytes, WebPFrameHasMore, WebPFrameDone, WebPFrameFailed } WebPFrameState;

/// The chunks of one image and their decoder. The library needs the bytes in one block; if they arrive in
/// pieces, they are copied to `kept`. The decoder is given a part at a time, so that it can be interrupted in
/// between.
typedef struct {
    uint8_t *kept;
    size_t capacity;    // of `kept`
    const uint8_t *bytes; // `kept`, or memory of the caller
    size_t count;
    size_t shown;       // how many bytes the decoder was given
    size_t piece;       // how many bytes it is given next
    size_t total;       // bytes of all chunks
    bool is_lossless;
    WebPDecoderConfig config;
    WebPIDecoder *decoder;
    VP8StatusCode status;
} WebPFrame;

/// Appends bytes of an ALPH, VP8 or VP8L chunk, including its head and padding. Returns false if out of memory.
bool webp_frame_append(WebPFrame *frame, const uint8_t *bytes, size_t count);
/// Uses adjacent chunks without copying them, instead of `webp_frame_append`. They must not move or change.
void webp_frame_borrow(WebPFrame *frame, const uint8_t *bytes, size_t count);
/// Starts decoding `total` bytes to RGB or RGBA, scaled if `scaled_width` is not 0. Returns false if out of
/// memory.
bool webp_frame_start(
    WebPFrame *frame, size_t total, uint32_t height, bool is_lossless, WEBP_CSP_MODE mode,
    uint32_t scaled_width, uint32_t scaled_height);
/// Gives the decoder some more of the bytes.
WebPFrameState webp_frame_advance(WebPFrame *frame);
/// Frees everything. The frame can then be used for another image.
void webp_frame_reset(WebPFrame *frame);
/// The fault that caused a failure, and a message for it.
CodecFault webp_frame_fault(const WebPFrame *frame, const char **message);

#endif
