#ifndef PNG_READER_H
#define PNG_READER_H

// What the stages of reading a PNG share; see png.c.
#include "CCodecs.h"
#include "png_frames.h"
#include "png_pixel.h"
#include "png_preview.h"
#include "png_rows.h"
#include "thumb.h"

#include <setjmp.h>

#include <png.h>

// Compressed bytes given to libpng between looks at the clock: they inflate to 1 MiB at the most. Where rows are wanted
// that is their size once they have 8 bits a sample, but for so few bytes.
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
    uint64_t left;    // of that chunk, with its checksum
    uint64_t offset;  // bytes of the file, that were taken
    uint64_t rows, rows_wanted;
    PNGFrames frames;
    size_t allocated, max_memory;
    CodecPicture picture;
    PNGPixels pixels;
    Thumb thumb;
    PassGrid grid;
    int whole_passes; // that were read to their end
    int shown_passes; // of which there was a preview
    bool has_no_previews, preview_wanted, is_last_bytes;
    int orientation;  // for the preview
    size_t max_preview;
    PNGPreview *preview;
    PNGRows rows_out;
    size_t piece;
    size_t burst;     // rows that may come of a piece
    uint8_t *kept;    // the chunk that is being read, where it is kept
    size_t kept_count;
    uint8_t *exif, *profile;
    size_t exif_count, profile_count;
    bool saw_exif, saw_profile;
    char message[160];
};

// Ends the step: the reader gives nothing more.
_Noreturn void png_reader_fail(PNGReader *reader, CodecFault fault, const char *message);

// Once IHDR is read: reckons what decoding takes, and what of previews and rows fits beside it.
void png_reader_read_header(PNGReader *reader);

// libpng's word that all chunks before the pixels are read, and a row of them as it is stored.
void png_reader_on_info(png_structp png, png_infop info);
void png_reader_on_row(png_structp png, png_bytep row, png_uint_32 number, int pass);

// Collects the eight bytes that start a chunk, or the file. Gives how many it took.
size_t png_reader_take_head(PNGReader *reader, const uint8_t *bytes, size_t count);
// A piece of the chunk's content or checksum, likewise.
size_t png_reader_take_content(PNGReader *reader, const uint8_t *bytes, size_t count);
// The bytes ended before IEND: finishes an image whose data is complete, and fails otherwise.
void png_reader_end_early(PNGReader *reader);
// Whether IHDR was just read, its checksum too.
bool png_reader_reaches_header(PNGReader *reader);

#endif
