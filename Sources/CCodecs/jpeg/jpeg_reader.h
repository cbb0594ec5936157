#ifndef JPEG_READER_H
#define JPEG_READER_H

// Shared by the stages of reading a JPEG; see jpeg.c.
#include "CCodecs.h"
#include "jpeg_planes.h"
#include "jpeg_preview.h"
#include "jpeg_profile.h"
#include "jpeg_thumb.h"

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jerror.h>

// An arithmetic-coded image is collected completely before it is decoded. This is its maximum size.
#define MAX_ARITHMETIC_BACKLOG ((size_t)8 * 1024 * 1024)

typedef enum { HEADER, START, ROWS, SCANS, PREVIEW, OUTPUT, FINISH, FINISHED, FAILED } Stage;

// The contents of a frame header.
typedef struct {
    JDIMENSION width, height;
    int components, precision;
    boolean progressive, arithmetic;
} JPEGFrame;

struct JPEGReader {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    jmp_buf escape;
    Stage stage;
    CodecFault fault;
    JPEGFrame frame; // the image's frame header, once it is read
    bool many_scans;
    bool in_scan;    // if many_scans: between SOS and the scan's last MCU
    bool ended;      // no bytes follow the current window
    bool made_end;   // the library was given an EOI that the file lacks
    size_t to_skip;  // bytes that the library wants to skip and that have not arrived yet
    size_t refused;  // bytes that the library read last but could not use yet
    size_t retry_at; // the backlog at which another try is worthwhile
    int eighths;     // the scale of decoding; 0: the smallest that suffices for the thumbnail
    int max_scans;
    unsigned seen;   // components that have had a scan, one bit each
    int whole_scans; // scans that were read completely
    int shown_scans; // scans that the last preview showed
    bool complete;   // each component has had a complete scan
    bool preview_wanted;
    int orientation; // for the preview
    size_t max_preview; // 0: no preview is possible
    JPEGPreview *preview;
    size_t max_memory, memory;
    Thumb thumb;
    bool has_thumb;
    JSAMPARRAY rows[MAX_COMPONENTS];
    bool wants_rows, has_rows;
    JDIMENSION mcu_row; // the MCU row in `rows`
    JPEGProfile profile;
    uint8_t *exif;
    size_t exif_count;
    char message[JMSG_LENGTH_MAX];
};

// Fails the step and all later ones. If `message` is NULL, the library's message is used.
_Noreturn void jpeg_reader_fail(JPEGReader *reader, CodecFault fault, const char *message);

// Makes the library's errors and warnings end the step, except for warnings that valid files cause.
void jpeg_reader_set_errors(JPEGReader *reader);
// Makes the library read from the current window, and stop when it needs more bytes.
void jpeg_reader_set_source(JPEGReader *reader);
// Whether the library is within entropy-coded data that its arithmetic decoder needs as a whole.
bool jpeg_reader_needs_all(const JPEGReader *reader);

// Reads everything before the data of the first scan. Returns false if it needs bytes.
bool jpeg_reader_read_header(JPEGReader *reader);

// Makes one call into the library. Returns false if it needs bytes.
bool jpeg_reader_advance(JPEGReader *reader);
// How many scans a preview started now would show. 0 if an earlier one showed as many, or if none is possible.
int jpeg_reader_scans_to_show(const JPEGReader *reader);
void jpeg_reader_start_preview(JPEGReader *reader);
// Ends a preview that is being made. `whole`: all its rows are present.
void jpeg_reader_end_preview(JPEGReader *reader, bool whole);

#endif
