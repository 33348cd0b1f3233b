/* fit/functions_binary.c - maps of one number to a probability, 1 / (1 + e^-u): u is linear in
 * the number (Platt), or in its logarithms (beta). Newton's method on the log-likelihood, whose
 * sums are made block by block of rows. */
#include "driver/powers.h"
#include "functions.h"

enum { X, POSITIVE };                            /* inputs */
enum { FEATURES = 3, SECOND = 6, BLOCK = 4096 }; /* two of a row, and 1; the second derivatives */
enum { SUMS = 1 + FEATURES + SECOND };
enum { MOST_STEPS = 100, MOST_HALVINGS = 60 };

typedef struct binary_fit {
  const tensor_call *c;
  int64_t rows;
  bool beta;
  bool use[FEATURES];
  double target[2]; /* of the rows that are not, and that are, positive */
  double mass;      /* the sum of all targets */
  double *x, *sums; /* x: in double; sums: of each block */
  double w[FEATURES];
} binary_fit;

static double within(double p) { /* where its logarithms are finite */
  return p < 0x1p-52 ? 0x1p-52 : p > 1 - 0x1p-52 ? 1 - 0x1p-52 : p;
}

/* What u is linear in: x, or log p and -log(1 - p); and 1. */
static void features_of(bool beta, double x, double *to) {
  to[0] = beta ? fit_math()->log(within(x)) : x;
  to[1] = beta ? -fit_math()->log(1 - within(x)) : 0;
  to[2] = 1;
}
static double sigmoid(double u) { return fit_math()->exp(-fit_math()->softplus(-u)); }

/* The loss log(1 + e^u) - t u of a block, its gradient and its second derivatives. */
static void block_task(void *arg, int64_t task) {
  const binary_fit *b = arg;
  const int64_t end = fit_task_end(task, b->rows, BLOCK);
  const unsigned char *positive = (const unsigned char *)b->c->in.view[POSITIVE].data;
  double *to = b->sums + task * SUMS, x[FEATURES];
  for (int k = 0; k < SUMS; k++) to[k] = 0;
  for (int64_t i = task * BLOCK; i < end; i++) {
    features_of(b->beta, b->x[i], x);
    double u = 0;
    for (int k = 0; k < FEATURES; k++) u += b->use[k] ? b->w[k] * x[k] : 0;
    const double t = b->target[positive[i] != 0], p = sigmoid(u), curve = p * sigmoid(-u);
    to[0] += fit_math()->softplus(u) - t * u;
    for (int k = 0, at = 1 + FEATURES; k < FEATURES; k++) {
      to[1 + k] += (p - t) * x[k];
      for (int j = 0; j <= k; j++) to[at++] += curve * x[k] * x[j];
    }
  }
}

static void sums_of(binary_fit *b, double *to) {
  const int64_t blocks = fit_tasks(b->rows, BLOCK);
  smx_parallel(b->c->ctx, blocks, block_task, b);
  for (int k = 0; k < SUMS; k++) to[k] = 0;
  for (int64_t i = 0; i < blocks; i++)
    for (int k = 0; k < SUMS; k++) to[k] += b->sums[i * SUMS + k];
}

/* Solves H d = -g for the features in use, by Cholesky; H gets a ridge, as it may be singular. */
static void newton_step(const binary_fit *b, const double *sums, double *d) {
  double l[FEATURES][FEATURES] = {{0}};
  for (int k = 0, at = 1 + FEATURES; k < FEATURES; k++)
    for (int j = 0; j <= k; j++, at++) {
      const bool use = b->use[k] && b->use[j];
      double value = (use ? sums[at] : 0) + (j == k ? (b->use[k] ? 1e-12 : 1) : 0);
      for (int i = 0; i < j; i++) value -= l[k][i] * l[j][i];
      l[k][j] = j < k ? value / l[j][j] : __builtin_sqrt(value > 1e-300 ? value : 1e-300);
    }
  for (int k = 0; k < FEATURES; k++) {
    d[k] = b->use[k] ? -sums[1 + k] : 0;
    for (int j = 0; j < k; j++) d[k] -= l[k][j] * d[j];
    d[k] /= l[k][k];
  }
  for (int k = FEATURES - 1; k >= 0; k--) {
    for (int j = k + 1; j < FEATURES; j++) d[k] -= l[j][k] * d[j];
    d[k] /= l[k][k];
  }
}

