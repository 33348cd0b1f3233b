/* png.c - pictures as arrays, with libpng: numbers between 0 and 1 as they are stored, whatever the
 * gamma, [height, width] of grey, else [channels, height, width]: red, green and blue, and what is
 * opaque behind them or behind grey. */
#include "../fault.h"
#include "io.h"

#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 1 << 20, DEFLATED = 1032 /* bytes of one that is deflated, at most */ };

typedef struct picture {
  const io_source *source;
  size_t at; /* of the source */
  png_structp png;
  png_infop info;
  png_bytep pixel, *row;
  size_t row_bytes;
  int64_t width, height, channels;
  bool wide;       /* 16 bits a number */
  char wrong[128]; /* what libpng says */
  int code;
} picture;

static void refuse(png_structp png, png_const_charp what) {
  picture *p = png_get_error_ptr(png);
  snprintf(p->wrong, sizeof p->wrong, "%s", what);
  png_longjmp(png, 1);
}
static void ignore(png_structp png, png_const_charp what) {
  (void)png;
  (void)what;
}
static void take_bytes(png_structp png, png_bytep to, size_t n) {
  picture *p = png_get_io_ptr(png);
  if (n > p->source->size - p->at) png_error(png, "the file ends in the middle");
  memcpy(to, p->source->data + p->at, n);
  p->at += n;
}

/* Samples of 8 or 16 bits, colours without a palette. */
static void begin(picture *p) {
  png_set_read_fn(p->png, p, take_bytes);
  png_set_user_limits(p->png, SIDE, SIDE);
  png_read_info(p->png, p->info);
  png_set_expand(p->png);
  png_set_interlace_handling(p->png);
  png_read_update_info(p->png, p->info);
  p->width = png_get_image_width(p->png, p->info), p->height = png_get_image_height(p->png, p->info);
  p->channels = png_get_channels(p->png, p->info), p->wide = png_get_bit_depth(p->png, p->info) == 16;
  p->row_bytes = png_get_rowbytes(p->png, p->info);
}

/* The rows of the picture; a header must not ask for more than its file can have: a bit a number,
 * deflated. */
static int reserve(picture *p) {
  const size_t height = (size_t)p->height;
  if ((size_t)p->width * height / 8 > DEFLATED * p->source->size)
    return fault(EXIT_UNREADABLE, "%s: png: %lld x %lld pixels are more than %zu bytes can have",
                 p->source->name, (long long)p->width, (long long)p->height, p->source->size);
  p->pixel = malloc(p->row_bytes * height), p->row = malloc(height * sizeof *p->row);
  if (!p->pixel || !p->row) return fault_memory(p->row_bytes * height);
  for (size_t i = 0; i < height; i++) p->row[i] = p->pixel + i * p->row_bytes;
  return EXIT_OK;
}

/* Nothing of this function is asked for after a jump. */
static void decode(picture *p) {
  if (setjmp(png_jmpbuf(p->png))) {
    p->code = fault(EXIT_UNREADABLE, "%s: png: %s", p->source->name, p->wrong);
    return;
  }
  begin(p);
  p->code = reserve(p);
  if (p->code) return;
  png_read_image(p->png, p->row);
  png_read_end(p->png, NULL);
}

/* Channels lie side by side in the file, and so they do in the array. */
static int to_array(const picture *p, io_array *a) {
  const int64_t samples = p->width * p->height * p->channels;
  const bool grey = p->channels == 1;
  float *to = malloc((size_t)samples * sizeof *to);
  if (!to) return fault_memory((size_t)samples * sizeof *to);
  for (int64_t i = 0; i < samples; i++)
    to[i] = p->wide ? (float)(p->pixel[2 * i] << 8 | p->pixel[2 * i + 1]) / 65535 : (float)p->pixel[i] / 255;
  *a = (io_array){.type = dtype_named("f32"), .ndim = grey ? 2 : 3, .source = a->source};
  a->owned = to, a->data = (const unsigned char *)to;
  const int64_t shape[] = {p->channels, p->height, p->width},
                strides[] = {1, p->width * p->channels, p->channels};
  memcpy(a->shape, shape + grey, sizeof shape - grey * sizeof *shape);
  memcpy(a->strides, strides + grey, sizeof strides - grey * sizeof *strides);
  return EXIT_OK;
}

int png_format_read(const io_source *source, const io_hints *hints, io_array *array) {
  picture p = {.source = source};
  p.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &p, refuse, ignore);
  p.info = p.png ? png_create_info_struct(p.png) : NULL;
  if (p.info) decode(&p);
  else p.code = fault_memory(sizeof p);
  if (!p.code) p.code = to_array(&p, array);
  png_destroy_read_struct(&p.png, &p.info, NULL);
  free(p.pixel), free(p.row);
  return p.code;
}
