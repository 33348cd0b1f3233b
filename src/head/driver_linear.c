/* head/driver_linear.c - operators on the logits of a linear layer (softmax/heads.h).
 *
 * The operator is checked and run as ever, but for its x: a source hands it blocks of rows, whose
 * logits are formed in memory of the call. Each row is computed by itself, so blocks may be of any
 * size; sums over rows are chains of 64, so blocks that start at multiples of 64 add them in the
 * same order. */
#include "driver_linear.h"
#include "base/enter.h"
#include "driver/carve.h"
#include "driver/check.h"
#include <string.h>

enum { KEEP = 32 << 20 };

/* ---- arguments ---- */

static smx_status take(smx_label what, const smx_tensor *t, int32_t ndim, smx_view *v) {
  smx_status status = smx_view_of(what, t, true, v);
  if (status == SMX_OK) status = smx_check_dtype(&(smx_port){.name = what.port}, v, what);
  if (status == SMX_OK && v->ndim != ndim)
    status = smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": ndim is %d, not %d", SMX_LABEL_ARGS(what), (int)v->ndim,
                      (int)ndim);
  return status;
}
static smx_status has_size(smx_label what, const smx_view *v, int32_t d, int64_t n) {
  if (v->shape[d] == n) return SMX_OK;
  return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": shape[%d] is %lld, not %lld", SMX_LABEL_ARGS(what), (int)d,
                  (long long)v->shape[d], (long long)n);
}

/* The tensors of a layer in order: three inputs, and the gradients of each. */
enum { TENSORS = 6, INPUTS = 3 };
static const char *const names[TENSORS] = {"h", "w", "bias", "dh", "dw", "dbias"};
static smx_view *view_at(linear_ports *p, int i) {
  return (smx_view *[]){&p->h, &p->w, &p->bias, &p->dh, &p->dw, &p->dbias}[i];
}

static smx_status take_tensors(const char *verb, const smx_linear *l, linear_ports *p) {
  const smx_tensor *const given[TENSORS] = {l->h, l->w, l->bias, l->dh, l->dw, l->dbias};
  smx_status status = SMX_OK;
  for (int i = 0; i < TENSORS && status == SMX_OK; i++) {
    const smx_label what = {verb, "", names[i]};
    smx_view *const v = view_at(p, i);
    if (!given[i] && i < 2) return smx_fail(SMX_ERR_NULL, "%s: %s is NULL", verb, names[i]);
    if (given[i]) status = take(what, given[i], i % INPUTS == 2 ? 1 : 2, v);
    if (!given[i] || status != SMX_OK) continue;
    if (i >= INPUTS && !smx_view_injective(v))
      status = smx_fail(SMX_ERR_ALIAS, "%s: %s: two of its elements share an address", verb, names[i]);
    /* sizes: N, C and d, where they are known from h and w */
    if (status == SMX_OK && i % INPUTS) status = has_size(what, v, 0, p->w.shape[0]);
    if (status == SMX_OK && i == INPUTS) status = has_size(what, v, 0, p->h.shape[0]);
    if (status == SMX_OK && i % INPUTS < 2) status = has_size(what, v, 1, p->h.shape[1]);
  }
  return status;
}

static smx_status check(const char *verb, const smx_linear *l, bool gradients, linear_ports *p) {
  if (!l) return smx_fail(SMX_ERR_NULL, "%s: linear is NULL", verb);
  if (l->size != sizeof *l)
    return smx_fail(SMX_ERR_STRUCT, "%s: linear.size is %zu, not %zu", verb, l->size, sizeof *l);
  if (!gradients && (l->dh || l->dw || l->dbias))
    return smx_fail(SMX_ERR_PARAM, "%s: dh, dw or dbias is given, which this function does not make", verb);
  if (!(l->scale - l->scale == 0))
    return smx_fail(SMX_ERR_PARAM, "%s: scale is %g, not a finite number", verb, l->scale);
  if (!(l->softcap >= 0) || l->softcap - l->softcap != 0)
    return smx_fail(SMX_ERR_PARAM, "%s: softcap is %g, not a finite number of at least 0", verb, l->softcap);
  p->scale = l->scale == 0 ? 1 : l->scale, p->softcap = l->softcap;
  p->keep = l->keep_bytes ? l->keep_bytes : KEEP;
  return take_tensors(verb, l, p);
}

