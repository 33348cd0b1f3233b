/* attention/functions_nystrom.c - nystrom_attention: softmax attention through means of m segments
 * of queries and keys, Q~ and K~. In double, with
 *
 *   F = softmax(scale q K~^T), A = softmax(scale Q~ K~^T), B = softmax(scale Q~ k^T),
 *   Z_0 = A^T / (largest column sum of A), Z' = Z (13 - P (15 - P (7 - P))) / 4 in steps, P = A Z,
 *   U = B v, C = Z U, y = F C;  with every token a landmark F = A = B, and y = B v
 *
 * Its gradients go back through all of it, the steps too:
 *
 *   dF = dy C^T, dC = F^T dy, dZ = dC U^T, dU = Z^T dC, dB = dU v^T, dv = B^T dU */
#include <string.h>

#include "driver/carve.h"
#include "functions_lsh.h"

enum { Q, K, V }; /* inputs */

typedef struct nystrom {
  const tensor_call *c;
  int64_t l, t, m, d, e, steps;
  double scale;
  bool backward, whole, limit; /* whole: every token is a landmark */
  smx_scratch scratch;
} nystrom;

/* What a task works in: z [steps + 1][m][m], squares [m][m] each. */
typedef struct nystrom_work {
  double *q, *k, *v, *y;                 /* [l][d], [t][d], [t][e], [l][e] or dy */
  double *qm, *km, *a, *b, *f;           /* [m][d], [m][d], [m][m], [m][t], [m] */
  double *z, *p, *square[6], *u, *c;     /* ..., [m][e], [m][e] */
  double *dq, *dk, *dv, *dqm, *dkm;      /* as those */
  double *da, *dz, *du, *dc, *df, *line; /* ..., [m], [t] */
} nystrom_work;

static void lay_out(const nystrom *s, carver *c, nystrom_work *w) {
  const int64_t m = s->m, l = s->l, t = s->t, d = s->d, e = s->e, b = sizeof(double), way = s->backward;
  w->q = carve(c, l, d, b), w->k = carve(c, t, d, b), w->v = carve(c, t, e, b), w->y = carve(c, l, e, b);
  w->qm = carve(c, m, d, b), w->km = carve(c, m, d, b), w->a = carve(c, m, m, b), w->b = carve(c, m, t, b);
  w->f = carve(c, 1, m, b), w->p = carve(c, m, m, b), w->u = carve(c, m, e, b), w->c = carve(c, m, e, b);
  int64_t squares = 0;
  c->fits = c->fits && smx_multiply(m, m, &squares);
  w->z = carve(c, s->steps + 1, squares, b);
  for (int i = 0; i < 6; i++) w->square[i] = carve(c, i < 4 || way ? m : 0, m, b);
  w->dq = carve(c, way * l, d, b), w->dk = carve(c, way * t, d, b), w->dv = carve(c, way * t, e, b);
  w->dqm = carve(c, way * m, d, b), w->dkm = carve(c, way * m, d, b), w->da = carve(c, way * m, m, b);
  w->dz = carve(c, way * m, m, b), w->du = carve(c, way * m, e, b), w->dc = carve(c, way * m, e, b);
  w->df = carve(c, 1, m, b), w->line = carve(c, 1, t, b);
}

/* ---- matrices, in index order ---- */

/* to += by x y, x [rows][n] and y [n][columns]. */
static void add_product(double by, const double *x, const double *y, int64_t rows, int64_t n, int64_t columns,
                        double *to) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < n; j++) add_row(by * x[i * n + j], y + j * columns, columns, to + i * columns);
}
/* to += by x^T y, x [n][rows]. */
static void add_turned(double by, const double *x, const double *y, int64_t n, int64_t rows, int64_t columns,
                       double *to) {
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < rows; i++)
      add_row(by * x[j * rows + i], y + j * columns, columns, to + i * columns);
}
static double dot(const double *x, const double *y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
  return sum;
}
/* to += by x y^T, y [columns][n]. */
static void add_outer(double by, const double *x, const double *y, int64_t rows, int64_t n, int64_t columns,
                      double *to) {
  for (int64_t i = 0; i < rows * columns; i++) to[i] += by * dot(x + i / columns * n, y + i % columns * n, n);
}
static void clear(double *x, int64_t n) { memset(x, 0, (size_t)n * sizeof *x); }
/* to = by - x on the diagonal, -x elsewhere. */
static void from_unit(double by, const double *x, int64_t m, double *to) {
  for (int64_t i = 0; i < m * m; i++) to[i] = (i % (m + 1) == 0 ? by : 0) - x[i];
}

