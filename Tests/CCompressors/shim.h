#pragma once
#include <brotli/encode.h>
#include <zlib.h>

// deflateInit2 is a macro, which Swift does not import.
static inline int CCompressors_deflateInit(z_stream *stream, int windowBits) {
    return deflateInit2(stream, 9, Z_DEFLATED, windowBits, 8, Z_DEFAULT_STRATEGY);
}
