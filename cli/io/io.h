/* io.h - arrays in files. A format is an entry of one table: how to read one array from bytes, how
 * to write arrays piece by piece. Readers trust nothing in the bytes and never hold more than a
 * small multiple of them. */
#ifndef CLI_IO_H
#define CLI_IO_H

#include "../dtype.h"

#include <stdio.h>

/* The bytes of an input: mapped, or on the heap when they came through a pipe. */
typedef struct io_source {
  const char *name; /* for messages */
  const unsigned char *data;
  size_t size;
  bool mapped;
} io_source;

/* What the command line says about inputs whose format does not. */
typedef struct io_hints {
  const char *format; /* name of a format, or NULL */
  const char *member; /* of a file of several arrays, or NULL */
  const smx_shape *shape;
  const dtype *type;
  bool header;    /* the first line of text is not data */
  char separator; /* of text */
} io_hints;

/* An array as it lies in its file. */
typedef struct io_array {
  const dtype *type;
  bool swapped; /* the other byte order */
  bool text;    /* from text, where a list of n is one line or one column */
  int32_t ndim;
  int64_t shape[SMX_MAX_DIMS], strides[SMX_MAX_DIMS]; /* strides in elements */
  const unsigned char *data;
  void *owned; /* heap block that holds data, or NULL */
  io_source source;
} io_array;

/* One array to be written. */
typedef struct io_spec {
  const char *name;
  const dtype *type;
  int32_t ndim;
  int64_t shape[SMX_MAX_DIMS];
  bool column; /* text: one value a line */
} io_spec;

typedef struct output output;
typedef struct io_format io_format;

/* Arrays on their way into a file. Each array's bytes arrive in order; the arrays' pieces may
 * alternate. */
typedef struct io_writer {
  const io_format *format;
  output *out;
  int32_t count;
  io_spec spec[SMX_MAX_PORTS];
  uint64_t base[SMX_MAX_PORTS]; /* where the next byte of each array goes */
  void *state;
} io_writer;

struct io_format {
  const char *name;       /* "npy": the value of --format */
  const char *extensions; /* ".csv .txt" */
  const char *about;
  bool container; /* holds several arrays by name */
  char separator; /* of text */
  int (*read)(const io_source *source, const io_hints *hints, io_array *array);
  int (*begin)(io_writer *w); /* NULL: it is only read */
  int (*put)(io_writer *w, int32_t i, const void *data, size_t bytes);
  int (*end)(io_writer *w);
  void (*drop)(io_writer *w); /* frees state; after end, or instead of it */
};

/* All formats, NULL past the last. */
const io_format *io_format_at(size_t i);
const io_format *io_format_named(const char *name); /* NULL when there is none */
const io_format *io_format_of(const char *path);    /* by extension; NULL when there is none */

/* Reads FILE or FILE:MEMBER or - (standard input). The array must be freed, after an error too. */
int io_read(const char *path, const io_hints *hints, io_array *array);
void io_free(io_array *array);

/* The same from bytes; what the fuzzers call. */
int io_read_bytes(const io_format *format, const io_source *source, const io_hints *hints, io_array *array);

/* Checks the sizes of an array of C or Fortran order against the bytes there are, and fills in its
 * strides. */
int io_layout(const io_source *source, io_array *array, bool fortran, size_t bytes);

/* An element as a double, whatever its byte order; and as its bytes, in the order of this
 * machine. */
double io_get(const io_array *array, const unsigned char *element);

/* Element i in C order. */
double io_element(const io_array *array, int64_t i);
void io_copy(const io_array *array, const unsigned char *element, unsigned char *to);

/* The bytes of a contiguous array, or false on overflow. */
bool io_bytes(const dtype *type, int32_t ndim, const int64_t *shape, uint64_t *bytes);

/* ", "-separated sizes: "2, 3". */
void io_shape_text(int32_t ndim, const int64_t *shape, char *text, size_t size);

/* Formats. */
enum { NPY_START = (1 << 16) + 12 }; /* an npy header is no longer */
int npy_read(const io_source *source, const io_hints *hints, io_array *array);
/* From the first NPY_START bytes of a file of that size, or all there are. */
int npy_read_start(const io_source *start, size_t size, io_array *array);
size_t npy_header(const io_spec *spec, char *text, size_t size);
int npy_begin(io_writer *w);
int npz_read(const io_source *source, const io_hints *hints, io_array *array);
int npz_begin(io_writer *w);
int npz_put(io_writer *w, int32_t i, const void *data, size_t bytes);
int npz_end(io_writer *w);
void npz_drop(io_writer *w);
int safetensors_read(const io_source *source, const io_hints *hints, io_array *array);
int safetensors_begin(io_writer *w);
int text_read(const io_source *source, const io_hints *hints, io_array *array);
int text_begin(io_writer *w);
int text_put(io_writer *w, int32_t i, const void *data, size_t bytes);
void text_drop(io_writer *w);
int raw_read(const io_source *source, const io_hints *hints, io_array *array);
int raw_begin(io_writer *w);
int png_format_read(const io_source *source, const io_hints *hints, io_array *array);
int plain_put(io_writer *w, int32_t i, const void *data, size_t bytes);

#endif
