/* head/functions_sampled.c - losses of the classes of a row and of some others, the same for all
 * rows: sampled_softmax (Jean et al. 2015) and nce_loss (Gutmann, Hyvarinen 2010; Mnih, Teh 2012),
 * as TensorFlow has them (nn_impl.py). With x_j = h w_j + bias_j - log Q_j, Q_j how often j is
 * expected among the others S, and the T classes y of a row,
 *
 *   sampled_softmax   sum_y (lse - x_y) / T,  lse over y and S
 *   nce_loss          sum_y (softplus(-x_y) / T + (1 - 1 / T) softplus(x_y)) + sum_S softplus(x_j)
 *
 * Scores of S are a linear layer of its rows of w, whose loss of a row is logsumexp or
 * binary_cross_entropy; those of y are products in double. */
#include <string.h>

#include "driver_linear.h"
#include "functions_groups.h"
#include "functions_tree.h"

enum { H, W, TARGET, OTHER, BIAS, TRUE_EXPECTED, EXPECTED }; /* inputs */
enum { KEEP = 32 << 20 };
#define INF __builtin_inf()

typedef struct sampled {
  const tensor_call *c;
  bool nce, backward;
  int64_t n, t, s, d, bytes;
  const int64_t *target, *other;
  head_groups groups;               /* the others, by class; then these and all targets, for gradients */
  char *w, *bias, *dh, *dw, *dbias; /* of the others, and what their layer gives h: reals */
  char *sum, *up;                   /* of the rows of a block: what the rule makes of the others */
  double *x, *loss;                 /* scores of the targets, then their gradients */
  linear_ports ports;
  linear_run run;
  smx_scratch scratch;
} sampled;

static int64_t present(const sampled *p, int64_t row) {
  const int64_t ignore = (int64_t)tensor_param(p->c, "ignore_index");
  int64_t count = 0;
  for (int64_t k = 0; k < p->t; k++) count += p->target[row * p->t + k] != ignore;
  return count;
}
static bool counts(const sampled *p, int64_t i) {
  return p->target[i] != (int64_t)tensor_param(p->c, "ignore_index");
}

/* ---- classes in order ---- */

/* Entries: the others, then all targets. */
static void number_entries(sampled *p, int64_t count) {
  for (int64_t i = 0; i < count; i++) p->groups.number[i] = i < p->s ? p->other[i] : p->target[i - p->s];
  head_groups_sort(&p->groups, count);
}

