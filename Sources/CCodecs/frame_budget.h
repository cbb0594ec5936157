// What the frames of an animation may come to: each costs as much as it is large, and can be a few bytes in the file.
#ifndef FRAME_BUDGET_H
#define FRAME_BUDGET_H

#include "CCodecs.h"

typedef struct {
    CodecFrameLimits limits;
    uint64_t frames, pixels; // so far
    uint64_t told;           // where a frame was refused: how many there may be
} FrameBudget;

static inline FrameBudget frame_budget_unbounded(void) {
    return (FrameBudget){.limits = {UINT64_MAX, UINT64_MAX, UINT64_MAX}};
}

/// The pixels that all frames may have in a file of so many bytes.
static inline uint64_t frame_budget_pixels(const FrameBudget *budget, uint64_t bytes) {
    const CodecFrameLimits *limits = &budget->limits;
    if (limits->freePixels >= limits->maxPixels) return limits->maxPixels;
    uint64_t room = limits->maxPixels - limits->freePixels;
    uint64_t earned = bytes > room / CODEC_PIXELS_A_BYTE ? room : bytes * CODEC_PIXELS_A_BYTE;
    return limits->freePixels + earned;
}

/// Counts a frame, before anything is allocated for it. False: it is one too many.
/// - Parameter bytes: of the file, that came before it.
static inline bool frame_budget_take(FrameBudget *budget, uint64_t pixels, uint64_t bytes) {
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
