#include "png_frames.h"

#include <png.h>
#include <string.h>

#define LAST_FILTER 4
// How many bytes are inflated at once.
#define PIECE 8192

static bool fail(PNGFrames *frames, CodecFault fault, const char *message) {
    frames->fault = fault;
    frames->message = message;
    return false;
}

static bool wrong(PNGFrames *frames, const char *message) {
    return fail(frames, CodecFaultBroken, message);
}

static uint32_t number_at(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

bool png_frames_begins(PNGFrames *frames, const uint8_t head[8], uint32_t length) {
    if (frames->is_dropped) return false;
    bool is_animation = !memcmp(head + 4, "acTL", 4), is_control = !memcmp(head + 4, "fcTL", 4);
    bool is_data = !memcmp(head + 4, "fdAT", 4);
    // An animation chunk after the image data is ignored, as in browsers.
    if (is_animation ? frames->has_data : !frames->is_animated || !(is_control || is_data)) return false;
    frames->chunk = is_animation ? PNGAnimationChunk : is_control ? PNGControlChunk : PNGDataChunk;
    frames->left = length;
    frames->count = frames->told_count = 0;
    frames->checksum = crc32(0, head + 4, 4);
    return true;
}

static bool begin_animation(PNGFrames *frames) {
    if (frames->count != 8 || frames->is_animated) return wrong(frames, "bad acTL");
    frames->promised = number_at(frames->content);
    frames->is_animated = true;
    return frames->promised ? true : wrong(frames, "an animation without frames");
}

static bool check_sequence(PNGFrames *frames) {
    return number_at(frames->content) == frames->sequence++ ? true : wrong(frames, "frames out of order");
}

// Moves to the next pass that has pixels. A non-interlaced image has one pass. Returns false if there are no
// more.
static bool enter_pass(PNGFrames *frames) {
    while (++frames->pass < (frames->is_interlaced ? PNG_INTERLACE_ADAM7_PASSES : 1)) {
        uint32_t columns = frames->frame_width;
        frames->rows_left = frames->frame_height;
        if (frames->is_interlaced) {
            columns = PNG_PASS_COLS(frames->frame_width, frames->pass);
            frames->rows_left = PNG_PASS_ROWS(frames->frame_height, frames->pass);
        }
        if (columns && frames->rows_left) return true;
    }
    frames->rows_left = 0;
    return false;
}

static size_t row_bytes(const PNGFrames *frames) {
    uint32_t columns = frames->frame_width;
    if (frames->is_interlaced) columns = PNG_PASS_COLS(frames->frame_width, frames->pass);
    return (size_t)(((uint64_t)columns * (uint64_t)frames->bits_a_pixel + 7) / 8);
}

static bool begin_frame(PNGFrames *frames, uint64_t offset) {
    if (frames->count != PNG_FRAME_CONTROL || !check_sequence(frames)) return wrong(frames, "bad fcTL");
    const uint8_t *control = frames->content;
    uint64_t width = number_at(control + 4), height = number_at(control + 8);
    uint64_t right = number_at(control + 12) + width, bottom = number_at(control + 16) + height;
    if (frames->state == PNGFrameAwaited || frames->state == PNGFrameBegun) return wrong(frames, "a frame without its data");
    if (!width || !height || right > frames->width || bottom > frames->height) return wrong(frames, "a frame beyond the canvas");
    bool is_whole = width == frames->width && height == frames->height;
    if (!frames->has_data && !is_whole) return wrong(frames, "the first frame's size differs from the image's");
    if (control[24] > 2 || control[25] > 1) return wrong(frames, "bad fcTL");
    if (frames->budget.frames == frames->promised) return wrong(frames, "more frames than promised");
    if (!frame_budget_count(&frames->budget, width * height, offset))
        return fail(frames, CodecFaultTooManyFrames, "too many frames");
    frames->frame_width = (uint32_t)width;
    frames->frame_height = (uint32_t)height;
    frames->pass = -1;
    frames->row_left = 0;
    frames->has_ended = false;
    (void)enter_pass(frames);
    frames->state = PNGFrameAwaited;
    return true;
}

void png_frames_begin_image(PNGFrames *frames) {
    frames->has_data = true;
    // libpng checks that the default image has all its rows.
    if (frames->state == PNGFrameAwaited) frames->state = PNGFrameDone;
}

// Skips rows; each begins with its filter type.
static bool skip_rows(PNGFrames *frames, const uint8_t *bytes, size_t count) {
    while (count) {
        if (!frames->row_left) {
            if (!frames->rows_left) return wrong(frames, "too much data for a frame");
            if (*bytes > LAST_FILTER) return wrong(frames, "bad filter in a frame");
            frames->row_left = row_bytes(frames) + 1;
        }
        size_t taken = count < frames->row_left ? count : frames->row_left;
        frames->row_left -= taken;
        bytes += taken;
        count -= taken;
        if (!frames->row_left && !--frames->rows_left) (void)enter_pass(frames);
    }
    return true;
}

static bool open_data(PNGFrames *frames) {
    int code = frames->is_open ? inflateReset(&frames->stream) : inflateInit(&frames->stream);
    if (code != Z_OK) return fail(frames, CodecFaultTooMuchMemory, "out of memory");
    frames->is_open = true;
    frames->state = PNGFrameBegun;
    return true;
}

static bool inflate_some(PNGFrames *frames, const uint8_t *bytes, size_t count) {
    if (frames->state == PNGFrameAwaited && !open_data(frames)) return false;
    if (!count) return true;
    if (frames->has_ended) return wrong(frames, "too much data for a frame");
    z_stream *stream = &frames->stream;
    stream->next_in = (Bytef *)(uintptr_t)bytes;
    stream->avail_in = (uInt)count;
    int code;
    do {
        uint8_t rows[PIECE];
        stream->next_out = rows;
        stream->avail_out = PIECE;
        code = inflate(stream, Z_NO_FLUSH);
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) return wrong(frames, "damaged frame data");
        if (!skip_rows(frames, rows, PIECE - stream->avail_out)) return false;
    } while (code == Z_OK && !stream->avail_out);
    if (code != Z_STREAM_END) return true;
    if (frames->rows_left || frames->row_left || stream->avail_in) return wrong(frames, "a frame's data has a wrong length");
    frames->has_ended = true;
    frames->state = PNGFrameDone;
    return true;
}

