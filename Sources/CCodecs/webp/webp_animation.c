#include "animation.h"

#include <stdlib.h>
#include <string.h>

#include <webp/demux.h>
#include <webp/encode.h>
#include <webp/mux.h>

#include "profile.h"

// The same as in the still encoder; see webp_encoder.c.
#define METHOD 2

// MARK: Reading

typedef struct {
    Frames frames;
    WebPAnimDecoder *decoder;
    WebPChunkIterator profile;
    bool has_profile;
    int shown_until;
} Context;

static int next_frame(Frames *frames, const uint8_t **rgba, uint32_t *milliseconds) {
    Context *context = frames->context;
    uint8_t *canvas;
    int until;
    if (!WebPAnimDecoderHasMoreFrames(context->decoder)) return 0;
    if (!WebPAnimDecoderGetNext(context->decoder, &canvas, &until)) return -1;
    *rgba = canvas;
    *milliseconds = until > context->shown_until ? (uint32_t)(until - context->shown_until) : 0;
    context->shown_until = until;
    return 1;
}

static void close_frames(Frames *frames) {
    Context *context = frames->context;
    if (context->has_profile) WebPDemuxReleaseChunkIterator(&context->profile);
    WebPAnimDecoderDelete(context->decoder);
    free(context);
}

static CodecFault start(Context *context, const uint8_t *bytes, size_t count, const CheckedImage *checked) {
    WebPData data = {bytes, count};
    WebPAnimDecoderOptions options;
    // The properties are checked before canvases of that size are allocated.
    WebPDemuxer *demuxer = WebPDemux(&data);
    bool is_checked = demuxer && WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_WIDTH) == checked->width
        && WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_HEIGHT) == checked->height
        && WebPDemuxGetI(demuxer, WEBP_FF_FRAME_COUNT) == checked->frames;
    WebPDemuxDelete(demuxer);
    if (!is_checked) return CodecFaultBroken;
    if (!WebPAnimDecoderOptionsInit(&options)) return CodecFaultUnsupported;
    options.color_mode = MODE_RGBA;
    options.use_threads = 0;
    context->decoder = WebPAnimDecoderNew(&data, &options);
    if (!context->decoder) return CodecFaultTooMuchMemory;
    WebPAnimInfo info;
    if (!WebPAnimDecoderGetInfo(context->decoder, &info)) return CodecFaultBroken;
    context->frames.width = info.canvas_width;
    context->frames.height = info.canvas_height;
    context->frames.loops = info.loop_count;
    const WebPDemuxer *file = WebPAnimDecoderGetDemuxer(context->decoder);
    context->has_profile = WebPDemuxGetChunk(file, "ICCP", 1, &context->profile);
    if (context->has_profile && context->profile.chunk.size <= MAX_PROFILE) {
        context->frames.icc = context->profile.chunk.bytes;
        context->frames.icc_count = context->profile.chunk.size;
    }
    return CodecFaultNone;
}

Frames *webp_frames_open(const uint8_t *bytes, size_t count, CheckedImage checked, CodecFault *fault) {
    Context *context = calloc(1, sizeof *context);
    *fault = CodecFaultTooMuchMemory;
    if (!context) return NULL;
    context->frames = (Frames){.context = context, .next = next_frame, .close = close_frames};
    *fault = start(context, bytes, count, &checked);
    if (!*fault) return &context->frames;
    close_frames(&context->frames);
    return NULL;
}

size_t frames_memory(uint32_t width, uint32_t height) {
    // Two canvases, the frame that is decoded onto one of them, and the prefix codes of a lossless frame.
    return (size_t)width * height * 4 * 4 + 16 * 1024 * 1024;
}

// MARK: Writing

struct WebPAnimation {
    WebPAnimEncoder *encoder;
    WebPConfig config;
    WebPPicture picture;
    WebPData file;
    int64_t begins; // of the next frame, in milliseconds
};

WebPAnimation *webp_animation_open(uint32_t width, uint32_t height, int quality, uint32_t loops) {
    WebPAnimation *animation = calloc(1, sizeof *animation);
    WebPAnimEncoderOptions options;
    if (!animation) return NULL;
    WebPDataInit(&animation->file);
    bool is_set = WebPAnimEncoderOptionsInit(&options) && WebPPictureInit(&animation->picture)
        && WebPConfigPreset(&animation->config, WEBP_PRESET_PHOTO, (float)quality);
    if (is_set) {
        animation->config.method = METHOD;
        options.anim_params.loop_count = loops > 65535 ? 65535 : (int)loops;
        animation->picture.use_argb = 1;
        animation->picture.width = (int)width;
        animation->picture.height = (int)height;
        animation->encoder = WebPAnimEncoderNew((int)width, (int)height, &options);
        if (animation->encoder && WebPPictureAlloc(&animation->picture)) return animation;
    }
    webp_animation_close(animation);
    return NULL;
}

void webp_animation_close(WebPAnimation *animation) {
    WebPAnimEncoderDelete(animation->encoder);
    WebPPictureFree(&animation->picture);
    WebPDataClear(&animation->file);
    free(animation);
}

bool webp_animation_add(WebPAnimation *animation, const uint8_t *pixels, int channels, uint32_t milliseconds) {
    WebPPicture *picture = &animation->picture;
    // The library may have changed the planes to another color space.
    picture->use_argb = 1;
    for (int row = 0; row < picture->height; row++) {
        uint32_t *out = picture->argb + (size_t)row * (size_t)picture->argb_stride;
        for (int column = 0; column < picture->width; column++, pixels += channels) {
            uint32_t alpha = channels == 4 ? pixels[3] : 255;
            out[column] = alpha << 24 | (uint32_t)pixels[0] << 16 | (uint32_t)pixels[1] << 8 | pixels[2];
        }
    }
    if (animation->begins > INT32_MAX) return false;
    bool is_added = WebPAnimEncoderAdd(animation->encoder, picture, (int)animation->begins, &animation->config);
    animation->begins += milliseconds;
    return is_added;
}

const uint8_t *webp_animation_finish(WebPAnimation *animation, size_t *count) {
    if (animation->begins > INT32_MAX) return NULL;
    if (!WebPAnimEncoderAdd(animation->encoder, NULL, (int)animation->begins, NULL)) return NULL;
    if (!WebPAnimEncoderAssemble(animation->encoder, &animation->file)) return NULL;
    *count = animation->file.size;
    return animation->file.bytes;
}

size_t webp_animation_memory(uint32_t width, uint32_t height) {
    // The image, the encoder's three canvases, and its output, which it produces twice to compare.
    size_t pixels = (size_t)width * height;
    return pixels * 4 * 4 + pixels * 2 * 12 + 8 * 1024 * 1024;
}
