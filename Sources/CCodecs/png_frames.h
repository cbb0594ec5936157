// The frames of an animated PNG (PNG, third edition, 11.3.2): each one's place, and its data to the last row. None is composed:
// that is copying of pixels and can't fail.
//
// An animation that breaks the rules is dropped, and the image is its default image alone (PNG, third edition, 13.1).
#ifndef PNG_FRAMES_H
#define PNG_FRAMES_H

#include "frame_budget.h"

#include <zlib.h>

#define PNG_FRAME_CONTROL 26

typedef enum {
    PNGFrameNone,
    PNGFrameAwaited, // its data has not come
    PNGFrameBegun,
    PNGFrameDone,
} PNGFrameState;

typedef enum { PNGAnimationChunk, PNGControlChunk, PNGDataChunk } PNGFrameChunk;

typedef struct {
    FrameBudget budget;
    /// Of the canvas; set with the header.
    uint32_t width, height;
    int bits_a_pixel;
    bool is_interlaced;
    bool is_animated;
    bool is_dropped;             // it broke the rules
    uint32_t promised, sequence; // frames, and the number of the next chunk of one
    PNGFrameState state;
    bool has_data;               // the file's own picture began
    // The frame: what is left of its pass and row.
    uint32_t frame_width, frame_height, rows_left;
    int pass;
    size_t row_left;             // bytes; 0: the next one is a filter's
    bool is_open, has_ended;     // its compressed data
    z_stream stream;
    // The chunk: what it begins with, and its checksum.
    PNGFrameChunk chunk;
    uint8_t content[PNG_FRAME_CONTROL];
    size_t count;
    uint32_t left;               // bytes before the checksum
    uLong checksum;
    uint8_t told[4];
    size_t told_count;
    CodecFault fault;
    const char *message;
} PNGFrames;

/// Whether a chunk is an animation's: then its bytes go to `png_frames_take`.
bool png_frames_begins(PNGFrames *frames, const uint8_t head[8], uint32_t length);
/// Takes bytes of that chunk, its checksum too. False: see `fault`; if that is CodecFaultBroken, `png_frames_drop` it.
/// - Parameter offset: bytes of the file that came before.
bool png_frames_take(PNGFrames *frames, const uint8_t *bytes, size_t count, uint64_t offset);
/// The file's own picture begins.
void png_frames_see_data(PNGFrames *frames);
/// The file ends. False: as `png_frames_take`.
bool png_frames_end(PNGFrames *frames);
/// Forgets the animation. Its other chunks are passed over.
void png_frames_drop(PNGFrames *frames);
void png_frames_free(PNGFrames *frames);

#endif