/* ---- forward ---- */

/* Means of the m segments of n rows: segment a begins at a n / m, rounded down. */
static int64_t begin_of(int64_t a, int64_t n, int64_t m) { return a * n / m; }
static void means(const double *x, int64_t n, int64_t m, int64_t d, double *to) {
  clear(to, m * d);
  for (int64_t a = 0; a < m; a++) {
    const int64_t first = begin_of(a, n, m), end = begin_of(a + 1, n, m);
    for (int64_t i = first; i < end; i++) add_row(1, x + i * d, d, to + a * d);
    for (int64_t i = 0; i < d; i++) to[a * d + i] /= (double)(end - first);
  }
}
static void means_back(const double *dx, int64_t n, int64_t m, int64_t d, double *to) {
  for (int64_t a = 0; a < m; a++) {
    const int64_t first = begin_of(a, n, m), end = begin_of(a + 1, n, m);
    for (int64_t i = first; i < end; i++) add_row(1 / (double)(end - first), dx + a * d, d, to + i * d);
  }
}

/* A row of weights of n keys. */
static void weigh(const nystrom *s, const double *q, const double *k, int64_t n, double *to) {
  for (int64_t j = 0; j < n; j++) to[j] = s->scale * dot(q, k + j * s->d, s->d);
  listed_soften(s->limit, to, n);
}

/* The squares of one step, from Z: P, 7 - P, 15 - P (7 - P), 13 - P (15 - P (7 - P)) */
static void step_of(const nystrom *s, const double *z, nystrom_work *w) {
  const int64_t m = s->m;
  clear(w->p, m * m), add_product(1, w->a, z, m, m, m, w->p);
  from_unit(7, w->p, m, w->square[0]);
  for (int i = 0; i < 2; i++) {
    clear(w->square[3], m * m), add_product(1, w->p, w->square[i], m, m, m, w->square[3]);
    from_unit(i ? 13 : 15, w->square[3], m, w->square[i + 1]);
  }
}

/* The largest sum of a column of A, whose rows sum to 1; *at: the first that has it. */
static double largest_column(const double *a, int64_t m, int64_t *at) {
  double most = -__builtin_inf();
  for (int64_t j = 0; j < m; j++) {
    double sum = 0;
    for (int64_t i = 0; i < m; i++) sum += a[i * m + j];
    if (sum > most || sum != sum) most = sum, *at = j;
  }
  return most;
}

static void invert(const nystrom *s, nystrom_work *w) {
  const int64_t m = s->m, square = m * m;
  int64_t at = 0;
  const double most = largest_column(w->a, m, &at);
  transpose(w->a, m, m, w->z);
  for (int64_t i = 0; i < square; i++) w->z[i] /= most;
  for (int64_t step = 0; step < s->steps; step++) {
    double *z = w->z + step * square, *next = z + square;
    step_of(s, z, w);
    clear(next, square), add_product(.25, z, w->square[2], m, m, m, next);
  }
}

/* Everything that all queries share. */
static void gather(const nystrom *s, int64_t item, nystrom_work *w) {
  const int64_t m = s->m, l = s->l, t = s->t, d = s->d, e = s->e;
  tensor_load(s->c, s->c->in.view + Q, item * l * d, l * d, w->q);
  tensor_load(s->c, s->c->in.view + K, item * t * d, t * d, w->k);
  tensor_load(s->c, s->c->in.view + V, item * t * e, t * e, w->v);
  means(w->q, l, m, d, w->qm), means(w->k, t, m, d, w->km);
  for (int64_t a = 0; a < m; a++) weigh(s, w->qm + a * d, w->k, t, w->b + a * t);
  clear(w->u, m * e), add_product(1, w->b, w->v, m, t, e, w->u);
  if (s->whole) return;
  for (int64_t a = 0; a < m; a++) weigh(s, w->qm + a * d, w->km, m, w->a + a * m);
  invert(s, w);
  clear(w->c, m * e), add_product(1, w->z + s->steps * m * m, w->u, m, m, e, w->c);
}

