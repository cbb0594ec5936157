#ifndef JPEG_READER_H
#define JPEG_READER_H

// What the stages of reading a JPEG share; see jpeg.c.
#include "CCodecs.h"
#include "jpeg_planes.h"
#include "jpeg_preview.h"
#include "jpeg_profile.h"
#include "jpeg_thumb.h"

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jerror.h>

// An arithmetic-coded picture is held whole before it is decoded: at most so much of it.
#define MAX_ARITHMETIC_BACKLOG ((size_t)8 * 1024 * 1024)

typedef enum { HEADER, START, ROWS, SCANS, PREVIEW, OUTPUT, FINISH, FINISHED, FAILED } Stage;

// What a frame's header says.
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
    JPEGFrame frame; // the picture's, once there was its header
    bool many_scans;
    bool in_scan;    // of a picture with many scans: between SOS and the scan's last MCU
    bool ended;      // no bytes follow those in the window
    bool made_end;   // the library was given an EOI that was not there
    size_t to_skip;  // bytes that the library wants skipped and that have not come yet
    size_t refused;  // bytes that the library looked at last and could not use yet
    size_t retry_at; // the backlog that makes another try worth while
    int eighths;     // of its sides that the picture is decoded at; 0: as few as the tiny picture wants
    int max_scans;
    unsigned seen;   // components that have had a scan, a bit each
    int whole_scans; // that were read to their end
    int shown_scans; // of which there was a preview
    bool complete;   // each component has had a whole scan
    bool preview_wanted;
    int orientation; // for the preview
    size_t max_preview; // 0: there can be none
    JPEGPreview *preview;
    size_t max_memory, memory;
    Thumb thumb;
    bool has_thumb;
    JSAMPARRAY rows[MAX_COMPONENTS];
    bool wants_rows, has_rows;
    JDIMENSION mcu_row; // of `rows`
    JPEGProfile profile;
    uint8_t *exif;
    size_t exif_count;
    char message[JMSG_LENGTH_MAX];
};

// Ends the step: the reader gives nothing more. A message of NULL leaves the library's.
_Noreturn void jpeg_reader_fail(JPEGReader *reader, CodecFault fault, const char *message);

// Has the library's errors and warnings end the step, but for warnings that sound pictures show.
void jpeg_reader_set_errors(JPEGReader *reader);
// Has the library read the bytes that are there, and stop where it needs more.
void jpeg_reader_set_source(JPEGReader *reader);
// Whether the library is within entropy-coded data that its arithmetic decoder must have whole.
bool jpeg_reader_needs_all(const JPEGReader *reader);

// Takes in all before the first scan's data. False: it needs bytes.
bool jpeg_reader_read_header(JPEGReader *reader);

// One call into the library. False: it needs bytes.
bool jpeg_reader_advance(JPEGReader *reader);
// Scans that a preview begun now would show; 0 where an earlier one showed as many, or none can.
int jpeg_reader_scans_to_show(const JPEGReader *reader);
void jpeg_reader_start_preview(JPEGReader *reader);
// Ends one that is under way; `whole`: all its rows are there.
void jpeg_reader_end_preview(JPEGReader *reader, bool whole);

#endif