/* Gradients may not overlap the layer's tensors, nor those of the operator, which the operator's
 * own checks say more of. */
static smx_status check_apart(const char *verb, linear_ports *p, int32_t n, const smx_tensor *const *others) {
  for (int g = INPUTS; g < TENSORS; g++) {
    const smx_view *const v = view_at(p, g);
    if (!v->data) continue;
    for (int i = 0; i < g; i++)
      if (view_at(p, i)->data && smx_view_overlap(v, view_at(p, i)))
        return smx_fail(SMX_ERR_ALIAS, "%s: %s: overlaps %s", verb, names[g], names[i]);
    for (int32_t i = 0; others && i < n && i < SMX_MAX_PORTS; i++) {
      smx_view other;
      if (!others[i]) continue;
      const smx_status status = smx_view_of((smx_label){verb, "", "an argument"}, others[i], false, &other);
      if (status != SMX_OK) return status;
      if (other.data && smx_view_overlap(v, &other))
        return smx_fail(SMX_ERR_ALIAS, "%s: %s: overlaps an argument of the operator", verb, names[g]);
    }
  }
  return SMX_OK;
}

/* ---- memory ---- */

/* The call's memory, divided. */
static void divide(linear_run *l, carver *c, bool two) {
  const linear_ports *p = l->p;
  const int64_t tiles = linear_tiles(l->most) * linear_tiles(l->width), panel = HEAD_TILE;
  l->z = carve(c, l->most, l->pitch, l->bytes);
  l->dz = two ? carve(c, l->most, l->pitch, l->bytes) : l->z;
  l->h = linear_in_place(l, &p->h) ? NULL : carve(c, l->most, l->width, l->bytes);
  l->bias = p->bias.data ? carve(c, 1, l->classes, l->bytes) : NULL;
  l->packed = p->dw.data ? carve(c, tiles, panel, l->bytes) : NULL;
  l->w_sums = p->dw.data && !linear_in_place(l, &p->dw) ? carve(c, l->classes, l->width, l->bytes) : NULL;
  l->bias_sums = p->dbias.data ? carve(c, 1, l->classes, l->bytes) : NULL;
  if (!l->apart || !p->dh.data) return;
  l->terms = carve(c, l->classes / LINEAR_SPLIT + 1, l->most * l->width, l->bytes);
  l->totals = carve(c, l->most, l->width, sizeof *l->totals);
}

/* How many rows of logits are kept: whole chains of 64, or all there are. */
static int64_t rows_kept(const linear_run *l, bool two) {
  const int64_t row = l->pitch * l->bytes * (two ? 2 : 1), fit = (int64_t)(l->p->keep / (size_t)row);
  const int64_t most = fit < HEAD_CHAIN    ? HEAD_CHAIN
                       : fit < LINEAR_MOST ? fit / HEAD_CHAIN * HEAD_CHAIN
                                           : LINEAR_MOST;
  return l->n > most ? most : l->n > 0 ? l->n : 1;
}

/* Columns of dh of a task: many, so that gradients are read few times and each page of w is looked
 * up once, but as many for each thread. */
static int64_t slab_of(const linear_run *l) {
  enum { MOST = 16 };
  const int64_t threads = smx_context_threads(l->ctx), panels = linear_tiles(l->width > 0 ? l->width : 1);
  const int64_t tasks = (panels + MOST * threads - 1) / (MOST * threads) * threads;
  return (panels + tasks - 1) / tasks * HEAD_PANEL;
}

static void load_bias(linear_run *l) {
  const smx_view *b = &l->p->bias;
  if (l->bias)
    l->kernels->io->load(row_store_of(b->dtype), b->data, b->strides[0], (size_t)l->classes, l->bias);
}

