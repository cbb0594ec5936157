// Down first, then across, so that the longer of the two loops runs over whole rows.
//
// Shrinking, each row of the source is added to the few rows of the output that it is part of, and
// forgotten: what is held does not grow with the factor. Enlarging, the few rows of the source that
// a row of the output is made of are kept, since there could be very many of the latter.
#include "resampler.h"

#include "lanczos.h"
#include "resampler_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Rows that an enlarged row is made of: twice the three lobes, and one for each end's rounding.
#define MAX_WINDOW 8

typedef struct {
    bool enlarges;     // downwards
    Axis across, down;
    size_t left, span; // the columns that are looked at
    size_t row;        // samples of a row of sums, with what the kernels need behind it
    size_t plane;      // samples of one channel, likewise
    size_t max_down, max_across;
    size_t lines;      // rows of the output open at once
} Layout;

struct Resampler {
    Layout layout;
    int channels;
    bool has_alpha;
    uint32_t out_width, out_height;
    uint32_t taken, given; // rows so far
    uint32_t opened;       // rows of the output that have sums
    uint32_t *firsts;
    float *weights_across, *weights_down, *sums, *planes, *filtered;
    Taps *taps_down;
    uint8_t *window; // rows `window_first` to `taken`
    uint32_t window_first;
};

