/* head/functions_soft_tree.c - a soft decision tree (Frosst, Hinton 2017). Inner node i, one of
 * 2^depth - 1 in breadth-first order, sends a row to the right with probability
 *
 *   p_i = sigma(beta (x w_i + bias_i))
 *
 * P of a node is the product along its path, and leaf l has classes with Q_l = softmax(leaf_l).
 *
 *   path_ce: loss = sum_l P_l (-log Q_ly)      mixture: loss = -log sum_l P_l Q_ly
 *   y = sum_l P_l Q_l
 *   penalty = -sum_i 2^-depth(i) (log a_i + log(1 - a_i)) / 2,  a_i = sum P_i p_i / sum P_i
 *
 * where a_i sums over all rows. With R_l = P_l dL/dP_l, summed over the leaves below a node, the
 * gradient of a score is R_right (1 - p) - R_left p: products, of which none is divided again. */
#include <string.h>

#include "functions_tree.h"

enum { X, W, LEAF, TARGET, BIAS }; /* inputs */
enum { LOSS, Y, PATH, PENALTY };   /* outputs */
enum { PATH_CE, MIXTURE };

typedef struct soft {
  const tensor_call *c;
  int64_t n, d, k, inner, leaves, nodes;
  double beta;
  int form;
  smx_scratch scratch;
  double *log_q, *q;                     /* [leaves][k] */
  double *p, *log_p;                     /* [n][nodes]: P of all nodes and its logarithm */
  double *right;                         /* [n][inner] */
  double *alpha, *other, *share, *slope; /* [inner]: 1 - alpha, 2^-depth, and by alpha the penalty's
                                            slope over sum P */
  double *da, *u;                        /* [n][inner]; [n][leaves]: how much the loss asks of each leaf */
} soft;

static const char *no_tree = "%s: leaf has %lld rows and w %lld: not one more, a power of two";

smx_status soft_tree_sizes(dims *d) {
  const int64_t inner = dims_value(d, "m", 0), leaves = dims_value(d, "l", 0);
  if (leaves < 1 || leaves & (leaves - 1) || inner != leaves - 1)
    return smx_fail(SMX_ERR_SHAPE, no_tree, d->op->name, (long long)leaves, (long long)inner);
  return SMX_OK;
}

static soft soft_of(const tensor_call *c) {
  soft s = {.c = c,
            .n = tensor_dim(c, "n"),
            .d = tensor_dim(c, "d"),
            .k = tensor_dim(c, "k"),
            .inner = tensor_dim(c, "m"),
            .leaves = tensor_dim(c, "l"),
            .beta = tensor_param(c, "beta"),
            .form = (int)tensor_param(c, "form")};
  s.nodes = s.inner + s.leaves;
  return s;
}

/* The class of a row, or -1. */
static int64_t class_of(const soft *s, int64_t row) {
  const int64_t y = ((const int64_t *)(void *)s->c->in.view[TARGET].data)[row];
  return y == (int64_t)tensor_param(s->c, "ignore_index") ? -1 : y;
}

/* ---- leaves, and the probabilities of nodes ---- */

static void leaf_softmax(const soft *s, int64_t l) {
  double *const z = s->log_q + l * s->k, *const q = s->q + l * s->k, most = -__builtin_inf(), sum = 0;
  tensor_load(s->c, s->c->in.view + LEAF, l * s->k, s->k, z);
  for (int64_t j = 0; j < s->k; j++)
    if (z[j] > most || z[j] != z[j]) most = z[j];
  for (int64_t j = 0; j < s->k; j++) sum += q[j] = head_math()->exp(z[j] - most);
  for (int64_t j = 0; j < s->k; j++) q[j] /= sum, z[j] = z[j] - most - head_math()->log(sum);
}

static double score(const soft *s, int64_t i, const double *x, double *w) {
  double bias = 0;
  tensor_load(s->c, s->c->in.view + W, i * s->d, s->d, w);
  if (s->c->in.given[BIAS]) tensor_load(s->c, s->c->in.view + BIAS, i, 1, &bias);
  return s->beta * (tree_dot(x, w, s->d) + bias);
}

