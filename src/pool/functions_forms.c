/* pool/functions_forms.c - see functions_forms.h. */
#include "functions_forms.h"

enum {
  OUTPUTS = 4096, /* of a task, about */
  CELLS = 1 << 16 /* of a task of more than one image, about */
};

typedef struct forms {
  const pool_shape *s;
  const pool_rows *r;
  pool_segment axis[POOL_AXES]; /* outputs of the same form */
  pool_form_fn *f;
  void *arg;
} forms;

/* A way from output to output: how many there are, and how far it is in x, in y, and in cells of a
 * plane. */
typedef struct way {
  int64_t count, x, y, number;
} way;

enum { WAYS = POOL_AXES + 1, INNER = WAYS - 1 }; /* images, and the axes */

/* The form of windows, and the ways between them; *x, *y: where the first is. */
static pool_windows form_of(const forms *t, way *ways, int64_t *x, int64_t *y) {
  const pool_axis *a = t->s->axis;
  const int64_t channels = t->s->channels, outputs = t->s->outputs * channels;
  pool_windows w = {.count = channels, .step = 1, .whole = 1};
  int64_t cell = 1, output = channels, place = 1;
  ways[0] = (way){t->r->images, t->s->cells * channels, outputs, 0};
  *x = t->r->image * ways[0].x, *y = t->r->image * ways[0].y;
  for (int i = POOL_AXES - 1; i >= 0; cell *= a[i].n, output *= a[i].outputs, place *= a[i].window, i--) {
    const pool_segment *s = t->axis + i;
    w.cells[i] = s->cells, w.between[i] = a[i].step * cell, w.apart[i] = w.between[i] * channels;
    w.places[i] = place, w.place += s->skipped * place, w.whole *= s->padded;
    ways[i + 1] = (way){s->end - s->begin, s->stride * cell * channels, output, s->stride * cell};
    *x += s->first * cell * channels, *y += s->begin * output, w.at += s->first * cell;
  }
  return w;
}

static void run_form(const forms *t) {
  way ways[WAYS];
  int64_t x, y;
  pool_windows w = form_of(t, ways, &x, &y);
  if (t->s->channels == 1 && !t->r->lines) {
    w.count = ways[INNER].count, w.step = ways[INNER].x, w.number = ways[INNER].number;
    ways[INNER].count = 1;
  }
  for (int i = INNER - 1; i >= 0 && ways[INNER].count == 1; i--) {
    const way outer = ways[i];
    ways[i] = ways[INNER], ways[INNER] = outer;
  }
  w.rows = ways[INNER].count, w.row_step = ways[INNER].x, w.pitch = ways[INNER].y;
  w.row_number = ways[INNER].number;
  const int64_t first = w.at;
  for (int64_t i = 0; i < ways[0].count; i++)
    for (int64_t j = 0; j < ways[1].count; j++)
      for (int64_t k = 0; k < ways[2].count; k++) {
        w.at = first + i * ways[0].number + j * ways[1].number + k * ways[2].number;
        t->f(t->arg, &w, x + i * ways[0].x + j * ways[1].x + k * ways[2].x,
             y + i * ways[0].y + j * ways[1].y + k * ways[2].y);
      }
}

/* Rows first..end-1, all of one depth. */
static void run_rows(forms *t, int64_t first, int64_t end) {
  const pool_axis *a = t->s->axis;
  for (; first < end; first = t->axis[1].end) {
    t->axis[1] = pool_segment_from(a + 1, first, end);
    for (int64_t o = 0; o < a[2].outputs; o = t->axis[2].end) {
      t->axis[2] = pool_segment_from(a + 2, o, a[2].outputs);
      run_form(t);
    }
  }
}

void pool_each_form(const pool_shape *s, const pool_rows *r, pool_form_fn *f, void *arg) {
  forms t = {.s = s, .r = r, .f = f, .arg = arg};
  const int64_t high = s->axis[1].outputs;
  for (int64_t row = r->first; row < r->end;) {
    const int64_t depth = row / high, last = r->end - depth * high < high ? r->end - depth * high : high;
    t.axis[0] = pool_segment_from(s->axis, depth, depth + 1);
    run_rows(&t, row % high, last);
    row = depth * high + last;
  }
}

static int64_t fewer(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t rows_of(const pool_shape *s) { return s->axis[0].outputs * s->axis[1].outputs; }
static int64_t task_rows(const pool_shape *s) { return OUTPUTS / (s->axis[2].outputs * s->channels + 1) + 1; }
static int64_t row_tasks(const pool_shape *s) { return (rows_of(s) + task_rows(s) - 1) / task_rows(s); }
static int64_t task_images(const pool_shape *s) {
  if (row_tasks(s) > 1) return 1;
  return fewer(OUTPUTS / (s->outputs * s->channels + 1), CELLS / (s->cells * s->channels + 1)) + 1;
}

int64_t pool_task_count(const pool_shape *s) {
  const int64_t images = s->planes / s->channels, each = task_images(s);
  return (images + each - 1) / each * row_tasks(s);
}
pool_rows pool_rows_of_task(const pool_shape *s, int64_t task) {
  const int64_t each = task_images(s), image = task / row_tasks(s) * each;
  const int64_t first = task % row_tasks(s) * task_rows(s);
  return (pool_rows){image, fewer(each, s->planes / s->channels - image), first,
                     fewer(rows_of(s), first + task_rows(s)), false};
}
