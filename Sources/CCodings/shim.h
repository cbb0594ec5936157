#pragma once
#include <brotli/decode.h>
#include <zlib.h>

// inflateInit2 is a macro, which Swift does not import.
static inline int CCodings_inflateInit(z_stream *stream, int windowBits) {
    return inflateInit2(stream, windowBits);
}
