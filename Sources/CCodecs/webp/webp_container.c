#include "webp_container.h"

#define RIFF_HEAD 12
#define TAG_RIFF WEBP_TAG('R', 'I', 'F', 'F')
#define TAG_WEBP WEBP_TAG('W', 'E', 'B', 'P')
#define TAG_VP8X WEBP_TAG('V', 'P', '8', 'X')
#define TAG_ANMF WEBP_TAG('A', 'N', 'M', 'F')
#define TAG_EXIF WEBP_TAG('E', 'X', 'I', 'F')
#define TAG_ICCP WEBP_TAG('I', 'C', 'C', 'P')
#define VP8X_SIZE 10
#define ANMF_SIZE 16
#define FLAG_ANIMATION 0x02

static WebPChunk wrong(WebPContainer *container, const char *what) {
    container->wrong = what;
    return WebPWrong;
}

static WebPChunk inspect_riff(WebPContainer *container, const uint8_t *bytes, size_t count) {
    if (count < RIFF_HEAD) return WebPNeedsBytes;
    uint64_t size = webp_u32(bytes + 4);
    if (webp_u32(bytes) != TAG_RIFF || webp_u32(bytes + 8) != TAG_WEBP
        || size < 4 + WEBP_CHUNK_HEAD)
        return wrong(container, "bad RIFF header");
    container->riff_end = size + 8;
    container->content_end = container->chunk_end = RIFF_HEAD;
    return WebPOther;
}

static void read_canvas(WebPContainer *container, const uint8_t *content) {
    container->has_canvas = true;
    container->is_animated = content[0] & FLAG_ANIMATION;
    container->width = container->place.width = webp_u24(content + 4) + 1;
    container->height = container->place.height = webp_u24(content + 7) + 1;
}

// The type of the chunk in its context. Image chunks count only if this kind of file shows them.
static WebPChunk kind(const WebPContainer *container) {
    bool in_frame = container->frame_end != 0;
    uint32_t tag = container->tag;
    if (tag == TAG_EXIF) return in_frame ? WebPOther : WebPEXIF;
    if (tag == TAG_ICCP) return in_frame ? WebPOther : WebPProfile;
    if (tag == TAG_ANMF)
        return container->is_animated && !in_frame ? WebPAnimationFrame : WebPOther;
    bool is_image = tag == WEBP_VP8 || tag == WEBP_VP8L;
    if (container->is_animated != in_frame || container->has_image) return WebPOther;
    if (is_image) return WebPImage;
    bool may_have_alpha = container->has_canvas && !container->has_alpha_chunk;
    return tag == WEBP_ALPH && may_have_alpha ? WebPAlpha : WebPOther;
}

static bool is_canvas(const WebPContainer *container) {
    return container->tag == TAG_VP8X && container->offset == RIFF_HEAD;
}

// How many bytes of the content are inspected.
static size_t bytes_inspected(const WebPContainer *container, WebPChunk chunk) {
    switch (chunk) {
    case WebPAnimationFrame:
        return ANMF_SIZE;
    case WebPAlpha:
        return 1;
    case WebPImage:
        return webp_bitstream_head(container->tag);
    default:
        return is_canvas(container) ? VP8X_SIZE : 0;
    }
}

static WebPChunk inspect_content(
    WebPContainer *container, WebPChunk chunk, const uint8_t *content) {
    if (is_canvas(container)) read_canvas(container, content);
    if (chunk != WebPImage) return chunk;
    const WebPBitstream *bitstream = &container->bitstream;
    if (!webp_bitstream_read(container->tag, content, &container->bitstream))
        return wrong(container, "bad image header");
    if (container->has_canvas) return chunk;
    container->width = container->place.width = bitstream->width;
    container->height = container->place.height = bitstream->height;
    return chunk;
}

static WebPChunk inspect_chunk(WebPContainer *container, const uint8_t *bytes, size_t count) {
    uint64_t end = container->frame_end ? container->frame_end : container->riff_end;
    uint64_t room = end - container->offset;
    container->tag = 0;
    container->content_end = container->chunk_end = end;
    // Bytes too few for a chunk's head are padding.
    if (room < WEBP_CHUNK_HEAD) return WebPOther;
    if (count < WEBP_CHUNK_HEAD) return WebPNeedsBytes;
    uint32_t size = webp_u32(bytes + 4);
    if (size > room - WEBP_CHUNK_HEAD)
        return wrong(container, "a chunk exceeds its container");
    container->tag = webp_u32(bytes);
    container->content_end = container->offset + WEBP_CHUNK_HEAD + size;
    // Some writers omit the last chunk's padding.
    container->chunk_end = container->content_end + (size % 2 && container->content_end < end);
    WebPChunk chunk = kind(container);
    size_t needed = bytes_inspected(container, chunk);
    if (size < needed) return wrong(container, "a chunk is too short");
    if (count < WEBP_CHUNK_HEAD + needed) return WebPNeedsBytes;
    return inspect_content(container, chunk, bytes + WEBP_CHUNK_HEAD);
}

WebPChunk webp_container_inspect(WebPContainer *container, const uint8_t *bytes, size_t count) {
    if (!container->offset) return inspect_riff(container, bytes, count);
    if (container->frame_end && container->offset >= container->frame_end) {
        if (!container->has_image) return wrong(container, "a frame without an image");
        container->frame_end = 0;
    }
    if (container->frame_end || container->offset < container->riff_end)
        return inspect_chunk(container, bytes, count);
    return container->images ? WebPFileEnd : wrong(container, "no image");
}

static bool covers(const WebPContainer *container) {
    return container->place.width == container->width
        && container->place.height == container->height;
}

static bool enter_frame(WebPContainer *container, const uint8_t *content) {
    WebPPlace place = {
        2 * webp_u24(content), 2 * webp_u24(content + 3), webp_u24(content + 6) + 1,
        webp_u24(content + 9) + 1};
    // Each sum has at most 26 bits.
    if (place.left + place.width > container->width || place.top + place.height > container->height) {
        container->wrong = "a frame outside of the canvas";
        return false;
    }
    container->place = place;
    container->frame_end = container->chunk_end;
    container->offset += WEBP_CHUNK_HEAD + ANMF_SIZE;
    container->has_image = false;
    container->has_alpha_chunk = false;
    return true;
}

static bool enter_image(WebPContainer *container) {
    const WebPBitstream *bitstream = &container->bitstream;
    const WebPPlace *place = &container->place;
    if (bitstream->width != place->width || bitstream->height != place->height) {
        container->wrong = "an image's size differs from its frame's";
        return false;
    }
    // A lossless image ignores an ALPH chunk.
    if (container->tag == WEBP_VP8L) container->has_alpha_chunk = false;
    bool is_first = !container->images++;
    if (bitstream->has_alpha || container->has_alpha_chunk || (is_first && !covers(container)))
        container->has_alpha = true;
    container->has_image = true;
    return true;
}

bool webp_container_enter(WebPContainer *container, WebPChunk chunk, const uint8_t *bytes) {
    if (chunk == WebPAnimationFrame) return enter_frame(container, bytes + WEBP_CHUNK_HEAD);
    if (chunk == WebPImage) return enter_image(container);
    container->has_alpha_chunk = true;
    return true;
}
