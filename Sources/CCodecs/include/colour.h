// Converts colors: from a profile to sRGB, and from pixels with alpha to opaque ones on a background.
#ifndef COLOUR_H
#define COLOUR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ColourTransform ColourTransform;

/// Creates a conversion from a profile's colors to sRGB. Gray is converted to gray with sRGB's tone curve.
/// - Parameters:
///   - channels: the channels of the pixels: 1 gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha.
///   - is_cmyk: the four channels are inks, and 255 means no ink; the result has three channels.
/// - Returns: NULL if there is nothing to do because the profile is sRGB, or if the profile is broken or for
///   other channels.
ColourTransform *colour_transform_open(const uint8_t *icc, size_t count, int channels, bool is_cmyk);
/// `in` and `out` may be the same.
void colour_transform_run(ColourTransform *transform, const uint8_t *in, uint8_t *out, size_t pixels);
void colour_transform_close(ColourTransform *transform);

/// Converts inks to RGB without a profile.
void colour_print(const uint8_t *in, uint8_t *out, size_t pixels);

/// Paints pixels over a background and leaves the alpha channel out.
/// - Parameters:
///   - channels: of `in`: 2 or 4.
///   - out_channels: 3, or 1 for gray pixels on a gray background.
void colour_flatten(const uint8_t *in, int channels, uint8_t *out, int out_channels, size_t pixels,
    const uint8_t background[3]);
/// Converts planes of JFIF's luma and chroma to red, green and blue, in place.
/// - Parameter is_inked: the result is cyan, magenta and yellow, and 255 means no ink.
void colour_from_ycc(uint8_t *const *planes, size_t pixels, bool is_inked);
/// Interleaves channels that are separate planes of 8 bits.
void colour_join(const uint8_t *const *planes, int channels, uint8_t *out, size_t pixels);
/// Converts gray to RGB: 1 channel to 3, or 2 to 4.
void colour_widen(const uint8_t *in, int channels, uint8_t *out, size_t pixels);

#endif
