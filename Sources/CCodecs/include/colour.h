// Colours: from a profile to sRGB, and what is left of transparency on a background.
#ifndef COLOUR_H
#define COLOUR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ColourTransform ColourTransform;

/// From a profile's colours to sRGB, or for grey to grey of sRGB's tone curve.
/// - Parameters:
///   - channels: of the pixels: 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha.
///   - is_cmyk: the four channels are inks, 255 being none; what comes out has three.
/// - Returns: NULL where there is nothing to do (the profile is sRGB's) and where the profile is broken
///   or for other channels.
ColourTransform *colour_transform_open(const uint8_t *icc, size_t count, int channels, bool is_cmyk);
/// `in` and `out` may be the same.
void colour_transform_run(ColourTransform *transform, const uint8_t *in, uint8_t *out, size_t pixels);
void colour_transform_close(ColourTransform *transform);

/// Inks to RGB where there is no profile to tell how.
void colour_print(const uint8_t *in, uint8_t *out, size_t pixels);

/// Paints pixels over a background and leaves the alpha channel out.
/// - Parameters:
///   - channels: of `in`: 2 or 4.
///   - out_channels: 3, or 1 for grey pixels on a grey background.
void colour_flatten(const uint8_t *in, int channels, uint8_t *out, int out_channels, size_t pixels,
    const uint8_t background[3]);
/// JFIF's luma and differences, a plane each, to red, green and blue in their place.
/// - Parameter is_inked: to cyan, magenta and yellow, 255 being none.
void colour_from_ycc(uint8_t *const *planes, size_t pixels, bool is_inked);
/// Channels that are planes of 8 bits side by side.
void colour_join(const uint8_t *const *planes, int channels, uint8_t *out, size_t pixels);
/// Grey to RGB: 1 channel to 3, or 2 to 4.
void colour_widen(const uint8_t *in, int channels, uint8_t *out, size_t pixels);

#endif
