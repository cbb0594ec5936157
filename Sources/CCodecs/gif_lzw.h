// GIF's variant of LZW, as it arrives: bytes in, colour indices out, either in pieces of any size.
#ifndef GIF_LZW_H
#define GIF_LZW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GIF_MAX_CODES 4096

typedef enum { GIFCodesGoOn, GIFCodesEnded, GIFCodesBroken } GIFCodes;

typedef struct {
    GIFCodes state;
    int clear;               // the code that empties the table; the next one ends the data
    int next, width;         // the code to be added, the bits of a code
    int previous;            // -1 after a clear code
    uint32_t bits;
    int bit_count;
    uint16_t prefix[GIF_MAX_CODES];
    uint16_t length[GIF_MAX_CODES];
    uint8_t suffix[GIF_MAX_CODES];
    uint8_t first[GIF_MAX_CODES];
    uint8_t waiting[GIF_MAX_CODES]; // of a string that did not fit
    size_t waiting_start, waiting_end;
} GIFLZW;

/// - Parameter code_size: 1 to 8, of a colour index.
void gif_lzw_start(GIFLZW *lzw, int code_size);
/// Decodes until there is no room or no byte; moves `bytes` on. Returns how many indices were written.
size_t gif_lzw_decode(
    GIFLZW *lzw, const uint8_t **bytes, const uint8_t *end, uint8_t *out, size_t room);

#endif
