/* text.c - numbers with commas, tabs, semicolons or spaces between, one row a line, perhaps after
 * the row's name. Read front to back; written with the fewest digits that read back the same. */
#include "../fault.h"
#include "../parse.h"
#include "io.h"
#include "output.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { BUFFER_SIZE = 1 << 16, NUMBER_SIZE = 32, SHOWN = 40 };

/* ---- Reading ---- */

typedef struct text_reader {
  const io_source *source;
  char given;     /* the separator of the format */
  char separator; /* that of this file, once a row of it is known; ' ' is any number of spaces and tabs */
  bool single;    /* f32 instead of f64 */
  bool names;     /* the first field of a row is its name */
  bool named;     /* which is no number in the first row, and so in all */
  bool nameless;  /* the header begins with nothing */
  int64_t head;   /* the header's fields */
  int64_t line, columns, count, room;
  void *values;
} text_reader;

typedef struct field {
  const char *at, *end;
} field;

static bool is_space(char c) { return c == ' ' || c == '\t'; }

static const char *skip_spaces(const char *at, const char *end) {
  while (at < end && is_space(*at)) at++;
  return at;
}

/* The separator after `at`, or NULL. */
static const char *find_separator(char separator, const char *at, const char *end) {
  if (separator != ' ') return memchr(at, separator, (size_t)(end - at));
  while (at < end && !is_space(*at)) at++;
  return at < end ? at : NULL;
}

/* What follows the quote that closes the one at `at`; `at` where none does. */
static const char *skip_quoted(const char *at, const char *end) {
  const char *close = at < end && *at == '"' ? memchr(at + 1, '"', (size_t)(end - at - 1)) : NULL;
  return close ? close + 1 : at;
}

/* The next field of a line, without spaces and quotes around it; moves line->at past it, or to NULL
 * after the last. */
static field next_field(char separator, field *line) {
  const char *begin = separator == '\t' ? line->at : skip_spaces(line->at, line->end);
  const char *stop = find_separator(separator, skip_quoted(begin, line->end), line->end);
  field f = {skip_spaces(begin, stop ? stop : line->end), stop ? stop : line->end};
  line->at = stop ? stop + 1 : NULL;
  /* spaces at the end */
  if (stop && separator == ' ' && skip_spaces(stop, line->end) == line->end) line->at = NULL;
  while (f.at < f.end && is_space(f.end[-1])) f.end--;
  if (f.end - f.at >= 2 && *f.at == '"' && f.end[-1] == '"') f = (field){f.at + 1, f.end - 1};
  return f;
}

static bool is_number(field f) {
  double v;
  return parse_f64(f.at, (size_t)(f.end - f.at), &v);
}

/* That of the format, or what else stands between the fields of a line that has none of it. */
static char separator_of(char given, field line) {
  const char candidates[] = {given, ';', '\t', ',', ' '};
  line.at = skip_spaces(line.at, line.end);
  while (line.end > line.at && is_space(line.end[-1])) line.end--;
  for (size_t i = 0; i < sizeof candidates; i++)
    if (memchr(line.at, candidates[i], (size_t)(line.end - line.at))) return candidates[i];
  return given;
}

/* A first line without a single number is taken for a header. */
static bool examine_header(text_reader *r, field line) {
  const char separator = separator_of(r->given, line);
  bool numbers = false;
  for (r->head = 0; line.at; r->head++) {
    field f = next_field(separator, &line);
    numbers |= is_number(f);
    r->nameless |= !r->head && f.at == f.end && line.at;
  }
  return !numbers;
}

/* Begins like a word, and is not one for a value that is missing. */
static bool is_name(field f) {
  static const char *const missing[] = {"na", "n/a", "null", "none"};
  const size_t n = (size_t)(f.end - f.at);
  if (!n || is_number(f) || !(isalpha((unsigned char)*f.at) || *f.at == '_' || (unsigned char)*f.at >= 0x80))
    return false;
  for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
    if (n == strlen(missing[i]) && strncasecmp(f.at, missing[i], n) == 0) return false;
  return true;
}

static int64_t count_fields(char separator, field line) {
  int64_t n = 0;
  for (; line.at; n++) next_field(separator, &line);
  return n;
}

/* What the first row tells about all: the separator, and whether rows begin with a name. They do
 * where the first is one, where the header begins with nothing, and where it has a field less and
 * the first is quoted, as pandas and R write. */
static void examine_row(text_reader *r, field line) {
  r->separator = separator_of(r->given, line);
  const int64_t fields = count_fields(r->separator, line);
  const bool quoted = line.at < line.end && *line.at == '"', first_less = r->head && r->head == fields - 1;
  field first = next_field(r->separator, &line);
  r->named = line.at && is_name(first) && is_number(next_field(r->separator, &line));
  r->names = fields > 1 && (r->named || r->nameless || (first_less && quoted));
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
  bool good = r->single ? parse_f32(f.at, n, (float *)r->values + r->count)
                        : parse_f64(f.at, n, (double *)r->values + r->count);
  r->count++;
  if (good) return EXIT_OK;
  return fault(EXIT_UNREADABLE, "%s: line %lld, column %lld: '%.*s' is not a number%s", r->source->name,
               (long long)r->line, (long long)column, (int)(n < SHOWN ? n : SHOWN), f.at,
               r->columns ? "" : "; --header skips a line");
}

/* A name is not kept. One that is a number, where the first row's is none, is a value in the wrong
 * place. */
static int skip_name(const text_reader *r, field *line) {
  field name = next_field(r->separator, line);
  if (!r->named || !is_number(name)) return EXIT_OK;
  return fault(EXIT_UNREADABLE, "%s: line %lld, column 1: a number, where the first row has a name",
               r->source->name, (long long)r->line);
}

static int read_row(text_reader *r, field line) {
  int64_t column = 0;
  if (!r->columns) examine_row(r, line);
  const int64_t before = r->names;
  int code = r->names ? skip_name(r, &line) : EXIT_OK;
  while (!code && line.at) code = store(r, next_field(r->separator, &line), ++column + before);
  if (code) return code;
  if (!r->columns) r->columns = column;
  if (column == r->columns) return EXIT_OK;
  return fault(EXIT_UNREADABLE, "%s: line %lld, column %lld: the row has %lld values, the first had %lld",
               r->source->name, (long long)r->line,
               (long long)((column < r->columns ? column : r->columns) + before + 1), (long long)column,
               (long long)r->columns);
}

/* Whether a line has no data: blank, or a comment. */
static bool is_blank(field line) {
  line.at = skip_spaces(line.at, line.end);
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
    bool skip = first && (examine_header(r, line) || header);
    if (first && !skip) r->nameless = false, r->head = 0;
    first = false;
    int code = skip ? EXIT_OK : read_row(r, line);
    if (code) return code;
  }
  return r->count ? EXIT_OK : fault(EXIT_UNREADABLE, "%s: no numbers in it", r->source->name);
}

int text_read(const io_source *source, const io_hints *hints, io_array *array) {
  text_reader r = {.source = source, .given = hints->separator};
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