/* Whether some part of the step goes downwards by what it promises; w: where that is. */
static bool step_down(binary_fit *b, const double *from, const double *d, double slope, const double *sums,
                      double *next) {
  double share = 1;
  for (int half = 0; half < MOST_HALVINGS; half++, share /= 2) {
    for (int k = 0; k < FEATURES; k++) b->w[k] = from[k] + share * d[k];
    sums_of(b, next);
    if (next[0] <= sums[0] + 1e-4 * share * slope) return true;
  }
  return false;
}

/* From w on to the least loss, which is returned. Near it, where a decrease is less than rounding
 * shows, a few whole steps end the search. */
static double descend(binary_fit *b) {
  double sums[SUMS], next[SUMS], d[FEATURES], from[FEATURES];
  int near = 0;
  sums_of(b, sums);
  for (int step = 0; step < MOST_STEPS && near < 3; step++) {
    double slope = 0;
    newton_step(b, sums, d);
    memcpy(from, b->w, sizeof from);
    for (int k = 0; k < FEATURES; k++) slope += b->use[k] ? d[k] * sums[1 + k] : 0;
    if (-slope < 1e-10 * (1 + sums[0])) {
      for (int k = 0; k < FEATURES; k++) b->w[k] += d[k];
      sums_of(b, next), near++;
    } else if (!step_down(b, from, d, slope, sums, next)) return memcpy(b->w, from, sizeof from), sums[0];
    memcpy(sums, next, sizeof sums);
  }
  return sums[0];
}

/* The least loss with the features of `use` alone. */
static double fit_with(binary_fit *b, bool first, bool second) {
  const bool use[FEATURES] = {first, second, true};
  memcpy(b->use, use, sizeof use), memset(b->w, 0, sizeof b->w);
  if (first || second) return descend(b);
  double sums[SUMS];
  b->w[2] = fit_math()->log(b->mass / ((double)b->rows - b->mass));
  return sums_of(b, sums), sums[0];
}

/* Exponents are not negative: without one, or both, where they would be. The loss is convex, so the
 * best of those that may be is the least of all. */
static double fit_exponents(binary_fit *b) {
  double best = fit_with(b, true, true), kept[FEATURES];
  if (b->w[0] >= 0 && b->w[1] >= 0) return best;
  best = fit_with(b, false, false), memcpy(kept, b->w, sizeof kept);
  for (int k = 0; k < 2; k++) {
    const double loss = fit_with(b, k == 0, k == 1);
    if (b->w[k] >= 0 && loss < best) best = loss, memcpy(kept, b->w, sizeof kept);
  }
  memcpy(b->w, kept, sizeof kept);
  return best;
}

/* Where scores were before they were moved: (x / unit - middle) / spread is what w is of. */
typedef struct moved {
  double unit, middle, spread;
} moved;

static double largest_of(const binary_fit *b) {
  double most = 0;
  for (int64_t i = 0; i < b->rows; i++)
    most = __builtin_fabs(b->x[i]) > most ? __builtin_fabs(b->x[i]) : most;
  return most;
}

/* Around their mean, and of the size of 1, so that the second derivatives are too. */
static moved move(binary_fit *b) {
  moved m = {.unit = power_below(largest_of(b))};
  for (int64_t i = 0; i < b->rows; i++) b->x[i] /= m.unit, m.middle += b->x[i];
  m.middle /= (double)b->rows;
  for (int64_t i = 0; i < b->rows; i++) b->x[i] -= m.middle;
  m.spread = power_below(largest_of(b));
  for (int64_t i = 0; i < b->rows; i++) b->x[i] /= m.spread;
  return m;
}
static void move_back(binary_fit *b, const moved *m) {
  b->w[2] -= b->w[0] / m->spread * m->middle;
  b->w[0] = b->w[0] / m->spread / m->unit;
}

/* Targets as Platt has them, which are what a uniform prior makes of the counts: so there is a
 * least loss where a threshold parts the rows. */
