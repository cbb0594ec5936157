// Decodes one HEVC frame (ITU-T H.265) with libde265, on the caller's thread.
#ifndef HEVC_H
#define HEVC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <avif/avif.h>

#include "fault.h"

/// The format in a sequence parameter set, read before anything is allocated for it.
typedef struct {
    uint32_t width, height; // the coded size, in whole blocks
    uint32_t shown_width, shown_height;
    int chroma;             // 0 gray, 1 4:2:0, 2 4:2:2, 3 4:4:4
    int depth;
} HEVCFormat;

/// Reads a decoder configuration record (ISO/IEC 14496-15, 8.3.3.1).
CodecFault hevc_format(const uint8_t *setup, size_t count, HEVCFormat *format);

typedef struct HEVCDecoder HEVCDecoder;

typedef enum { HEVCGoesOn, HEVCDone, HEVCFailed } HEVCState;

/// The purpose of decoding.
typedef enum {
    /// Checks that the frame is complete. Skips the filters that smooth blocks, because they cannot fail.
    HEVCProof,
    HEVCPixels,
} HEVCUse;

/// - Parameters:
///   - setup: the decoder configuration record for this format.
///   - bytes: the NAL units of the coded frame.
/// - Returns: NULL with the fault.
HEVCDecoder *hevc_open(
    HEVCUse use, const uint8_t *setup, size_t setup_count, const HEVCFormat *format, const uint8_t *bytes,
    size_t count, CodecFault *fault);
void hevc_close(HEVCDecoder *decoder);
/// Decodes one slice. Most images are a single slice. It cannot be interrupted and takes 10 to 50 ms per
/// megapixel.
HEVCState hevc_step(HEVCDecoder *decoder);
/// The reason for HEVCFailed.
const char *hevc_message(const HEVCDecoder *decoder);
/// The number of slices in the input. Each may cost as much time as the whole image.
uint64_t hevc_slices(const HEVCDecoder *decoder);
/// The decoded planes, valid as long as the decoder. Returns false if the format differs from the declared one.
bool hevc_image(const HEVCDecoder *decoder, avifImage *image);
/// An upper bound of the memory that decoding takes, in bytes.
uint64_t hevc_memory(const HEVCFormat *format);

#endif
