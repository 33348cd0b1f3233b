/* table.c - results as a readable table. */
#include "table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOP = 4, GAP = 4, VALUE = 11, CLASS = 16, ENTROPY = 8 };

/* A row of a block: n values, `stride` elements apart. */
typedef struct row {
  const unsigned char *data;
  int64_t n, stride;
} row;

typedef struct row_facts {
  double entropy, sum;
  bool nan;
  int kept;
  int64_t class[TOP]; /* of the largest values, largest first */
  double value[TOP];
} row_facts;

static double value_at(const table *t, const row *r, int64_t i) {
  return t->type->get(r->data + i * r->stride * (int64_t)t->type->bytes);
}

void table_begin(table *t, const char *name, table_kind kind, const dtype *type, const smx_shape *whole,
                 int32_t axis) {
  memset(t, 0, sizeof *t);
  t->name = name;
  t->kind = kind;
  t->type = type;
  t->single = axis < 0;
  t->edge = (screen_columns() - TABLE_INDEX - GAP) / (2 * VALUE);
  t->rows = t->classes = 1;
  t->smallest = (double)INFINITY;
  t->largest = -(double)INFINITY;
  for (int32_t i = 0; i < whole->ndim; i++) {
    if (i == axis) {
      t->classes = whole->dim[i];
    } else {
      t->shape[t->ndim++] = whole->dim[i];
      t->rows *= whole->dim[i];
    }
  }
}

void row_label(int32_t ndim, const int64_t *shape, int64_t r, char *text, size_t size) {
  int64_t index[SMX_MAX_DIMS] = {0};
  size_t used = 0;
  for (int32_t i = ndim - 1; i >= 0; i--) {
    index[i] = r % shape[i];
    r /= shape[i];
  }
  text[0] = 0;
  for (int32_t i = 0; i < ndim && used < size; i++)
    used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i ? "," : "", index[i]);
}

static void keep_largest(row_facts *f, int64_t class, double v) {
  if (f->kept == TOP && !(v > f->value[TOP - 1])) return;
  int i = f->kept < TOP ? f->kept++ : TOP - 1;
  for (; i > 0 && v > f->value[i - 1]; i--) {
    f->class[i] = f->class[i - 1];
    f->value[i] = f->value[i - 1];
  }
  f->class[i] = class;
  f->value[i] = v;
}

static row_facts examine(const table *t, const row *r) {
  row_facts f = {.kept = 0};
  for (int64_t i = 0; i < r->n; i++) {
    double v = value_at(t, r, i);
    f.nan |= isnan(v);
    f.sum += v;
    if (v > 0) f.entropy -= v * log(v);
    keep_largest(&f, i, v);
  }
  return f;
}

/* The columns of one class, and how many classes fit. */
static int class_width(const table *t) { return t->labels ? CLASS + LABEL_COLUMNS + 1 : CLASS; }

static int class_count(const table *t) {
  int fit = (screen_columns() - TABLE_INDEX - ENTROPY) / class_width(t);
  return !t->labels || fit > TOP ? TOP : fit < 1 ? 1 : fit;
}

static int print_class(const table *t, int64_t class, double value, char *text, size_t size) {
  char name[LABEL_BYTES + 1] = "";
  if (!t->labels) return snprintf(text, size, "%6" PRId64 "  %.4f  ", class, value);
  labels_column(t->labels, class, LABEL_COLUMNS, name, sizeof name);
  return snprintf(text, size, "%6" PRId64 " %s  %.4f  ", class, name, value);
}

static void print_classes(const table *t, const row_facts *f, char *text, size_t size) {
  int used = 0, count = class_count(t), shown = f->kept < count ? f->kept : count;
  if (f->nan || f->sum == 0) {
    snprintf(text, size, f->nan ? "  not a number" : "  nothing valid");
    return;
  }
  for (int i = 0; i < shown; i++)
    used += print_class(t, f->class[i], f -> value[i], text + used, size - (size_t)used);
  snprintf(text + used, size - (size_t)used, "%*s%*.4f", class_width(t) * (count - shown), "", ENTROPY,
           f->entropy);
}

/* The first and last values of a row, as many as fit the screen. */
static void print_values(const table *t, const row *r, char *text, size_t size) {
  int used = 0;
  for (int64_t i = 0; i < r->n; i++) {
    bool gap = r->n > 2 * t->edge && i == t->edge;
    if (gap) i = r->n - t->edge;
    used += snprintf(text + used, size - (size_t)used, "%s %*.5g", gap ? " ..." : "", VALUE - 1,
                     value_at(t, r, i));
  }
}

