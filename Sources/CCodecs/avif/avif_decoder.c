#include "avif_decoder.h"

#include "CCodecs.h"

static avifResult read_bytes(
    avifIO *io, uint32_t flags, uint64_t offset, size_t size, avifROData *out) {
    AVIFSource *source = io->data;
    if (flags) return AVIF_RESULT_IO_ERROR;
    bool is_there = offset <= source->count && size <= source->count - offset;
    if (!is_there && !source->is_whole) {
        source->retry_at = offset > UINT64_MAX - size ? UINT64_MAX : offset + size;
        return AVIF_RESULT_WAITING_ON_IO;
    }
    if (!is_there && offset != source->count) source->was_clipped = true;
    if (offset > source->count) return AVIF_RESULT_IO_ERROR;
    out->data = source->bytes + offset;
    out->size = is_there ? size : (size_t)(source->count - offset);
    return AVIF_RESULT_OK;
}

avifDecoder *avif_decoder_open(AVIFSource *source, uint32_t max_frames) {
    avifDecoder *decoder = avifDecoderCreate();
    if (!decoder) return NULL;
    // dav1d respects the limit of a frame's size.
    if (avifCodecName(AVIF_CODEC_CHOICE_DAV1D, AVIF_CODEC_FLAG_CAN_DECODE))
        decoder->codecChoice = AVIF_CODEC_CHOICE_DAV1D;
    decoder->maxThreads = 1;
    decoder->ignoreExif = decoder->ignoreXMP = AVIF_TRUE;
    // Files of early encoders break these rules, but browsers show them.
    decoder->strictFlags &= ~(avifStrictFlags)(AVIF_STRICT_PIXI_REQUIRED | AVIF_STRICT_CLAP_VALID);
    // The caller checks the sides, so that its error can contain them.
    decoder->imageDimensionLimit = 0;
    decoder->imageCountLimit = max_frames;
    source->io = (avifIO){
        .read = read_bytes, .data = source, .persistent = AVIF_TRUE, .sizeHint = AVIF_MAX_UNPARSED};
    avifDecoderSetIO(decoder, &source->io);
    return decoder;
}

void avif_decoder_limit(avifDecoder *decoder, uint32_t width, uint32_t height) {
    uint64_t across = ((uint64_t)width + 127) / 128 * 128, down = ((uint64_t)height + 127) / 128 * 128;
    uint64_t limit = across * down < 1024 * 1024 ? 1024 * 1024 : across * down;
    if (limit < decoder->imageSizeLimit) decoder->imageSizeLimit = (uint32_t)limit;
}

// AV1 decodes whole blocks.
static uint64_t aligned(uint64_t side) {
    return (side + 127) / 128 * 128;
}

uint64_t avif_decoder_frame_memory(const avifDecoder *decoder) {
    const avifImage *image = decoder->image;
    uint64_t pixels = aligned(image->width) * aligned(image->height);
    uint64_t halves = image->yuvFormat == AVIF_PIXEL_FORMAT_YUV444 ? 6
        : image->yuvFormat == AVIF_PIXEL_FORMAT_YUV422             ? 4
        : image->yuvFormat == AVIF_PIXEL_FORMAT_YUV400             ? 2
                                                                   : 3;
    if (decoder->alphaPresent) halves += 2;
    return pixels * halves / 2 * (image->depth > 8 ? 2 : 1);
}

bool avif_decoder_shown(const avifDecoder *decoder, avifCropRect *shown) {
    const avifImage *image = decoder->image;
    avifCropRect whole = {0, 0, image->width, image->height};
    avifDiagnostics unused;
    *shown = whole;
    if (!(image->transformFlags & AVIF_TRANSFORM_CLAP)) return true;
    if (!avifCropRectConvertCleanApertureBox(shown, &image->clap, image->width, image->height, image->yuvFormat, &unused)) {
        *shown = whole;
        return true;
    }
    bool has_alpha = decoder->alphaPresent;
    uint64_t pixels = (uint64_t)shown->width * shown->height;
    uint64_t needed = AVIF_BASE_MEMORY + 2 * avif_decoder_frame_memory(decoder) + pixels * (has_alpha ? 4 : 3);
    bool is_whole = shown->width == image->width && shown->height == image->height;
    return is_whole || needed <= avif_pixels_memory(shown->width, shown->height, has_alpha);
}

// The library's avifImageSetViewRect() refuses odd offsets in grayscale images.
avifImage avif_decoder_crop(const avifImage *frame, avifCropRect shown) {
    avifImage cropped = *frame;
    cropped.width = shown.width;
    cropped.height = shown.height;
    avifPixelFormatInfo info;
    avifGetPixelFormatInfo(frame->yuvFormat, &info);
    size_t sample = frame->depth > 8 ? 2 : 1;
    for (int channel = 0; channel < AVIF_PLANE_COUNT_YUV; channel++) {
        if (!frame->yuvPlanes[channel]) continue;
        uint32_t x = shown.x >> (channel ? info.chromaShiftX : 0), y = shown.y >> (channel ? info.chromaShiftY : 0);
        cropped.yuvPlanes[channel] += (size_t)y * frame->yuvRowBytes[channel] + x * sample;
    }
    if (frame->alphaPlane) cropped.alphaPlane += (size_t)shown.y * frame->alphaRowBytes + shown.x * sample;
    return cropped;
}

bool avif_decoder_convert(const avifImage *image, avifRGBImage *rgb) {
    if (avifImageYUVToRGB(image, rgb) == AVIF_RESULT_OK) return true;
    // The library does not know all matrices. With BT.709, colors are nearly right.
    avifImage plain = *image;
    plain.matrixCoefficients = AVIF_MATRIX_COEFFICIENTS_BT709;
    return avifImageYUVToRGB(&plain, rgb) == AVIF_RESULT_OK;
}
