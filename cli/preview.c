/* preview.c - see preview.h. */
#include "preview.h"

#include "dtype.h"
#include "fault.h"
#include "write.h"

#include <inttypes.h>
#include <math.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 16384, COLOURS = 3, WHITE = 255 };

int preview_check(void) { return EXIT_OK; }

/* A result of one dimension is a line of its numbers. */
static int open_picture(preview *p, const run_block *b) {
  const smx_shape *s = b->result;
  if (s->ndim < 1) return fault(EXIT_REFUSED, "--preview: %s: is one number", b->op->outputs[0].name);
  p->width = s->dim[s->ndim - 1], p->height = s->ndim > 1 ? s->dim[s->ndim - 2] : 1;
  p->planes = s->ndim > 2 && s->dim[s->ndim - 3] == COLOURS ? COLOURS : 1;
  if (p->width < 1 || p->height < 1 || p->width > SIDE || p->height > SIDE)
    return fault(EXIT_REFUSED, "--preview: %s: a picture of %" PRId64 " x %" PRId64 " is not within 1..%d",
                 b->op->outputs[0].name, p->width, p->height, SIDE);
  p->value = calloc((size_t)(p->planes * p->height * p->width), sizeof *p->value);
  return p->value ? EXIT_OK : fault_memory((size_t)(p->planes * p->height * p->width) * sizeof *p->value);
}

int preview_see(void *user, const run_block *b) {
  preview *p = user;
  const smx_tensor *t = b->out[0];
  const dtype *type = dtype_of(t->dtype);
  const int code = p->value ? EXIT_OK : open_picture(p, b);
  int64_t count = 1;
  for (int32_t d = 0; d < t->ndim; d++) count *= t->shape[d];
  for (int64_t i = 0; !code && i < count && p->seen < p->planes * p->height * p->width; i++)
    p->value[p->seen++] = type->get((const unsigned char *)t->data + i * (int64_t)type->bytes);
  return code;
}

/* The smallest and the largest finite number. False: there is none. */
static bool range_of(const preview *p, double *least, double *most) {
  bool any = false;
  for (int64_t i = 0; i < p->seen; i++) {
    const double v = p->value[i];
    if (!isfinite(v)) continue;
    *least = any && *least < v ? *least : v, *most = any && *most > v ? *most : v, any = true;
  }
  return any;
}

/* Pixels from black to white; a NaN is black. */
static void paint(const preview *p, double least, double most, unsigned char *pixel) {
  const int64_t cells = p->height * p->width;
  const double half = most / 2 - least / 2; /* the range may be no double */
  for (int64_t i = 0; i < cells; i++)
    for (int64_t c = 0; c < p->planes; c++) {
      const double v = p->value[c * cells + i], at = half > 0 ? (v / 2 - least / 2) / half : v > 0;
      pixel[i * p->planes + c] = (unsigned char)(at >= 1 ? WHITE : at > 0 ? lround(at * WHITE) : 0);
    }
}

static int write_picture(const preview *p, const unsigned char *pixel, const char *path) {
  png_image image = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)p->width,
                     .height = (png_uint_32)p->height,
                     .format = p->planes == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  unsigned char *file = malloc(bytes);
  if (!file) return fault_memory(bytes);
  int code = EXIT_OK;
  if (!png_image_write_to_memory(&image, file, &bytes, 0, pixel, 0, NULL))
    code = fault(EXIT_UNWRITABLE, "--preview %s: libpng: %s", path, image.message);
  if (!code) code = write_file(path, file, bytes);
  free(file);
  return code;
}

int preview_write(preview *p, const char *path, int code) {
  double least = 0, most = 0;
  unsigned char *pixel = code || !p->seen ? NULL : malloc((size_t)(p->planes * p->height * p->width));
  if (!code && !p->seen) code = fault(EXIT_REFUSED, "--preview: the result has no cells");
  if (!code && !pixel) code = fault_memory((size_t)(p->planes * p->height * p->width));
  if (!code) {
    const bool any = range_of(p, &least, &most);
    paint(p, least, most, pixel);
    code = write_picture(p, pixel, path);
    if (!code && strcmp(path, "-") != 0)
      printf("%s: %" PRId64 " x %" PRId64 ", %s; black is %.6g, white %.6g%s\n", path, p->width, p->height,
             p->planes == 1 ? "grey" : "colours", least, most, any ? "" : " (no number is finite)");
  }
  free(pixel);
  free(p->value);
  p->value = NULL;
  return code;
}
