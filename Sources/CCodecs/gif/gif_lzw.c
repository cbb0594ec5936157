#include "gif_lzw.h"

#include <string.h>

static void empty_table(GIFLZW *lzw) {
    lzw->next = lzw->clear + 2;
    lzw->width = 1;
    while (1 << lzw->width < lzw->next) lzw->width++;
    lzw->previous = -1;
}

void gif_lzw_start(GIFLZW *lzw, int code_size) {
    memset(lzw, 0, sizeof *lzw);
    lzw->clear = 1 << code_size;
    for (int code = 0; code < lzw->clear; code++) {
        lzw->length[code] = 1;
        lzw->suffix[code] = lzw->first[code] = (uint8_t)code;
    }
    // Most files start with a clear code, but not all.
    empty_table(lzw);
}

// Adds a string to the table. A full table stays unchanged until a clear code.
static void add(GIFLZW *lzw, uint8_t suffix) {
    if (lzw->next == GIF_MAX_CODES) return;
    lzw->prefix[lzw->next] = (uint16_t)lzw->previous;
    lzw->length[lzw->next] = lzw->length[lzw->previous] + 1;
    lzw->first[lzw->next] = lzw->first[lzw->previous];
    lzw->suffix[lzw->next] = suffix;
    lzw->next++;
    if (lzw->next == 1 << lzw->width && lzw->next < GIF_MAX_CODES) lzw->width++;
}

// Writes a string. The table links each string to its prefix, so writing starts at the end.
static void write_string(const GIFLZW *lzw, int code, uint8_t *out) {
    for (size_t index = lzw->length[code]; index-- > 0; code = lzw->prefix[code])
        out[index] = lzw->suffix[code];
}

static size_t write_waiting(GIFLZW *lzw, uint8_t *out, size_t room) {
    size_t count = lzw->waiting_end - lzw->waiting_start;
    if (count > room) count = room;
    memcpy(out, lzw->waiting + lzw->waiting_start, count);
    lzw->waiting_start += count;
    return count;
}

static bool read_code(GIFLZW *lzw, const uint8_t **bytes, const uint8_t *end, int *code) {
    while (lzw->bit_count < lzw->width) {
        if (*bytes == end) return false;
        lzw->bits |= (uint32_t)*(*bytes)++ << lzw->bit_count;
        lzw->bit_count += 8;
    }
    *code = (int)(lzw->bits & ((1u << lzw->width) - 1));
    lzw->bits >>= lzw->width;
    lzw->bit_count -= lzw->width;
    return true;
}

// Processes a code. Returns whether it stands for a string, which is then in the table.
static bool process_code(GIFLZW *lzw, int code) {
    if (code == lzw->clear) {
        empty_table(lzw);
        return false;
    }
    if (code == lzw->clear + 1) {
        lzw->state = GIFCodesEnded;
        return false;
    }
    // The code about to be added means the previous string followed by its own first index.
    bool is_known = lzw->previous < 0 ? code < lzw->clear : code <= lzw->next;
    if (!is_known) {
        lzw->state = GIFCodesBroken;
        return false;
    }
    if (lzw->previous >= 0) add(lzw, lzw->first[code == lzw->next ? lzw->previous : code]);
    lzw->previous = code;
    return true;
}

size_t gif_lzw_decode(
    GIFLZW *lzw, const uint8_t **bytes, const uint8_t *end, uint8_t *out, size_t room) {
    size_t written = write_waiting(lzw, out, room);
    int code;
    while (written < room && lzw->state == GIFCodesGoOn && read_code(lzw, bytes, end, &code)) {
        if (!process_code(lzw, code)) continue;
        size_t length = lzw->length[code];
        if (length <= room - written) {
            write_string(lzw, code, out + written);
            written += length;
        } else {
            write_string(lzw, code, lzw->waiting);
            lzw->waiting_start = 0;
            lzw->waiting_end = length;
            written += write_waiting(lzw, out + written, room - written);
        }
    }
    return written;
}
