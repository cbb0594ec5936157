// The passes over a JPEG: reading scans, producing rows, and previews in between.
#include "jpeg_reader.h"
#include "jpeg_scale.h"

// The thumbnail is made from at least this many pixels along the longer side, if the image has them.
#define LEAST_DECODED 64

// How many scans a preview started now would show. 0 if an earlier one showed as many, or if none is possible.
int jpeg_reader_scans_to_show(const JPEGReader *reader) {
    bool may = reader->stage == SCANS && reader->max_preview && reader->complete && !reader->ended;
    return may && reader->whole_scans > reader->shown_scans ? reader->whole_scans : 0;
}

static void count_scan(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    reader->in_scan = true;
    if (cinfo->input_scan_number > reader->max_scans)
        jpeg_reader_fail(reader, CodecFaultTooManyScans, "too many scans");
    if (cinfo->progressive_mode && cinfo->Ss != 0) return;
    for (int index = 0; index < cinfo->comps_in_scan; index++)
        reader->seen |= 1u << cinfo->cur_comp_info[index]->component_index;
}

// The smallest scale that leaves enough pixels for the thumbnail.
static int least_eighths(j_decompress_ptr cinfo) {
    JDIMENSION longest = cinfo->image_width > cinfo->image_height ? cinfo->image_width : cinfo->image_height;
    int eighths = 1;
    while (eighths < DCTSIZE && (uint64_t)longest * eighths < (uint64_t)LEAST_DECODED * DCTSIZE) eighths *= 2;
    return eighths;
}

static void allocate_rows(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    for (int index = 0; index < cinfo->num_components; index++) {
        const jpeg_component_info *component = &cinfo->comp_info[index];
        JDIMENSION columns = (component->width_in_blocks + component->h_samp_factor - 1)
            / component->h_samp_factor * component->h_samp_factor * COMPONENT_SCALE(component);
        reader->rows[index] = cinfo->mem->alloc_sarray(
            (j_common_ptr)cinfo, JPOOL_IMAGE, columns,
            component->v_samp_factor * COMPONENT_SCALE(component));
    }
}

static void start(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    count_scan(reader);
    if (!reader->eighths) reader->eighths = least_eighths(cinfo);
    cinfo->raw_data_out = TRUE;
    cinfo->out_color_space = cinfo->jpeg_color_space;
    cinfo->do_fancy_upsampling = FALSE;
    cinfo->do_block_smoothing = FALSE;
    cinfo->buffered_image = reader->many_scans;
    // Previews have the image's full size. The pass after them gets its scale when it starts.
    cinfo->scale_num = (unsigned)(reader->max_preview ? DCTSIZE : reader->eighths);
    cinfo->scale_denom = DCTSIZE;
    if (!jpeg_start_decompress(cinfo)) jpeg_reader_fail(reader, CodecFaultBroken, "cannot start");
    allocate_rows(reader);
    if (!reader->many_scans) jpeg_thumb_start(&reader->thumb, cinfo);
    reader->stage = reader->many_scans ? SCANS : ROWS;
}

static int lines_at_once(const JPEGReader *reader) {
    return reader->cinfo.max_v_samp_factor * IMAGE_SCALE(&reader->cinfo);
}

// Decodes a row of MCUs. Returns false if it needs bytes.
static bool read_rows(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    JDIMENSION row = cinfo->output_iMCU_row;
    if (!jpeg_read_raw_data(cinfo, reader->rows, (JDIMENSION)lines_at_once(reader))) return false;
    jpeg_thumb_add(&reader->thumb, cinfo, row, reader->rows);
    reader->mcu_row = row;
    reader->has_rows = reader->wants_rows;
    if (cinfo->output_scanline < cinfo->output_height) return true;
    // The end has been read already, so this does not wait for bytes.
    if (reader->many_scans) jpeg_finish_output(cinfo);
    reader->stage = FINISH;
    return true;
}

static unsigned all_components(const JPEGReader *reader) {
    return (1u << reader->cinfo.num_components) - 1;
}

