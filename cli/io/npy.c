/* npy.c - NumPy's .npy: versions 1 to 3, C and Fortran order, either byte order. The header is a
 * Python dict, read by a small cursor. */
#include "../fault.h"
#include "io.h"
#include "output.h"

#include <ctype.h>
#include <string.h>

enum { MAGIC_SIZE = 6, ALIGNMENT = 64, HEADER_SIZE = 512, DICT_MAX = 65535 };

typedef struct cursor {
  const char *at, *end;
} cursor;

typedef struct npy_dict {
  char descr[16];
  bool fortran, has_descr, has_order, has_shape;
  smx_shape shape;
} npy_dict;

static void skip_space(cursor *c) {
  while (c->at < c->end && isspace((unsigned char)*c->at)) c->at++;
}

/* Takes a character when it is next. */
static bool take(cursor *c, char expected) {
  skip_space(c);
  if (c->at == c->end || *c->at != expected) return false;
  c->at++;
  return true;
}

static bool take_word(cursor *c, const char *word) {
  size_t n = strlen(word);
  skip_space(c);
  if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0) return false;
  c->at += n;
  return true;
}

/* A short quoted string without escapes and control characters. */
static bool take_string(cursor *c, char *text, size_t size) {
  skip_space(c);
  if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return false;
  char quote = *c->at++;
  size_t n = 0;
  for (; c->at < c->end && *c->at != quote; c->at++) {
    if (n + 1 >= size || *c->at == '\\' || iscntrl((unsigned char)*c->at)) return false;
    text[n++] = *c->at;
  }
  text[n] = 0;
  return take(c, quote);
}

static bool take_size(cursor *c, int64_t *size) {
  skip_space(c);
  if (c->at == c->end || !isdigit((unsigned char)*c->at)) return false;
  for (*size = 0; c->at < c->end && isdigit((unsigned char)*c->at); c->at++)
    if (__builtin_mul_overflow(*size, (int64_t)10, size) ||
        __builtin_add_overflow(*size, (int64_t)(*c->at - '0'), size))
      return false;
  if (c->at < c->end && *c->at == 'L') c->at++; /* Python 2 */
  return true;
}

/* (), (2,), (2, 3) or (2, 3,). NULL, or what is wrong. */
static const char *take_shape(cursor *c, smx_shape *shape) {
  shape->ndim = 0;
  if (!take(c, '(')) return "shape is not a tuple";
  while (!take(c, ')')) {
    if (shape->ndim == SMX_MAX_DIMS) return "more than 8 dimensions";
    if (!take_size(c, &shape->dim[shape->ndim++])) return "shape has a size that is not a number of 64 bits";
    if (take(c, ',')) continue;
    if (!take(c, ')')) return "shape is not a tuple";
    break;
  }
  return NULL;
}

static const char *take_value(cursor *c, const char *key, npy_dict *d) {
  bool *seen = strcmp(key, "descr") == 0           ? &d->has_descr
               : strcmp(key, "fortran_order") == 0 ? &d->has_order
               : strcmp(key, "shape") == 0         ? &d->has_shape
                                                   : NULL;
  if (!seen || *seen) return "a key that is unknown or there twice";
  *seen = true;
  if (seen == &d->has_shape) return take_shape(c, &d->shape);
  if (seen == &d->has_descr)
    return take_string(c, d->descr, sizeof d->descr) ? NULL : "descr is not that of a plain type";
  d->fortran = take_word(c, "True");
  return d->fortran || take_word(c, "False") ? NULL : "fortran_order is not True or False";
}

static const char *take_dict(cursor *c, npy_dict *d) {
  char key[16];
  const char *wrong;
  if (!take(c, '{')) return "not a dict";
  while (!take(c, '}')) {
    if (!take_string(c, key, sizeof key) || !take(c, ':')) return "a key is not a short string";
    if ((wrong = take_value(c, key, d))) return wrong;
    if (take(c, ',')) continue;
    if (!take(c, '}')) return "a comma is missing";
    break;
  }
  skip_space(c);
  if (c->at != c->end) return "something after the dict";
  return d->has_descr && d->has_order && d->has_shape ? NULL : "descr, fortran_order or shape is missing";
}