static void answer(const nystrom *s, int64_t item, nystrom_work *w) {
  const bool none = s->m == 0 && smx_context_on_empty(s->c->ctx) == SMX_EMPTY_NAN;
  for (int64_t i = 0; i < s->l; i++) {
    double *y = w->y + i * s->e;
    if (!s->whole) weigh(s, w->q + i * s->d, w->km, s->m, w->f), clear(y, s->e);
    for (int64_t x = 0; x < s->e && none; x++) y[x] = __builtin_nan("");
    if (s->whole) memcpy(y, w->u + i * s->e, (size_t)s->e * sizeof *y);
    else add_product(1, w->f, w->c, 1, s->m, s->e, y);
  }
  tensor_store(s->c, s->c->out.view, item * s->l * s->e, s->l * s->e, w->y);
}

/* ---- backward ---- */

/* The gradient g of a row of weights p of n keys becomes that of the products, and goes on. */
static void weigh_back(const nystrom *s, const double *p, double *g, const double *q, const double *k,
                       int64_t n, double *dq, double *dk) {
  const double mean = dot(p, g, n);
  for (int64_t j = 0; j < n; j++) {
    g[j] = p[j] == 0 ? 0 : s->scale * p[j] * (g[j] - mean);
    add_row(g[j], k + j * s->d, s->d, dq), add_row(g[j], q, s->d, dk + j * s->d);
  }
}

/* dz of the last Z becomes that of the first, and adds to da. */
static void steps_back(const nystrom *s, nystrom_work *w) {
  const int64_t m = s->m, n = m * m;
  double *dp = w->square[4], *g = w->square[5], *spare = w->square[3];
  for (int64_t step = s->steps - 1; step >= 0; step--) {
    const double *z = w->z + step * n;
    step_of(s, z, w);
    clear(g, n), clear(dp, n), add_turned(.25, z, w->dz, m, m, m, g);
    for (int i = 1; i >= 0; i--) { /* of 13 - P X, 15 - P X */
      add_outer(-1, g, w->square[i], m, m, m, dp);
      clear(spare, n), add_turned(-1, w->p, g, m, m, m, spare);
      memcpy(g, spare, (size_t)n * sizeof *g);
    }
    for (int64_t i = 0; i < n; i++) dp[i] -= g[i];
    clear(spare, n), add_outer(.25, w->dz, w->square[2], m, m, m, spare);
    add_turned(1, w->a, dp, m, m, m, spare);
    memcpy(w->dz, spare, (size_t)n * sizeof *spare);
    add_outer(1, dp, z, m, m, m, w->da);
  }
}

static void invert_back(const nystrom *s, nystrom_work *w) {
  const int64_t m = s->m;
  int64_t at = 0;
  const double most = largest_column(w->a, m, &at);
  double of_most = 0;
  steps_back(s, w);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < m; j++) {
      w->da[i * m + j] += w->dz[j * m + i] / most;
      of_most -= w->dz[j * m + i] * w->a[i * m + j] / (most * most);
    }
  for (int64_t i = 0; i < m; i++) w->da[i * m + at] += of_most;
}

