// Limits the frames of an animation. A frame can be only a few bytes in the file, but costs as much time as its
// pixels.
#ifndef FRAME_BUDGET_H
#define FRAME_BUDGET_H

#include "CCodecs.h"

typedef struct {
    CodecFrameLimits limits;
    uint64_t frames, pixels; // so far
    uint64_t told;           // after a frame was refused: how many frames the file may have
} FrameBudget;

static inline FrameBudget frame_budget_unbounded(void) {
    return (FrameBudget){.limits = {UINT64_MAX, UINT64_MAX, UINT64_MAX}};
}

/// The pixels that all frames together may have in a file with this many bytes.
static inline uint64_t frame_budget_pixels(const FrameBudget *budget, uint64_t bytes) {
    const CodecFrameLimits *limits = &budget->limits;
    if (limits->freePixels >= limits->maxPixels) return limits->maxPixels;
    uint64_t room = limits->maxPixels - limits->freePixels;
    uint64_t earned = bytes > room / CODEC_PIXELS_A_BYTE ? room : bytes * CODEC_PIXELS_A_BYTE;
    return limits->freePixels + earned;
}

/// Counts a frame, before anything is allocated for it. Returns false if the frame exceeds the limits.
/// - Parameter bytes: how many bytes of the file precede the frame.
static inline bool frame_budget_count(FrameBudget *budget, uint64_t pixels, uint64_t bytes) {
    uint64_t most = frame_budget_pixels(budget, bytes);
    bool is_within = pixels <= most && budget->pixels <= most - pixels;
    if (budget->frames >= budget->limits.count || !is_within) {
        budget->told = budget->frames;
        return false;
    }
    budget->frames++;
    budget->pixels += pixels;
    return true;
}

#endif
