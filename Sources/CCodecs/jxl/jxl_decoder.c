#include "jxl_decoder.h"

#include "CCodecs.h"
#include "profile.h"

#include <stdio.h>

// A piece that is decoded in some milliseconds.
#define PIECE ((size_t)32 * 1024)
// Bytes per channel of a pixel. Measured: 15 to 17 for files of libjxl's own encoder, 26 for animations.
#define BYTES_A_SAMPLE 18
// The library's own state, which does not depend on the image.
#define BASE_MEMORY ((uint64_t)4 * 1024 * 1024)
// Sides are padded to whole blocks, with some pixels around them.
#define MARGIN 32

static bool open(JXLSource *source, int events, JXL_BOOL is_composed) {
    JxlDecoder *decoder = JxlDecoderCreate(NULL);
    if (!decoder) return false;
    *source = (JXLSource){.decoder = decoder, .piece = PIECE};
    // No runner is set, so it decodes on the caller's thread.
    bool is_ready = JxlDecoderSubscribeEvents(decoder, events) == JXL_DEC_SUCCESS
        && JxlDecoderSetCoalescing(decoder, is_composed) == JXL_DEC_SUCCESS
        && JxlDecoderSetKeepOrientation(decoder, JXL_TRUE) == JXL_DEC_SUCCESS
        && JxlDecoderSetUnpremultiplyAlpha(decoder, JXL_TRUE) == JXL_DEC_SUCCESS;
    if (!is_ready) jxl_close(source);
    return is_ready;
}

bool jxl_open(JXLSource *source) {
    return open(
        source, JXL_DEC_BASIC_INFO | JXL_DEC_COLOR_ENCODING | JXL_DEC_FRAME | JXL_DEC_FULL_IMAGE, JXL_TRUE);
}

bool jxl_open_scout(JXLSource *source) {
    return open(source, JXL_DEC_BASIC_INFO | JXL_DEC_FRAME, JXL_FALSE);
}

void jxl_close(JXLSource *source) {
    if (source->decoder) JxlDecoderDestroy(source->decoder);
    source->decoder = NULL;
}

JxlDecoderStatus jxl_advance(JXLSource *source, const uint8_t *bytes, size_t count, size_t *consumed) {
    if (source->is_dry && source->left == count) return JXL_DEC_NEED_MORE_INPUT;
    static const uint8_t none = 0;
    size_t shown = count < source->piece ? count : source->piece;
    if (JxlDecoderSetInput(source->decoder, count ? bytes : &none, shown) != JXL_DEC_SUCCESS) return JXL_DEC_ERROR;
    JxlDecoderStatus status = JxlDecoderProcessInput(source->decoder);
    size_t left = JxlDecoderReleaseInput(source->decoder);
    *consumed += shown - left;
    source->is_dry = status == JXL_DEC_NEED_MORE_INPUT && shown == count;
    source->left = left;
    // If nothing was consumed, the piece is too short.
    source->piece = status == JXL_DEC_NEED_MORE_INPUT && left == shown ? 2 * source->piece : PIECE;
    return status;
}

JxlPixelFormat jxl_pixels_of(const JxlBasicInfo *info) {
    uint32_t channels = info->num_color_channels + (info->alpha_bits > 0);
    return (JxlPixelFormat){channels, JXL_TYPE_UINT8, JXL_NATIVE_ENDIAN, 0};
}

bool jxl_is_supported(const JxlDecoder *decoder, const JxlBasicInfo *info) {
    if (info->num_color_channels != 1 && info->num_color_channels != 3) return false;
    for (uint32_t index = 0; index < info->num_extra_channels; index++) {
        JxlExtraChannelInfo extra;
        if (JxlDecoderGetExtraChannelInfo(decoder, index, &extra) != JXL_DEC_SUCCESS) return false;
        if (extra.type == JXL_CHANNEL_BLACK) return false;
    }
    return true;
}

void jxl_request_srgb(JxlDecoder *decoder, const JxlBasicInfo *info) {
    if (info->uses_original_profile) return;
    JxlColorEncoding encoding = {
        .color_space = info->num_color_channels == 1 ? JXL_COLOR_SPACE_GRAY : JXL_COLOR_SPACE_RGB,
        .white_point = JXL_WHITE_POINT_D65,
        .primaries = JXL_PRIMARIES_SRGB,
        .transfer_function = JXL_TRANSFER_FUNCTION_SRGB,
        .rendering_intent = JXL_RENDERING_INTENT_RELATIVE,
    };
    // If it can't, the profile describes the pixels.
    (void)JxlDecoderSetPreferredColorProfile(decoder, &encoding);
}

static bool is_srgb(const JxlDecoder *decoder) {
    JxlColorEncoding encoding;
    if (JxlDecoderGetColorAsEncodedProfile(decoder, JXL_UNUSED_FORMAT JXL_COLOR_PROFILE_TARGET_DATA, &encoding) != JXL_DEC_SUCCESS)
        return false;
    bool is_grey = encoding.color_space == JXL_COLOR_SPACE_GRAY;
    return (is_grey || (encoding.color_space == JXL_COLOR_SPACE_RGB && encoding.primaries == JXL_PRIMARIES_SRGB))
        && encoding.white_point == JXL_WHITE_POINT_D65
        && encoding.transfer_function == JXL_TRANSFER_FUNCTION_SRGB;
}

size_t jxl_profile_size(const JxlDecoder *decoder) {
    size_t size = 0;
    if (is_srgb(decoder)) return 0;
    if (JxlDecoderGetICCProfileSize(decoder, JXL_UNUSED_FORMAT JXL_COLOR_PROFILE_TARGET_DATA, &size) != JXL_DEC_SUCCESS) return 0;
    return size > MAX_PROFILE ? 0 : size;
}

// Each frame header says whether blocks or whole planes are transformed. It is not known earlier, so this
// assumes whole planes, which take three times as much. The library uses three channels even for gray.
uint64_t jxl_memory(uint32_t width, uint32_t height, uint32_t extra, bool is_animated) {
    uint64_t samples = ((uint64_t)width + MARGIN) * ((uint64_t)height + MARGIN) * (3 + (uint64_t)extra);
    return BASE_MEMORY + samples * BYTES_A_SAMPLE * (is_animated ? 2 : 1);
}

uint64_t jxl_extra_memory(const JxlBasicInfo *info, uint64_t frames) {
    uint64_t all = jxl_memory(info->xsize, info->ysize, info->num_extra_channels, info->have_animation);
    uint64_t known = jxl_memory(info->xsize, info->ysize, info->alpha_bits > 0, frames > 1);
    return all > known ? all - known : 0;
}

const char *codecs_jxl_version(void) {
    static char text[32];
    const uint32_t number = JxlDecoderVersion();
    snprintf(text, sizeof text, "%u.%u.%u", number / 1000000, number / 1000 % 1000, number % 1000);
    return text;
}
