/* head/functions_factored.c - factored_spherical_state, _weights and _head: the factors of a layer
 * (functions_factored.h), and losses of the spherical family with the gradient of h in O(d^2) a
 * row. With L_y, L_q, L_s the gradients of o_y, q and s,
 *
 *   dh = 2 L_q Q h + sum_y L_y w_y + L_s sums,   w_y = U^T v_y + omega
 *
 *   z_loss         softplus(a (b - z)) / a,  z = (o_y - m) / (r + e),  m = s / C, r^2 = q / C - m^2
 *   mse            |o - y|^2 = q - 2 sum_y value o_y + |y|^2
 *   log_spherical  -log (o_y^2 + e) / (q + C e)
 *   log_taylor     -log t(o_y) / (C + s + q / 2),  t(x) = 1 + x + x^2 / 2
 *
 * All but mse are sums over the classes of a row, each times its value. (The Z-loss, de Brebisson,
 * Vincent 2016; An Exploration of Softmax Alternatives, 2016.) */
#include <string.h>

#include "functions_factored.h"

enum { Z_LOSS, MSE, LOG_SPHERICAL, LOG_TAYLOR }; /* forms */
#define INF __builtin_inf()
#define NAN_ __builtin_nan("")
#define EVEN 0x1p-44 /* a variance below this share of the mean square is rounding */

smx_status factored_no_memory(const tensor_call *c) {
  return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld columns", c->op->name,
                  (long long)tensor_dim(c, "d"));
}

factored_state factored_divide(double *rows, int64_t d) {
  double *const last = rows + 3 * d * d;
  return (factored_state){rows, rows + d * d, rows + 2 * d * d, last, last + d};
}

/* ---- sizes ---- */

smx_status factored_state_sizes(dims *d) {
  const int64_t width = dims_value(d, "d", 0);
  if (width > (int64_t)1 << 30)
    return smx_fail(SMX_ERR_SHAPE, "%s: v: has %lld columns, too many", d->op->name, (long long)width);
  dims_set(d, "r", 0, factored_rows(width));
  return SMX_OK;
}
smx_status factored_sizes(dims *d) {
  const int64_t r = dims_value(d, "r", 0), width = dims_value(d, "d", 0);
  if (r % 3 != 2 || r / 3 != width)
    return smx_fail(SMX_ERR_SHAPE, "%s: state: has %lld rows, not 3 d + 2, d = %lld", d->op->name,
                    (long long)r, (long long)width);
  return SMX_OK;
}

/* ---- products ---- */

smx_status factored_times(const tensor_call *c, int64_t rows, int64_t columns, int64_t depth,
                          factored_matrix a, factored_matrix b, double *to) {
  int64_t as[] = {rows, depth}, bs[] = {columns, depth}, ts[] = {rows, columns}, ap[] = {a.row, a.step},
          bp[] = {b.row, b.step};
  const smx_tensor h = smx_tensor_of(a.data, SMX_F64, 2, as, ap),
                   w = smx_tensor_of(b.data, SMX_F64, 2, bs, bp), z = smx_tensor_of(to, SMX_F64, 2, ts, NULL);
  const smx_linear layer = {.size = sizeof layer, .h = &h, .w = &w};
  if (rows && columns && depth) return smx_linear_logits(c->ctx, &layer, &z);
  memset(to, 0, sizeof *to * (size_t)(rows * columns));
  return SMX_OK;
}

/* ---- states and weights ---- */

enum { BLOCK = 256 }; /* rows of V at a time */

/* The state of U = I, omega = 0: Q is a sum over blocks of rows, in their order. */
static smx_status put_state(const tensor_call *c, double *block, double *product, double *rows) {
  const int64_t d = tensor_dim(c, "d"), classes = tensor_dim(c, "c");
  const factored_state to = factored_divide(rows, d);
  memset(rows, 0, sizeof *rows * (size_t)(factored_rows(d) * d));
  for (int64_t i = 0; i < d; i++) to.u[i * d + i] = to.inverse[i * d + i] = 1;
  for (int64_t k = 0; k < classes; k += BLOCK) {
    const int64_t many = classes - k < BLOCK ? classes - k : BLOCK;
    tensor_load(c, c->in.view, k * d, many * d, block);
    const factored_matrix v = factored_turned(block, d);
    const smx_status status = factored_times(c, d, d, many, v, v, product);
    if (status != SMX_OK) return status;
    tree_add(to.q, 1, product, d * d);
    for (int64_t i = 0; i < many; i++) tree_add(to.sums, 1, block + i * d, d);
  }
  tensor_store(c, c->out.view, 0, factored_rows(d) * d, rows);
  return SMX_OK;
}

