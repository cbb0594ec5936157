// The codec alone: repeatedly decodes one JPEG or PNG file from memory to 8-bit RGB, with the defaults of libjpeg-turbo
// or libpng, on several threads, and prints the rate.
//
//   cc -O2 -pthread -o decode Benchmarks/codec/decode.c -ljpeg -lpng -lz
//   ./decode photo.jpg 200 2
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>
#include <png.h>

static unsigned char *file;
static size_t file_size;
static int rounds;

static void decode_jpeg(void) {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&cinfo);
    jpeg_mem_src(&cinfo, file, file_size);
    jpeg_read_header(&cinfo, TRUE);
    cinfo.out_color_space = JCS_RGB;
    jpeg_start_decompress(&cinfo);
    JSAMPROW row = malloc((size_t)cinfo.output_width * cinfo.output_components);
    while (cinfo.output_scanline < cinfo.output_height) jpeg_read_scanlines(&cinfo, &row, 1);
    free(row);
    jpeg_finish_decompress(&cinfo);
    jpeg_destroy_decompress(&cinfo);
}

typedef struct {
    size_t at;
} Position;

static void read_file(png_structp png, png_bytep out, size_t count) {
    Position *position = png_get_io_ptr(png);
    if (count > file_size - position->at) png_error(png, "end of file");
    memcpy(out, file + position->at, count);
    position->at += count;
}

static void decode_png(void) {
    Position position = {0};
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_set_read_fn(png, &position, read_file);
    png_read_info(png, info);
    png_set_expand(png);
    png_set_strip_16(png);
    png_set_strip_alpha(png);
    png_set_gray_to_rgb(png);
    int passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    size_t row_bytes = png_get_rowbytes(png, info), height = png_get_image_height(png, info);
    png_bytep pixels = malloc(row_bytes * (passes > 1 ? height : 1));
    for (int pass = 0; pass < passes; pass++)
        for (size_t y = 0; y < height; y++)
            png_read_row(png, pixels + (passes > 1 ? y * row_bytes : 0), NULL);
    png_read_end(png, NULL);
    free(pixels);
    png_destroy_read_struct(&png, &info, NULL);
}

static void *decode_rounds(void *unused) {
    for (int round = 0; round < rounds; round++)
        if (file[0] == 0xFF) decode_jpeg();
        else decode_png();
    return unused;
}

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static int load(const char *name) {
    FILE *stream = fopen(name, "rb");
    if (!stream || fseek(stream, 0, SEEK_END)) return 0;
    file_size = (size_t)ftell(stream);
    rewind(stream);
    file = malloc(file_size);
    int loaded = file && fread(file, 1, file_size, stream) == file_size;
    fclose(stream);
    return loaded && file_size > 8;
}

int main(int count, char **arguments) {
    int threads = count > 3 ? atoi(arguments[3]) : 1;
    rounds = count > 2 ? atoi(arguments[2]) : 0;
    if (rounds < 1 || threads < 1 || threads > 256 || !load(arguments[1])) {
        fprintf(stderr, "usage: decode FILE ROUNDS [THREADS]\n");
        return 2;
    }
    double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    pthread_t ids[256];
    for (int index = 0; index < threads; index++)
        if (pthread_create(&ids[index], NULL, decode_rounds, NULL)) return 1;
    for (int index = 0; index < threads; index++) pthread_join(ids[index], NULL);
    wall = seconds(CLOCK_MONOTONIC) - wall;
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    double images = (double)rounds * threads;
    printf("%.1f images/s, %.3f CPU ms an image, %d threads\n", images / wall, cpu * 1e3 / images,
        threads);
    return 0;
}