/* "<f4" and "bfloat16", as ml_dtypes names it in files of its own. */
static const dtype *type_of(const char *descr, bool *swapped) {
  const dtype *d;
  *swapped = *descr == '>';
  if (strcmp(descr, "bfloat16") == 0) return dtype_named("bf16");
  if (!*descr || !strchr("<>|=", *descr)) return NULL;
  for (size_t i = 0; (d = dtype_at(i)); i++)
    if (strcmp(d->npy, descr + 1) == 0) return d;
  return NULL;
}

/* Where the dict lies: after the magic, two bytes of version, and its length in 2 or 4 bytes. */
static int find_dict(const io_source *s, cursor *c) {
  const unsigned char *p = s->data;
  if (s->size < MAGIC_SIZE + 4 || memcmp(p, "\x93NUMPY", MAGIC_SIZE) != 0)
    return fault(EXIT_UNREADABLE, "%s: not an npy file", s->name);
  unsigned version = p[MAGIC_SIZE];
  if (version < 1 || version > 3)
    return fault(EXIT_UNREADABLE, "%s: npy version %u is not known", s->name, version);
  size_t start = version == 1 ? MAGIC_SIZE + 4 : MAGIC_SIZE + 6;
  if (s->size < start) return fault(EXIT_UNREADABLE, "%s: npy header: the file ends in it", s->name);
  size_t length = p[8] | (size_t)p[9] << 8;
  if (version > 1) length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
  if (length > DICT_MAX)
    return fault(EXIT_UNREADABLE, "%s: npy header: its length %zu is more than %d", s->name, length,
                 DICT_MAX);
  if (length > s->size - start)
    return fault(EXIT_UNREADABLE, "%s: npy header: its length %zu is more than the file has", s->name,
                 length);
  c->at = (const char *)p + start;
  c->end = c->at + length;
  return EXIT_OK;
}

int npy_read_start(const io_source *source, size_t size, io_array *array) {
  cursor c = {NULL, NULL};
  npy_dict d = {.has_descr = false};
  int code = find_dict(source, &c);
  if (code) return code;
  const char *wrong = take_dict(&c, &d);
  if (wrong) return fault(EXIT_UNREADABLE, "%s: npy header: %s", source->name, wrong);
  array->type = type_of(d.descr, &array->swapped);
  if (!array->type)
    return fault(EXIT_UNREADABLE,
                 "%s: npy header: descr '%s': only f2 f4 f8 i4 i8 u1 b1 and V2 (bfloat16) can be read",
                 source->name, d.descr);
  array->swapped = array->swapped && array->type->bytes > 1;
  array->ndim = d.shape.ndim;
  memcpy(array->shape, d.shape.dim, sizeof array->shape);
  array->data = (const unsigned char *)c.end;
  return io_layout(source, array, d.fortran, size - (size_t)(array->data - source->data));
}

int npy_read(const io_source *source, const io_hints *hints, io_array *array) {
  return npy_read_start(source, source->size, array);
}

size_t npy_header(const io_spec *spec, char *text, size_t size) {
  char shape[256];
  io_shape_text(spec->ndim, spec->shape, shape, sizeof shape);
  size_t start = MAGIC_SIZE + 4;
  int n = snprintf(text + start, size - start, "{'descr': '%c%s', 'fortran_order': False, 'shape': (%s%s), }",
                   spec->type->bytes > 1 ? '<' : '|', spec->type->npy, shape, spec->ndim == 1 ? "," : "");
  size_t total = (start + (size_t)n + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  memset(text + start + n, ' ', total - start - (size_t)n);
  text[total - 1] = '\n';
  size_t length = total - start;
  memcpy(text, "\x93NUMPY\x01\x00", start - 2);
  text[start - 2] = (char)(length & 255);
  text[start - 1] = (char)(length >> 8);
  return total;
}

int npy_begin(io_writer *w) {
  char header[HEADER_SIZE];
  size_t n = npy_header(&w->spec[0], header, sizeof header);
  w->base[0] = n;
  return output_write(w->out, 0, header, n);
}
