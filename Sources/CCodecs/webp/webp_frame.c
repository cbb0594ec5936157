// libwebp's incremental decoder processes its input as far as it can. The work per byte is bounded only by the
// image's size: a lossless image of one color is a few bytes, decoded in one call.
#include "webp_frame.h"
#include "slice.h"

#include <stdlib.h>
#include <string.h>

// Lossy data is passed in pieces that take about this long.
#define PIECE_NANOSECONDS 1500000
#define MIN_PIECE 64
#define MAX_PIECE ((size_t)16 * 1024)
// Tables, the rescaler's rows and similar memory that does not depend on the image.
#define BASE_MEMORY ((size_t)768 * 1024)

size_t webp_bitstream_head(uint32_t tag) {
    return tag == WEBP_VP8 ? 10 : tag == WEBP_VP8L ? 5 : 0;
}

bool webp_bitstream_read(uint32_t tag, const uint8_t *content, WebPBitstream *bitstream) {
    if (tag == WEBP_VP8) {
        // RFC 6386, 9.1: a key frame, its start code, then 14 bits per side.
        if (content[0] & 1 || webp_u24(content + 3) != 0x2A019D) return false;
        *bitstream = (WebPBitstream){
            .width = (content[6] | (uint32_t)content[7] << 8) & 0x3FFF,
            .height = (content[8] | (uint32_t)content[9] << 8) & 0x3FFF,
        };
    } else {
        uint32_t bits = webp_u32(content + 1);
        if (content[0] != 0x2F || bits >> 29) return false;
        *bitstream = (WebPBitstream){
            .width = (bits & 0x3FFF) + 1,
            .height = (bits >> 14 & 0x3FFF) + 1,
            .has_alpha = bits >> 28 & 1,
        };
    }
    return bitstream->width && bitstream->height;
}

// A group of five prefix codes needs 20 bits of the file and fills 5 KiB of tables. Each group but the first
// must be used by a pixel of an image with a quarter of the width and height.
static uint64_t code_memory(uint64_t width, uint64_t height, uint64_t count) {
    uint64_t groups = ((width + 3) / 4) * ((height + 3) / 4);
    if (groups > 65536) groups = 65536;
    if (count && groups > count * 8 / 20 + 1) groups = count * 8 / 20 + 1;
    return groups * 6 * 1024;
}

size_t webp_frame_memory(
    uint32_t width, uint32_t height, bool is_lossless, bool has_alpha_chunk, uint64_t count) {
    uint64_t pixels = (uint64_t)width * height;
    // Growing buffers are copied.
    uint64_t sum = BASE_MEMORY + 2 * count + 256 * (uint64_t)width;
    // Pixels of four bytes, and the transforms' images at a quarter of the size.
    if (is_lossless || has_alpha_chunk) sum += 5 * pixels + code_memory(width, height, count);
    if (has_alpha_chunk) sum += pixels;
    return sum > SIZE_MAX ? SIZE_MAX : (size_t)sum;
}

bool webp_frame_append(WebPFrame *frame, const uint8_t *bytes, size_t count) {
    if (count > frame->capacity - frame->count) {
        size_t capacity = frame->capacity + frame->capacity / 2 + count + 4096;
        uint8_t *grown = realloc(frame->kept, capacity);
        if (!grown) return false;
        frame->bytes = frame->kept = grown;
        frame->capacity = capacity;
    }
    memcpy(frame->kept + frame->count, bytes, count);
    frame->count += count;
    return true;
}

void webp_frame_borrow(WebPFrame *frame, const uint8_t *bytes, size_t count) {
    frame->bytes = bytes;
    frame->count = count;
}

bool webp_frame_start(
    WebPFrame *frame, size_t total, uint32_t height, bool is_lossless, WEBP_CSP_MODE mode,
    uint32_t scaled_width, uint32_t scaled_height) {
    frame->total = total;
    frame->is_lossless = is_lossless;
    // A lossless decoder that runs out of bytes goes back up to eight rows. So it is given enough for twice as
    // many rows. A lossy decoder loses nothing.
    frame->piece = is_lossless ? 1024 + total / height * 16 : 1024;
    if (!WebPInitDecoderConfig(&frame->config)) return false;
    frame->config.output.colorspace = mode;
    frame->config.options.use_scaling = scaled_width != 0;
    frame->config.options.scaled_width = (int)scaled_width;
    frame->config.options.scaled_height = (int)scaled_height;
    frame->decoder = WebPIDecode(NULL, 0, &frame->config);
    return frame->decoder != NULL;
}

// Until all prefix codes are present, the lossless decoder reads them from the start each time.
static bool is_in_header(const WebPFrame *frame) {
    return frame->is_lossless && !WebPIDecGetRGB(frame->decoder, NULL, NULL, NULL, NULL);
}

static void adapt_piece(WebPFrame *frame, int64_t taken) {
    if (frame->is_lossless) return;
    if (taken > PIECE_NANOSECONDS && frame->piece > MIN_PIECE) frame->piece /= 2;
    if (taken < PIECE_NANOSECONDS / 4 && frame->piece < MAX_PIECE) frame->piece *= 2;
}

WebPFrameState webp_frame_advance(WebPFrame *frame) {
    size_t left = frame->count - frame->shown;
    bool has_all = frame->count == frame->total;
    size_t piece = is_in_header(frame) ? frame->shown / 8 + frame->piece : frame->piece;
    if (left < piece && !has_all) return WebPFrameNeedsBytes;
    frame->shown += left < piece ? left : piece;
    int64_t start = slice_clock();
    frame->status = WebPIUpdate(frame->decoder, frame->bytes, frame->shown);
    adapt_piece(frame, slice_clock() - start);
    if (frame->status == VP8_STATUS_OK) return WebPFrameDone;
    if (frame->status != VP8_STATUS_SUSPENDED) return WebPFrameFailed;
    return frame->shown < frame->total ? WebPFrameHasMore : WebPFrameFailed;
}

void webp_frame_reset(WebPFrame *frame) {
    if (frame->decoder) WebPIDelete(frame->decoder);
    WebPFreeDecBuffer(&frame->config.output);
    free(frame->kept);
    memset(frame, 0, sizeof *frame);
}

CodecFault webp_frame_fault(const WebPFrame *frame, const char **message) {
    switch (frame->status) {
    case VP8_STATUS_OUT_OF_MEMORY:
        *message = "out of memory";
        return CodecFaultTooMuchMemory;
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        *message = "a feature that is not supported";
        return CodecFaultUnsupported;
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
        *message = "not enough image data";
        return CodecFaultBroken;
    default:
        *message = "bad image data";
        return CodecFaultBroken;
    }
}
