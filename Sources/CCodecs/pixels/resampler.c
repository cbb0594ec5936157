// Scales rows vertically first, then horizontally, so that the longer loop runs over whole rows. The
// intermediate result is a line of 16-bit values.
//
// Channels are separate planes. Source rows are stored in pairs; rows that output rows may still need are kept
// in a ring. When the image shrinks by a large factor, the ring would be too large. Then each batch of rows is
// added to the sums of its few output rows and discarded. So memory does not grow with the factor.
#include "resampler.h"

#include "lanczos.h"
#include "plane_rows.h"
#include "resampler_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CHANNELS 4
// The most rows kept for output rows; enough to shrink to a fifth.
#define MAX_KEPT 32
#define MAX_PAIRS (MAX_KEPT / 2 + 1)
// 32-bit sums hold 8 bits of sample and 20 of weight including overshoot, or 14 and 16.
#define MAX_BITS 20
#define MAX_LINE_BITS 15

typedef struct {
    bool keeps;        // rows are kept; otherwise sums
    Axis across, down;
    int bits_down;
    size_t left, span; // the range of columns that are used
    size_t row;        // samples in a plane's row, including the padding of the kernels
    size_t max_down, chunks, outputs; // pairs of rows; groups of eight taps; a multiple of eight
    size_t pairs;      // in the ring
    size_t open;       // output rows that have sums at the same time; 0 if rows are kept
} Layout;

struct Resampler {
    Layout layout;
    KernelAcross across;
    int channels;
    bool has_alpha;
    uint32_t out_width, out_height;
    uint32_t received, taken;  // received rows, and how many of them are in pairs
    uint32_t returned;  // rows returned so far
    uint32_t added;  // rows added to the sums
    uint32_t opened;       // output rows that have sums
    uint32_t *firsts;
    int16_t *weights_across, *weights_down, *ring, *lines, *line, *lines_out;
    double *exact;
    uint8_t *split, *samples_out; // `split` and `lines` hold two rows of all planes
    int32_t *sums;
    Taps *taps_down;
};