smx_status factored_make_state(const tensor_call *c) {
  const int64_t d = tensor_dim(c, "d"), state = factored_rows(d) * d;
  double *const memory = smx_alloc(c->ctx, sizeof *memory * (size_t)(state + d * d + BLOCK * d) + 1);
  if (!memory) return factored_no_memory(c);
  const smx_status status = put_state(c, memory, memory + BLOCK * d, memory + BLOCK * d + d * d);
  smx_free(c->ctx, memory);
  return status;
}

/* W = V U + 1 omega^T, as the logits of the rows of V with the bias omega. */
static smx_status put_weights(const tensor_call *c, double *rows) {
  int64_t d = tensor_dim(c, "d"), vs[] = {tensor_dim(c, "c"), d}, us[] = {d, d}, turned[] = {1, d};
  const smx_dtype real = c->is_f64 ? SMX_F64 : SMX_F32;
  const factored_state from = factored_divide(rows, d);
  tensor_load(c, c->in.view + 1, 0, factored_rows(d) * d, rows);
  const smx_tensor v = smx_tensor_of(c->in.view[0].data, real, 2, vs, NULL),
                   u = smx_tensor_of(from.u, SMX_F64, 2, us, turned),
                   omega = smx_tensor_of(from.omega, SMX_F64, 1, us, NULL),
                   w = smx_tensor_of(c->out.view[0].data, real, 2, vs, NULL);
  const smx_linear layer = {.size = sizeof layer, .h = &v, .w = &u, .bias = &omega};
  return vs[0] && d ? smx_linear_logits(c->ctx, &layer, &w) : SMX_OK;
}

smx_status factored_make_weights(const tensor_call *c) {
  const int64_t d = tensor_dim(c, "d");
  double *const rows = smx_alloc(c->ctx, sizeof *rows * (size_t)(factored_rows(d) * d) + 1);
  if (!rows) return factored_no_memory(c);
  const smx_status status = put_weights(c, rows);
  smx_free(c->ctx, rows);
  return status;
}

/* ---- losses of one class ---- */

/* A loss and its gradients by o_y, q and s. */
typedef struct spherical {
  double loss, x, q, s;
} spherical;

static spherical z_loss(const factored *f, double x, double q, double s) {
  const double a = tensor_param(f->c, "a"), count = (double)f->classes, mean = s / count, square = q / count;
  double variance = square - mean * mean;
  if (variance <= EVEN * square) variance = 0;
  const double r = __builtin_sqrt(variance), width = r + tensor_param(f->c, "epsilon"),
               z = r == 0 ? 0 : (x - mean) / width, away = a * (tensor_param(f->c, "b") - z),
               g = tree_sigmoid(away);
  spherical l = {.loss = head_math()->softplus(away) / a};
  if (r == 0) return l;
  l.x = -g / width, l.q = g * z / (2 * count * r * width);
  l.s = g / (count * width) * (1 - z * mean / r);
  return l;
}

static spherical log_spherical(const factored *f, double x, double q, double s) {
  const double e = tensor_param(f->c, "epsilon"), own = x * x + e, count = (double)f->classes,
               others = q > x * x ? q - x * x : 0, rest = others + (count - 1) * e;
  return (spherical){
      .loss = head_math()->softplus(head_math()->log(rest / own)), .x = -2 * x / own, .q = 1 / (own + rest)};
}

static spherical log_taylor(const factored *f, double x, double q, double s) {
  const double own = 1 + x + x * x / 2, all = (double)f->classes + s + q / 2;
  return (spherical){head_math()->log(all) - head_math()->log(own), -(1 + x) / own, 0.5 / all, 1 / all};
}

static double value_of(const factored *f, int64_t i) {
  double value = 1;
  if (f->c->in.given[FACTORED_VALUE]) tensor_load(f->c, f->c->in.view + FACTORED_VALUE, i, 1, &value);
  return value;
}