/* The first place whose class is not below this one. */
static int64_t first_of(const sampled *p, int64_t count, int64_t class) {
  int64_t low = 0, high = count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (head_groups_at(&p->groups, middle) < class) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* ---- scores ---- */

static double log_expected(const sampled *p, int port, int64_t i) {
  double q = 1;
  if (p->c->in.given[port]) tensor_load(p->c, p->c->in.view + port, i, 1, &q);
  return head_math()->log(q);
}
static double bias_of(const sampled *p, int64_t class) {
  double bias = 0;
  if (p->c->in.given[BIAS]) tensor_load(p->c, p->c->in.view + BIAS, class, 1, &bias);
  return bias;
}

static smx_status check_expected(const sampled *p, int port, int64_t count) {
  for (int64_t i = 0; p->c->in.given[port] && i < count; i++) {
    double q;
    tensor_load(p->c, p->c->in.view + port, i, 1, &q);
    if ((port == EXPECTED || counts(p, i)) && !(q >= 0x1p-1022 && q < INF))
      return smx_fail(SMX_ERR_PARAM, "%s: %s: number %lld is %g, not above 0", p->c->op->name,
                      p->c->op->inputs[port].name, (long long)i, q);
  }
  return SMX_OK;
}

static void gather_task(void *arg, int64_t j) {
  const sampled *p = arg;
  const int64_t row = p->d * p->bytes;
  const double bias = bias_of(p, p->other[j]) - log_expected(p, EXPECTED, j);
  memcpy(p->w + j * row, p->c->in.view[W].data + p->other[j] * row, (size_t)row);
  smx_reals_store(p->c->is_f64, &bias, 1, p->bias + j * p->bytes);
}

static void score_task(void *arg, int64_t row) {
  sampled *p = arg;
  double *const h = smx_scratch_take(&p->scratch), *const w = h + p->d;
  tensor_load(p->c, p->c->in.view + H, row * p->d, p->d, h);
  for (int64_t i = row * p->t; i < (row + 1) * p->t; i++) {
    if (!counts(p, i)) continue;
    tensor_load(p->c, p->c->in.view + W, p->target[i] * p->d, p->d, w);
    const double x = tree_dot(h, w, p->d) + bias_of(p, p->target[i]) - log_expected(p, TRUE_EXPECTED, i);
    p->x[i] = x == INF ? __builtin_nan("") : x;
  }
  smx_scratch_give(&p->scratch, h);
}

/* The others that are classes of the row take no part. */
static void hide_task(void *arg, int64_t r) {
  const sampled *p = arg;
  const double none = -INF;
  const int64_t row = p->run.first + r;
  for (int64_t i = row * p->t; i < (row + 1) * p->t; i++)
    for (int64_t k = counts(p, i) ? first_of(p, p->s, p->target[i]) : p->s;
         k < p->s && head_groups_at(&p->groups, k) == p->target[i]; k++)
      smx_reals_store(p->c->is_f64, &none, 1, p->run.z + (r * p->run.pitch + p->groups.order[k]) * p->bytes);
}

/* ---- losses ---- */

/* Of a row whose others give `rest`; x becomes the gradients, times g. Returns that of `rest`. */
static double nce_row(const sampled *p, int64_t row, double rest, double g) {
  const double share = 1 / (double)present(p, row);
  double loss = rest;
  for (int64_t i = row * p->t; i < (row + 1) * p->t; i++) {
    const double x = p->x[i];
    if (!counts(p, i)) continue;
    loss += share * head_math()->softplus(-x);
    if (share < 1) loss += (1 - share) * head_math()->softplus(x);
    p->x[i] = -g * share * tree_sigmoid(-x);
    if (share < 1) p->x[i] += g * (1 - share) * tree_sigmoid(x);
  }
  p->loss[row] = loss;
  return g;
}
static double softmax_row(const sampled *p, int64_t row, double rest, double g) {
  const int64_t many = present(p, row), from = row * p->t, to = from + p->t;
  const double share = 1 / (double)many;
  double lse = rest, loss = 0;
  for (int64_t i = from; i < to; i++)
    if (counts(p, i)) lse = head_log_add(lse, p->x[i]);
  for (int64_t i = from; i < to; i++) {
    const double x = p->x[i];
    if (!counts(p, i)) continue;
    if (many == 1) { /* without what lse - x would lose */
      p->loss[row] = head_math()->softplus(rest - x), p->x[i] = -g * tree_sigmoid(rest - x);
      return -p->x[i];
    }
    loss += share * (lse - x), p->x[i] = g * (head_math()->exp(x - lse) - share);
  }
  p->loss[row] = loss;
  return g * head_math()->exp(rest - lse);
}

static void row_task(void *arg, int64_t r) {
  sampled *p = arg;
  const int64_t row = p->run.first + r;
  double rest, up = 0;
  const double g = p->backward ? tensor_upstream(p->c, 0, row) : 0;
  smx_reals_load(p->c->is_f64, p->sum + r * p->bytes, 1, &rest);
  if (!present(p, row)) p->loss[row] = 0;
  else up = p->nce ? nce_row(p, row, rest, g) : softmax_row(p, row, rest, g);
  smx_reals_store(p->c->is_f64, &up, 1, p->up + r * p->bytes);
}

static void clear_task(void *arg, int64_t r) { /* whatever an ignored row holds */
  const sampled *p = arg;
  if (!present(p, p->run.first + r))
    memset(p->run.dz + r * p->run.pitch * p->bytes, 0, (size_t)(p->s * p->bytes));
}

/* The rule on the scores of a block, forward or backward. */
static smx_status rule(const sampled *p, bool backward) {
  static const double absent = 0;
  const smx_op *const op = smx_op_find(p->nce ? "binary_cross_entropy" : "logsumexp");
  const smx_dtype real = p->c->is_f64 ? SMX_F64 : SMX_F32;
  int64_t shape[] = {p->run.rows, p->s}, rows[] = {p->run.pitch, 1}, still[] = {0, 0};
  const smx_tensor z = smx_tensor_of(p->run.z, real, 2, shape, rows),
                   dz = smx_tensor_of(p->run.dz, real, 2, shape, rows),
                   none = smx_tensor_of(&absent, real, 2, shape, still),
                   sum = smx_tensor_of(p->sum, real, 1, shape, NULL),
                   up = smx_tensor_of(p->up, real, 1, shape, NULL);
  const smx_tensor *const in[] = {&z, &none}, *const out[] = {&sum}, *const dout[] = {&up},
                          *const din[] = {&dz, NULL};
  const int32_t inputs = p->nce ? 2 : 1;
  return backward ? operator_backward(op, p->c->ctx, NULL, inputs, in, 1, NULL, dout, din)
                  : operator_forward(op, p->c->ctx, NULL, inputs, in, 1, out);
}

static smx_status run_block(sampled *p, bool hide) {
  linear_run *const l = &p->run;
  smx_status status = SMX_OK;
  if (p->s) linear_block_logits(l);
  if (hide) smx_parallel(l->ctx, l->rows, hide_task, p);
  memset(p->sum, 0, (size_t)(l->rows * p->bytes));
  if (p->s) status = rule(p, false);
  else if (!p->nce)
    for (int64_t r = 0; r < l->rows; r++)
      smx_reals_store(p->c->is_f64, &(double){-INF}, 1, p->sum + r * p->bytes);
  if (status != SMX_OK) return status;
  smx_parallel(l->ctx, l->rows, row_task, p);
  if (p->backward && p->s) status = rule(p, true);
  if (p->backward) smx_parallel(l->ctx, l->rows, clear_task, p);
  return status;
}

static smx_status walk(sampled *p) {
  linear_run *const l = &p->run;
  const bool hide = tensor_param(p->c, "remove_hits") != 0;
  for (l->first = 0; l->first < p->n || (p->n == 0 && l->first == 0); l->first += l->most) {
    l->rows = p->n - l->first < l->most ? p->n - l->first : l->most;
    const smx_status status = l->rows ? run_block(p, hide) : SMX_OK;
    if (status != SMX_OK) return status;
    if (p->backward) linear_block_gradients(l);
  }
  return SMX_OK;
}

/* ---- gradients ---- */

static void dh_task(void *arg, int64_t row) {
  sampled *p = arg;
  double *const sum = smx_scratch_take(&p->scratch), *const w = sum + p->d;
  smx_reals_load(p->c->is_f64, p->dh + row * p->d * p->bytes, p->d, sum);
  for (int64_t i = row * p->t; i < (row + 1) * p->t; i++) {
    if (!counts(p, i)) continue;
    tensor_load(p->c, p->c->in.view + W, p->target[i] * p->d, p->d, w);
    tree_add(sum, p->x[i], w, p->d);
  }
  tensor_store(p->c, p->c->din.view + H, row * p->d, p->d, sum);
  smx_scratch_give(&p->scratch, sum);
}

/* What entry i gives its class. */
static void add_entry(const sampled *p, int64_t i, double *sum, double *room, double *bias) {
  const tensor_call *const c = p->c;
  const bool other = i < p->s;
  double g = other || !counts(p, i - p->s) ? 0 : p->x[i - p->s];
  if (other) smx_reals_load(c->is_f64, p->dbias + i * p->bytes, 1, &g);
  *bias += g;
  if (!c->din.given[W] || (!other && !counts(p, i - p->s))) return;
  if (other) smx_reals_load(c->is_f64, p->dw + i * p->d * p->bytes, p->d, room);
  else tensor_load(c, c->in.view + H, (i - p->s) / p->t * p->d, p->d, room);
  tree_add(sum, other ? 1 : g, room, p->d);
}

/* Entries from k on are of one class, if k is the first of them. */
static void class_task(void *arg, int64_t k) {
  sampled *p = arg;
  const int64_t all = p->s + p->n * p->t, class = head_groups_at(&p->groups, k);
  double *const sum = smx_scratch_take(&p->scratch), bias = 0;
  const bool ignored = class == (int64_t)tensor_param(p->c, "ignore_index") && p->groups.order[k] >= p->s;
  if (head_groups_begin(&p->groups, k) && !ignored) {
    memset(sum, 0, sizeof *sum * (size_t)p->d);
    for (; k < all && head_groups_at(&p->groups, k) == class; k++)
      add_entry(p, p->groups.order[k], sum, sum + p->d, &bias);
    if (p->c->din.given[W]) tensor_store(p->c, p->c->din.view + W, class * p->d, p->d, sum);
    if (p->c->din.given[BIAS]) tensor_store(p->c, p->c->din.view + BIAS, class, 1, &bias);
  }
  smx_scratch_give(&p->scratch, sum);
}

static void put_gradients(sampled *p) {
  const tensor_call *const c = p->c;
  const size_t classes = (size_t)(tensor_dim(c, "c") * p->bytes);
  if (c->din.given[H]) smx_parallel(c->ctx, p->n, dh_task, p);
  if (c->din.given[W]) memset(c->din.view[W].data, 0, classes * (size_t)p->d);
  if (c->din.given[BIAS]) memset(c->din.view[BIAS].data, 0, classes);
  if (!c->din.given[W] && !c->din.given[BIAS]) return;
  number_entries(p, p->s + p->n * p->t);
  smx_parallel(c->ctx, p->s + p->n * p->t, class_task, p);
}

/* ---- calls ---- */

static smx_view reals(const sampled *p, char *data, int64_t rows, int64_t width) {
  return (smx_view){.data = data,
                    .dtype = p->c->is_f64 ? SMX_F64 : SMX_F32,
                    .ndim = 2,
                    .shape = {rows, width},
                    .strides = {width, 1}};
}
static smx_view line_of(const sampled *p, char *data) {
  smx_view v = reals(p, data, p->s, 1);
  v.ndim = 1;
  return v;
}

static void divide(sampled *p, carver *m) {
  const int64_t entries = p->s + (p->backward ? p->n * p->t : 0);
  p->x = carve(m, p->n, p->t, sizeof *p->x), p->loss = carve(m, p->n, 1, sizeof *p->loss);
  p->groups = head_groups_carve(m, entries);
  p->w = carve(m, p->s, p->d, p->bytes), p->bias = carve(m, p->s, 1, p->bytes);
  p->sum = carve(m, LINEAR_MOST, 1, p->bytes), p->up = carve(m, LINEAR_MOST, 1, p->bytes);
  if (!p->backward) return;
  p->dbias = carve(m, p->s, 1, p->bytes);
  if (p->c->din.given[H]) p->dh = carve(m, p->n, p->d, p->bytes);
  if (p->c->din.given[W]) p->dw = carve(m, p->s, p->d, p->bytes);
}

static char *reserve(sampled *p) {
  carver m = {.fits = true};
  divide(p, &m);
  char *const memory = m.fits ? smx_alloc(p->c->ctx, (size_t)m.at + 1) : NULL;
  m = (carver){.base = memory, .fits = true};
  if (memory) divide(p, &m);
  if (!memory ||
      !smx_scratch_open(&p->scratch, p->c->ctx, 0, sizeof(double) * (size_t)(2 * p->d + 1), INT64_MAX)) {
    smx_free(p->c->ctx, memory);
    (void)smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld others of %lld rows", p->c->op->name,
                   (long long)p->s, (long long)p->n);
    return NULL;
  }
  return memory;
}

