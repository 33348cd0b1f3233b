/* driver/direct.c - small calls without views and a job. See direct.h. A call that is refused here
 * goes to check.c, which finds out what is wrong. */
#include "direct.h"
#include "loss_reduction.h"
#include "plan.h"

/* elements of x: one task of the driver, whatever the threads; numbers of a list on the stack */
enum { DIRECT_MOST = 65536, DIRECT_LIST = 16 };

/* The state of a call. */
typedef struct direct {
  const smx_op *op;
  const row_pair *kernels;
  const smx_tensor *like; /* has the shape of x */
  smx_dtype type;         /* of every port but those of whole numbers */
  int64_t rows, n;
  int64_t counted; /* rows whose target is not ignored */
  double defaults[SMX_MAX_PARAMS];
  row_call call;
} direct;

/* Where the buffers of some ports lie, or NULL. */
typedef struct places {
  const void *at[SMX_MAX_PORTS];
} places;

/* ---- what may go this way ---- */

static bool params_fit(direct *d, const smx_params *params) {
  if (params && params->size != sizeof *params) return false;
  for (int32_t i = 0; i < d->op->param_count; i++) {
    const smx_param *p = d->op->params + i;
    const double v = params ? params->value[i] : p->def;
    d->defaults[i] = p->def;
    if (((p->flags & SMX_PARAM_MAX_N) && v > (double)d->n) || (v != p->def && smx_param_why_not(p, v)))
      return false;
    if (v != p->def && smx_mean_of(p, v) != SMX_MEAN_ROWS) return false;
  }
  d->call.params = params ? params->value : d->defaults;
  return true;
}

/* Not when a test has forced a plan, nor when a purse measures (base.h). */
static bool policies_fit(smx_context *ctx) {
  return !atomic_load_explicit(&smx_forced, memory_order_relaxed) && !smx_purse_asks(ctx, 0) &&
         smx_context_on_empty(ctx) != SMX_EMPTY_ERROR;
}

static bool begin(direct *d, const smx_op *op, smx_context *ctx, const smx_params *params) {
  int family;
  size_t index;
  d->op = op;
  if (!policies_fit(ctx) || !smx_op_place(op, &family, &index) || family >= SMX_FAMILY_COUNT) return false;
  const smx_isa *isa = smx_isa_current();
  d->kernels = (d->type.bits == 64 ? &isa->f64 : &isa->f32)->family[family][index];
  smx_begin_call(&d->call, (size_t)d->rows, (size_t)d->n);
  d->call.on_empty = smx_context_on_empty(ctx), d->call.on_inf = smx_context_on_inf(ctx);
  return params_fit(d, params);
}

/* ---- ports ---- */

static int64_t cell_of(const direct *d, const smx_port *port) {
  return port->flags & SMX_PORT_INT ? 8 : d->type.bits / 8;
}
static int64_t length_of(const direct *d, const smx_port *port) {
  return port->shape == SMX_SHAPE_FULL ? d->n : 1;
}
static ptrdiff_t step_of(const direct *d, const smx_port *port) { /* from row to row, in reals */
  return port->shape == SMX_SHAPE_FULL ? d->n : (port->flags & SMX_PORT_INT) && d->type.bits == 32 ? 2 : 1;
}

/* Whether it can be used in place: by kernels, or what is one value for all rows. */
static bool usable(const direct *d, const smx_port *port, const void *at) {
  const bool one = port->shape == SMX_SHAPE_ROW || port->shape == SMX_SHAPE_SCALAR;
  if ((port->shape != SMX_SHAPE_FULL && !one) || (port->flags & SMX_PORT_MASK)) return false;
  return ((uintptr_t)at & (uintptr_t)(cell_of(d, port) - 1)) == 0;
}
static bool read_from(direct *d, int src, const smx_port *port, const void *at) {
  d->call.src[src] = at;
  d->call.src_step[src] = step_of(d, port);
  d->call.inputs |= (uint32_t)1 << src;
  return usable(d, port, at);
}
static bool write_to(direct *d, int dst, const smx_port *port, const void *at) {
  d->call.dst[dst] = (void *)(uintptr_t)at;
  d->call.dst_step[dst] = step_of(d, port);
  d->call.outputs |= (uint32_t)1 << dst;
  return usable(d, port, at);
}

/* Most names differ in their first letter. */
static double param_named(const direct *d, const char *name, double otherwise) {
  for (int32_t i = 0; i < d->op->param_count; i++)
    if (*d->op->params[i].name == *name && !strcmp(d->op->params[i].name, name)) return d->call.params[i];
  return otherwise;
}