static size_t rounded_up(size_t value, size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// Of anything else there would be no row or column to begin with. Also false for what is not a number.
static bool is_sound(uint32_t width, uint32_t height, int channels, ResamplerBox box,
    uint32_t out_width, uint32_t out_height) {
    return width && height && out_width && out_height && channels > 0 && channels <= 4
        && box.left >= 0 && box.left < box.right && box.right <= width
        && box.top >= 0 && box.top < box.bottom && box.bottom <= height;
}

static Layout layout_of(uint32_t width, uint32_t height, int channels, ResamplerBox box,
    uint32_t out_width, uint32_t out_height) {
    Layout layout = {
        .across = axis_make(width, box.left, box.right, out_width),
        .down = axis_make(height, box.top, box.bottom, out_height),
    };
    layout.enlarges = layout.down.scale < 1;
    Taps last = axis_taps(layout.across, out_width - 1);
    layout.left = axis_taps(layout.across, 0).first;
    layout.span = last.first + last.count - layout.left;
    layout.max_down = axis_max_taps(layout.down);
    layout.max_across = rounded_up(axis_max_taps(layout.across), KERNEL_LANES);
    layout.row = rounded_up(layout.span * (size_t)channels, KERNEL_BLOCK);
    layout.plane = layout.span + layout.max_across;
    double open = (RESAMPLER_BATCH + 2 * layout.down.support + 2) / layout.down.scale + 2;
    layout.lines = layout.enlarges ? 1 : (size_t)ceil(open);
    return layout;
}

static size_t window_bytes(const Layout *layout, int channels) {
    return layout->enlarges ? (MAX_WINDOW + RESAMPLER_BATCH) * layout->span * (size_t)channels : 0;
}

size_t resampler_memory(uint32_t width, uint32_t height, int channels, ResamplerBox box,
    uint32_t out_width, uint32_t out_height) {
    if (!is_sound(width, height, channels, box, out_width, out_height)) return 0;
    Layout layout = layout_of(width, height, channels, box, out_width, out_height);
    size_t floats = out_width * (layout.max_across + 1 + (size_t)channels)
        + layout.lines * (layout.row + layout.max_down) + (size_t)channels * layout.plane;
    return sizeof(Resampler) + floats * sizeof(float) + layout.lines * sizeof(Taps)
        + window_bytes(&layout, channels);
}

static bool allocate(Resampler *resampler) {
    const Layout *layout = &resampler->layout;
    size_t channels = (size_t)resampler->channels, width = resampler->out_width;
    size_t window = window_bytes(layout, resampler->channels);
    resampler->firsts = malloc(width * sizeof(uint32_t));
    // What multiplies 32 bits by 32 more would overflow with the samples' size.
    resampler->weights_across = calloc(width, layout->max_across * sizeof(float));
    resampler->filtered = malloc(channels * width * sizeof(float));
    resampler->planes = calloc(channels * layout->plane, sizeof(float));
    resampler->sums = calloc(layout->lines, layout->row * sizeof(float));
    resampler->weights_down = calloc(layout->lines, layout->max_down * sizeof(float));
    resampler->taps_down = malloc(layout->lines * sizeof(Taps));
    resampler->window = window ? malloc(window) : NULL;
    return resampler->firsts && resampler->weights_across && resampler->filtered
        && resampler->planes && resampler->sums && resampler->weights_down && resampler->taps_down
        && (!window || resampler->window);
}

Resampler *resampler_open(uint32_t width, uint32_t height, int channels, bool has_alpha,
    ResamplerBox box, uint32_t out_width, uint32_t out_height) {
    if (!is_sound(width, height, channels, box, out_width, out_height)) return NULL;
    Resampler *resampler = calloc(1, sizeof *resampler);
    if (!resampler) return NULL;
    resampler->layout = layout_of(width, height, channels, box, out_width, out_height);
    resampler->channels = channels;
    resampler->has_alpha = has_alpha;
    resampler->out_width = out_width;
    resampler->out_height = out_height;
    if (!allocate(resampler)) {
        resampler_close(resampler);
        return NULL;
    }
    const Layout *layout = &resampler->layout;
    for (uint32_t column = 0; column < out_width; column++) {
        Taps taps = axis_taps(layout->across, column);
        resampler->firsts[column] = taps.first - (uint32_t)layout->left;
        axis_weights(layout->across, column, taps,
            resampler->weights_across + column * layout->max_across);
    }
    return resampler;
}

void resampler_close(Resampler *resampler) {
    if (!resampler) return;
    free(resampler->firsts);
    free(resampler->weights_across);
    free(resampler->filtered);
    free(resampler->planes);
    free(resampler->sums);
    free(resampler->weights_down);
    free(resampler->taps_down);
    free(resampler->window);
    free(resampler);
}

static float *line_sums(const Resampler *resampler, uint32_t row) {
    return resampler->sums + row % resampler->layout.lines * resampler->layout.row;
}

static float *line_weights(const Resampler *resampler, uint32_t row) {
    return resampler->weights_down + row % resampler->layout.lines * resampler->layout.max_down;
}

static Taps open_line(Resampler *resampler, uint32_t row) {
    const Layout *layout = &resampler->layout;
    Taps *taps = &resampler->taps_down[row % layout->lines];
    if (row < resampler->opened) return *taps;
    *taps = axis_taps(layout->down, row);
    axis_weights(layout->down, row, *taps, line_weights(resampler, row));
    memset(line_sums(resampler, row), 0, layout->row * sizeof(float));
    resampler->opened = row + 1;
    return *taps;
}

static void add(Resampler *resampler, const uint8_t *const *rows, int count,
    const KernelLine *lines, int line_count) {
    size_t samples = resampler->layout.span * (size_t)resampler->channels;
    kernel_add_rows(rows, count, lines, line_count, samples,
        resampler->has_alpha ? resampler->channels : 0);
}

// Shrinking: adds the rows to those of the output that they are part of.
static void scatter(Resampler *resampler, const uint8_t *const *rows, uint32_t count) {
    KernelLine lines[RESAMPLER_BATCH * 3];
    int line_count = 0;
    uint32_t start = resampler->taken, end = start + count;
    for (uint32_t row = resampler->given; row < resampler->out_height; row++) {
        if (axis_taps(resampler->layout.down, row).first >= end) break;
        Taps taps = open_line(resampler, row);
        uint32_t taps_end = taps.first + taps.count;
        uint32_t first = taps.first > start ? taps.first : start;
        uint32_t last = taps_end < end ? taps_end : end;
        if (last <= first) continue;
        lines[line_count++] = (KernelLine){
            .sums = line_sums(resampler, row),
            .weights = line_weights(resampler, row) + (first - taps.first),
            .first = (int)(first - start),
            .count = (int)(last - first),
        };
    }
    if (line_count) add(resampler, rows, (int)count, lines, line_count);
}

// Enlarging: keeps the rows that are still needed.
static void keep(Resampler *resampler, const uint8_t *const *rows, uint32_t count) {
    size_t row_bytes = resampler->layout.span * (size_t)resampler->channels;
    uint32_t needed = axis_taps(resampler->layout.down, resampler->given).first;
    uint32_t first = needed < resampler->taken ? needed : resampler->taken;
    uint32_t kept = resampler->taken - first;
    uint32_t dropped = first - resampler->window_first;
    memmove(resampler->window, resampler->window + dropped * row_bytes, kept * row_bytes);
    resampler->window_first = first;
    for (uint32_t row = 0; row < count; row++)
        memcpy(resampler->window + (kept + row) * row_bytes, rows[row], row_bytes);
}

void resampler_push(Resampler *resampler, const uint8_t *rows, size_t stride, int count) {
    if (count <= 0 || count > RESAMPLER_BATCH) return;
    if (resampler->given == resampler->out_height) return;
    const uint8_t *pointers[RESAMPLER_BATCH];
    size_t left = resampler->layout.left * (size_t)resampler->channels;
    for (int row = 0; row < count; row++) pointers[row] = rows + (size_t)row * stride + left;
    if (resampler->layout.enlarges) keep(resampler, pointers, (uint32_t)count);
    else scatter(resampler, pointers, (uint32_t)count);
    resampler->taken += (uint32_t)count;
}

// Enlarging: the row's sums from those kept.
static void gather(Resampler *resampler, uint32_t row) {
    Taps taps = open_line(resampler, row);
    size_t row_bytes = resampler->layout.span * (size_t)resampler->channels;
    const uint8_t *rows[MAX_WINDOW];
    for (uint32_t tap = 0; tap < taps.count; tap++)
        rows[tap] = resampler->window + (taps.first - resampler->window_first + tap) * row_bytes;
    KernelLine line = {line_sums(resampler, row), line_weights(resampler, row), 0, (int)taps.count};
    add(resampler, rows, (int)taps.count, &line, 1);
}

static void separate(const Resampler *resampler, const float *sums) {
    size_t channels = (size_t)resampler->channels, span = resampler->layout.span;
    for (size_t channel = 0; channel < channels; channel++) {
        float *plane = resampler->planes + channel * resampler->layout.plane;
        for (size_t column = 0; column < span; column++)
            plane[column] = sums[column * channels + channel];
    }
}

static uint8_t sample(float value) {
    return value <= 0 ? 0 : value >= 255 ? 255 : (uint8_t)(value + 0.5f);
}

static void write_opaque(const Resampler *resampler, uint8_t *out) {
    size_t channels = (size_t)resampler->channels, width = resampler->out_width;
    for (size_t channel = 0; channel < channels; channel++) {
        const float *values = resampler->filtered + channel * width;
        for (size_t column = 0; column < width; column++)
            out[column * channels + channel] = sample(values[column]);
    }
}

// Takes the premultiplication back before anything is rounded.
static void write_alpha(const Resampler *resampler, uint8_t *out) {
    size_t channels = (size_t)resampler->channels, width = resampler->out_width;
    const float *alphas = resampler->filtered + (channels - 1) * width;
    for (size_t column = 0; column < width; column++, out += channels) {
        uint8_t alpha = sample(alphas[column] / 255);
        float factor = alpha ? 255 / alphas[column] : 0;
        for (size_t channel = 0; channel < channels - 1; channel++)
            out[channel] = sample(resampler->filtered[channel * width + column] * factor);
        out[channels - 1] = alpha;
    }
}

static void write_row(Resampler *resampler, uint8_t *out) {
    const Layout *layout = &resampler->layout;
    if (layout->enlarges) gather(resampler, resampler->given);
    separate(resampler, line_sums(resampler, resampler->given));
    for (size_t channel = 0; channel < (size_t)resampler->channels; channel++)
        kernel_filter_row(resampler->planes + channel * layout->plane, resampler->firsts,
            resampler->weights_across, layout->max_across, resampler->out_width,
            resampler->filtered + channel * resampler->out_width);
    if (resampler->has_alpha) write_alpha(resampler, out);
    else write_opaque(resampler, out);
}

int resampler_pull(Resampler *resampler, uint8_t *out, size_t stride, int count) {
    int written = 0;
    for (; written < count && resampler->given < resampler->out_height; written++) {
        Taps taps = axis_taps(resampler->layout.down, resampler->given);
        if (taps.first + taps.count > resampler->taken) break;
        write_row(resampler, out + (size_t)written * stride);
        resampler->given++;
    }
    return written;
}