static void row_paths(const soft *s, int64_t row, double *x) {
  double *const p = s->p + row * s->nodes, *const log_p = s->log_p + row * s->nodes,
                *const right = s->right + row * s->inner;
  tensor_load(s->c, s->c->in.view + X, row * s->d, s->d, x);
  p[0] = 1, log_p[0] = 0;
  for (int64_t i = 0; i < s->inner; i++) {
    const double a = score(s, i, x, x + s->d);
    right[i] = tree_sigmoid(a);
    p[2 * i + 1] = p[i] * tree_sigmoid(-a), p[2 * i + 2] = p[i] * right[i];
    log_p[2 * i + 1] = log_p[i] - head_math()->softplus(a);
    log_p[2 * i + 2] = log_p[i] - head_math()->softplus(-a);
  }
}

static double row_loss(const soft *s, int64_t row, int64_t y) {
  const double *p = s->p + row * s->nodes + s->inner, *log_p = s->log_p + row * s->nodes + s->inner;
  double most = -__builtin_inf(), sum = 0;
  for (int64_t l = 0; l < s->leaves; l++) {
    const double log_q = s->log_q[l * s->k + y], log = log_p[l] + log_q;
    if (s->form == PATH_CE && p[l] != 0) sum -= p[l] * log_q;
    if (log > most || log != log) most = log;
  }
  if (s->form == PATH_CE || most == -__builtin_inf()) return s->form == PATH_CE ? sum : -most;
  for (int64_t l = 0; l < s->leaves; l++) sum += head_math()->exp(log_p[l] + s->log_q[l * s->k + y] - most);
  const double loss = -most - head_math()->log(sum);
  return loss < 0 ? 0 : loss; /* rounded */
}

static void paths_task(void *arg, int64_t row) {
  soft *s = arg;
  double *const x = smx_scratch_take(&s->scratch);
  row_paths(s, row, x);
  smx_scratch_give(&s->scratch, x);
}

/* alpha and 1 - alpha of a node over all rows, in their order, and the derivative of the penalty by
 * alpha over the mass. They stay within 1e-7 of their ends, where there is no slope. */
static void node_balance(void *arg, int64_t i) {
  soft *s = arg;
  double right = 0, left = 0, share = 1;
  for (int64_t r = 0; r < s->n; r++)
    left += s->p[r * s->nodes + 2 * i + 1], right += s->p[r * s->nodes + 2 * i + 2];
  const double all = left + right, low = 1e-7;
  for (int64_t k = i + 1; k > 1; k /= 2) share /= 2;
  right = all == 0 ? 0.5 : right / all, left = all == 0 ? 0.5 : left / all;
  const bool kept = all > 0 && !(right < low || left < low);
  s->alpha[i] = right < low ? low : left < low ? 1 - low : right;
  s->other[i] = right < low ? 1 - low : left < low ? low : left;
  s->share[i] = share;
  s->slope[i] = kept ? -share / 2 * (1 / right - 1 / left) / all : all != all ? all : 0;
}
static double penalty(const soft *s) {
  double sum = 0;
  for (int64_t i = 0; i < s->inner; i++)
    sum -= s->share[i] / 2 * (head_math()->log(s->alpha[i]) + head_math()->log(s->other[i]));
  return sum;
}