/* dF, dC; dZ, dU; dA */
static void queries_back(const nystrom *s, nystrom_work *w) {
  const int64_t m = s->m, d = s->d, e = s->e;
  clear(w->dc, m * e);
  for (int64_t i = 0; i < s->l; i++) {
    const double *g = w->y + i * e;
    weigh(s, w->q + i * d, w->km, m, w->f);
    clear(w->df, m), add_outer(1, g, w->c, 1, e, m, w->df), add_turned(1, w->f, g, 1, m, e, w->dc);
    weigh_back(s, w->f, w->df, w->q + i * d, w->km, m, w->dq + i * d, w->dkm);
  }
  clear(w->dz, m * m), add_outer(1, w->dc, w->u, m, e, m, w->dz);
  clear(w->du, m * e), add_turned(1, w->z + s->steps * m * m, w->dc, m, m, e, w->du);
  clear(w->da, m * m), invert_back(s, w);
  for (int64_t a = 0; a < m; a++)
    weigh_back(s, w->a + a * m, w->da + a * m, w->qm + a * d, w->km, m, w->dqm + a * d, w->dkm);
}

static void go_back(const nystrom *s, int64_t item, nystrom_work *w) {
  const int64_t m = s->m, l = s->l, t = s->t, d = s->d, e = s->e;
  tensor_load(s->c, s->c->dout.view, item * l * e, l * e, w->y);
  clear(w->dq, l * d), clear(w->dk, t * d), clear(w->dv, t * e), clear(w->dqm, m * d), clear(w->dkm, m * d);
  if (s->whole) memcpy(w->du, w->y, (size_t)(m * e) * sizeof *w->du);
  else queries_back(s, w);
  add_turned(1, w->b, w->du, m, t, e, w->dv);
  for (int64_t a = 0; a < m; a++) {
    clear(w->line, t), add_outer(1, w->du + a * e, w->v, 1, e, t, w->line);
    weigh_back(s, w->b + a * t, w->line, w->qm + a * d, w->k, t, w->dqm + a * d, w->dk);
  }
  means_back(w->dqm, l, m, d, w->dq), means_back(w->dkm, t, m, d, w->dk);
  if (s->c->din.given[Q]) tensor_store(s->c, s->c->din.view + Q, item * l * d, l * d, w->dq);
  if (s->c->din.given[K]) tensor_store(s->c, s->c->din.view + K, item * t * d, t * d, w->dk);
  if (s->c->din.given[V]) tensor_store(s->c, s->c->din.view + V, item * t * e, t * e, w->dv);
}

/* ---- calls ---- */

static void task(void *arg, int64_t item) {
  nystrom *s = arg;
  nystrom_work w;
  char *memory = smx_scratch_take(&s->scratch);
  lay_out(s, &(carver){.base = memory, .fits = true}, &w);
  gather(s, item, &w);
  if (s->backward) go_back(s, item, &w);
  else answer(s, item, &w);
  smx_scratch_give(&s->scratch, memory);
}

static smx_status run(const tensor_call *c, bool backward) {
  nystrom s = {.c = c, .backward = backward, .scale = attention_scale(c)};
  const int64_t asked = (int64_t)tensor_param(c, "landmarks"), items = c->dims.lead_count;
  nystrom_work none;
  carver size = {.fits = true};
  s.l = tensor_dim(c, "l"), s.t = tensor_dim(c, "t"), s.d = tensor_dim(c, "d"), s.e = tensor_dim(c, "e");
  s.m = asked < s.l ? asked : s.l, s.m = s.m < s.t ? s.m : s.t, s.whole = s.m == s.l && s.m == s.t && s.m > 0;
  s.steps = (int64_t)tensor_param(c, "steps"), s.limit = smx_context_on_inf(c->ctx) == SMX_INF_LIMIT;
  if (s.t == 0 && s.l > 0 && items > 0 && smx_context_on_empty(c->ctx) == SMX_EMPTY_ERROR)
    return smx_fail(SMX_ERR_EMPTY, "%s: query 0 has no keys", c->op->name);
  lay_out(&s, &size, &none);
  if (!size.fits || !smx_scratch_open(&s.scratch, c->ctx, 0, (size_t)size.at + 64, items))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld landmarks", c->op->name, (long long)s.m);
  smx_parallel(c->ctx, items, task, &s);
  smx_scratch_close(&s.scratch);
  return SMX_OK;
}
smx_status nystrom_attention_forward(const tensor_call *c) { return run(c, false); }
smx_status nystrom_attention_backward(const tensor_call *c) {
  return c->dout.given[0] ? run(c, true) : SMX_OK;
}
