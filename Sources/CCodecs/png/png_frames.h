// Checks the frames of an animated PNG (PNG, third edition, 11.3.2): the place of each frame, and its data up
// to the last row. Frames are not composed, because copying pixels cannot fail.
//
// An animation that breaks the rules is ignored. Then the image is only its default image (PNG, third edition,
// 13.1).
#ifndef PNG_FRAMES_H
#define PNG_FRAMES_H

#include "frame_budget.h"

#include <zlib.h>

#define PNG_FRAME_CONTROL 26

typedef enum {
    PNGFrameNone,
    PNGFrameAwaited, // its data has not arrived
    PNGFrameBegun,
    PNGFrameDone,
} PNGFrameState;

typedef enum { PNGAnimationChunk, PNGControlChunk, PNGDataChunk } PNGFrameChunk;

typedef struct {
    FrameBudget budget;
    /// The sides of the canvas; set with the header.
    uint32_t width, height;
    int bits_a_pixel;
    bool is_interlaced;
    bool is_animated;
    bool is_dropped;             // it broke the rules
    uint32_t promised, sequence; // the number of frames in acTL, and the sequence number of the next chunk
    PNGFrameState state;
    bool has_data;               // the default image has begun
    // The current frame: how much of its pass and row is missing.
    uint32_t frame_width, frame_height, rows_left;
    int pass;
    size_t row_left;             // in bytes; 0: the next byte is a filter type
    bool is_open, has_ended;     // the frame's compressed data
    z_stream stream;
    // The current chunk: its first bytes and its checksum.
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

/// Whether a chunk belongs to an animation. If so, pass its bytes to `png_frames_process`.
bool png_frames_begins(PNGFrames *frames, const uint8_t head[8], uint32_t length);
/// Processes bytes of the chunk, including its checksum. Returns false on failure; see `fault`. On
/// CodecFaultBroken, call `png_frames_discard`.
/// - Parameter offset: how many bytes of the file precede these.
bool png_frames_process(PNGFrames *frames, const uint8_t *bytes, size_t count, uint64_t offset);
/// Call it when the default image begins.
void png_frames_begin_image(PNGFrames *frames);
/// Call it at the end of the file. Returns false like `png_frames_process`.
bool png_frames_end(PNGFrames *frames);
/// Discards the animation. Its further chunks are skipped.
void png_frames_discard(PNGFrames *frames);
void png_frames_free(PNGFrames *frames);

#endif
