// Reads a JPEG's header and computes the memory that decoding will take.
#include "jpeg_reader.h"

// Memory that does not depend on the image: tables, EXIF, small buffers.
#define BASE_MEMORY ((size_t)256 * 1024)
// The maximum size of a preview. It is also limited to two bits per sample.
#define MAX_PREVIEW ((size_t)8 * 1024 * 1024)
#define MIN_PREVIEW ((size_t)64 * 1024)
// The growing buffer, and the previous copy that the caller may still keep.
#define PREVIEW_COPIES 3

static size_t rounded_up(size_t value, size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// Memory in bytes: one row of MCUs of samples. With several scans, also all coefficients and a pointer per row
// of blocks. For arithmetic coding, also the file's bytes.
static size_t memory_needed(j_decompress_ptr cinfo, bool many_scans) {
    size_t sum = BASE_MEMORY + (cinfo->arith_code ? MAX_ARITHMETIC_BACKLOG : 0);
    for (int index = 0; index < cinfo->num_components; index++) {
        const jpeg_component_info *component = &cinfo->comp_info[index];
        size_t across = component->h_samp_factor, down = component->v_samp_factor;
        size_t columns = rounded_up(component->width_in_blocks, across);
        size_t lines = rounded_up(component->height_in_blocks, down);
        sum += down * DCTSIZE * (columns * DCTSIZE + sizeof(JSAMPROW) + 64);
        if (many_scans) sum += lines * (columns * sizeof(JBLOCK) + sizeof(JBLOCKROW) + 64);
    }
    return sum;
}

// Previews are optional: they never make an image exceed the memory limit.
static void allow_previews(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    if (!reader->many_scans || !jpeg_preview_fits(cinfo)) return;
    size_t samples = 0;
    for (int index = 0; index < cinfo->num_components; index++) {
        const jpeg_component_info *component = &cinfo->comp_info[index];
        samples += (size_t)component->width_in_blocks * component->height_in_blocks * DCTSIZE2;
    }
    size_t bytes = samples / 4 + MIN_PREVIEW;
    if (bytes > MAX_PREVIEW) bytes = MAX_PREVIEW;
    size_t memory = JPEG_PREVIEW_MEMORY + PREVIEW_COPIES * bytes;
    if (reader->memory > reader->max_memory || memory > reader->max_memory - reader->memory) return;
    reader->max_preview = bytes;
    reader->memory += memory;
}

// Refuses files that the library could not convert. With raw output, the library skips its own checks.
static void check_header(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    if (cinfo->jpeg_color_space == JCS_UNKNOWN)
        jpeg_reader_fail(reader, CodecFaultUnsupported, "a number of components other than 1, 3 and 4");
    for (int index = 0; index < cinfo->num_components; index++) {
        const jpeg_component_info *component = &cinfo->comp_info[index];
        if (cinfo->max_h_samp_factor % component->h_samp_factor
            || cinfo->max_v_samp_factor % component->v_samp_factor)
            ERREXIT(cinfo, JERR_FRACT_SAMPLE_NOTIMPL);
    }
}

bool jpeg_reader_read_header(JPEGReader *reader) {
    if (jpeg_read_header(&reader->cinfo, TRUE) == JPEG_SUSPENDED) return false;
    check_header(reader);
    jpeg_profile_join(&reader->profile);
    reader->many_scans = jpeg_has_multiple_scans(&reader->cinfo);
    reader->memory = memory_needed(&reader->cinfo, reader->many_scans);
    allow_previews(reader);
    reader->stage = START;
    return true;
}
