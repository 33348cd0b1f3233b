/* format.c - the table of formats, and what they share: layout checks, and the way from a name on
 * the command line to an array. */
#include "../fault.h"
#include "../parse.h"
#include "io.h"
#include "source.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { EMPTY_ROWS_MAX = 1 << 24 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "files are written in the order of this machine, which must be little endian");

static const io_format formats[] = {
    {.name = "npy",
     .extensions = ".npy",
     .about = "NumPy array: versions 1 to 3, C and Fortran order, both byte orders; bfloat16 as <V2",
     .read = npy_read,
     .begin = npy_begin,
     .put = plain_put},
    {.name = "npz",
     .extensions = ".npz",
     .about = "zip of NumPy arrays; FILE:NAME chooses one",
     .container = true,
     .read = npz_read,
     .begin = npz_begin,
     .put = npz_put,
     .end = npz_end,
     .drop = npz_drop},
    {.name = "safetensors",
     .extensions = ".safetensors",
     .about = "named tensors; FILE:NAME chooses one",
     .container = true,
     .read = safetensors_read,
     .begin = safetensors_begin,
     .put = plain_put},
    {.name = "csv",
     .extensions = ".csv",
     .about = "text, one row a line, with commas, semicolons, tabs or spaces between; f64, or f32 with "
              "--dtype-in f32 and beside a first input of f32; a header line is skipped, and so is a first "
              "column of names",
     .separator = ',',
     .read = text_read,
     .begin = text_begin,
     .put = text_put,
     .drop = text_drop},
    {.name = "tsv",
     .extensions = ".tsv .tab",
     .about = "the same, written with tabs",
     .separator = '\t',
     .read = text_read,
     .begin = text_begin,
     .put = text_put,
     .drop = text_drop},
    {.name = "raw",
     .extensions = ".raw .bin",
     .about = "bare elements, little endian; needs --shape and --dtype-in",
     .read = raw_read,
     .begin = raw_begin,
     .put = plain_put},
    {.name = "png",
     .extensions = ".png",
     .about = "a picture, only read: f32 between 0 and 1 as stored, [height, width] of grey, else [channels, "
              "height, width]",
     .read = png_format_read},
};

const io_format *io_format_at(size_t i) { return i < sizeof formats / sizeof *formats ? &formats[i] : NULL; }

const io_format *io_format_named(const char *name) {
  const io_format *f;
  for (size_t i = 0; (f = io_format_at(i)); i++)
    if (strcmp(f->name, name) == 0) return f;
  return NULL;
}

/* Whether a name of the given length ends in one of the format's extensions and has something
 * before it. */
static bool has_extension(const io_format *f, const char *path, size_t length) {
  for (const char *e = f->extensions; *e; e += strspn(e, " ")) {
    size_t n = strcspn(e, " ");
    if (length > n && strncasecmp(path + length - n, e, n) == 0) return true;
    e += n;
  }
  return false;
}

const io_format *io_format_of(const char *path) {
  const io_format *f;
  for (size_t i = 0; (f = io_format_at(i)); i++)
    if (has_extension(f, path, strlen(path))) return f;
  return NULL;
}

bool io_bytes(const dtype *type, int32_t ndim, const int64_t *shape, uint64_t *bytes) {
  int64_t count, total;
  if (!count_elements(ndim, shape, &count) || __builtin_mul_overflow(count, (int64_t)type->bytes, &total))
    return false;
  *bytes = (uint64_t)total;
  return true;
}

void io_shape_text(int32_t ndim, const int64_t *shape, char *text, size_t size) {
  size_t used = 0;
  text[0] = 0;
  for (int32_t i = 0; i < ndim && used < size; i++)
    used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
}

void io_copy(const io_array *array, const unsigned char *element, unsigned char *to) {
  uint32_t n = array->type->bytes;
  if (!array->swapped) memcpy(to, element, n);
  for (uint32_t i = 0; array->swapped && i < n; i++) to[i] = element[n - 1 - i];
}

double io_get(const io_array *array, const unsigned char *element) {
  unsigned char native[8];
  io_copy(array, element, native);
  return array->type->get(native);
}

