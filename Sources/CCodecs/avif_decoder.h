// How libavif is set up wherever it decodes.
#ifndef AVIF_DECODER_H
#define AVIF_DECODER_H

#include <stdint.h>

#include <avif/avif.h>

/// NULL when there is no memory. EXIF and XMP blocks are not read.
static inline avifDecoder *avif_decoder_create(void) {
    avifDecoder *decoder = avifDecoderCreate();
    if (!decoder) return NULL;
    // The one that heeds the limit of a frame's size.
    if (avifCodecName(AVIF_CODEC_CHOICE_DAV1D, AVIF_CODEC_FLAG_CAN_DECODE))
        decoder->codecChoice = AVIF_CODEC_CHOICE_DAV1D;
    decoder->maxThreads = 1;
    decoder->ignoreExif = decoder->ignoreXMP = AVIF_TRUE;
    // Files of early encoders break these rules, and browsers show them.
    decoder->strictFlags &= ~(avifStrictFlags)(AVIF_STRICT_PIXI_REQUIRED | AVIF_STRICT_CLAP_VALID);
    // Sides are judged by the caller, who can say what they were.
    decoder->imageDimensionLimit = 0;
    return decoder;
}

/// Of a frame: the most pixels that AV1 may code for it. They may be more than what is shown, of small
/// pictures by far.
static inline void avif_decoder_limit(avifDecoder *decoder, uint32_t width, uint32_t height) {
    uint64_t across = ((uint64_t)width + 127) / 128 * 128, down = ((uint64_t)height + 127) / 128 * 128;
    uint64_t limit = across * down < 1024 * 1024 ? 1024 * 1024 : across * down;
    if (limit < decoder->imageSizeLimit) decoder->imageSizeLimit = (uint32_t)limit;
}

#endif
