/* pool/functions_planes.c - maxima and means of whole windows, by kernels: outputs whose windows
 * have the same form go to one of them together, neighbours of a row or channels side by side
 * (pool.h). A task has some rows of outputs of an image, or some images that are small. */
#include "functions_planes.h"
#include "cpu/cpu.h"
#include "engine/machine.h"
#include "functions_forms.h"

/* An image: `channels` planes that lie by channel, or one plane. */
typedef struct planes_call {
  const tensor_call *c;
  const pool_kernels *kernels;
  pool_shape s;
  bool mean, padded, lines; /* lines: a vector has cells of a window, not windows */
  bool far;                 /* no cache holds cells and outputs */
  double divisor;           /* what all means divide by, or 0 */
  int64_t *index;
  int64_t bytes; /* of a cell */
} planes_call;

static void run_kernel(void *arg, const pool_windows *form, int64_t x, int64_t y) {
  const planes_call *p = arg;
  const char *from = p->c->in.view[0].data + x * p->bytes;
  char *to = p->c->out.view[0].data + y * p->bytes;
  pool_windows w = *form;
  w.far = p->far && !p->index;
  if (!p->mean) {
    if (p->lines) p->kernels->highest(&w, from, to);
    else p->kernels->largest(&w, from, to, p->index ? p->index + y : NULL);
    return;
  }
  w.divisor = p->divisor;
  if (!(w.divisor > 0)) w.divisor = (double)(p->padded ? w.whole : w.cells[0] * w.cells[1] * w.cells[2]);
  w.inverse = 1 / w.divisor;
  w.exact = w.divisor >= 1 && w.divisor < 0x1p62 && ((int64_t)w.divisor & ((int64_t)w.divisor - 1)) == 0;
  if (p->s.axis[2].adaptive) p->kernels->bins(&w, from, to);
  else p->kernels->means(&w, from, to);
}

static void task_of_planes(void *arg, int64_t task) {
  planes_call *p = arg;
  pool_rows r = pool_rows_of_task(&p->s, task);
  r.lines = p->lines;
  pool_each_form(&p->s, &r, run_kernel, p);
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
  /* Half of all bytes, so that outputs of some MB stay in the last-level cache. */
  p.far = writing_for((size_t)(p.s.planes * (p.s.cells + p.s.outputs) * p.bytes / 2)) == WRITE_STREAMING;
  smx_parallel(c->ctx, pool_task_count(&p.s), task_of_planes, &p);
}