static void add_classes(table *t, const row *r, char *line, size_t size) {
  row_facts f = examine(t, r);
  t->with_nan += f.nan;
  t->empty += !f.nan && f.sum == 0;
  if (!f.nan && f.sum != 0) {
    t->entropy += f.entropy;
    t->top += f.value[0];
  }
  if (line) print_classes(t, &f, line, size);
}

static void add_values(table *t, const row *r, char *line, size_t size) {
  bool nan = false;
  for (int64_t i = 0; i < r->n; i++) {
    double v = value_at(t, r, i);
    nan |= isnan(v);
    if (v < t->smallest) t->smallest = v;
    if (v > t->largest) t->largest = v;
  }
  t->with_nan += nan;
  if (line) print_values(t, r, line, size);
}

int row_slot(int64_t rows, int64_t r) {
  if (r < TABLE_HEAD) return (int)r;
  return r >= rows - TABLE_TAIL ? (int)(TABLE_HEAD + TABLE_TAIL - (rows - r)) : -1;
}

static void add_row(table *t, const row *r) {
  int slot = row_slot(t->rows, t->next), used = 0;
  char *line = slot < 0 ? NULL : t->lines[slot];
  if (line) {
    char index[64];
    row_label(t->ndim, t->shape, t->next, index, sizeof index);
    used = snprintf(line, TABLE_LINE, "%*s", TABLE_INDEX, index);
  }
  t->next++;
  char *rest = line ? line + used : NULL;
  size_t room = (size_t)(TABLE_LINE - used);
  if (t->kind == TABLE_CLASSES) add_classes(t, r, rest, room);
  else add_values(t, r, rest, room);
}

void table_add(table *t, const void *data, int32_t ndim, const int64_t *shape, int32_t axis) {
  int64_t outer = 1, inner = 1, n = axis < 0 ? 1 : shape[axis];
  for (int32_t i = 0; i < ndim; i++) {
    if (i < axis || axis < 0) outer *= shape[i];
    if (i > axis && axis >= 0) inner *= shape[i];
  }
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < inner; i++) {
      row r = {(const unsigned char *)data + (o * n * inner + i) * (int64_t)t->type->bytes, n, inner};
      add_row(t, &r);
    }
}

static bool use_color(FILE *to) {
  const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
  return !(no && *no) && term && strcmp(term, "dumb") != 0 && isatty(fileno(to));
}

void print_columns(FILE *to, const char *text) {
  bool color = use_color(to);
  fprintf(to, "%s%s%s\n", color ? "\033[1m" : "", text, color ? "\033[0m" : "");
}

static void print_head(const table *t, FILE *to) {
  char text[TABLE_LINE];
  int used = snprintf(text, sizeof text, "%*s", TABLE_INDEX, "row");
  int names = t->labels ? LABEL_COLUMNS + 1 : 0;
  if (t->kind == TABLE_CLASSES)
    snprintf(text + used, sizeof text - (size_t)used, "%6s%-*s  %-*s%*s", "class", names,
             names ? " name" : "", class_width(t) * class_count(t) - 8 - names, "weight ...", ENTROPY,
             "entropy");
  else snprintf(text + used, sizeof text - (size_t)used, "  %s", t->name);
  print_columns(to, text);
}

static void print_summary(const table *t, FILE *to) {
  int64_t good = t->rows - t->with_nan - t->empty;
  fprintf(to, "%" PRId64 " row%s", t->rows, t->rows == 1 ? "" : "s");
  if (!t->single)
    fprintf(to, " of %" PRId64 " %s", t->classes, t->kind == TABLE_CLASSES ? "classes" : "values");
  fprintf(to, ", %s", t->type->name);
  if (t->kind == TABLE_CLASSES && good)
    fprintf(to, "; mean entropy %.4f nats of at most %.4f; mean top probability %.4f",
            t->entropy / (double)good, log((double)t->classes), t->top / (double)good);
  if (t->kind == TABLE_VALUES && t->smallest <= t->largest)
    fprintf(to, "; smallest %.6g, largest %.6g", t->smallest, t->largest);
  if (t->with_nan) fprintf(to, "; %" PRId64 " with NaN", t->with_nan);
  if (t->empty) fprintf(to, "; %" PRId64 " with nothing valid", t->empty);
  fputc('\n', to);
}

void table_print(const table *t, FILE *to) {
  print_head(t, to);
  for (int64_t r = 0; r < t->rows; r++) {
    int slot = row_slot(t->rows, r);
    fprintf(to, "%*s\n", TABLE_INDEX, slot < 0 ? "..." : t->lines[slot]);
    if (slot < 0) r = t->rows - TABLE_TAIL - 1;
  }
  print_summary(t, to);
}
