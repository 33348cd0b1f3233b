/* pool/functions_window.c - see functions_window.h. */
#include <string.h>

#include "functions_window.h"

/* Parameters by axis. One of height or depth that is at its default means that of the width. */
static const char *const sizes[] = {"size_d", "size_h", "size"},
                         *const kernels[] = {"kernel_d", "kernel_h", "kernel"},
                         *const strides[] = {"stride_d", "stride_h", "stride"},
                         *const paddings[] = {"padding_d", "padding_h", "padding"},
                         *const dilations[] = {"dilation_d", "dilation_h", "dilation"};
static const char *const *const by_axis[] = {sizes, kernels, strides, paddings, dilations};

/* least: what is below is no value of this axis. missing: the operator has no such parameter. */
static int64_t of_axis(const dims *d, const char *const *names, int a, double least, double missing) {
  const double own = dims_param(d, names[a], missing);
  return (int64_t)(own >= least ? own : dims_param(d, names[POOL_AXES - 1], missing));
}

static int64_t ceiling(int64_t a, int64_t b) { return a / b + (a % b > 0); }

/* Everything but the number of outputs. */
static pool_axis axis_of(const dims *d, int a, int64_t n) {
  pool_axis x = {.n = n, .step = 1};
  const int64_t size = of_axis(d, sizes, a, 1, 0);
  if (size > 0) {
    x.adaptive = true, x.outputs = size;
    x.window = n / size + (n % size ? 2 : 0);
    if (x.window > n) x.window = n;
    return x;
  }
  x.window = x.kernel = of_axis(d, kernels, a, 1, 1);
  const int64_t stride = of_axis(d, strides, a, 1, 0);
  x.stride = stride > 0 ? stride : x.kernel;
  x.padding = of_axis(d, paddings, a, 0, 0);
  x.step = of_axis(d, dilations, a, 1, 1);
  return x;
}

/* The number of windows along an axis. The last one begins at a cell or in the padding before. */
static smx_status count_windows(const dims *d, int a, pool_axis *x) {
  static const char *const names[] = {"depth", "height", "width"};
  const int64_t reach = x->step * (x->kernel - 1) + 1, cells = x->n + 2 * x->padding;
  if (2 * x->padding > reach)
    return smx_fail(SMX_ERR_PARAM,
                    "%s: padding: %lld is more than half of the %lld cells that a kernel spans", d->op->name,
                    (long long)x->padding, (long long)reach);
  const bool up = dims_param(d, "ceil", 0) != 0;
  if (reach - (up ? x->stride - 1 : 0) > cells)
    return smx_fail(SMX_ERR_SHAPE,
                    "%s: kernel: reaches over %lld cells, and the %s has %lld with its padding", d->op->name,
                    (long long)reach, names[a], (long long)cells);
  x->outputs = (up ? ceiling(cells - reach, x->stride) : (cells - reach) / x->stride) + 1;
  if (up && (x->outputs - 1) * x->stride >= x->n + x->padding) x->outputs--;
  return SMX_OK;
}

/* A parameter of an axis that there is not must be left alone. */
static smx_status check_left_alone(const dims *d) {
  for (int a = 0; a < POOL_AXES - d->spatial; a++)
    for (size_t k = 0; k < sizeof by_axis / sizeof *by_axis; k++)
      for (int32_t i = 0; i < d->op->param_count; i++) {
        const smx_param *p = d->op->params + i;
        if (!strcmp(p->name, by_axis[k][a]) && d->param[i] != p->def)
          return smx_fail(SMX_ERR_PARAM, "%s: %s: is %g, and there are no such windows with spatial = %d",
                          d->op->name, p->name, d->param[i], (int)d->spatial);
      }
  return SMX_OK;
}

smx_status pool_sizes(dims *d) {
  smx_status status = check_left_alone(d);
  for (int32_t r = 0; r < d->spatial && status == SMX_OK; r++) {
    const int a = POOL_AXES - d->spatial + r;
    pool_axis x = axis_of(d, a, dims_value(d, "s", r));
    if (!x.adaptive) status = count_windows(d, a, &x);
    else if (x.n < 1) status = smx_fail(SMX_ERR_SHAPE, "%s: x: has no cells to make bins of", d->op->name);
    if (status == SMX_OK) dims_set(d, "o", r, x.outputs);
  }
  return status;
}

smx_status pool_given_sizes(dims *d) {
  int64_t given[POOL_AXES];
  for (int32_t r = 0; r < d->spatial; r++) given[r] = dims_value(d, "o", r);
  smx_status status = pool_sizes(d);
  for (int32_t r = 0; r < d->spatial && status == SMX_OK; r++)
    if (given[r] >= 0 && given[r] != dims_value(d, "o", r))
      status = smx_fail(SMX_ERR_SHAPE, "%s: o* of an input is %lld, and there are %lld windows", d->op->name,
                        (long long)given[r], (long long)dims_value(d, "o", r));
  return status;
}

/* The cells that windows reach over, unless the caller says how many there are. */
smx_status pool_unpool_sizes(dims *d) {
  smx_status status = check_left_alone(d);
  for (int32_t r = 0; r < d->spatial && status == SMX_OK; r++) {
    const int64_t windows = dims_value(d, "o", r);
    const pool_axis x = axis_of(d, POOL_AXES - d->spatial + r, 0);
    int64_t cells = x.outputs;
    if (!x.adaptive && !smx_multiply(windows - 1, x.stride, &cells))
      return smx_fail(SMX_ERR_SHAPE, "%s: stride: %lld windows so far apart have too many cells", d->op->name,
                      (long long)windows);
    if (!x.adaptive) cells = windows > 0 ? cells + x.kernel - 2 * x.padding : 0;
    if (cells < 1 && windows > 0)
      status = smx_fail(SMX_ERR_SHAPE, "%s: padding: %lld windows have no cells but those of the padding",
                        d->op->name, (long long)windows);
    else dims_set(d, "s", r, cells);
  }
  return status;
}