static smx_status fit(const tensor_call *c, bool beta, double *w, double *loss) {
  binary_fit b = {.c = c, .rows = tensor_dim(c, "n"), .beta = beta};
  const int64_t blocks = fit_tasks(b.rows, BLOCK);
  int64_t positives = 0;
  bool nan = b.rows == 0;
  b.x = fit_reserve(c, b.rows + blocks * SUMS);
  if (!b.x) return SMX_ERR_NOMEM;
  b.sums = b.x + b.rows;
  tensor_load(c, c->in.view + X, 0, b.rows, b.x);
  for (int64_t i = 0; i < b.rows; i++)
    positives += c->in.view[POSITIVE].data[i] != 0, nan |= !(b.x[i] - b.x[i] == 0);
  b.target[0] = 1 / ((double)(b.rows - positives) + 2);
  b.target[1] = ((double)positives + 1) / ((double)positives + 2);
  b.mass = (double)positives * b.target[1] + (double)(b.rows - positives) * b.target[0];
  const bool alike = positives == 0 || positives == b.rows; /* then a number tells nothing */
  const bool move_them = !nan && !beta;
  const moved m = move_them ? move(&b) : (moved){0};
  if (!nan) *loss = beta && !alike ? fit_exponents(&b) : fit_with(&b, !alike, false);
  if (move_them) move_back(&b, &m);
  for (int k = 0; k < FEATURES; k++) w[k] = nan ? __builtin_nan("") : b.w[k];
  *loss = nan ? __builtin_nan("") : *loss / (double)b.rows;
  smx_free(c->ctx, b.x);
  return SMX_OK;
}

smx_status fit_platt(const tensor_call *c) {
  double w[FEATURES], loss;
  const smx_status status = fit(c, false, w, &loss);
  if (status == SMX_OK) tensor_put(c, 0, 0, -w[0]), tensor_put(c, 1, 0, -w[2]), tensor_put(c, 2, 0, loss);
  return status;
}
smx_status fit_beta(const tensor_call *c) {
  double w[FEATURES], loss;
  const smx_status status = fit(c, true, w, &loss);
  for (int k = 0; k < FEATURES && status == SMX_OK; k++) tensor_put(c, k, 0, w[k]);
  if (status == SMX_OK) tensor_put(c, FEATURES, 0, loss);
  return status;
}

/* ---- the maps ---- */

typedef struct binary_map {
  const tensor_call *c;
  bool beta, backward;
  double w[FEATURES];
  int64_t count;
} binary_map;

static double slope_of(const binary_map *m, double x) { /* du / dx */
  if (!m->beta) return m->w[0];
  return x == within(x) ? m->w[0] / x + m->w[1] / (1 - x) : 0;
}

static void map_task(void *arg, int64_t task) {
  const binary_map *m = arg;
  const int64_t end = fit_task_end(task, m->count, BLOCK);
  for (int64_t i = task * BLOCK; i < end; i++) {
    double x, f[FEATURES], y;
    tensor_load(m->c, m->c->in.view + X, i, 1, &x);
    features_of(m->beta, x, f);
    const double u = m->w[0] * f[0] + m->w[1] * f[1] + m->w[2];
    y = x != x ? x : sigmoid(u);
    if (m->backward) y = x != x ? x : tensor_upstream(m->c, 0, i) * y * sigmoid(-u) * slope_of(m, x);
    tensor_store(m->c, m->backward ? m->c->din.view + X : m->c->out.view, i, 1, &y);
  }
}

static smx_status map(const tensor_call *c, bool backward) {
  binary_map m = {.c = c, .beta = c->op - fit_table == FIT_beta_scaling, .backward = backward};
  m.count = c->dims.lead_count;
  if (m.beta) m.w[0] = tensor_param(c, "a"), m.w[1] = tensor_param(c, "b"), m.w[2] = tensor_param(c, "c");
  else m.w[0] = -tensor_param(c, "slope"), m.w[2] = -tensor_param(c, "offset");
  if (backward && !c->din.given[X]) return SMX_OK;
  smx_parallel(c->ctx, fit_tasks(m.count, BLOCK), map_task, &m);
  return SMX_OK;
}
smx_status fit_apply_binary(const tensor_call *c) { return map(c, false); }
smx_status fit_apply_binary_backward(const tensor_call *c) { return map(c, true); }
