// Brings rows of pixels to another size: Lanczos with three lobes, as rows come.
#ifndef RESAMPLER_H
#define RESAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// As CODECS_CLOSED.
#if __has_attribute(enum_extensibility)
#define RESAMPLER_CLOSED __attribute__((enum_extensibility(closed)))
#else
#define RESAMPLER_CLOSED
#endif

/// The most rows that it takes at once.
#define RESAMPLER_BATCH 8

/// The part of a picture that is shown, in its pixels; edges may lie within a pixel.
typedef struct {
    double left, top, right, bottom;
} ResamplerBox;

/// How pixels are weighed.
typedef enum RESAMPLER_CLOSED {
    /// With three lobes, spread over as many pixels as an output pixel covers.
    ResamplerFilterLanczos,
    /// By their distance, up to one pixel: enlarged twice, what libjpeg's "fancy" upsampling gives.
    ResamplerFilterLinear,
    /// The nearest one alone: what libjpeg's other upsampling gives.
    ResamplerFilterNearest,
} ResamplerFilter;

typedef struct Resampler Resampler;

/// What one would hold, in bytes; 0 where there can be none.
size_t resampler_memory(uint32_t width, uint32_t height, int channels, ResamplerBox box,
    uint32_t out_width, uint32_t out_height, uint32_t slack);
/// - Parameters:
///   - has_alpha: the last channel is alpha: colours are premultiplied while scaling.
///   - slack: rows that may come while others could be pulled.
///   - filter: any but Lanczos only enlarges.
/// - Returns: NULL where there is no memory, and where a side is 0 or the box isn't within the picture or has no area.
///   It may end up to a pixel of the output beyond it: there the picture's edge goes on.
Resampler *resampler_open(uint32_t width, uint32_t height, int channels, bool has_alpha,
    ResamplerBox box, uint32_t out_width, uint32_t out_height, uint32_t slack,
    ResamplerFilter filter);
void resampler_close(Resampler *resampler);
/// Takes the next rows of the source, up to RESAMPLER_BATCH; only after `resampler_pull` gave 0, but for
/// those of the slack.
void resampler_push(Resampler *resampler, const uint8_t *rows, size_t stride, int count);
/// As `resampler_push`, one row whose channels are apart.
void resampler_push_planes(Resampler *resampler, const uint8_t *const *planes);
/// Whether there is a row to be pulled.
bool resampler_is_ready(const Resampler *resampler);
/// Writes the rows that are ready.
/// - Returns: how many, up to `count`; 0: it needs rows, or has written all.
int resampler_pull(Resampler *resampler, uint8_t *out, size_t stride, int count);
/// As `resampler_pull`, one row with its channels apart.
int resampler_pull_planes(Resampler *resampler, uint8_t *const *planes);

#endif