/* Whether targets are classes; counts those that are not ignored. */
static bool targets_fit(direct *d, const int64_t *target) {
  const int64_t ignore = (int64_t)param_named(d, "ignore_index", -0x1p62); /* no class */
  for (int64_t r = 0; r < d->rows; r++) {
    if (target[r] == ignore) d->counted--;
    else if (target[r] < 0 || target[r] >= d->n) return false;
  }
  return true;
}

static bool lengths_fit(const direct *d, const int64_t *length) {
  for (int64_t r = 0; r < d->rows; r++)
    if (length[r] < 0 || length[r] > d->n) return false;
  return true;
}

/* Checks the inputs; of those that exclude each other there must be one. */
static bool read_inputs(direct *d, bool backward, const places *in) {
  int either = -1;
  d->counted = d->rows;
  for (int32_t i = 0; i < d->op->input_count; i++) {
    const smx_port *port = d->op->inputs + i;
    const void *at = in->at[i];
    if (backward && !(port->flags & SMX_PORT_SAVED)) {
      if (at) return false;
      continue;
    }
    if (port->flags & SMX_PORT_EITHER) either = either < 0 ? at != NULL : either + (at != NULL);
    if (at ? !read_from(d, i, port, at) : !(port->flags & SMX_PORT_OPTIONAL)) return false;
    if (at && (port->flags & SMX_PORT_TARGET) && !targets_fit(d, at)) return false;
    if (at && (port->flags & SMX_PORT_LENGTH) && !lengths_fit(d, at)) return false;
  }
  return either < 0 || either == 1;
}

/* ---- no output overlaps what it must not ---- */

static bool apart(const direct *d, const smx_port *a, const void *at, const smx_port *b, const void *bt) {
  const uintptr_t p = (uintptr_t)at, q = (uintptr_t)bt;
  return !bt || p + (uintptr_t)(d->rows * length_of(d, a) * cell_of(d, a)) <= q ||
         q + (uintptr_t)(d->rows * length_of(d, b) * cell_of(d, b)) <= p;
}

/* Checks output `dst` against sources from `first` on; same: the source that it may be. */
static bool apart_from(const direct *d, const smx_port *port, int dst, int first, const smx_port *sources,
                       int32_t count, int same) {
  const char *at = d->call.dst[dst];
  for (int32_t i = 0; i < count; i++)
    if (d->call.src[first + i] && !(first + i == same && d->call.src[same] == at) &&
        !apart(d, port, at, sources + i, d->call.src[first + i]))
      return false;
  return true;
}
static bool apart_before(const direct *d, const smx_port *ports, int dst) {
  for (int p = 0; p < dst; p++)
    if (!apart(d, ports + dst, d->call.dst[dst], ports + p, d->call.dst[p])) return false;
  return true;
}

/* ---- what kernels ask for ---- */

/* A list that is short enough for the stack. */
static __attribute__((noinline)) direct_end run_with_list(direct *d, const row_kernel *kernel) {
  double list[DIRECT_LIST];
  d->call.list = list;
  row_run(kernel, &d->call);
  return DIRECT_DONE;
}
static __attribute__((noinline)) direct_end run_with(direct *d, smx_context *ctx, const row_kernel *kernel) {
  const size_t list = smx_whole_lines(d->kernels->list * sizeof(double));
  if (!d->kernels->work && d->kernels->list <= DIRECT_LIST) return run_with_list(d, kernel);
  char *memory = smx_alloc(ctx, list + d->kernels->work);
  if (!memory) return DIRECT_NO_MEMORY;
  d->call.list = (double *)(void *)memory, d->call.work = memory + list;
  row_run(kernel, &d->call);
  smx_free(ctx, memory);
  return DIRECT_DONE;
}
static direct_end run(direct *d, smx_context *ctx, const row_kernel *kernel) {
  if (d->kernels->list || d->kernels->work) return run_with(d, ctx, kernel);
  row_run(kernel, &d->call);
  return DIRECT_DONE;
}

/* ---- the two directions ---- */

/* One value for all rows, of their losses. */
static void put_reduced(const direct *d, void *to) {
  const bool is_f64 = d->type.bits == 64;
  const smx_reduction how = (smx_reduction)param_named(d, "reduction", SMX_REDUCE_NONE);
  const double v = smx_reduced(how, d->call.dst[0], d->rows, (double)d->counted, is_f64);
  if (is_f64) *(double *)to = v;
  else *(float *)to = (float)v;
}