/* |y|^2, where the values of one class add up. */
static double squares(const factored *f, int64_t from, int64_t to) {
  double sum = 0;
  for (int64_t i = from; i < to; i++)
    for (int64_t k = from; k < to; k++)
      if (factored_counts(f, i) && f->target[i] == f->target[k]) sum += value_of(f, i) * value_of(f, k);
  return sum;
}

/* Squares beyond all numbers, whose ratio is not known, or a NaN. */
static bool overflows(double x, double q, double s) {
  return !(x * x < INF && q < INF && __builtin_fabs(s) < INF);
}

/* Of a row; its scores are in x_slope, which become gradients. */
static spherical loss_of(const factored *f, int64_t row, double q, double s) {
  static spherical (*const forms[])(const factored *f, double x, double q, double s) = {
      [Z_LOSS] = z_loss, [LOG_SPHERICAL] = log_spherical, [LOG_TAYLOR] = log_taylor};
  const int form = (int)tensor_param(f->c, "form");
  const int64_t from = row * f->t, to = from + f->t;
  spherical sum = {0, 0, 0, 0};
  if (form == MSE) sum.loss = q + squares(f, from, to), sum.q = 1;
  for (int64_t i = from; i < to; i++) {
    const double value = value_of(f, i), x = f->x_slope[i];
    spherical l = {-2 * x, -2, 0, 0};
    if (!factored_counts(f, i)) continue;
    if (form != MSE) l = overflows(x, q, s) ? (spherical){NAN_, NAN_, NAN_, NAN_} : forms[form](f, x, q, s);
    sum.loss += value * l.loss, sum.q += value * l.q, sum.s += value * l.s;
    f->x_slope[i] = value * l.x;
  }
  return sum;
}

/* ---- rows ---- */

static bool any_counts(const factored *f, int64_t row) {
  bool any = false;
  for (int64_t i = row * f->t; i < (row + 1) * f->t; i++) any |= factored_counts(f, i);
  return any;
}

static void load_task(void *arg, int64_t row) {
  factored *f = arg;
  double *const h = f->h + row * f->d;
  if (any_counts(f, row)) tensor_load(f->c, f->c->in.view + FACTORED_H, row * f->d, f->d, h);
  else memset(h, 0, sizeof *h * (size_t)f->d);
}

static double upstream_of(const factored *f, int64_t row) {
  double g = 1;
  if (!f->step) return tensor_upstream(f->c, 0, row);
  if (f->c->in.given[FACTORED_GRAD]) tensor_load(f->c, f->c->in.view + FACTORED_GRAD, row, 1, &g);
  return g;
}

static void row_task(void *arg, int64_t row) {
  factored *f = arg;
  double *const v = smx_scratch_take(&f->scratch), *const h = f->h + row * f->d;
  const int64_t from = row * f->t, to = from + f->t;
  const double lift = tree_dot(f->from.omega, h, f->d), q = tree_dot(h, f->qh + row * f->d, f->d);
  spherical l = {0, 0, 0, 0};
  for (int64_t i = from; i < to; i++) {
    f->x_slope[i] = 0;
    if (!factored_counts(f, i)) continue;
    tensor_load(f->c, f->c->in.view + FACTORED_V, f->target[i] * f->d, f->d, v);
    f->x_slope[i] = tree_dot(v, f->uh + row * f->d, f->d) + lift;
  }
  if (any_counts(f, row)) l = loss_of(f, row, q < 0 ? 0 : q, tree_dot(f->from.sums, h, f->d));
  f->loss[row] = l.loss;
  if (f->gradient) {
    const double up = upstream_of(f, row);
    double *const pulled = f->pulled + row * f->d, sum = 0;
    memset(pulled, 0, sizeof *pulled * (size_t)f->d);
    for (int64_t i = from; i < to; i++) {
      if (!factored_counts(f, i)) continue;
      tensor_load(f->c, f->c->in.view + FACTORED_V, f->target[i] * f->d, f->d, v);
      f->x_slope[i] *= up, sum += f->x_slope[i];
      tree_add(pulled, f->x_slope[i], v, f->d);
    }
    f->twice[row] = 2 * up * l.q, f->s_slope[row] = up * l.s, f->x_sum[row] = sum;
  }
  smx_scratch_give(&f->scratch, v);
}

