// Shared by both readers of JPEG XL.
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

/// The library's decoder and the state of its input.
typedef struct {
    JxlDecoder *decoder;
    /// How many bytes the decoder is given at once.
    size_t piece;
    /// Whether the decoder has seen all available bytes, and how many of them it left. Then another call with
    /// the same bytes is useless.
    bool is_dry;
    size_t left;
} JXLSource;

/// Creates a decoder that returns all shown frames, composed on the canvas. Returns false if out of memory.
bool jxl_open(JXLSource *source);
/// Creates a decoder that decodes no pixels. It reports each layer of a frame by JXL_DEC_FRAME. Returns false
/// if out of memory.
bool jxl_open_scout(JXLSource *source);
void jxl_close(JXLSource *source);

/// Decodes some of these bytes: those that an earlier call did not consume, then new ones. After
/// JXL_DEC_NEED_MORE_INPUT, check `is_dry`: if it is false, call again with the same bytes.
/// - Parameter consumed: increased by the bytes that are not needed again.
JxlDecoderStatus jxl_advance(JXLSource *source, const uint8_t *bytes, size_t count, size_t *consumed);

/// The pixel format: 8 bits a channel, gray or RGB, alpha last and not premultiplied.
JxlPixelFormat jxl_pixels_of(const JxlBasicInfo *info);

/// Whether the colors can be converted. CMYK can't.
bool jxl_is_supported(const JxlDecoder *decoder, const JxlBasicInfo *info);

/// Requests pixels in sRGB if the image is stored in the library's own color space. Otherwise pixels are in the
/// color space of the image's profile. Call it at JXL_DEC_COLOR_ENCODING.
void jxl_request_srgb(JxlDecoder *decoder, const JxlBasicInfo *info);

/// The length of the profile of the decoded pixels. 0 if they are sRGB or the profile is not supported.
size_t jxl_profile_size(const JxlDecoder *decoder);

/// An upper bound of the memory that decoding takes, in bytes.
/// - Parameter extra: the number of channels in addition to gray or RGB.
uint64_t jxl_memory(uint32_t width, uint32_t height, uint32_t extra, bool is_animated);
/// How much memory the header requires in addition to the result of jxl_pixels_memory(), in bytes.
/// - Parameter frames: the number of shown frames.
uint64_t jxl_extra_memory(const JxlBasicInfo *info, uint64_t frames);

#endif