static size_t rounded_up(size_t value, size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// Checks the parameters; other values would give no first row or column. Also returns false for NaN.
static bool is_sound(uint32_t width, uint32_t height, int channels, ResamplerBox box,
    uint32_t out_width, uint32_t out_height) {
    if (!width || !height || !out_width || !out_height || channels <= 0 || channels > MAX_CHANNELS)
        return false;
    double across = (box.right - box.left) / out_width, down = (box.bottom - box.top) / out_height;
    return isfinite(across) && isfinite(down)
        && box.left >= 0 && box.left < box.right && box.right <= width + across
        && box.top >= 0 && box.top < box.bottom && box.bottom <= height + down;
}

static Layout layout_of(uint32_t width, uint32_t height, ResamplerBox box, uint32_t out_width,
    uint32_t out_height, bool has_alpha, uint32_t slack, ResamplerFilter filter) {
    Layout layout = {
        .across = axis_make(width, box.left, box.right, out_width, filter),
        .down = axis_make(height, box.top, box.bottom, out_height, filter),
    };
    Taps last = axis_taps(layout.across, out_width - 1);
    layout.bits_down = axis_bits(layout.down, has_alpha ? MAX_LINE_BITS : MAX_BITS);
    layout.left = axis_taps(layout.across, 0).first;
    layout.span = last.first + last.count - layout.left;
    // Taps may begin with the second row of a pair.
    layout.max_down = axis_max_taps(layout.down) / 2 + 1;
    layout.chunks = rounded_up(axis_max_taps(layout.across), KERNEL_TAPS) / KERNEL_TAPS;
    layout.outputs = rounded_up(out_width, KERNEL_OUTPUTS);
    layout.row = rounded_up(layout.span, KERNEL_BLOCK) + layout.chunks * KERNEL_TAPS;
    layout.keeps = layout.max_down <= MAX_PAIRS;
    layout.pairs = RESAMPLER_BATCH / 2 + (layout.keeps ? layout.max_down + slack / 2 + 1 : 0);
    double open = (slack + RESAMPLER_BATCH + 2 * layout.down.support + 2) / layout.down.scale + 2;
    layout.open = layout.keeps ? 0 : (size_t)ceil(open);
    return layout;
}

size_t resampler_memory(uint32_t width, uint32_t height, int channels, ResamplerBox box,
    uint32_t out_width, uint32_t out_height, uint32_t slack) {
    if (!is_sound(width, height, channels, box, out_width, out_height)) return 0;
    Layout layout = layout_of(
        width, height, box, out_width, out_height, true, slack, ResamplerFilterLanczos);
    size_t planes = (size_t)channels, open = layout.open + 1;
    size_t across = layout.outputs * (sizeof(uint32_t) + layout.chunks * KERNEL_TAPS * sizeof(int16_t)
        + planes * (sizeof(int16_t) + sizeof(uint8_t)));
    size_t rows = layout.row * (planes * ((2 * layout.pairs + 2) * sizeof(int16_t) + 2
        + layout.open * sizeof(int32_t)) + sizeof(int16_t));
    size_t down = open * (2 * layout.max_down * sizeof(int16_t) + sizeof(Taps));
    size_t exact = (2 * layout.max_down + layout.chunks * KERNEL_TAPS) * (sizeof(double) + sizeof(int16_t));
    return sizeof(Resampler) + across + rows + down + exact;
}

static bool allocate(Resampler *resampler) {
    const Layout *layout = &resampler->layout;
    size_t planes = (size_t)resampler->channels, open = layout->open ? layout->open : 1;
    resampler->firsts = calloc(layout->outputs, sizeof(uint32_t));
    // calloc gets two factors, because their product with the samples' size could overflow.
    resampler->weights_across = calloc(layout->outputs, layout->chunks * KERNEL_TAPS * sizeof(int16_t));
    resampler->weights_down = calloc(open, 2 * layout->max_down * sizeof(int16_t));
    resampler->taps_down = calloc(open, sizeof(Taps));
    resampler->exact = calloc(2 * layout->max_down + layout->chunks * KERNEL_TAPS, sizeof(double));
    resampler->ring = calloc(layout->pairs * planes, 2 * layout->row * sizeof(int16_t));
    resampler->split = calloc(2 * planes, layout->row);
    resampler->lines = calloc(2 * planes, resampler->has_alpha ? layout->row * sizeof(int16_t) : 1);
    resampler->line = calloc(layout->row, sizeof(int16_t));
    resampler->samples_out = calloc(planes, layout->outputs);
    resampler->lines_out = calloc(planes, layout->outputs * sizeof(int16_t));
    resampler->sums = calloc(open * planes, layout->open ? layout->row * sizeof(int32_t) : 1);
    return resampler->firsts && resampler->weights_across && resampler->weights_down
        && resampler->taps_down && resampler->exact && resampler->ring && resampler->split
        && resampler->lines && resampler->line && resampler->samples_out && resampler->lines_out
        && resampler->sums;
}

static void weigh_across(Resampler *resampler) {
    const Layout *layout = &resampler->layout;
    size_t width = layout->chunks * KERNEL_TAPS;
    int bits = axis_bits(layout->across, MAX_LINE_BITS);
    int16_t *weights = resampler->weights_across;
    int16_t *own = malloc(width * sizeof(int16_t));
    if (!own) return;
    for (uint32_t output = 0; output < resampler->out_width; output++) {
        Taps taps = axis_taps(layout->across, output);
        axis_weights(layout->across, output, taps, bits, resampler->exact, own);
        memset(own + taps.count, 0, (width - taps.count) * sizeof(int16_t));
        resampler->firsts[output] = taps.first - (uint32_t)layout->left;
        size_t slot = kernel_slot(output % KERNEL_OUTPUTS);
        for (size_t chunk = 0; chunk < layout->chunks; chunk++) {
            size_t at = output / KERNEL_OUTPUTS * layout->chunks + chunk;
            memcpy(weights + (at * KERNEL_OUTPUTS + slot) * KERNEL_TAPS, own + chunk * KERNEL_TAPS,
                KERNEL_TAPS * sizeof(int16_t));
        }
    }
    free(own);
    resampler->across = (KernelAcross){
        resampler->firsts, weights, layout->chunks, layout->outputs, bits};
}

Resampler *resampler_open(uint32_t width, uint32_t height, int channels, bool has_alpha,
    ResamplerBox box, uint32_t out_width, uint32_t out_height, uint32_t slack,
    ResamplerFilter filter) {
    if (!is_sound(width, height, channels, box, out_width, out_height)) return NULL;
    Resampler *resampler = calloc(1, sizeof *resampler);
    if (!resampler) return NULL;
    resampler->layout = layout_of(
        width, height, box, out_width, out_height, has_alpha, slack, filter);
    resampler->channels = channels;
    resampler->has_alpha = has_alpha;
    resampler->out_width = out_width;
    resampler->out_height = out_height;
    if (allocate(resampler)) weigh_across(resampler);
    if (resampler->across.weights) return resampler;
    resampler_close(resampler);
    return NULL;
}

void resampler_close(Resampler *resampler) {
    if (!resampler) return;
    free(resampler->firsts);
    free(resampler->weights_across);
    free(resampler->weights_down);
    free(resampler->taps_down);
    free(resampler->exact);
    free(resampler->ring);
    free(resampler->split);
    free(resampler->lines);
    free(resampler->line);
    free(resampler->samples_out);
    free(resampler->lines_out);
    free(resampler->sums);
    free(resampler);
}

// The pair that contains a plane's source row.
static int16_t *pair_of(const Resampler *resampler, int channel, uint32_t row) {
    const Layout *layout = &resampler->layout;
    size_t place = (size_t)channel * layout->pairs + row / 2 % layout->pairs;
    return resampler->ring + place * 2 * layout->row;
}

static int16_t *weights_of(const Resampler *resampler, uint32_t row) {
    size_t open = resampler->layout.open ? resampler->layout.open : 1;
    return resampler->weights_down + row % open * 2 * resampler->layout.max_down;
}

static int32_t *sums_of(const Resampler *resampler, int channel, uint32_t row) {
    const Layout *layout = &resampler->layout;
    size_t place = (size_t)channel * layout->open + row % layout->open;
    return resampler->sums + place * layout->row;
}

// Computes the weights for whole pairs. Weights outside the taps are 0.
static void weigh_down(Resampler *resampler, uint32_t row, Taps taps) {
    int16_t *weights = weights_of(resampler, row);
    memset(weights, 0, 2 * resampler->layout.max_down * sizeof *weights);
    axis_weights(resampler->layout.down, row, taps, resampler->layout.bits_down, resampler->exact,
        weights + taps.first % 2);
}

static Taps open_sums(Resampler *resampler, uint32_t row) {
    const Layout *layout = &resampler->layout;
    Taps *taps = &resampler->taps_down[row % layout->open];
    if (row < resampler->opened) return *taps;
    *taps = axis_taps(layout->down, row);
    weigh_down(resampler, row, *taps);
    for (int channel = 0; channel < resampler->channels; channel++)
        memset(sums_of(resampler, channel, row), 0, layout->row * sizeof(int32_t));
    resampler->opened = row + 1;
    return *taps;
}

// Finds a channel's pairs with rows from `first` up to `end`.
static size_t find_pairs(
    const Resampler *resampler, int channel, uint32_t first, uint32_t end, const int16_t **pairs) {
    size_t count = 0;
    for (uint32_t row = first - first % 2; row < end; row += 2)
        pairs[count++] = pair_of(resampler, channel, row);
    return count;
}

// Adds the received rows to the sums of the output rows that use them.
static void add(Resampler *resampler) {
    uint32_t start = resampler->added, end = resampler->taken;
    const int16_t *pairs[RESAMPLER_BATCH / 2 + 1];
    for (uint32_t row = resampler->returned; row < resampler->out_height; row++) {
        if (axis_taps(resampler->layout.down, row).first >= end) break;
        Taps taps = open_sums(resampler, row);
        uint32_t taps_end = taps.first + taps.count;
        uint32_t first = taps.first > start ? taps.first : start;
        uint32_t last = taps_end < end ? taps_end : end;
        if (last <= first) continue;
        uint32_t skipped = first / 2 - taps.first / 2;
        for (int channel = 0; channel < resampler->channels; channel++) {
            size_t count = find_pairs(resampler, channel, first, last, pairs);
            KernelPairs summed = {pairs, weights_of(resampler, row) + 2 * skipped, count};
            kernel_add(summed, resampler->layout.span, sums_of(resampler, channel, row));
        }
    }
    resampler->added = end;
}

static uint8_t *split_row(const Resampler *resampler, int channel, uint32_t row) {
    return resampler->split
        + ((size_t)channel * 2 + row % 2) * resampler->layout.row;
}

static int16_t *line_row(const Resampler *resampler, int channel, uint32_t row) {
    return resampler->lines + ((size_t)channel * 2 + row % 2) * resampler->layout.row;
}

static void premultiply(Resampler *resampler, uint32_t row) {
    const uint8_t *planes[MAX_CHANNELS];
    int16_t *lines[MAX_CHANNELS];
    for (int channel = 0; channel < resampler->channels; channel++) {
        planes[channel] = split_row(resampler, channel, row);
        lines[channel] = line_row(resampler, channel, row);
    }
    planes_premultiply(planes, resampler->channels, resampler->layout.span, lines);
}

// Called after a row was copied into `split`. Every second row, and the last one, completes a pair.
static void add_row(Resampler *resampler) {
    uint32_t row = resampler->received++;
    if (resampler->has_alpha) premultiply(resampler, row);
    if (row % 2 == 0 && resampler->received < resampler->layout.down.size) return;
    uint32_t first = row - row % 2;
    for (int channel = 0; channel < resampler->channels; channel++) {
        int16_t *pair = pair_of(resampler, channel, row);
        if (resampler->has_alpha)
            kernel_pair_lines(line_row(resampler, channel, first), line_row(resampler, channel, row),
                resampler->layout.span, pair);
        else
            kernel_pair(split_row(resampler, channel, first), split_row(resampler, channel, row),
                resampler->layout.span, pair);
    }
    resampler->taken = resampler->received;
    // A batch is complete.
    bool is_full = resampler->taken % RESAMPLER_BATCH == 0;
    bool is_last = resampler->taken == resampler->layout.down.size;
    if (!resampler->layout.keeps && (is_full || is_last)) add(resampler);
}

void resampler_push(Resampler *resampler, const uint8_t *rows, size_t stride, int count) {
    size_t left = resampler->layout.left * (size_t)resampler->channels;
    if (count <= 0 || count > RESAMPLER_BATCH) return;
    for (int row = 0; row < count && resampler->returned < resampler->out_height; row++) {
        uint8_t *planes[MAX_CHANNELS];
        for (int channel = 0; channel < resampler->channels; channel++)
            planes[channel] = split_row(resampler, channel, resampler->received);
        planes_split(rows + (size_t)row * stride + left, resampler->channels, resampler->layout.span,
            planes);
        add_row(resampler);
    }
}

void resampler_push_planes(Resampler *resampler, const uint8_t *const *planes) {
    const Layout *layout = &resampler->layout;
    if (resampler->returned == resampler->out_height) return;
    for (int channel = 0; channel < resampler->channels; channel++)
        memcpy(split_row(resampler, channel, resampler->received), planes[channel] + layout->left,
            layout->span);
    add_row(resampler);
}

// Computes a channel's line of the next row.
static void make_line(Resampler *resampler, int channel, Taps taps) {
    const Layout *layout = &resampler->layout;
    int shift = layout->bits_down - (resampler->has_alpha ? 0 : LINE_BITS);
    if (!layout->keeps) {
        kernel_settle(
            sums_of(resampler, channel, resampler->returned), shift, layout->span, resampler->line);
        return;
    }
    const int16_t *pairs[MAX_PAIRS];
    size_t count = find_pairs(resampler, channel, taps.first, taps.first + taps.count, pairs);
    KernelPairs summed = {pairs, weights_of(resampler, resampler->returned), count};
    kernel_down(summed, shift, layout->span, resampler->line);
}

// Computes the next row in `samples_out`, with separate channels.
static void make_row(Resampler *resampler, Taps taps) {
    size_t outputs = resampler->layout.outputs;
    const int16_t *lines[MAX_CHANNELS];
    uint8_t *samples[MAX_CHANNELS];
    if (resampler->layout.keeps) weigh_down(resampler, resampler->returned, taps);
    for (int channel = 0; channel < resampler->channels; channel++) {
        int16_t *line = resampler->lines_out + (size_t)channel * outputs;
        samples[channel] = resampler->samples_out + (size_t)channel * outputs;
        lines[channel] = line;
        make_line(resampler, channel, taps);
        if (resampler->has_alpha) kernel_across_lines(&resampler->across, resampler->line, line);
        else kernel_across(&resampler->across, resampler->line, samples[channel]);
    }
    if (resampler->has_alpha)
        planes_unpremultiply(lines, resampler->channels, resampler->out_width, samples);
}

bool resampler_is_ready(const Resampler *resampler) {
    if (resampler->returned == resampler->out_height) return false;
    Taps taps = axis_taps(resampler->layout.down, resampler->returned);
    uint32_t seen = resampler->layout.keeps ? resampler->taken : resampler->added;
    return taps.first + taps.count <= seen;
}

// Computes the next row, if it is ready.
static bool next_row(Resampler *resampler) {
    if (!resampler_is_ready(resampler)) return false;
    make_row(resampler, axis_taps(resampler->layout.down, resampler->returned));
    resampler->returned++;
    return true;
}

static const uint8_t *made_plane(const Resampler *resampler, int channel) {
    return resampler->samples_out + (size_t)channel * resampler->layout.outputs;
}

int resampler_pull(Resampler *resampler, uint8_t *out, size_t stride, int count) {
    int written = 0;
    for (; written < count && next_row(resampler); written++) {
        const uint8_t *planes[MAX_CHANNELS];
        for (int channel = 0; channel < resampler->channels; channel++)
            planes[channel] = made_plane(resampler, channel);
        planes_join(planes, resampler->channels, resampler->out_width, out + (size_t)written * stride);
    }
    return written;
}

int resampler_pull_planes(Resampler *resampler, uint8_t *const *planes) {
    if (!next_row(resampler)) return 0;
    for (int channel = 0; channel < resampler->channels; channel++)
        memcpy(planes[channel], made_plane(resampler, channel), resampler->out_width);
    return 1;
}
