// The scale of a JPEG's inverse DCT, in eighths. libjpeg has one number for both directions in ABI 62 (Debian),
// and one per direction from ABI 70 on (Ubuntu has ABI 80). Both directions are always scaled alike here.
#pragma once

#include <stdio.h>

#include <jpeglib.h>

#if JPEG_LIB_VERSION >= 70
#define IMAGE_SCALE(cinfo) ((cinfo)->min_DCT_v_scaled_size)
#define COMPONENT_SCALE(component) ((component)->DCT_v_scaled_size)
#else
#define IMAGE_SCALE(cinfo) ((cinfo)->min_DCT_scaled_size)
#define COMPONENT_SCALE(component) ((component)->DCT_scaled_size)
#endif

static inline void jpeg_set_scale(j_decompress_ptr cinfo, int eighths) {
    IMAGE_SCALE(cinfo) = eighths;
#if JPEG_LIB_VERSION >= 70
    cinfo->min_DCT_h_scaled_size = eighths;
#endif
    for (int index = 0; index < cinfo->num_components; index++) {
        COMPONENT_SCALE(&cinfo->comp_info[index]) = eighths;
#if JPEG_LIB_VERSION >= 70
        cinfo->comp_info[index].DCT_h_scaled_size = eighths;
#endif
    }
}