static smx_status open_soft(soft *s, bool backward) {
  const int64_t rows = 2 * s->nodes + s->inner + (backward ? s->nodes : 0);
  int64_t leaves, numbers;
  bool fits = smx_multiply(s->n, rows, &numbers) && smx_multiply(2 * s->leaves, s->k, &leaves) &&
              !__builtin_add_overflow(numbers, leaves + 4 * s->inner, &numbers) &&
              smx_multiply(numbers, sizeof(double), &numbers);
  const int64_t most = s->n > s->nodes ? s->n : s->nodes;
  const size_t place = sizeof(double) * (size_t)(2 * s->d + s->nodes + 2 * s->k + 1);
  if (!fits || !smx_scratch_open(&s->scratch, s->c->ctx, (size_t)numbers + 1, place, most))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows and %lld nodes", s->c->op->name,
                    (long long)s->n, (long long)s->nodes);
  double *at = (double *)(void *)s->scratch.shared;
  s->log_q = at, at += s->leaves * s->k, s->q = at, at += s->leaves * s->k;
  s->alpha = at, s->other = at + s->inner, s->share = at + 2 * s->inner, s->slope = at + 3 * s->inner;
  at += 4 * s->inner;
  s->p = at, at += s->n * s->nodes, s->log_p = at, at += s->n * s->nodes;
  s->right = at, at += s->n * s->inner;
  if (backward) s->da = at, at += s->n * s->inner, s->u = at;
  for (int64_t l = 0; l < s->leaves; l++) leaf_softmax(s, l);
  smx_parallel(s->c->ctx, s->n, paths_task, s);
  smx_parallel(s->c->ctx, s->inner, node_balance, s);
  return SMX_OK;
}

/* ---- forward ---- */

static void forward_row(void *arg, int64_t row) {
  soft *s = arg;
  const tensor_call *c = s->c;
  const double *p = s->p + row * s->nodes + s->inner;
  const int64_t y = class_of(s, row);
  double *const mean = smx_scratch_take(&s->scratch);
  memset(mean, 0, sizeof *mean * (size_t)s->k);
  for (int64_t l = 0; l < s->leaves; l++) tree_add(mean, p[l], s->q + l * s->k, s->k);
  tensor_put(c, LOSS, row, y < 0 ? 0 : row_loss(s, row, y));
  if (c->out.given[Y]) tensor_store(c, c->out.view + Y, row * s->k, s->k, mean);
  if (c->out.given[PATH]) tensor_store(c, c->out.view + PATH, row * s->leaves, s->leaves, p);
  smx_scratch_give(&s->scratch, mean);
}

smx_status soft_tree_forward(const tensor_call *c) {
  soft s = soft_of(c);
  const smx_status status = open_soft(&s, false);
  if (status != SMX_OK) return status;
  smx_parallel(c->ctx, s.n, forward_row, &s);
  tensor_put(c, PENALTY, 0, penalty(&s));
  smx_scratch_close(&s.scratch);
  return SMX_OK;
}

/* ---- gradients ---- */

/* R of the leaves, and u, of which the gradients of leaves are made: by the loss they have u (Q - 1
 * of the target). */
static void leaf_shares(const soft *s, int64_t row, double *r, double *up) {
  const tensor_call *c = s->c;
  const double *p = s->p + row * s->nodes + s->inner, *log_p = s->log_p + row * s->nodes + s->inner;
  double *const u = s->u + row * s->leaves;
  const int64_t y = class_of(s, row);
  const double g = tensor_upstream(c, LOSS, row), loss = y < 0 || g == 0 ? 0 : row_loss(s, row, y);
  memset(up, 0, sizeof *up * (size_t)s->k);
  if (c->dout.given[Y]) tensor_load(c, c->dout.view + Y, row * s->k, s->k, up);
  for (int64_t l = 0; l < s->leaves; l++) {
    const double log_q = y < 0 ? 0 : s->log_q[l * s->k + y];
    u[l] = y < 0 || g == 0 ? 0 : g * (s->form == PATH_CE ? p[l] : head_math()->exp(log_p[l] + log_q + loss));
    r[l] = u[l] == 0 ? 0 : s->form == PATH_CE ? -u[l] * log_q : -u[l];
    r[l] += p[l] * (tree_dot(up, s->q + l * s->k, s->k) + tensor_upstream(c, PATH, row * s->leaves + l));
  }
}