double io_element(const io_array *array, int64_t i) {
  const unsigned char *at = array->data;
  for (int32_t d = array->ndim - 1; d >= 0; d--) {
    at += i % array->shape[d] * array->strides[d] * (int64_t)array->type->bytes;
    i /= array->shape[d];
  }
  return io_get(array, at);
}

/* Whether an empty array has more rows than anything can be done with: each costs time, and no byte
 * of the file. */
static bool many_empty(const io_array *array) {
  int64_t rows = 1; /* their product is known not to overflow */
  for (int32_t i = 0; i < array->ndim && array->shape[i]; i++) rows *= array->shape[i];
  return rows > EMPTY_ROWS_MAX;
}

int io_layout(const io_source *source, io_array *array, bool fortran, size_t bytes) {
  char shape[256];
  uint64_t needed;
  io_shape_text(array->ndim, array->shape, shape, sizeof shape);
  if (!io_bytes(array->type, array->ndim, array->shape, &needed))
    return fault(EXIT_UNREADABLE, "%s: shape (%s): the product overflows", source->name, shape);
  if (needed != bytes)
    return fault(EXIT_UNREADABLE, "%s: shape (%s) of %s needs %llu bytes, the file has %zu", source->name,
                 shape, array->type->name, (unsigned long long)needed, bytes);
  if (!needed && many_empty(array))
    return fault(EXIT_UNREADABLE, "%s: shape (%s): an empty array of more than %d rows", source->name, shape,
                 EMPTY_ROWS_MAX);
  int64_t stride = 1;
  for (int32_t k = 0; k < array->ndim; k++) {
    int32_t i = fortran ? k : array->ndim - 1 - k;
    array->strides[i] = stride;
    if (needed) stride *= array->shape[i]; /* an empty array has no strides that matter */
  }
  return EXIT_OK;
}

/* Splits FILE:MEMBER where FILE has the extension of a container. A file of exactly that name goes
 * first. NULL = no member. */
static char *split_member(char *path) {
  const io_format *f;
  if (access(path, F_OK) == 0) return NULL;
  for (char *colon = strchr(path, ':'); colon; colon = strchr(colon + 1, ':'))
    for (size_t i = 0; (f = io_format_at(i)); i++)
      if (f->container && has_extension(f, path, (size_t)(colon - path))) {
        *colon = 0;
        return colon + 1;
      }
  return NULL;
}

/* The format: as told, by extension, raw when there is a shape, else by the first bytes. */
static const io_format *choose(const char *path, const io_source *s, const io_hints *hints) {
  static const struct {
    const char *magic, *format;
  } magics[] = {{"\x93NUMPY", "npy"}, {"PK\x03\x04", "npz"}, {"PK\x05\x06", "npz"}, {"\x89PNG\r\n", "png"}};
  const io_format *f = hints->format ? io_format_named(hints->format) : io_format_of(path);
  if (f) return f;
  if (hints->shape) return io_format_named("raw");
  for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
    if (s->size >= strlen(magics[i].magic) && memcmp(s->data, magics[i].magic, strlen(magics[i].magic)) == 0)
      return io_format_named(magics[i].format);
  if (s->size > 8 && s->data[8] == '{' && s->data[7] == 0) return io_format_named("safetensors");
  return io_format_named("csv");
}

int io_read_bytes(const io_format *format, const io_source *source, const io_hints *hints, io_array *array) {
  io_hints own = *hints;
  own.separator = format->separator;
  return format->read(source, &own, array);
}

int io_read(const char *path, const io_hints *hints, io_array *array) {
  memset(array, 0, sizeof *array);
  char *file = strdup(path);
  if (!file) return fault_memory(strlen(path));
  io_hints own = *hints;
  own.member = split_member(file);
  array->source.name = path;
  int code = source_open(file, &array->source);
  if (!code) {
    const io_format *format = choose(file, &array->source, hints);
    if (own.member && !format->container)
      code = fault(EXIT_UNREADABLE, "%s: a file of format %s has no members", path, format->name);
    if (!code) code = io_read_bytes(format, &array->source, &own, array);
  }
  free(file);
  return code;
}

void io_free(io_array *array) {
  free(array->owned);
  array->owned = NULL;
  source_close(&array->source);
}