smx_status linear_open(linear_run *l, bool two, char **memory) {
  carver c = {.fits = l->classes < INT64_MAX / 64};
  l->bytes = l->is_f64 ? 8 : 4;
  l->kernels = l->is_f64 ? &smx_isa_current()->f64 : &smx_isa_current()->f32;
  l->n = l->p->h.shape[0], l->width = l->p->h.shape[1], l->classes = l->p->w.shape[0];
  /* rows start at different sets of a cache */
  l->pitch = c.fits ? linear_tiles(l->classes) * HEAD_PANEL + 16 : 16;
  if (!l->most) l->most = rows_kept(l, two);
  l->slab = slab_of(l);
  divide(l, &c, two);
  *memory = c.fits ? smx_alloc(l->ctx, (size_t)c.at) : NULL;
  if (!*memory)
    return smx_fail(SMX_ERR_NOMEM, "linear: no memory for %lld rows of %lld logits", (long long)l->most,
                    (long long)l->classes);
  c = (carver){.base = *memory, .fits = true};
  divide(l, &c, two);
  load_bias(l);
  if (smx_scratch_open(&l->scratch, l->ctx, 0, linear_place(l), INT64_MAX)) return SMX_OK;
  smx_free(l->ctx, *memory);
  *memory = NULL;
  return smx_fail(SMX_ERR_NOMEM, "linear: no memory for tiles");
}
void linear_close(linear_run *l, char *memory) {
  smx_scratch_close(&l->scratch);
  smx_free(l->ctx, memory);
}

/* ---- the source of an operator's rows ---- */

typedef struct linear_source {
  job_source source;
  const linear_ports *ports;
  int dx; /* the output of a forward call that takes the gradient of x; -1: it is a backward call */
  bool gradients;
} linear_source;

static job_port row_port(const linear_run *l, char *data) {
  job_port p = {.present = true, .full = true, .same = true, .direct = true};
  p.data = (char *)((uintptr_t)data - (uintptr_t)(l->column * l->bytes)); /* where column 0 would be */
  p.store = l->is_f64 ? STORE_F64 : STORE_F32;
  p.length = l->classes, p.bytes = l->bytes, p.axis = 1, p.outer[0] = l->pitch;
  return p;
}

void linear_block_job(const linear_run *l, int dst, const job *whole, job *j) {
  *j = *whole;
  j->source = NULL, j->rows = j->dim[0] = l->rows;
  for (int p = 0; p < ROW_SRC + ROW_DST; p++) {
    job_port *q = p < ROW_SRC ? j->src + p : j->dst + (p - ROW_SRC);
    if (q->present && q->data && l->first) q->data += l->first * q->outer[0] * q->bytes;
  }
  if (j->src[0].present) j->src[0] = row_port(l, l->z);
  if (dst >= 0) j->dst[dst] = row_port(l, l->dz);
}

/* Runs the blocks; `asks`: only asks how much memory they take. */
static smx_status run_blocks(linear_run *l, const linear_source *s, const job *whole, smx_context *purse,
                             bool asks, job *j, int64_t *empty) {
  smx_status status = SMX_OK;
  const int dst = s->dx < 0 ? 0 : s->gradients ? s->dx : -1;
  *empty = -1;
  for (l->first = 0; l->first < l->n || (l->n == 0 && l->first == 0); l->first += l->most) {
    int64_t row = -1;
    l->rows = l->n - l->first < l->most ? l->n - l->first : l->most;
    if (asks && l->first > 0 && l->rows == l->most) continue;
    linear_block_job(l, dst, whole, j);
    j->ctx = purse;
    if (!asks && l->rows) linear_block_logits(l);
    const smx_status one = job_run(j, &row);
    if (row >= 0 && *empty < 0) *empty = l->first + row;
    if (one != SMX_OK) status = one;
    if (!asks && s->gradients && status == SMX_OK) linear_block_gradients(l);
  }
  return status;
}