static void gradient_row(void *arg, int64_t row) {
  soft *s = arg;
  const tensor_call *c = s->c;
  double *const x = smx_scratch_take(&s->scratch), *const w = x + s->d, *const r = w + s->d;
  double *const da = s->da + row * s->inner;
  const double *p = s->p + row * s->nodes, *right = s->right + row * s->inner,
               g = tensor_upstream(c, PENALTY, 0);
  leaf_shares(s, row, r + s->inner, r + s->nodes);
  memset(x, 0, sizeof *x * (size_t)s->d);
  for (int64_t i = s->inner - 1; i >= 0; i--) {
    const double slope = g == 0 ? 0 : g * s->slope[i], more = p[2 * i + 1] * right[i]; /* P p (1 - p) */
    const double left = p[i] > 0 ? p[2 * i + 1] / p[i] : 1 - right[i];
    const double off = s->alpha[i] < 0.5 ? right[i] - s->alpha[i] : s->other[i] - left;
    r[i] = r[2 * i + 1] + r[2 * i + 2] + (slope == 0 ? 0 : p[i] * slope * off);
    da[i] = s->beta * (r[2 * i + 2] * left - r[2 * i + 1] * right[i] + slope * more);
    tensor_load(c, c->in.view + W, i * s->d, s->d, w);
    tree_add(x, da[i], w, s->d);
  }
  if (c->din.given[X]) tensor_store(c, c->din.view + X, row * s->d, s->d, x);
  smx_scratch_give(&s->scratch, x);
}

static void gradient_node(void *arg, int64_t i) {
  soft *s = arg;
  const tensor_call *c = s->c;
  double *const sum = smx_scratch_take(&s->scratch), *const x = sum + s->d, bias = 0;
  memset(sum, 0, sizeof *sum * (size_t)s->d);
  for (int64_t row = 0; row < s->n; row++) {
    const double a = s->da[row * s->inner + i];
    tensor_load(c, c->in.view + X, row * s->d, s->d, x);
    tree_add(sum, a, x, s->d);
    bias += a;
  }
  if (c->din.given[W]) tensor_store(c, c->din.view + W, i * s->d, s->d, sum);
  if (c->din.given[BIAS]) tensor_store(c, c->din.view + BIAS, i, 1, &bias);
  smx_scratch_give(&s->scratch, sum);
}

static void gradient_leaf(void *arg, int64_t l) {
  soft *s = arg;
  const tensor_call *c = s->c;
  double *const sum = smx_scratch_take(&s->scratch), *const up = sum + s->k, all = 0;
  const double *q = s->q + l * s->k;
  memset(sum, 0, sizeof *sum * (size_t)s->k);
  for (int64_t row = 0; row < s->n; row++) {
    const double u = s->u[row * s->leaves + l], p = s->p[row * s->nodes + s->inner + l];
    const int64_t y = class_of(s, row);
    all += u;
    if (y >= 0) sum[y] -= u;
    if (!c->dout.given[Y]) continue;
    tensor_load(c, c->dout.view + Y, row * s->k, s->k, up);
    const double mean = tree_dot(up, q, s->k);
    for (int64_t j = 0; j < s->k; j++) sum[j] += p * q[j] * (up[j] - mean);
  }
  tree_add(sum, all, q, s->k);
  tensor_store(c, c->din.view + LEAF, l * s->k, s->k, sum);
  smx_scratch_give(&s->scratch, sum);
}

smx_status soft_tree_backward(const tensor_call *c) {
  soft s = soft_of(c);
  const smx_status status = open_soft(&s, true);
  if (status != SMX_OK) return status;
  smx_parallel(c->ctx, s.n, gradient_row, &s);
  if (c->din.given[W] || c->din.given[BIAS]) smx_parallel(c->ctx, s.inner, gradient_node, &s);
  if (c->din.given[LEAF]) smx_parallel(c->ctx, s.leaves, gradient_leaf, &s);
  smx_scratch_close(&s.scratch);
  return SMX_OK;
}
