// One HEVC picture (ITU-T H.265), by libde265 on the caller's thread alone.
#ifndef HEVC_H
#define HEVC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <avif/avif.h>

#include "fault.h"

/// What a sequence parameter set tells, before anything is allocated for it.
typedef struct {
    uint32_t width, height; // as coded: in whole blocks
    uint32_t shown_width, shown_height;
    int chroma;             // 0 grey, 1 4:2:0, 2 4:2:2, 3 4:4:4
    int depth;
} HEVCFormat;

/// Reads a decoder configuration record (ISO/IEC 14496-15, 8.3.3.1).
CodecFault hevc_format(const uint8_t *setup, size_t count, HEVCFormat *format);

typedef struct HEVCDecoder HEVCDecoder;

typedef enum { HEVCGoesOn, HEVCDone, HEVCFailed } HEVCState;

/// What a coded picture is decoded for.
typedef enum {
    /// To prove that all of it is there: without the filters that smooth its blocks, which can't fail.
    HEVCProof,
    HEVCPixels,
} HEVCUse;

/// - Parameters:
///   - setup: the decoder configuration record, of that format.
///   - bytes: the coded picture's units.
/// - Returns: NULL with the fault.
HEVCDecoder *hevc_open(
    HEVCUse use, const uint8_t *setup, size_t setup_count, const HEVCFormat *format, const uint8_t *bytes,
    size_t count, CodecFault *fault);
void hevc_close(HEVCDecoder *decoder);
/// Decodes a slice, which most pictures are one of: it can't be left, and takes some 10 to 50 ms a megapixel.
HEVCState hevc_step(HEVCDecoder *decoder);
/// Why it failed.
const char *hevc_message(const HEVCDecoder *decoder);
/// The slices that it was given; each may cost as much as the whole picture.
uint64_t hevc_slices(const HEVCDecoder *decoder);
/// The picture's planes, as long as the decoder lives, once it is done. False: it is not of the format that was told.
bool hevc_image(const HEVCDecoder *decoder, avifImage *image);
/// An upper bound of what decoding one holds, in bytes.
uint64_t hevc_memory(const HEVCFormat *format);

#endif