// Checks the order: a frame's data must follow the default image and the frame's control chunk.
static bool begin_data(PNGFrames *frames) {
    if (!check_sequence(frames)) return false;
    bool is_expected = frames->state == PNGFrameAwaited || frames->state == PNGFrameBegun;
    if (!frames->has_data) return wrong(frames, "frame data before the image data");
    return is_expected ? true : wrong(frames, "frame data without a frame");
}

// Processes bytes before the checksum. Collects the control fields, or the sequence number before frame data.
static bool process_content(PNGFrames *frames, const uint8_t *bytes, size_t count) {
    bool is_data = frames->chunk == PNGDataChunk;
    size_t most = is_data ? 4 : PNG_FRAME_CONTROL, wanted = most - frames->count;
    size_t kept = count < wanted ? count : wanted;
    memcpy(frames->content + frames->count, bytes, kept);
    frames->count += kept;
    if (!is_data) return kept == count ? true : wrong(frames, "an animation chunk is too long");
    if (frames->count < 4) return true;
    if (kept && !begin_data(frames)) return false;
    return inflate_some(frames, bytes + kept, count - kept);
}

static bool end_chunk(PNGFrames *frames, uint64_t offset) {
    if (number_at(frames->told) != frames->checksum) return wrong(frames, "an animation chunk has a wrong checksum");
    switch (frames->chunk) {
    case PNGAnimationChunk:
        return begin_animation(frames);
    case PNGControlChunk:
        return begin_frame(frames, offset);
    default:
        return frames->count == 4 ? true : wrong(frames, "bad fdAT");
    }
}

bool png_frames_process(PNGFrames *frames, const uint8_t *bytes, size_t count, uint64_t offset) {
    size_t content = count < frames->left ? count : frames->left;
    frames->checksum = content ? crc32(frames->checksum, bytes, (uInt)content) : frames->checksum;
    frames->left -= (uint32_t)content;
    if (content && !process_content(frames, bytes, content)) return false;
    for (size_t index = content; index < count; index++) frames->told[frames->told_count++] = bytes[index];
    return frames->told_count < 4 || end_chunk(frames, offset);
}

bool png_frames_end(PNGFrames *frames) {
    if (!frames->is_animated) return true;
    if (frames->budget.frames != frames->promised) return wrong(frames, "fewer frames than promised");
    return frames->state == PNGFrameDone ? true : wrong(frames, "not enough data for a frame");
}

void png_frames_discard(PNGFrames *frames) {
    frames->is_dropped = true;
    frames->is_animated = false;
    frames->budget.frames = 0;
}

void png_frames_free(PNGFrames *frames) {
    if (frames->is_open) inflateEnd(&frames->stream);
}