/* Z = pulled U + omega x_sum + sums s_slope, where pulled U is in dh; dh = D Q h + Z. */
static void gradient_task(void *arg, int64_t row) {
  factored *f = arg;
  double *const dh = f->dh + row * f->d, *const z = f->pulled + row * f->d;
  tree_add(dh, f->x_sum[row], f->from.omega, f->d);
  tree_add(dh, f->s_slope[row], f->from.sums, f->d);
  memcpy(z, dh, sizeof *z * (size_t)f->d);
  tree_add(dh, f->twice[row], f->qh + row * f->d, f->d);
}

void factored_carve(factored *f, carver *m) {
  f->rows = carve(m, factored_rows(f->d), f->d, 8);
  f->h = carve(m, f->n, f->d, 8), f->qh = carve(m, f->n, f->d, 8), f->uh = carve(m, f->n, f->d, 8);
  f->loss = carve(m, f->n, 1, 8), f->x_slope = carve(m, f->n, f->t, 8);
  if (!f->gradient) return;
  f->twice = carve(m, f->n, 1, 8), f->s_slope = carve(m, f->n, 1, 8), f->x_sum = carve(m, f->n, 1, 8);
  f->pulled = carve(m, f->n, f->d, 8), f->dh = carve(m, f->n, f->d, 8);
}

factored factored_of(const tensor_call *c, bool gradient, bool step) {
  return (factored){.c = c,
                    .gradient = gradient,
                    .step = step,
                    .n = tensor_dim(c, "n"),
                    .t = tensor_dim(c, "t"),
                    .d = tensor_dim(c, "d"),
                    .classes = tensor_dim(c, "c"),
                    .ignore = (int64_t)tensor_param(c, "ignore_index"),
                    .target = (const int64_t *)(const void *)c->in.view[FACTORED_TARGET].data};
}

smx_status factored_run(factored *f) {
  const int64_t n = f->n, d = f->d;
  f->from = factored_divide(f->rows, d);
  tensor_load(f->c, f->c->in.view + FACTORED_STATE, 0, factored_rows(d) * d, f->rows);
  if (!smx_scratch_open(&f->scratch, f->c->ctx, 0, sizeof(double) * (size_t)(d + 1), n))
    return factored_no_memory(f->c);
  smx_parallel(f->c->ctx, n, load_task, f);
  const factored_matrix h = factored_plain(f->h, d);
  smx_status status = factored_times(f->c, n, d, d, h, factored_plain(f->from.q, d), f->qh);
  if (status == SMX_OK) status = factored_times(f->c, n, d, d, h, factored_plain(f->from.u, d), f->uh);
  if (status == SMX_OK) smx_parallel(f->c->ctx, n, row_task, f);
  smx_scratch_close(&f->scratch);
  if (status != SMX_OK || !f->gradient) return status;
  status = factored_times(f->c, n, d, d, factored_plain(f->pulled, d), factored_turned(f->from.u, d), f->dh);
  if (status == SMX_OK) smx_parallel(f->c->ctx, n, gradient_task, f);
  return status;
}

/* ---- the head ---- */

static smx_status head_call(const tensor_call *c, bool gradient) {
  factored f = factored_of(c, gradient, false);
  carver m = {.fits = true};
  factored_carve(&f, &m);
  char *const memory = m.fits ? smx_alloc(c->ctx, (size_t)m.at + 1) : NULL;
  if (!memory) return factored_no_memory(c);
  m = (carver){.base = memory, .fits = true};
  factored_carve(&f, &m);
  const smx_status status = factored_run(&f);
  if (status == SMX_OK && !gradient) tensor_store(c, c->out.view, 0, f.n, f.loss);
  if (status == SMX_OK && gradient) tensor_store(c, c->din.view + FACTORED_H, 0, f.n * f.d, f.dh);
  smx_free(c->ctx, memory);
  return status;
}
smx_status factored_forward(const tensor_call *c) { return head_call(c, false); }
smx_status factored_backward(const tensor_call *c) {
  return c->din.given[FACTORED_H] ? head_call(c, true) : SMX_OK;
}
