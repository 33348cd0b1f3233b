/* head/functions_sampled.c - losses of the classes of a row and of some others, the same for all
 * rows: sampled_softmax (Jean et al. 2015) and nce_loss (Gutmann, Hyvarinen 2010; Mnih, Teh 2012),
 * as TensorFlow has them (nn_impl.py), and augment_and_reduce. With x_j = h w_j + bias_j - log Q_j,
 * Q_j how often j is expected among the others S, and the T classes y of a row,
 *
 *   sampled_softmax   sum_y (lse - x_y) / T,  lse over y and S
 *   nce_loss          sum_y (softplus(-x_y) / T + (1 - 1 / T) softplus(x_y)) + sum_S softplus(x_j)
 *
 * augment_and_reduce (Ruiz et al. 2018) has one class a row, Q = 1, and S stands for all c - 1
 * other classes: with f the share c - 1 over the others of the row, or a weight of each that is in
 * the sum, and the row's latent number,
 *
 *   softmax    log eta - 1 + (1 + s) / eta,  s = f sum_S e^(x_j - x_y);  eta = 1 + s is the least
 *   logistic   u + 2 softplus(-u) + f sum_S softplus(x_j - x_y - u);  without u the sum alone
 *   probit     u^2 / 2 + log sqrt(2 pi) - f sum_S log Phi(u + x_y - x_j);  the same
 *
 * Scores of S are a linear layer of its rows of w, whose loss of a row is logsumexp or
 * binary_cross_entropy; those of y are products in double. */
#include <string.h>

#include "driver_linear.h"
#include "functions_groups.h"
#include "functions_tree.h"

enum { H, W, TARGET, OTHER, BIAS, TRUE_EXPECTED, EXPECTED, LATENT = TRUE_EXPECTED, WEIGHT = EXPECTED };
typedef enum kind { SOFTMAX, NCE, REDUCE, LOGISTIC, PROBIT } kind; /* from REDUCE: augment_and_reduce */
enum { KEEP = 32 << 20 };
#define INF __builtin_inf()
#define LOG_ROOT_2_PI 0.91893853320467274178
#define FAR 2.0

typedef struct sampled {
  const tensor_call *c;
  kind kind;
  bool backward, latent; /* latent: of augment_and_reduce */
  int64_t n, t, s, d, bytes;
  const int64_t *target, *other;
  head_groups groups;               /* the others, by class; then these and all targets, for gradients */
  char *w, *bias, *dh, *dw, *dbias; /* of the others, and what their layer gives h: reals */
  char *sum, *up;                   /* of the rows of a block: what the rule makes of the others */
  double *x, *loss;                 /* scores of the targets, then their gradients */
  double *factor, *all, *slope;     /* latent: f of each row, f times its sum, the gradient of latent */
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
  if (p->c->in.given[port] && !p->latent) tensor_load(p->c, p->c->in.view + port, i, 1, &q);
  return head_math()->log(q);
}
static double bias_of(const sampled *p, int64_t class) {
  double bias = 0;
  if (p->c->in.given[BIAS]) tensor_load(p->c, p->c->in.view + BIAS, class, 1, &bias);
  return bias;
}

static smx_status check_positive(const sampled *p, int port, int64_t count) {
  for (int64_t i = 0; p->c->in.given[port] && i < count; i++) {
    double q;
    tensor_load(p->c, p->c->in.view + port, i, 1, &q);
    if ((port == EXPECTED || counts(p, i)) && !(q >= 0x1p-1022 && q < INF))
      return smx_fail(SMX_ERR_PARAM, "%s: %s: number %lld is %g, not above 0", p->c->op->name,
                      p->c->op->inputs[port].name, (long long)i, q);
  }
  return SMX_OK;
}

/* A weight is a factor of e^x, or later one of a part of the sum. */
static double log_weight(const sampled *p, int64_t j) {
  double w = 1;
  if (p->kind == REDUCE && p->c->in.given[WEIGHT]) tensor_load(p->c, p->c->in.view + WEIGHT, j, 1, &w);
  return head_math()->log(w);
}

