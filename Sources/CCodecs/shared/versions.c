#include "CCodecs.h"

#include <avif/avif.h>
#include <lcms2.h>
#include <png.h>
#include <stdio.h>
#include <webp/decode.h>

#include <jpeglib.h>

const char *codecs_png_version(void) { return png_get_libpng_ver(NULL); }

// libjpeg-turbo gives its version only at compile time, as a number such as 2001005 for 2.1.5.
const char *codecs_jpeg_version(void) {
    static char text[32];
    const long number = LIBJPEG_TURBO_VERSION_NUMBER;
    snprintf(text, sizeof text, "%ld.%ld.%ld", number / 1000000, number / 1000 % 1000, number % 1000);
    return text;
}

// Little CMS gives a number such as 2140 for 2.14.
const char *codecs_lcms_version(void) {
    static char text[32];
    const int number = cmsGetEncodedCMMversion();
    const int main = number / 1000, minor = number / 10 % 100, patch = number % 10;
    snprintf(text, sizeof text, patch ? "%d.%d.%d" : "%d.%d", main, minor, patch);
    return text;
}

const char *codecs_webp_version(void) {
    static char text[32];
    const int number = WebPGetDecoderVersion();
    snprintf(text, sizeof text, "%d.%d.%d", number >> 16, number >> 8 & 0xFF, number & 0xFF);
    return text;
}

const char *codecs_avif_version(void) {
    static char text[320];
    char codecs[256];
    avifCodecVersions(codecs);
    snprintf(text, sizeof text, "%s (%s)", avifVersion(), codecs);
    return text;
}