pool_shape pool_shape_of(const tensor_call *c) {
  pool_shape s = {
      .planes = c->dims.lead_count, .cells = 1, .outputs = 1, .window = 1, .channels = c->channels};
  for (int a = 0; a < POOL_AXES; a++) {
    const int32_t r = a - (POOL_AXES - c->dims.spatial);
    pool_axis *x = s.axis + a;
    *x = (pool_axis){.n = 1, .outputs = 1, .window = 1, .kernel = 1, .stride = 1, .step = 1};
    if (r >= 0) {
      *x = axis_of(&c->dims, a, dims_value(&c->dims, "s", r));
      x->outputs = dims_value(&c->dims, "o", r);
    }
    s.cells *= x->n, s.outputs *= x->outputs, s.window *= x->window;
  }
  return s;
}

pool_span pool_span_of(const pool_axis *a, int64_t output) {
  if (a->adaptive) {
    const int64_t first = output * a->n / a->outputs;
    const int64_t cells = ceiling((output + 1) * a->n, a->outputs) - first;
    return (pool_span){first, 0, cells, cells};
  }
  const int64_t first = output * a->stride - a->padding;
  pool_span s = {.first = first, .begin = first < 0 ? ceiling(-first, a->step) : 0, .end = a->kernel};
  if (first + (s.end - 1) * a->step >= a->n) s.end = first < a->n ? ceiling(a->n - first, a->step) : 0;
  if (s.end < s.begin) s.end = s.begin;
  s.padded = ceiling(a->n + a->padding - first, a->step);
  if (s.padded > a->kernel) s.padded = a->kernel;
  return s;
}

pool_segment pool_segment_from(const pool_axis *a, int64_t begin, int64_t end) {
  const pool_span s = pool_span_of(a, begin);
  pool_segment q = {
      .begin = begin, .end = begin + 1, .stride = a->stride, .padded = s.padded, .skipped = s.begin};
  q.cells = s.end - s.begin, q.first = q.cells > 0 ? s.first + s.begin * a->step : 0;
  if (a->adaptive && a->n % a->outputs == 0) q.end = end, q.stride = a->n / a->outputs;
  if (!a->adaptive && q.cells == a->kernel && s.padded == a->kernel) {
    const int64_t whole = (a->n - 1 - (a->kernel - 1) * a->step + a->padding) / a->stride + 1;
    if (whole > q.end) q.end = whole < end ? whole : end;
  }
  return q;
}

bool pool_may_be_absent(const pool_shape *s) {
  bool any = false;
  for (const pool_axis *a = s->axis; a < s->axis + POOL_AXES; a++)
    any |= a->adaptive || a->padding > 0 || (a->outputs - 1) * a->stride + a->step * (a->kernel - 1) >= a->n;
  return any;
}

/* One place of all windows: cells that are as far apart as the windows are. */
static void line_of_place(const pool_axis *a, int64_t j, int64_t begin, int64_t end, pool_line l,
                          pool_line_fn *f, void *arg) {
  const int64_t at = j * a->step - a->padding; /* the cell of output 0 */
  const int64_t low = at < 0 ? ceiling(-at, a->stride) : 0,
                high = at < a->n ? (a->n - 1 - at) / a->stride + 1 : 0;
  const int64_t from = low > begin ? low : begin, to = high < end ? high : end;
  l.k += j, l.cell += at + from * a->stride, l.cell_step = a->stride;
  l.out = from - begin, l.out_step = 1, l.count = to - from;
  if (from < to) f(arg, &l);
}

/* A line of cells that begins at `line`, and what its number is in the windows. */
static pool_line line_of(const pool_axis *a, const pool_span *depth, const pool_span *height, int64_t d,
                         int64_t h) {
  const int64_t line = (depth->first + d * a[0].step) * a[1].n + height->first + h * a[1].step;
  return (pool_line){.k = (d * a[1].window + h) * a[2].window, .cell = line * a[2].n};
}

void pool_each_line(const pool_shape *s, int64_t row, int64_t begin, int64_t end, pool_line_fn *f,
                    void *arg) {
  const pool_axis *a = s->axis;
  const pool_span depth = pool_span_of(a, row / a[1].outputs),
                  height = pool_span_of(a + 1, row % a[1].outputs);
  for (int64_t o = begin; o < (a[2].adaptive ? end : begin + 1); o++) { /* bins one by one */
    const pool_span bin = a[2].adaptive ? pool_span_of(a + 2, o) : (pool_span){0};
    for (int64_t d = depth.begin; d < depth.end; d++)
      for (int64_t h = height.begin; h < height.end; h++) {
        pool_line l = line_of(a, &depth, &height, d, h);
        for (int64_t j = 0; j < (a[2].adaptive ? 0 : a[2].kernel); j++)
          line_of_place(a + 2, j, begin, end, l, f, arg);
        if (!a[2].adaptive) continue;
        l.k_step = 1, l.cell += bin.first, l.cell_step = 1, l.out = o - begin, l.count = bin.end;
        f(arg, &l);
      }
  }
}
