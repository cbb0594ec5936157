// A function in the program takes precedence over a function of the same name in a linked library. So a program
// linked with this file has a JPEG library with a bug.
#define _GNU_SOURCE
#include "CPlant.h"

#include <dlfcn.h>
#include <stdio.h>

#include <jpeglib.h>

static int (*whole)(j_decompress_ptr, boolean);
static boolean is_armed;

void CPlant_arm(void) { is_armed = TRUE; }

/// Runs at the start, because decoder processes cannot open files and so cannot look up symbols.
__attribute__((constructor)) static void find(void) {
    whole = (int (*)(j_decompress_ptr, boolean))dlsym(RTLD_NEXT, "jpeg_read_header");
}

int jpeg_read_header(j_decompress_ptr info, boolean needs_image) {
    int result = whole(info, needs_image);
    if (!is_armed || result != JPEG_HEADER_OK) return result;
    if (info->image_width == PLANTED_CRASH_WIDTH) *(volatile int *)16 = 1;
    if (info->image_width == PLANTED_HANG_WIDTH)
        for (volatile int i = 0;; i++) {}
    return result;
}