static smx_status run_source(const job_source *source, const job *whole, int64_t *empty) {
  const linear_source *s = (const linear_source *)(const void *)source;
  linear_run l = {.p = s->ports, .ctx = whole->ctx, .is_f64 = whole->is_f64};
  char *memory;
  smx_context *purse = NULL;
  *empty = -1;
  smx_status status = linear_open(&l, s->dx < 0 || (s->gradients && l.p->softcap > 0), &memory);
  if (status != SMX_OK) return status;
  SMX_OWN(job, j, whole->ctx);
  if (j) purse = smx_purse_open(whole->ctx);
  if (purse) run_blocks(&l, s, whole, purse, true, j, empty);
  if (purse && smx_purse_fill(purse)) status = run_blocks(&l, s, whole, purse, false, j, empty);
  else status = SMX_ERR_NOMEM;
  smx_purse_close(purse);
  linear_close(&l, memory);
  return status;
}

static void stand_in(linear_x *s, const linear_ports *p) {
  const bool is_f64 =
      p->h.dtype.bits == 64 || p->w.dtype.bits == 64 || (p->bias.data && p->bias.dtype.bits == 64);
  *s = (linear_x){.shape = {p->h.shape[0], p->w.shape[0]}};
  s->x = smx_tensor_of(&s->zero, is_f64 ? SMX_F64 : SMX_F32, 2, s->shape, s->strides);
}

static smx_status take_inputs(const char *verb, const smx_op *op, const smx_params *params, int32_t n_in,
                              const smx_tensor *const *in, linear_call *c) {
  int family;
  size_t index;
  smx_params taken;
  const smx_status status = smx_take_params(verb, op, params, &family, &index, &taken);
  if (status != SMX_OK) return status;
  if (family >= SMX_FAMILY_COUNT || (op->inputs[0].flags & (SMX_PORT_INT | SMX_PORT_MASK)))
    return smx_fail(SMX_ERR_PARAM, "%s: op is %s, which is no operator on rows of scores", verb, op->name);
  if (taken.axis != -1 && taken.axis != 1)
    return smx_fail(SMX_ERR_PARAM, "%s: axis is %d, not -1 or 1", verb, (int)taken.axis);
  if (n_in < 0 || n_in > op->input_count)
    return smx_fail(SMX_ERR_SHAPE, "%s: n_in is %d, not 0..%d", verb, (int)n_in, (int)op->input_count);
  if (n_in > 0 && !in) return smx_fail(SMX_ERR_NULL, "%s: in is NULL", verb);
  if (n_in > 0 && in[0])
    return smx_fail(SMX_ERR_PARAM, "%s: in[0] is given, but x is the logits of the layer", verb);
  for (int32_t i = 1; i < SMX_MAX_PORTS; i++) c->in[i] = i < n_in ? in[i] : NULL;
  c->in[0] = &c->x.x, c->n_in = n_in > 1 ? n_in : 1;
  return SMX_OK;
}

static smx_status open_call(const char *verb, const smx_op *op, const smx_params *params,
                            const smx_linear *given, int32_t n_in, const smx_tensor *const *in, int32_t n_out,
                            const smx_tensor *const *out, linear_call *c) {
  memset(c, 0, sizeof *c);
  smx_status status = check(verb, given, true, &c->ports);
  if (status != SMX_OK) return status;
  stand_in(&c->x, &c->ports);
  c->gradients = given->dh || given->dw || given->dbias;
  status = take_inputs(verb, op, params, n_in, in, c);
  if (status == SMX_OK) status = check_apart(verb, &c->ports, c->n_in - 1, c->in + 1);
  return status == SMX_OK ? check_apart(verb, &c->ports, n_out, out) : status;
}

static int dx_output(const smx_op *op) {
  for (int32_t o = 1; o < op->output_count; o++)
    if (op->outputs[o].flags & SMX_PORT_DX) return (int)o;
  return 0;
}

smx_status linear_forward_call(const char *verb, const smx_op *op, const smx_params *params,
                               const smx_linear *given, int32_t n_in, const smx_tensor *const *in,
                               int32_t n_out, const smx_tensor *const *out, linear_call *c) {
  const smx_status status = open_call(verb, op, params, given, n_in, in, n_out, out, c);
  if (status != SMX_OK) return status;
  c->dx = dx_output(op);
  if (c->gradients && !c->dx)
    return smx_fail(SMX_ERR_NO_BACKWARD, "%s: %s has no output dx: its gradients are those of %.*sbackward",
                    verb, op->name, (int)(strlen(verb) - strlen("forward")), verb);
  if (c->gradients && out && c->dx < n_out && out[c->dx])
    return smx_fail(SMX_ERR_PARAM, "%s: dx is given beside dh, dw or dbias, which take its place", verb);
  return SMX_OK;
}

