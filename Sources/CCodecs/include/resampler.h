// Scales rows of pixels with a Lanczos filter of three lobes, as the rows arrive.
#ifndef RESAMPLER_H
#define RESAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Like CODECS_CLOSED.
#if __has_attribute(enum_extensibility)
#define RESAMPLER_CLOSED __attribute__((enum_extensibility(closed)))
#else
#define RESAMPLER_CLOSED
#endif

/// The most rows that one call may add.
#define RESAMPLER_BATCH 8

/// The part of an image that is shown, in pixels. Edges may lie within a pixel.
typedef struct {
    double left, top, right, bottom;
} ResamplerBox;

/// How source pixels are weighted.
typedef enum RESAMPLER_CLOSED {
    /// Lanczos with three lobes, over as many source pixels as an output pixel covers.
    ResamplerFilterLanczos,
    /// Linear in the distance, up to one pixel. When enlarging by two, equal to libjpeg's "fancy" upsampling.
    ResamplerFilterLinear,
    /// Only the nearest pixel. Equal to libjpeg's plain upsampling.
    ResamplerFilterNearest,
} ResamplerFilter;

typedef struct Resampler Resampler;

/// The memory that a resampler would take, in bytes; 0 if the parameters are invalid.
size_t resampler_memory(uint32_t width, uint32_t height, int channels, ResamplerBox box,
    uint32_t out_width, uint32_t out_height, uint32_t slack);
/// - Parameters:
///   - has_alpha: whether the last channel is alpha; then colors are premultiplied while scaling.
///   - slack: how many rows may be added while others could be pulled.
///   - filter: filters other than Lanczos can only enlarge.
/// - Returns: NULL if out of memory, if a side is 0, or if the box has no area or isn't within the image. The
///   box may exceed the image by up to one output pixel; the image's edge is continued there.
Resampler *resampler_open(uint32_t width, uint32_t height, int channels, bool has_alpha,
    ResamplerBox box, uint32_t out_width, uint32_t out_height, uint32_t slack,
    ResamplerFilter filter);
void resampler_close(Resampler *resampler);
/// Adds the next source rows, at most RESAMPLER_BATCH. Call it only after `resampler_pull` returned 0, except
/// for rows within the slack.
void resampler_push(Resampler *resampler, const uint8_t *rows, size_t stride, int count);
/// Like `resampler_push`, for one row with separate channels.
void resampler_push_planes(Resampler *resampler, const uint8_t *const *planes);
/// Whether a row can be pulled.
bool resampler_is_ready(const Resampler *resampler);
/// Writes the rows that are ready.
/// - Returns: the number of rows, at most `count`. 0 if it needs more rows or has written all.
int resampler_pull(Resampler *resampler, uint8_t *out, size_t stride, int count);
/// Like `resampler_pull`, for one row with separate channels.
int resampler_pull_planes(Resampler *resampler, uint8_t *const *planes);

#endif