static direct_end forward(direct *d, smx_context *ctx, const places *in, const places *out) {
  const smx_op *op = d->op;
  if (!row_has_program(d->kernels->forward) || !read_inputs(d, false, in)) return DIRECT_NOT;
  int32_t reduced = -1;
  for (int32_t o = 0; o < op->output_count; o++) {
    const smx_port *port = op->outputs + o;
    const bool dx = port->flags & SMX_PORT_DX,
               over_x = port->shape == SMX_SHAPE_FULL && (dx || (o == 0 && (op->flags & SMX_OP_INPLACE)));
    if (!out->at[o] && (port->flags & SMX_PORT_OPTIONAL)) continue;
    if (!out->at[o] || !write_to(d, o, port, out->at[o])) return DIRECT_NOT;
    if (!apart_from(d, port, o, 0, op->inputs, op->input_count, over_x ? 0 : -1)) return DIRECT_NOT;
    if (!apart_before(d, op->outputs, o)) return DIRECT_NOT;
    /* a gradient that is an output: its row's part in the reduced loss */
    if (dx)
      d->call.share = d->call.share_other =
          smx_share((smx_reduction)param_named(d, "reduction", SMX_REDUCE_NONE), (double)d->counted);
    if (port->shape == SMX_SHAPE_SCALAR) reduced = o;
  }
  void *all = reduced < 0 ? NULL : d->call.dst[reduced]; /* not for the kernel */
  if (all) d->call.dst[reduced] = NULL, d->call.outputs &= ~((uint32_t)1 << reduced);
  const direct_end end = run(d, ctx, d->kernels->forward);
  if (all && end == DIRECT_DONE) put_reduced(d, all);
  return end;
}

/* Checks outputs that are read again, and their gradients. */
static bool read_outputs(direct *d, const places *out, const places *dout) {
  for (int32_t o = 0; o < d->op->output_count; o++) {
    const smx_port *port = d->op->outputs + o;
    const bool saved = port->flags & SMX_PORT_SAVED;
    const void *y = saved ? out->at[o] : NULL, *dy = dout->at[o];
    if (o >= ROW_OUTS && (y || dy)) return false;
    if (dy && ((port->flags & (SMX_PORT_INT | SMX_PORT_DX)) || !read_from(d, SRC_DY + o, port, dy)))
      return false;
    if (y ? !read_from(d, SRC_Y + o, port, y) : saved && !(port->flags & SMX_PORT_OPTIONAL)) return false;
  }
  return d->call.src[SRC_DY] != NULL;
}

static direct_end backward(direct *d, smx_context *ctx, const places *in, const places *out,
                           const places *dout, const places *din) {
  const smx_op *op = d->op;
  const int32_t outs = op->output_count < ROW_OUTS ? op->output_count : ROW_OUTS;
  if (!row_has_program(d->kernels->backward) || !din->at[0] || !read_inputs(d, true, in) ||
      !read_outputs(d, out, dout))
    return DIRECT_NOT;
  for (int32_t g = 0; g < op->input_count; g++) {
    const smx_port *port = op->inputs + g;
    const bool over_y = g == 0 && op->outputs[0].shape == SMX_SHAPE_FULL && port->shape == SMX_SHAPE_FULL;
    if (!din->at[g]) continue;
    if (!(port->flags & SMX_PORT_GRAD) || !write_to(d, g, port, din->at[g])) return DIRECT_NOT;
    if (!apart_from(d, port, g, 0, op->inputs, op->input_count, -1) ||
        !apart_from(d, port, g, SRC_Y, op->outputs, outs, over_y ? SRC_Y : -1) ||
        !apart_from(d, port, g, SRC_DY, op->outputs, outs, over_y ? SRC_DY : -1) ||
        !apart_before(d, op->inputs, g))
      return DIRECT_NOT;
  }
  return run(d, ctx, d->kernels->backward);
}

/* ---- tensors ---- */

/* Whether the call has rows along the last axis, few enough, none of them empty. */
static bool few_rows(direct *d, const smx_tensor *x, int32_t axis) {
  int64_t total = 1;
  if (!x || x->ndim < 1 || x->ndim > SMX_MAX_DIMS || !x->shape || (axis != -1 && axis != x->ndim - 1))
    return false;
  if (!smx_same_dtype(x->dtype, SMX_F32) && !smx_same_dtype(x->dtype, SMX_F64)) return false;
  for (int32_t i = 0; i < x->ndim; i++) {
    if (x->shape[i] < 1 || x->shape[i] > DIRECT_MOST) return false;
    total *= x->shape[i];
    if (total > DIRECT_MOST) return false;
  }
  d->like = x, d->type = x->dtype, d->n = x->shape[x->ndim - 1];
  d->rows = total == d->n ? 1 : total / d->n;
  return true;
}

