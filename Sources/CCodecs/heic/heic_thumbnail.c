#include "heic_thumbnail.h"

#include "avif_decoder.h"
#include "encoder.h"
#include "exif.h"

#include <stdlib.h>
#include <string.h>

// Cameras store thumbnails of 320 × 240.
#define MAX_PIXELS ((uint64_t)512 * 512)
#define QUALITY 75
// SOI, then a marker with an EXIF block.
#define EXIF_HEAD 10

void heic_thumbnail_find(HEICThumbnail *thumbnail, const HEIFFile *boxes) {
    uint32_t item = boxes->primary ? heif_thumbnail(boxes, boxes->primary) : 0;
    HEIFImage *picture = &thumbnail->picture;
    if (!item || heif_picture(boxes, item, picture) != HEIFFound) return;
    uint64_t pixels = (uint64_t)picture->width * picture->height;
    // A grid with a single tile may have a larger tile than the image.
    bool is_whole = picture->shown_width == picture->width && picture->shown_height == picture->height
        && picture->tile_width == picture->width && picture->tile_height == picture->height;
    if (picture->columns * picture->rows > 1 || pixels > MAX_PIXELS || !is_whole) return;
    thumbnail->is_there = true;
    // The pixels, and the JPEG, which has no more bytes than the pixels.
    thumbnail->memory = hevc_memory(&picture->format) + 2 * 3 * pixels;
}

bool heic_thumbnail_is_new(const HEICThumbnail *thumbnail, const HEIFFile *boxes) {
    return thumbnail->is_there && !thumbnail->was_made && thumbnail->picture.first.extents.end <= boxes->count;
}

// Stores the JPEG and adds its orientation.
static void keep(HEICThumbnail *thumbnail, const uint8_t *jpeg, size_t count) {
    uint8_t head[2 + EXIF_HEAD + EXIF_ORIENTATION_SIZE] = {
        0xFF, 0xD8, 0xFF, 0xE1, 0, EXIF_HEAD - 2 + EXIF_ORIENTATION_SIZE, 'E', 'x', 'i', 'f', 0, 0};
    exif_of_orientation(thumbnail->picture.orientation, head + 2 + EXIF_HEAD);
    uint8_t *file = count > 2 ? malloc(sizeof head + count - 2) : NULL;
    if (!file) return;
    memcpy(file, head, sizeof head);
    memcpy(file + sizeof head, jpeg + 2, count - 2);
    thumbnail->file = file;
    thumbnail->count = sizeof head + count - 2;
}

static void encode(HEICThumbnail *thumbnail, const avifImage *image) {
    avifRGBImage rgb;
    avifRGBImageSetDefaults(&rgb, image);
    rgb.format = AVIF_RGB_FORMAT_RGB;
    rgb.depth = 8;
    rgb.rowBytes = 3 * image->width;
    rgb.pixels = malloc((size_t)rgb.rowBytes * image->height);
    Encoder *encoder = jpeg_encoder_open(image->width, image->height, 3, QUALITY);
    bool is_made = rgb.pixels && encoder && avif_decoder_convert(image, &rgb)
        && encoder->rows(encoder, rgb.pixels, rgb.rowBytes, (int)image->height) && encoder->finish(encoder);
    if (is_made) keep(thumbnail, encoder->bytes, encoder->count);
    if (encoder) encoder->close(encoder);
    free(rgb.pixels);
}

void heic_thumbnail_step(HEICThumbnail *thumbnail, const HEIFFile *boxes) {
    if (!thumbnail->is_wanted || thumbnail->was_made) return;
    thumbnail->was_made = true;
    HEICFile file = {.boxes = *boxes, .layers = {thumbnail->picture}, .layer_count = 1};
    CodecFault fault;
    HEVCDecoder *decoder = heic_open_tile(&file, 0, 0, HEVCPixels, &fault);
    if (!decoder) return;
    HEVCState state;
    do state = hevc_step(decoder);
    while (state == HEVCGoesOn);
    avifImage image;
    if (state == HEVCDone && heic_tile_image(&file, 0, decoder, &image)) encode(thumbnail, &image);
    hevc_close(decoder);
}

void heic_thumbnail_discard(HEICThumbnail *thumbnail) {
    free(thumbnail->file);
    thumbnail->file = NULL;
    thumbnail->count = 0;
    thumbnail->is_wanted = false;
}