smx_status linear_backward_call(const char *verb, const smx_op *op, const smx_params *params,
                                const smx_linear *given, int32_t n_in, const smx_tensor *const *in,
                                int32_t n_out, const smx_tensor *const *out, const smx_tensor *const *dout,
                                const smx_tensor *const *din, linear_call *c) {
  smx_status status = open_call(verb, op, params, given, n_in, in, n_out, out, c);
  if (status == SMX_OK && n_in > 0 && din && din[0])
    status =
        smx_fail(SMX_ERR_PARAM, "%s: din[0] is given, but the gradient of x becomes dh, dw and dbias", verb);
  if (status == SMX_OK) status = check_apart(verb, &c->ports, n_out, dout);
  return status == SMX_OK ? check_apart(verb, &c->ports, n_in, din) : status;
}

smx_status smx_linear_forward(const smx_op *op, smx_context *ctx, const smx_params *params,
                              const smx_linear *linear, int32_t n_in, const smx_tensor *const *in,
                              int32_t n_out, const smx_tensor *const *out) {
  SMX_ENTER(ctx);
  linear_call c;
  const smx_status status =
      linear_forward_call("smx_linear_forward", op, params, linear, n_in, in, n_out, out, &c);
  if (status != SMX_OK) return status;
  const linear_source s = {{run_source}, &c.ports, c.dx, c.gradients};
  return operator_forward_from(&s.source, op, ctx, params, c.n_in, c.in, n_out, out);
}

smx_status smx_linear_backward(const smx_op *op, smx_context *ctx, const smx_params *params,
                               const smx_linear *linear, int32_t n_in, const smx_tensor *const *in,
                               int32_t n_out, const smx_tensor *const *out, const smx_tensor *const *dout,
                               const smx_tensor *const *din) {
  SMX_ENTER(ctx);
  linear_call c;
  const smx_status status =
      linear_backward_call("smx_linear_backward", op, params, linear, n_in, in, n_out, out, dout, din, &c);
  if (status != SMX_OK) return status;
  const linear_source s = {{run_source}, &c.ports, -1, c.gradients};
  return operator_backward_from(&s.source, op, ctx, params, c.n_in, c.in, n_out, out, dout, din);
}

/* ---- the logits: those of an operator that leaves x alone ---- */

smx_status smx_linear_logits(smx_context *ctx, const smx_linear *linear, const smx_tensor *z) {
  SMX_ENTER(ctx);
  static const char verb[] = "smx_linear_logits";
  const smx_op *const op = smx_op_find("softcap");
  const smx_label what = {verb, "", "z"};
  linear_ports p = {.keep = 0};
  linear_x x;
  smx_view v;
  smx_params params;
  smx_status status = check(verb, linear, false, &p);
  if (status == SMX_OK && !z) status = smx_fail(SMX_ERR_NULL, "%s: z is NULL", verb);
  if (status == SMX_OK) status = take(what, z, 2, &v);
  if (status == SMX_OK) status = has_size(what, &v, 0, p.h.shape[0]);
  if (status == SMX_OK) status = has_size(what, &v, 1, p.w.shape[0]);
  for (int i = 0; i < INPUTS && status == SMX_OK; i++)
    if (view_at(&p, i)->data && smx_view_overlap(&v, view_at(&p, i)))
      status = smx_fail(SMX_ERR_ALIAS, "%s: z: overlaps %s", verb, names[i]);
  if (status == SMX_OK) status = smx_params_init(op, &params);
  if (status != SMX_OK) return status;
  params.value[0] = __builtin_inf(); /* no cap */
  stand_in(&x, &p);
  const linear_source s = {{run_source}, &p, 0, false};
  const smx_tensor *const in[] = {&x.x}, *const out[] = {z};
  return operator_forward_from(&s.source, op, ctx, &params, 1, in, 1, out);
}
