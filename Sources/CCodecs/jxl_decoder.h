// What both readers of JPEG XL have in common.
#ifndef JXL_DECODER_H
#define JXL_DECODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jxl/decode.h>
#include <jxl/version.h>

// Functions for color profiles took an unused pixel format before libjxl 0.9.
#if JPEGXL_NUMERIC_VERSION < JPEGXL_COMPUTE_NUMERIC_VERSION(0, 9, 0)
#define JXL_UNUSED_FORMAT NULL,
#else
#define JXL_UNUSED_FORMAT
#endif

/// The library's decoder and how it is fed.
typedef struct {
    JxlDecoder *decoder;
    /// As many bytes as it is shown at once.
    size_t piece;
    /// It has seen all bytes that there are, and these are left of them: no second look is worth it.
    bool is_dry;
    size_t left;
} JXLSource;

/// A decoder of all frames that are shown, composed on their canvas. False: no memory.
bool jxl_open(JXLSource *source);
/// One that decodes no pixel, and tells of each layer of a frame by JXL_DEC_FRAME. False: no memory.
bool jxl_open_scout(JXLSource *source);
void jxl_close(JXLSource *source);

/// Decodes some of these bytes: those that an earlier call did not consume, then new ones. JXL_DEC_NEED_MORE_INPUT where
/// `is_dry`, else there are more to be shown.
/// - Parameter consumed: grows by those that are not needed again.
JxlDecoderStatus jxl_advance(JXLSource *source, const uint8_t *bytes, size_t count, size_t *consumed);

/// How pixels come: 8 bits a channel, grey or RGB, alpha last and not premultiplied.
JxlPixelFormat jxl_pixels_of(const JxlBasicInfo *info);

/// Whether it has colours of a kind that we convert: inks are none.
bool jxl_is_supported(const JxlDecoder *decoder, const JxlBasicInfo *info);

/// Has pixels come in sRGB where the picture is stored in the library's own space; to be called at
/// JXL_DEC_COLOR_ENCODING. Other pixels come as they were given to the encoder, in the profile's space.
void jxl_want_srgb(JxlDecoder *decoder, const JxlBasicInfo *info);

/// How long the profile of what comes out is; 0 where it is sRGB, or no profile that we follow.
size_t jxl_profile_size(const JxlDecoder *decoder);

/// An upper bound of what decoding holds, in bytes.
/// - Parameter extra: channels beside grey or RGB.
uint64_t jxl_memory(uint32_t width, uint32_t height, uint32_t extra, bool is_animated);
/// How much more that is, by the header, than jxl_pixels_memory() counts by what is known of a decoded picture.
/// - Parameter frames: that are shown.
uint64_t jxl_extra_memory(const JxlBasicInfo *info, uint64_t frames);

#endif
