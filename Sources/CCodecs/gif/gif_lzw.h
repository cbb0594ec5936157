// Decodes GIF's variant of LZW in pieces of any size: bytes in, color indices out.
#ifndef GIF_LZW_H
#define GIF_LZW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GIF_MAX_CODES 4096

typedef enum { GIFCodesGoOn, GIFCodesEnded, GIFCodesBroken } GIFCodes;

typedef struct {
    GIFCodes state;
    int clear;               // the code that empties the table; the code after it ends the data
    int next, width;         // the next code to be added; the number of bits in a code
    int previous;            // -1 after a clear code
    uint32_t bits;
    int bit_count;
    uint16_t prefix[GIF_MAX_CODES];
    uint16_t length[GIF_MAX_CODES];
    uint8_t suffix[GIF_MAX_CODES];
    uint8_t first[GIF_MAX_CODES];
    uint8_t waiting[GIF_MAX_CODES]; // the rest of a string that did not fit into the output
    size_t waiting_start, waiting_end;
} GIFLZW;

/// - Parameter code_size: the bits of a color index, 1 to 8.
void gif_lzw_start(GIFLZW *lzw, int code_size);
/// Decodes until the output is full or the input is used up, and advances `bytes`. Returns the number of
/// indices written.
size_t gif_lzw_decode(
    GIFLZW *lzw, const uint8_t **bytes, const uint8_t *end, uint8_t *out, size_t room);

#endif