// Sets the fields that jpeg_calc_output_dimensions sets before the first pass. All coefficients are in memory,
// so each pass may have its own scale.
static void scale_pass(j_decompress_ptr cinfo, int eighths) {
    jpeg_set_scale(cinfo, eighths);
    cinfo->output_width = (cinfo->image_width * (uint64_t)eighths + DCTSIZE - 1) / DCTSIZE;
    cinfo->output_height = (cinfo->image_height * (uint64_t)eighths + DCTSIZE - 1) / DCTSIZE;
}

static void start_output(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    // A progressive image need not refine every coefficient (T.81, G.1.1.1), but each component must have some
    // data.
    if (reader->seen != all_components(reader))
        jpeg_reader_fail(reader, CodecFaultBroken, "a component without data");
    cinfo->do_block_smoothing = FALSE;
    scale_pass(cinfo, reader->eighths);
    jpeg_thumb_start(&reader->thumb, cinfo);
    if (!jpeg_start_output(cinfo, cinfo->input_scan_number))
        jpeg_reader_fail(reader, CodecFaultBroken, "cannot start output");
    reader->stage = OUTPUT;
}

static void discard_preview(JPEGReader *reader) {
    jpeg_preview_destroy(reader->preview);
    reader->preview = NULL;
}

void jpeg_reader_start_preview(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    reader->preview_wanted = false;
    discard_preview(reader);
    reader->preview = jpeg_preview_create(cinfo, reader->orientation, reader->max_preview);
    // Also after a failure, so that the next preview shows more scans.
    reader->shown_scans = reader->whole_scans;
    if (!reader->preview) return;
    cinfo->do_block_smoothing = TRUE;
    if (!jpeg_start_output(cinfo, reader->whole_scans))
        jpeg_reader_fail(reader, CodecFaultBroken, "cannot start output");
    // For a pass that is behind its input, the library consumes no bytes, not even the markers after the scan.
    cinfo->output_scan_number = 0;
    reader->stage = PREVIEW;
}

void jpeg_reader_end_preview(JPEGReader *reader, bool whole) {
    jpeg_finish_output(&reader->cinfo);
    reader->stage = SCANS;
    if (!whole || !jpeg_preview_finish(reader->preview)) discard_preview(reader);
}

static void render_preview(JPEGReader *reader) {
    j_decompress_ptr cinfo = &reader->cinfo;
    jpeg_read_raw_data(cinfo, reader->rows, (JDIMENSION)lines_at_once(reader));
    bool taken = jpeg_preview_write(reader->preview, reader->rows);
    if (!taken || cinfo->output_scanline >= cinfo->output_height) jpeg_reader_end_preview(reader, taken);
}

static bool read_scans(JPEGReader *reader) {
    switch (jpeg_consume_input(&reader->cinfo)) {
    case JPEG_SUSPENDED:
        return false;
    case JPEG_REACHED_SOS:
        count_scan(reader);
        return true;
    case JPEG_SCAN_COMPLETED:
        reader->in_scan = false;
        reader->whole_scans = reader->cinfo.input_scan_number;
        reader->complete = reader->seen == all_components(reader);
        return true;
    case JPEG_REACHED_EOI:
        start_output(reader);
        return true;
    default:
        return true;
    }
}

static bool finish(JPEGReader *reader) {
    if (!jpeg_finish_decompress(&reader->cinfo)) return false;
    jpeg_thumb_finish(&reader->thumb, &reader->cinfo);
    reader->has_thumb = true;
    reader->stage = FINISHED;
    return true;
}

// Makes one call into the library. Returns false if it needs bytes.
bool jpeg_reader_advance(JPEGReader *reader) {
    switch (reader->stage) {
    case HEADER:
        return jpeg_reader_read_header(reader);
    case START:
        start(reader);
        return true;
    case ROWS:
    case OUTPUT:
        return read_rows(reader);
    case SCANS:
        return read_scans(reader);
    case PREVIEW:
        render_preview(reader);
        return true;
    case FINISH:
        return finish(reader);
    default:
        return true;
    }
}