static void gather_task(void *arg, int64_t j) {
  const sampled *p = arg;
  const int64_t row = p->d * p->bytes;
  const double bias = bias_of(p, p->other[j]) - log_expected(p, EXPECTED, j) + log_weight(p, j);
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

static double latent_of(const sampled *p, int64_t row, double otherwise) {
  if (p->c->in.given[LATENT]) tensor_load(p->c, p->c->in.view + LATENT, row, 1, &otherwise);
  return otherwise;
}

/* x - by, for the scores of a row. */
static void shift(const sampled *p, char *row, double by) {
  double part[64];
  for (int64_t j = 0; j < p->s; j += 64) {
    const int64_t n = p->s - j < 64 ? p->s - j : 64;
    smx_reals_load(p->c->is_f64, row + j * p->bytes, n, part);
    for (int64_t i = 0; i < n; i++) part[i] -= by;
    smx_reals_store(p->c->is_f64, part, n, row + j * p->bytes);
  }
}

static double share_of(const sampled *p, int64_t others) {
  return p->c->in.given[WEIGHT] ? 1 : (double)(tensor_dim(p->c, "c") - 1) / (double)others;
}

/* The others that are classes of the row take no part. */
static void hide_task(void *arg, int64_t r) {
  const sampled *p = arg;
  const double none = -INF;
  const int64_t row = p->run.first + r;
  char *const z = p->run.z + r * p->run.pitch * p->bytes;
  int64_t left = p->s;
  for (int64_t i = row * p->t; i < (row + 1) * p->t; i++)
    for (int64_t k = counts(p, i) ? first_of(p, p->s, p->target[i]) : p->s;
         k < p->s && head_groups_at(&p->groups, k) == p->target[i]; k++, left--)
      smx_reals_store(p->c->is_f64, &none, 1, z + p->groups.order[k] * p->bytes);
  if (p->latent) p->factor[row] = left > 0 ? share_of(p, left) : 0;
  if (p->kind >= LOGISTIC && counts(p, row)) shift(p, z, p->x[row] + latent_of(p, row, 0));
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

static double reduce_row(const sampled *p, int64_t row, double rest, double g) {
  const double lead = rest - p->x[row] + head_math()->log(p->factor[row]),
               all = p->factor[row] == 0 ? 0 : head_math()->exp(lead), more = tensor_upstream(p->c, 1, row),
               more_up = p->backward && more != 0 ? more * all : 0;
  p->all[row] = all;
  if (!p->c->in.given[LATENT]) {
    p->loss[row] = p->factor[row] == 0 ? 0 : head_math()->softplus(lead);
    p->x[row] = -(p->factor[row] == 0 ? 0 : g * tree_sigmoid(lead)) - more_up;
  } else {
    const double eta = latent_of(p, row, 1);
    p->loss[row] = head_math()->log(eta) - 1 + (1 + all) / eta;
    p->x[row] = -g * all / eta - more_up;
    if (p->backward) p->slope[row] = g * (eta - 1 - all) / (eta * eta);
  }
  return -p->x[row];
}
/* The gradient of x follows from those of the others (finish_task). */
static double logistic_row(const sampled *p, int64_t row, double rest, double g) {
  const double u = latent_of(p, row, 0);
  p->all[row] = p->loss[row] = p->factor[row] * rest;
  const bool probit = p->kind == PROBIT;
  if (p->c->in.given[LATENT])
    p->loss[row] += probit ? u * u / 2 + LOG_ROOT_2_PI : u + 2 * head_math()->softplus(-u);
  if (p->backward) p->slope[row] = g * (probit ? u : 1 - 2 * tree_sigmoid(-u));
  return p->factor[row] * (g + tensor_upstream(p->c, 1, row));
}

/* Of the absent classes of a row. */
static void no_row(const sampled *p, int64_t row) {
  p->loss[row] = 0;
  if (p->latent) p->all[row] = 0;
  if (p->latent && p->backward) p->slope[row] = 0;
}

/* Whether all scores of a row are -inf: nothing is there to choose from, as in cross_entropy. */
static bool is_empty(const sampled *p, int64_t row, double rest) {
  bool empty = rest == -INF && (p->kind == SOFTMAX || p->kind == REDUCE);
  for (int64_t i = row * p->t; i < (row + 1) * p->t && empty; i++) empty = !counts(p, i) || p->x[i] == -INF;
  for (int64_t i = row * p->t; i < (row + 1) * p->t && empty; i++) p->x[i] = 0;
  return empty;
}

static void row_task(void *arg, int64_t r) {
  sampled *p = arg;
  const int64_t row = p->run.first + r;
  static double (*const rows[])(const sampled *p, int64_t row, double rest,
                                double g) = {softmax_row, nce_row, reduce_row, logistic_row, logistic_row};
  double rest, up = 0;
  const double g = p->backward ? tensor_upstream(p->c, 0, row) : 0;
  smx_reals_load(p->c->is_f64, p->sum + r * p->bytes, 1, &rest);
  if (!present(p, row) || is_empty(p, row, rest)) no_row(p, row);
  else up = rows[p->kind](p, row, rest, g);
  smx_reals_store(p->c->is_f64, &up, 1, p->up + r * p->bytes);
}

static void finish_task(void *arg, int64_t r) {
  sampled *p = arg;
  const int64_t row = p->run.first + r;
  char *const dz = p->run.dz + r * p->run.pitch * p->bytes;
  if (!present(p, row)) memset(dz, 0, (size_t)(p->s * p->bytes)); /* whatever an ignored row holds */
  if (p->kind < LOGISTIC || !present(p, row)) return;
  double sum = 0, g;
  for (int64_t j = 0; j < p->s; j++) smx_reals_load(p->c->is_f64, dz + j * p->bytes, 1, &g), sum += g;
  p->x[row] = -sum, p->slope[row] -= sum;
}

/* ---- probit: -log Phi(-z) and its derivative ---- */

/* Phi(-t) / density(t), t >= FAR: Laplace's continued fraction. */
static double mills(double t) {
  double rest = t;
  for (int k = 60; k > 0; k--) rest = t + k / rest;
  return 1 / rest;
}
/* (1/2 - Phi(-t)) / density(t) = t + t^3 / 3 + t^5 / (3 5) + ..., 0 <= t < FAR */
static double middle(double t) {
  double term = t, sum = t;
  for (int k = 3; k < 80; k += 2) term *= t * t / k, sum += term;
  return sum;
}

static void probit_of(double z, double *loss, double *slope) {
  const score_kernels *const math = head_math();
  const double t = z < 0 ? -z : z, log_density = -t * t / 2 - LOG_ROOT_2_PI, density = math->exp(log_density);
  const double m = t < FAR ? 0 : mills(t), tail = t < FAR ? 0.5 - density * middle(t) : density * m;
  if (z < FAR) {
    *loss = z < 0 ? math->softplus(math->log(tail / (1 - tail))) : -math->log(tail);
    *slope = density / (z < 0 ? 1 - tail : tail);
  } else *loss = -log_density - math->log(m), *slope = 1 / m;
  if (z == -INF) *loss = *slope = 0; /* hidden, or of mass 0 */
}

static void probit_row(const sampled *p, int64_t r, bool backward) {
  const int64_t at = r * p->run.pitch * p->bytes;
  double sum = 0, z, up, loss, slope, weight = 1;
  smx_reals_load(p->c->is_f64, p->up + r * p->bytes, 1, &up);
  for (int64_t j = 0; j < p->s; j++) {
    smx_reals_load(p->c->is_f64, p->run.z + at + j * p->bytes, 1, &z);
    if (p->c->in.given[WEIGHT]) tensor_load(p->c, p->c->in.view + WEIGHT, j, 1, &weight);
    probit_of(z, &loss, &slope), sum += weight * loss, slope = up == 0 ? 0 : up * weight * slope;
    if (backward) smx_reals_store(p->c->is_f64, &slope, 1, p->run.dz + at + j * p->bytes);
  }
  if (!backward) smx_reals_store(p->c->is_f64, &sum, 1, p->sum + r * p->bytes);
}
static void probit_task(void *arg, int64_t r) { probit_row(arg, r, false); }
static void inverse_task(void *arg, int64_t r) { probit_row(arg, r, true); }

/* Sums of softplus, or the logarithm of a sum of exponentials. */
static bool is_softplus(const sampled *p) { return p->kind == NCE || p->kind >= LOGISTIC; }

/* The rule on the scores of a block, forward or backward. */
static smx_status rule(const sampled *p, bool backward) {
  static const double absent = 0;
  const smx_op *const op = smx_op_find(is_softplus(p) ? "binary_cross_entropy" : "logsumexp");
  const smx_dtype real = p->c->is_f64 ? SMX_F64 : SMX_F32;
  int64_t shape[] = {p->run.rows, p->s}, rows[] = {p->run.pitch, 1}, still[] = {0, 0}, along[] = {0, 1};
  const smx_tensor z = smx_tensor_of(p->run.z, real, 2, shape, rows),
                   dz = smx_tensor_of(p->run.dz, real, 2, shape, rows),
                   none = smx_tensor_of(&absent, real, 2, shape, still),
                   sum = smx_tensor_of(p->sum, real, 1, shape, NULL),
                   up = smx_tensor_of(p->up, real, 1, shape, NULL),
                   weight = smx_tensor_of(p->c->in.view[WEIGHT].data, real, 2, shape, along);
  const bool weighs = p->kind == LOGISTIC && p->c->in.given[WEIGHT];
  const smx_tensor *const in[] = {&z, &none, NULL, weighs ? &weight : NULL}, *const out[] = {&sum},
                          *const dout[] = {&up}, *const din[] = {&dz, NULL, NULL, NULL};
  const int32_t inputs = is_softplus(p) ? 4 : 1;
  if (p->kind == PROBIT)
    return smx_parallel(p->c->ctx, p->run.rows, backward ? inverse_task : probit_task, (void *)(uintptr_t)p),
           SMX_OK;
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
  else if (!is_softplus(p))
    for (int64_t r = 0; r < l->rows; r++)
      smx_reals_store(p->c->is_f64, &(double){-INF}, 1, p->sum + r * p->bytes);
  if (status != SMX_OK) return status;
  smx_parallel(l->ctx, l->rows, row_task, p);
  if (p->backward && p->s) status = rule(p, true);
  if (p->backward) smx_parallel(l->ctx, l->rows, finish_task, p);
  return status;
}

static smx_status walk(sampled *p) {
  linear_run *const l = &p->run;
  const bool hide = p->latent || tensor_param(p->c, "remove_hits") != 0;
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
  if (p->latent && c->din.given[LATENT]) tensor_store(c, c->din.view + LATENT, 0, p->n, p->slope);
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
  if (p->latent) p->factor = carve(m, p->n, 1, 8), p->all = carve(m, p->n, 1, 8);
  if (!p->backward) return;
  if (p->latent) p->slope = carve(m, p->n, 1, 8);
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
  if (p->latent && !p->backward) tensor_store(p->c, p->c->out.view + 1, 0, p->n, p->all);
  return SMX_OK;
}

/* Expected counts, or numbers eta and weights. */
static smx_status check_numbers(const sampled *p) {
  const smx_status status = p->kind < LOGISTIC ? check_positive(p, TRUE_EXPECTED, p->n * p->t) : SMX_OK;
  return status == SMX_OK ? check_positive(p, EXPECTED, p->s) : status;
}

static smx_status sampled_call(const tensor_call *c, kind of, bool backward) {
  SMX_OWN(sampled, p, c->ctx);
  if (!p) return smx_fail(SMX_ERR_NOMEM, "%s: no memory", c->op->name);
  *p = (sampled){.c = c, .kind = of, .backward = backward, .bytes = c->is_f64 ? 8 : 4};
  p->latent = of >= REDUCE;
  p->n = tensor_dim(c, "n"), p->t = p->latent ? 1 : tensor_dim(c, "t");
  p->s = tensor_dim(c, "s"), p->d = tensor_dim(c, "d");
  p->target = (const int64_t *)(const void *)c->in.view[TARGET].data;
  p->other = (const int64_t *)(const void *)c->in.view[OTHER].data;
  smx_status status = check_numbers(p);
  if (status != SMX_OK) return status;
  char *const memory = reserve(p);
  if (!memory) return SMX_ERR_NOMEM;
  status = run_sampled(p);
  smx_scratch_close(&p->scratch);
  smx_free(c->ctx, memory);
  return status;
}
smx_status sampled_softmax_forward(const tensor_call *c) { return sampled_call(c, SOFTMAX, false); }
smx_status sampled_softmax_backward(const tensor_call *c) { return sampled_call(c, SOFTMAX, true); }
smx_status nce_forward(const tensor_call *c) { return sampled_call(c, NCE, false); }
smx_status nce_backward(const tensor_call *c) { return sampled_call(c, NCE, true); }

static kind form_of(const tensor_call *c) { return (kind)(REDUCE + (int)tensor_param(c, "form")); }
smx_status reduce_forward(const tensor_call *c) { return sampled_call(c, form_of(c), false); }
smx_status reduce_backward(const tensor_call *c) { return sampled_call(c, form_of(c), true); }