static smx_status run_sampled(sampled *p) {
  char *layer = NULL;
  p->ports = (linear_ports){.h = p->c->in.view[H],
                            .w = reals(p, p->w, p->s, p->d),
                            .bias = line_of(p, p->bias),
                            .dh = reals(p, p->dh, p->n, p->d),
                            .dw = reals(p, p->dw, p->s, p->d),
                            .dbias = line_of(p, p->dbias),
                            .scale = 1,
                            .keep = KEEP};
  p->run = (linear_run){.p = &p->ports, .ctx = p->c->ctx, .is_f64 = p->c->is_f64};
  smx_parallel(p->c->ctx, p->s, gather_task, p), smx_parallel(p->c->ctx, p->n, score_task, p);
  smx_status status = linear_open(&p->run, p->backward, &layer);
  if (status != SMX_OK) return status;
  number_entries(p, p->s);
  status = walk(p);
  linear_close(&p->run, layer);
  if (status != SMX_OK) return status;
  if (p->backward) put_gradients(p);
  else tensor_store(p->c, p->c->out.view, 0, p->n, p->loss);
  return SMX_OK;
}

static smx_status sampled_call(const tensor_call *c, bool nce, bool backward) {
  SMX_OWN(sampled, p, c->ctx);
  if (!p) return smx_fail(SMX_ERR_NOMEM, "%s: no memory", c->op->name);
  *p = (sampled){.c = c, .nce = nce, .backward = backward, .bytes = c->is_f64 ? 8 : 4};
  p->n = tensor_dim(c, "n"), p->t = tensor_dim(c, "t"), p->s = tensor_dim(c, "s"), p->d = tensor_dim(c, "d");
  p->target = (const int64_t *)(const void *)c->in.view[TARGET].data;
  p->other = (const int64_t *)(const void *)c->in.view[OTHER].data;
  smx_status status = check_expected(p, TRUE_EXPECTED, p->n * p->t);
  if (status == SMX_OK) status = check_expected(p, EXPECTED, p->s);
  if (status != SMX_OK) return status;
  char *const memory = reserve(p);
  if (!memory) return SMX_ERR_NOMEM;
  status = run_sampled(p);
  smx_scratch_close(&p->scratch);
  smx_free(c->ctx, memory);
  return status;
}
smx_status sampled_softmax_forward(const tensor_call *c) { return sampled_call(c, false, false); }
smx_status sampled_softmax_backward(const tensor_call *c) { return sampled_call(c, false, true); }
smx_status nce_forward(const tensor_call *c) { return sampled_call(c, true, false); }
smx_status nce_backward(const tensor_call *c) { return sampled_call(c, true, true); }
