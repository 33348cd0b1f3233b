/* png.c - pictures as arrays, with libpng: numbers between 0 and 1 as they are stored, whatever the
 * gamma, [height, width] of grey, else [channels, height, width]: red, green and blue, and what is
 * opaque behind them or behind grey. */
#include "../fault.h"
#include "io.h"

#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 1 << 20, DEFLATED = 1032 /* bytes that deflate makes one of, at most */ };

typedef struct picture {
  const io_source *source;
  size_t at; /* of the source */
  png_structp png;
  png_infop info;
  png_bytep line;  /* a row as libpng gives it */
  float *numbers;  /* [height, width, channels] */
  size_t deflated; /* bytes of the rows in the file, before they are deflated: so many at least */
  int64_t width, height, channels;
  bool wide;          /* 16 bits a number */
  png_colorp palette; /* or NULL */
  png_bytep opaque;   /* how opaque its first colours are, or NULL */
  int colours, opaques;
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

/* Samples of 8 or 16 bits, or a byte for each index of a palette: libpng would take black for an
 * index without a colour. An interlaced picture is read as the small ones that it consists of. */
static void begin(picture *p) {
  png_set_read_fn(p->png, p, take_bytes);
  png_set_user_limits(p->png, SIDE, SIDE);
  png_read_info(p->png, p->info);
  p->width = png_get_image_width(p->png, p->info), p->height = png_get_image_height(p->png, p->info);
  p->deflated = (png_get_rowbytes(p->png, p->info) + 1 /* the filter */) * (size_t)p->height;
  png_get_PLTE(p->png, p->info, &p->palette, &p->colours);
  if (png_get_color_type(p->png, p->info) != PNG_COLOR_TYPE_PALETTE) p->palette = NULL;
  if (p->palette) png_get_tRNS(p->png, p->info, &p->opaque, &p->opaques, NULL), png_set_packing(p->png);
  else png_set_expand(p->png);
  png_read_update_info(p->png, p->info);
  p->channels = p->palette ? 3 + (p->opaque != NULL) : png_get_channels(p->png, p->info);
  p->wide = png_get_bit_depth(p->png, p->info) == 16;
}

/* A header must not ask for more than its file can have. */
static int reserve(picture *p) {
  const size_t bytes = (size_t)(p->width * p->height * p->channels) * sizeof *p->numbers;
  if (p->deflated > DEFLATED * p->source->size)
    return fault(EXIT_UNREADABLE, "%s: png: %lld x %lld pixels are more than %zu bytes can have",
                 p->source->name, (long long)p->width, (long long)p->height, p->source->size);
  p->numbers = malloc(bytes), p->line = malloc(png_get_rowbytes(p->png, p->info));
  return p->numbers && p->line ? EXIT_OK : fault_memory(bytes);
}

static void put_colour(const picture *p, int index, float *to) {
  if (index >= p->colours) {
    char what[64];
    snprintf(what, sizeof what, "colour %d of a palette of %d", index, p->colours);
    png_error(p->png, what);
  }
  const png_color *c = p->palette + index;
  to[0] = (float)c->red / 255, to[1] = (float)c->green / 255, to[2] = (float)c->blue / 255;
  if (p->opaque) to[3] = index < p->opaques ? (float)p->opaque[index] / 255 : 1;
}

/* Pixels that are side by side in the file and in the array. */
static void put_pixels(const picture *p, const png_byte *from, int64_t count, float *to) {
  const int64_t samples = count * p->channels;
  if (p->palette)
    for (int64_t i = 0; i < count; i++) put_colour(p, from[i], to + i * p->channels);
  else if (p->wide)
    for (int64_t i = 0; i < samples; i++) to[i] = (float)(from[2 * i] << 8 | from[2 * i + 1]) / 65535;
  else
    for (int64_t i = 0; i < samples; i++) to[i] = (float)from[i] / 255;
}

static void read_rows(picture *p) {
  for (int64_t i = 0; i < p->height; i++) {
    png_read_row(p->png, p->line, NULL);
    put_pixels(p, p->line, p->width, p->numbers + i * p->width * p->channels);
  }
}

/* The rows of one of the small pictures, whose pixels are apart in the whole one. */
static void read_pass(picture *p, int pass) {
  const png_uint_32 rows = PNG_PASS_ROWS((png_uint_32)p->height, pass),
                    columns = PNG_PASS_COLS((png_uint_32)p->width, pass);
  const size_t bytes = p->palette ? 1 : (size_t)p->channels * (p->wide ? 2 : 1);
  for (png_uint_32 y = 0; y < rows && columns > 0; y++) {
    png_read_row(p->png, p->line, NULL);
    float *to = p->numbers + PNG_ROW_FROM_PASS_ROW(y, pass) * p->width * p->channels;
    for (png_uint_32 x = 0; x < columns; x++)
      put_pixels(p, p->line + x * bytes, 1, to + PNG_COL_FROM_PASS_COL(x, pass) * p->channels);
  }
}

/* No local is read after longjmp but p, which stays as it was. */
static void decode(picture *p) {
  if (setjmp(png_jmpbuf(p->png))) {
    p->code = fault(EXIT_UNREADABLE, "%s: png: %s", p->source->name, p->wrong);
    return;
  }
  begin(p);
  p->code = reserve(p);
  if (p->code) return;
  if (png_get_interlace_type(p->png, p->info) == PNG_INTERLACE_NONE) read_rows(p);
  else
    for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; pass++) read_pass(p, pass);
  png_read_end(p->png, NULL);
}

/* Channels lie side by side in the file, and so they do in the array. */
static void to_array(picture *p, io_array *a) {
  const bool grey = p->channels == 1;
  *a = (io_array){.type = dtype_named("f32"), .ndim = grey ? 2 : 3, .source = a->source};
  a->owned = p->numbers, a->data = (const unsigned char *)p->numbers, p->numbers = NULL;
  const int64_t shape[] = {p->channels, p->height, p->width},
                strides[] = {1, p->width * p->channels, p->channels};
  memcpy(a->shape, shape + grey, sizeof shape - grey * sizeof *shape);
  memcpy(a->strides, strides + grey, sizeof strides - grey * sizeof *strides);
}

int png_format_read(const io_source *source, const io_hints *hints, io_array *array) {
  picture p = {.source = source};
  p.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &p, refuse, ignore);
  p.info = p.png ? png_create_info_struct(p.png) : NULL;
  if (p.info) decode(&p);
  else p.code = fault_memory(sizeof p);
  if (!p.code) to_array(&p, array);
  png_destroy_read_struct(&p.png, &p.info, NULL);
  free(p.numbers), free(p.line);
  return p.code;
}