/* Whether a tensor has this shape, in C order. */
static bool packed(const smx_tensor *t, const int64_t *shape) {
  int64_t step = 1;
  for (int32_t d = t->ndim - 1; d >= 0; step *= shape[d--])
    if (t->shape[d] != shape[d] || (t->strides && shape[d] != 1 && t->strides[d] != step)) return false;
  return true;
}

/* Collects the addresses of tensors that are as the ports want them. */
static bool places_of(const direct *d, const smx_port *ports, int32_t count, int32_t n,
                      const smx_tensor *const *tensors, places *p) {
  if (n < 0 || n > count) return false;
  for (int32_t i = 0; i < count; i++) {
    const smx_tensor *t = tensors && i < n ? tensors[i] : NULL;
    p->at[i] = NULL;
    if (!t) continue;
    const smx_dtype type = ports[i].flags & SMX_PORT_INT ? SMX_I64 : d->type;
    if (!t->data || t->device.device_type < 0 || t->device.device_type > 1) return false;
    if (!smx_same_dtype(t->dtype, type)) return false;
    const int32_t less = ports[i].shape == SMX_SHAPE_FULL     ? 0
                         : ports[i].shape == SMX_SHAPE_SCALAR ? d->like->ndim
                                                              : 1;
    if (t->ndim != d->like->ndim - less || (t->ndim && !t->shape)) return false;
    if (!packed(t, d->like->shape)) return false;
    p->at[i] = (const void *)((uintptr_t)t->data + (uintptr_t)t->byte_offset);
  }
  return true;
}

direct_end direct_forward(const smx_op *op, smx_context *ctx, int32_t axis, const smx_params *params,
                          int32_t n_in, const smx_tensor *const *in, int32_t n_out,
                          const smx_tensor *const *out) {
  direct d;
  places from, to;
  if (!op || n_in < 1 || !in || !few_rows(&d, in[0], axis) || !begin(&d, op, ctx, params)) return DIRECT_NOT;
  const bool plain = places_of(&d, op->inputs, op->input_count, n_in, in, &from) &&
                     places_of(&d, op->outputs, op->output_count, n_out, out, &to);
  return plain ? forward(&d, ctx, &from, &to) : DIRECT_NOT;
}

direct_end direct_backward(const smx_op *op, smx_context *ctx, int32_t axis, const smx_params *params,
                           int32_t n_in, const smx_tensor *const *in, int32_t n_out,
                           const smx_tensor *const *out, const smx_tensor *const *dout,
                           const smx_tensor *const *din) {
  direct d;
  places x, y, dy, dx;
  if (!op || n_out < 1 || !dout || !(op->flags & SMX_OP_BACKWARD)) return DIRECT_NOT;
  if (!few_rows(&d, n_in > 0 && in && in[0] ? in[0] : dout[0], axis) || !begin(&d, op, ctx, params))
    return DIRECT_NOT;
  const bool plain = places_of(&d, op->inputs, op->input_count, n_in, in, &x) &&
                     places_of(&d, op->outputs, op->output_count, n_out, out, &y) &&
                     places_of(&d, op->outputs, op->output_count, n_out, dout, &dy) &&
                     places_of(&d, op->inputs, op->input_count, n_in, din, &dx);
  return plain ? backward(&d, ctx, &x, &y, &dy, &dx) : DIRECT_NOT;
}

direct_end direct_rows(const smx_op *op, smx_context *ctx, const smx_params *params, size_t rows, size_t n,
                       const void *const *in, void *const *out) {
  direct d = {.type = SMX_F32, .rows = (int64_t)rows, .n = (int64_t)n};
  places from, to;
  if (rows < 1 || n < 1 || rows > DIRECT_MOST || n > DIRECT_MOST || rows * n > DIRECT_MOST) return DIRECT_NOT;
  memcpy(from.at, in, (size_t)op->input_count * sizeof *in);
  memcpy(to.at, out, (size_t)op->output_count * sizeof *out);
  return begin(&d, op, ctx, params) ? forward(&d, ctx, &from, &to) : DIRECT_NOT;
}
