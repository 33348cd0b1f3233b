/* pool/functions_planes.c - maxima and means of whole windows, by kernels: outputs whose windows
 * have the same form go to one of them together, neighbours of a row or channels side by side
 * (pool.h). A task has some rows of outputs of an image, or some images that are small. */
#include "functions_planes.h"
#include "cpu/cpu.h"
#include "pool.h"

enum {
  OUTPUTS = 4096, /* of a task, about */
  CELLS = 1 << 16 /* of a task of more than one image, about */
};

/* An image: `channels` planes that lie by channel, or one plane. */
typedef struct planes_call {
  const tensor_call *c;
  const pool_kernels *kernels;
  pool_shape s;
  bool mean, padded, lines; /* lines: a vector has cells of a window, not windows */
  double divisor;           /* what all means divide by, or 0 */
  int64_t *index;
  int64_t bytes;                  /* of a cell */
  int64_t images, rows;           /* rows: of outputs, of an image */
  int64_t task_images, task_rows; /* of a task */
} planes_call;

/* Images, and of each axis outputs of the same form. */
typedef struct part {
  int64_t image, images;
  pool_segment axis[POOL_AXES];
} part;

/* A way from output to output: how many there are, and how far it is in x, in y, and in cells of a
 * plane. */
typedef struct way {
  int64_t count, x, y, number;
} way;

enum { WAYS = POOL_AXES + 1, INNER = WAYS - 1 }; /* images, and the axes */

static void run_kernel(const planes_call *p, const pool_windows *w, int64_t x, int64_t y) {
  const char *from = p->c->in.view[0].data + x * p->bytes;
  char *to = p->c->out.view[0].data + y * p->bytes;
  if (p->mean && p->s.axis[2].adaptive) p->kernels->bins(w, from, to);
  else if (p->mean) p->kernels->means(w, from, to);
  else if (p->lines) p->kernels->highest(w, from, to);
  else p->kernels->largest(w, from, to, p->index ? p->index + y : NULL);
}

/* The form of windows, and the ways between them; *x, *y: where the first is. */
static pool_windows form_of(const planes_call *p, const part *t, way *ways, int64_t *x, int64_t *y) {
  const pool_axis *a = p->s.axis;
  const int64_t channels = p->s.channels, outputs = p->s.outputs * channels;
  pool_windows w = {.count = channels, .step = 1, .divisor = p->divisor};
  int64_t cell = 1, output = channels, there = 1, padded = 1;
  ways[0] = (way){t->images, p->s.cells * channels, outputs, 0};
  *x = t->image * ways[0].x, *y = t->image * ways[0].y;
  for (int i = POOL_AXES - 1; i >= 0; cell *= a[i].n, output *= a[i].outputs, i--) {
    const pool_segment *s = t->axis + i;
    w.cells[i] = s->cells, w.between[i] = a[i].step * cell, w.apart[i] = w.between[i] * channels;
    ways[i + 1] = (way){s->end - s->begin, s->stride * cell * channels, output, s->stride * cell};
    *x += s->first * cell * channels, *y += s->begin * output, w.at += s->first * cell;
    there *= s->cells, padded *= s->padded;
  }
  if (!(w.divisor > 0)) w.divisor = (double)(p->padded ? padded : there);
  w.exact = w.divisor >= 1 && w.divisor < 0x1p62 && ((int64_t)w.divisor & ((int64_t)w.divisor - 1)) == 0;
  return w;
}

static void run_part(const planes_call *p, const part *t) {
  way ways[WAYS];
  int64_t x, y;
  pool_windows w = form_of(p, t, ways, &x, &y);
  if (p->s.channels == 1 && !p->lines) {
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
        run_kernel(p, &w, x + i * ways[0].x + j * ways[1].x + k * ways[2].x,
                   y + i * ways[0].y + j * ways[1].y + k * ways[2].y);
      }
}

/* Rows first..end-1, all of one depth. */
static void run_rows(const planes_call *p, part *t, int64_t first, int64_t end) {
  const pool_axis *a = p->s.axis;
  for (; first < end; first = t->axis[1].end) {
    t->axis[1] = pool_segment_from(a + 1, first, end);
    for (int64_t o = 0; o < a[2].outputs; o = t->axis[2].end) {
      t->axis[2] = pool_segment_from(a + 2, o, a[2].outputs);
      run_part(p, t);
    }
  }
}

static int64_t fewer(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t row_tasks(const planes_call *p) { return (p->rows + p->task_rows - 1) / p->task_rows; }

static void task_of_planes(void *arg, int64_t task) {
  const planes_call *p = arg;
  const int64_t high = p->s.axis[1].outputs, image = task / row_tasks(p) * p->task_images;
  int64_t row = task % row_tasks(p) * p->task_rows;
  const int64_t end = fewer(p->rows, row + p->task_rows);
  part t = {.image = image, .images = fewer(p->task_images, p->images - image)};
  for (; row < end;) {
    const int64_t depth = row / high, last = fewer(end - depth * high, high);
    t.axis[0] = pool_segment_from(p->s.axis, depth, depth + 1);
    run_rows(p, &t, row % high, last);
    row = depth * high + last;
  }
}

bool pool_planes_can(const tensor_call *c, double mix, bool by_channel) {
  const pool_shape s = pool_shape_of(c);
  if (mix != 0 && mix != 1) return false;
  if (c->op->output_count < 2 || !c->out.given[1]) return true;
  return s.cells < POOL_FARTHEST && (by_channel || !s.axis[2].adaptive);
}

void pool_planes(const tensor_call *c, double mix) {
  planes_call p = {.c = c, .s = pool_shape_of(c), .mean = mix == 0, .bytes = c->is_f64 ? 8 : 4};
  const smx_isa *isa = smx_isa_current();
  const pool_axis *wide = p.s.axis + 2;
  p.kernels = c->is_f64 ? isa->f64.pool : isa->f32.pool;
  if (c->op->output_count > 1 && c->out.given[1]) p.index = (int64_t *)(void *)c->out.view[1].data;
  p.divisor = dims_param(&c->dims, "divisor", 0), p.padded = dims_param(&c->dims, "count", 0) != 0;
  p.lines = p.s.channels == 1 && wide->step == 1 && !p.index &&
            (wide->adaptive || (!p.mean && wide->stride > POOL_STEP));
  if (p.s.planes == 0 || p.s.outputs == 0) return;
  p.images = p.s.planes / p.s.channels, p.rows = p.s.axis[0].outputs * p.s.axis[1].outputs;
  p.task_rows = OUTPUTS / (wide->outputs * p.s.channels + 1) + 1, p.task_images = 1;
  if (p.task_rows >= p.rows) {
    const int64_t all = OUTPUTS / (p.s.outputs * p.s.channels + 1) + 1;
    const int64_t most = CELLS / (p.s.cells * p.s.channels + 1) + 1;
    p.task_images = fewer(all, most);
  }
  smx_parallel(c->ctx, (p.images + p.task_images - 1) / p.task_images * row_tasks(&p), task_of_planes, &p);
}
