#ifndef PNG_READER_H
#define PNG_READER_H

// Shared by the stages of reading a PNG; see png.c.
#include "CCodecs.h"
#include "png_frames.h"
#include "png_pixel.h"
#include "png_preview.h"
#include "png_rows.h"
#include "thumb.h"

#include <setjmp.h>

#include <png.h>

// How many compressed bytes libpng is given between checks of the clock. They inflate to at most 1 MiB. If rows
// are requested, this limit applies to rows with 8 bits per sample.
#define PNG_PIECE 1024

typedef enum { SIGNATURE, HEAD, PASS, KEEP, FRAME, SKIP, FINISHED, FAILED } Stage;

struct PNGReader {
    png_structp png;
    png_infop info;
    jmp_buf escape;
    Stage stage;
    CodecFault fault;
    bool out_of_memory;
    bool has_header, in_data, after_data, saw_end;
    bool made_end;    // libpng was given an IEND that the file lacks
    uint8_t head[8];  // length and type of the chunk being read
    size_t head_count;
    uint64_t left;    // bytes left of the chunk and its checksum
    uint64_t offset;  // how many bytes of the file were consumed
    uint64_t rows, rows_wanted;
    PNGFrames frames;
    size_t allocated, max_memory;
    CodecImageInfo picture;
    PNGPixels pixels;
    Thumb thumb;
    PassGrid grid;
    int whole_passes; // passes that were read completely
    int shown_passes; // passes that the last preview showed
    bool has_no_previews, preview_wanted, is_last_bytes;
    int orientation;  // for the preview
    size_t max_preview;
    PNGPreview *preview;
    PNGRows rows_out;
    size_t piece;
    size_t burst;     // the most rows that one piece may produce
    uint8_t *kept;    // the current chunk, if it is kept
    size_t kept_count;
    uint8_t *exif, *profile;
    size_t exif_count, profile_count;
    bool saw_exif, saw_profile;
    char message[160];
};

// Fails the step and all later ones.
_Noreturn void png_reader_fail(PNGReader *reader, CodecFault fault, const char *message);

// Call it once IHDR is read. Computes the memory for decoding, and whether previews and rows fit in addition.
void png_reader_read_header(PNGReader *reader);

// Callbacks of libpng: all chunks before the pixels are read; a row is available, as stored.
void png_reader_on_info(png_structp png, png_infop info);
void png_reader_on_row(png_structp png, png_bytep row, png_uint_32 number, int pass);

// Collects the eight bytes at the start of a chunk or of the file. Returns how many bytes it consumed.
size_t png_reader_collect_head(PNGReader *reader, const uint8_t *bytes, size_t count);
// Processes a piece of the chunk's content or checksum. Returns how many bytes it consumed.
size_t png_reader_process_content(PNGReader *reader, const uint8_t *bytes, size_t count);
// Handles bytes that end before IEND: finishes an image whose data is complete, and fails otherwise.
void png_reader_end_early(PNGReader *reader);
// Whether IHDR and its checksum were just read.
bool png_reader_reaches_header(PNGReader *reader);

#endif
