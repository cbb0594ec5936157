// The lower bound for a thumbnail: repeatedly decodes one JPEG from memory at half its size, on several threads, and
// encodes the result without a filter; prints the rate.
//
//   cc -O2 -pthread -o thumbnail Benchmarks/codec/thumbnail.c -ljpeg
//   ./thumbnail photo.jpg 200 2
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <jpeglib.h>

#define SCALE 2
#define SIDE 512
#define QUALITY 80

static unsigned char *file;
static size_t file_size;
static int rounds;

static void encode(struct jpeg_decompress_struct *from) {
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    unsigned char *out = NULL;
    unsigned long size = 0;
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &out, &size);
    // Only as many pixels as the thumbnail has.
    cinfo.image_width = from->output_width < SIDE ? from->output_width : SIDE;
    cinfo.image_height = cinfo.image_width * from->output_height / from->output_width;
    cinfo.input_components = 3;
    cinfo.in_color_space = JCS_RGB;
    jpeg_set_defaults(&cinfo);
    jpeg_set_quality(&cinfo, QUALITY, TRUE);
    jpeg_start_compress(&cinfo, TRUE);
    JSAMPROW row = malloc((size_t)from->output_width * 3);
    while (from->output_scanline < from->output_height) {
        jpeg_read_scanlines(from, &row, 1);
        if (cinfo.next_scanline < cinfo.image_height) jpeg_write_scanlines(&cinfo, &row, 1);
    }
    free(row);
    jpeg_finish_compress(&cinfo);
    jpeg_destroy_compress(&cinfo);
    free(out);
}

static void thumbnail(void) {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&cinfo);
    jpeg_mem_src(&cinfo, file, file_size);
    jpeg_read_header(&cinfo, TRUE);
    cinfo.out_color_space = JCS_RGB;
    cinfo.scale_denom = SCALE;
    jpeg_start_decompress(&cinfo);
    encode(&cinfo);
    jpeg_finish_decompress(&cinfo);
    jpeg_destroy_decompress(&cinfo);
}

static void *work(void *nothing) {
    for (int round = 0; round < rounds; round++) thumbnail();
    return nothing;
}

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: thumbnail FILE ROUNDS THREADS\n");
        return 2;
    }
    FILE *input = fopen(words[1], "rb");
    if (!input) return 1;
    fseek(input, 0, SEEK_END);
    file_size = (size_t)ftell(input);
    rewind(input);
    file = malloc(file_size);
    if (fread(file, 1, file_size, input) != file_size) return 1;
    fclose(input);
    rounds = atoi(words[2]);
    int threads = atoi(words[3]);
    double clock = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    pthread_t *workers = malloc(sizeof *workers * (size_t)threads);
    for (int thread = 0; thread < threads; thread++)
        pthread_create(&workers[thread], NULL, work, NULL);
    for (int thread = 0; thread < threads; thread++) pthread_join(workers[thread], NULL);
    clock = seconds(CLOCK_MONOTONIC) - clock;
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    double done = (double)rounds * threads;
    printf("%.1f images/s, %.3f CPU ms an image\n", done / clock, 1000 * cpu / done);
    return 0;
}
