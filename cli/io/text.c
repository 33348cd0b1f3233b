/* text.c - comma- or tab-separated numbers, one row a line. Read front to back; written with the fewest digits that read back the same. */
#include "../fault.h"
#include "../parse.h"
#include "io.h"
#include "output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_SIZE = 1 << 16, NUMBER_SIZE = 32, SHOWN = 40 };

/* ---- Reading ---- */

typedef struct text_reader {
  const io_source *source;
  char separator;
  bool single; /* f32 instead of f64 */
  int64_t line, columns, count, room;
  void *values;
} text_reader;

typedef struct field {
  const char *at, *end;
} field;

/* The next field of a line, without spaces and quotes around it; moves line->at past it, or to NULL after the last. */
static field next_field(const text_reader *r, field *line) {
  const char *stop = memchr(line->at, r->separator, (size_t)(line->end - line->at));
  field f = {line->at, stop ? stop : line->end};
  line->at = stop ? stop + 1 : NULL;
  while (f.at < f.end && (*f.at == ' ' || *f.at == '\t')) f.at++;
  while (f.at < f.end && (f.end[-1] == ' ' || f.end[-1] == '\t')) f.end--;
  if (f.end - f.at >= 2 && *f.at == '"' && f.end[-1] == '"') f = (field){f.at + 1, f.end - 1};
  return f;
}

static bool is_number(field f) {
  double v;
  return parse_f64(f.at, (size_t)(f.end - f.at), &v);
}

/* A first line without a single number is taken for a header. */
static bool is_header(const text_reader *r, field line) {
  while (line.at)
    if (is_number(next_field(r, &line))) return false;
  return true;
}

static int reserve(text_reader *r, size_t width) {
  if (r->count < r->room) return EXIT_OK;
  int64_t room = r->room ? 2 * r->room : 64;
  void *larger = realloc(r->values, (size_t)room * width);
  if (!larger) return fault_memory((size_t)room * width);
  r->values = larger;
  r->room = room;
  return EXIT_OK;
}

static int store(text_reader *r, field f, int64_t column) {
  size_t n = (size_t)(f.end - f.at);
  int code = reserve(r, r->single ? sizeof(float) : sizeof(double));
  if (code) return code;
  bool good = r->single ? parse_f32(f.at, n, (float *)r->values + r->count) : parse_f64(f.at, n, (double *)r->values + r->count);
  r->count++;
  if (good) return EXIT_OK;
  return fault(EXIT_UNREADABLE, "%s: line %lld, column %lld: '%.*s' is not a number%s", r->source->name, (long long)r->line,
               (long long)column, (int)(n < SHOWN ? n : SHOWN), f.at, r->columns ? "" : "; --header skips a line");
}

static int read_row(text_reader *r, field line) {
  int64_t column = 0;
  while (line.at) {
    int code = store(r, next_field(r, &line), ++column);
    if (code) return code;
  }
  if (!r->columns) r->columns = column;
  if (column == r->columns) return EXIT_OK;
  return fault(EXIT_UNREADABLE, "%s: line %lld, column %lld: the row has %lld values, the first had %lld", r->source->name,
               (long long)r->line, (long long)(column < r->columns ? column + 1 : r->columns + 1), (long long)column,
               (long long)r->columns);
}

/* Whether a line has no data: blank, or a comment. */
static bool is_blank(field line) {
  while (line.at < line.end && (*line.at == ' ' || *line.at == '\t')) line.at++;
  return line.at == line.end || *line.at == '#';
}

static int read_lines(text_reader *r, bool header) {
  const char *at = (const char *)r->source->data, *end = at + r->source->size;
  bool first = true;
  if (r->source->size >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0) at += 3;
  while (at < end) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    field line = {at, stop ? stop : end};
    at = stop ? stop + 1 : end;
    if (line.end > line.at && line.end[-1] == '\r') line.end--;
    r->line++;
    if (is_blank(line)) continue;
    bool skip = first && (header || is_header(r, line));
    first = false;
    int code = skip ? EXIT_OK : read_row(r, line);
    if (code) return code;
  }
  return r->count ? EXIT_OK : fault(EXIT_UNREADABLE, "%s: no numbers in it", r->source->name);
}

int text_read(const io_source *source, const io_hints *hints, io_array *array) {
  text_reader r = {.source = source, .separator = hints->separator};
  r.single = hints->type && hints->type->type.bits == 32 && hints->type->number;
  int code = read_lines(&r, hints->header);
  array->owned = r.values;
  if (code) return code;
  array->type = dtype_named(r.single ? "f32" : "f64");
  array->text = true;
  array->ndim = 2;
  array->shape[0] = r.count / r.columns;
  array->shape[1] = r.columns;
  array->data = r.values;
  return io_layout(source, array, false, (size_t)r.count * array->type->bytes);
}

/* ---- Writing ---- */

typedef struct text_writer {
  int64_t columns, column; /* column: of the next value */
  size_t used;
  char buffer[BUFFER_SIZE];
} text_writer;

int text_begin(io_writer *w) {
  text_writer *t = w->state = calloc(1, sizeof *t);
  const io_spec *spec = &w->spec[0];
  if (!t) return fault_memory(sizeof *t);
  t->columns = spec->column || !spec->ndim ? 1 : spec->shape[spec->ndim - 1];
  w->base[0] = 0;
  return EXIT_OK;
}

/* The shortest form that reads back the same; types of 16 bits count as f32. */
static int number_text(char *text, const dtype *type, double v) {
  int first = type->type.bits == 64 ? 15 : 6, last = type->type.bits == 64 ? 17 : 9;
  if (isnan(v)) return snprintf(text, NUMBER_SIZE, "nan");
  for (int digits = type->number ? first : last; digits < last; digits++) {
    int n = snprintf(text, NUMBER_SIZE, "%.*g", digits, v);
    if (type->type.bits == 64 ? strtod(text, NULL) == v : strtof(text, NULL) == (float)v) return n;
  }
  return type->number ? snprintf(text, NUMBER_SIZE, "%.*g", last, v) : snprintf(text, NUMBER_SIZE, "%.0f", v);
}

static int flush(io_writer *w) {
  text_writer *t = w->state;
  int code = plain_put(w, 0, t->buffer, t->used);
  t->used = 0;
  return code;
}

int text_put(io_writer *w, int32_t i, const void *data, size_t bytes) {
  text_writer *t = w->state;
  const dtype *type = w->spec[i].type;
  const unsigned char *p = data, *end = p + bytes;
  for (int code; p < end; p += type->bytes) {
    if (t->used + NUMBER_SIZE + 1 > BUFFER_SIZE && (code = flush(w))) return code;
    t->used += (size_t)number_text(t->buffer + t->used, type, type->get(p));
    t->column = t->column + 1 == t->columns ? 0 : t->column + 1;
    t->buffer[t->used++] = t->column ? w->format->separator : '\n';
  }
  return flush(w);
}

void text_drop(io_writer *w) {
  free(w->state);
  w->state = NULL;
}
