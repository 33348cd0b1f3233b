/* attention/functions_landmarks.c - soft_attention: a Gaussian kernel in place of e^score, through
 * m landmarks, in time linear in the tokens. In double, with
 *
 *   K_ia = e^(-scale |x_i - z_a|^2 / 2), A the same of landmarks, P = A + ridge,
 *   W = 1.8 P / (largest row sum of P)^2, then W = 2 W - W P W so many times, B = K^T v, C = W B
 *
 * y = K C. Normalised, with r = 1 / sqrt(row sums of A), B = r K^T v and C = r W B, by rows. The
 * gradient is that of the inverse, not of its steps, as the authors have it:
 *
 *   dK = g C^T + v dB^T, dC = r K^T g, dB = r W dC, dv = K dB,
 *   dA = -W (dC B^T) W - r (<dC, C> + <dB, B>) / 2 of each row, with r != 1 */
#include <string.h>

#include "cpu/cpu.h"
#include "driver/carve.h"
#include "functions.h"
#include "score/score.h"

enum { X, LANDMARK, V }; /* inputs */

typedef struct landmarks {
  const tensor_call *c;
  int64_t t, m, d, e;
  double scale, ridge;
  int64_t steps;
  bool backward, normalise;
  smx_scratch scratch;
} landmarks;

/* What a task works in: a, w, p, q, r [m][m], b, c, db, dc [m][e], dz [m][d]; the rest are rows. */
typedef struct landmark_work {
  double *z, *a, *w, *p, *q, *r, *b, *c, *db, *dc, *dz, *root; /* root [m] */
  double *x, *v, *g, *k, *y, *dx;
} landmark_work;

static void lay_out(const landmarks *s, carver *c, landmark_work *w) {
  const int64_t m = s->m, b = sizeof(double), way = s->backward;
  double **const squares[] = {&w->a, &w->w, &w->p, &w->q, &w->r},
                 **const wide[] = {&w->b, &w->c, &w->db, &w->dc}, **const rows[] = {&w->v, &w->g, &w->y};
  for (int i = 0; i < 5; i++) *squares[i] = carve(c, m, m, b);
  for (int i = 0; i < (way ? 4 : 2); i++) *wide[i] = carve(c, m, s->e, b);
  for (int i = 0; i < 3; i++) *rows[i] = carve(c, 1, s->e, b);
  w->z = carve(c, m, s->d, b), w->dz = carve(c, way * m, s->d, b);
  w->x = carve(c, 1, s->d, b), w->dx = carve(c, way, s->d, b), w->k = carve(c, 1, m, b);
  w->root = carve(c, 1, m, b);
}

/* ---- kernels and the inverse ---- */

static void kernel_row(const landmarks *s, const landmark_work *w, const double *x, double *k) {
  for (int64_t a = 0; a < s->m; a++) {
    double square = 0;
    for (int64_t i = 0; i < s->d; i++) {
      const double apart = x[i] - w->z[a * s->d + i];
      square += apart * apart;
    }
    k[a] = smx_isa_current()->f64.score->exp(-s->scale * square / 2);
  }
}

/* to = x y of matrices [n][n] and [n][columns] */
static void multiply(const double *x, const double *y, int64_t n, int64_t columns, double *to) {
  memset(to, 0, (size_t)(n * columns) * sizeof *to);
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) add_row(x[i * n + j], y + j * columns, columns, to + i * columns);
}

/* w is the inverse of p. */
static void invert(const landmarks *s, landmark_work *w) {
  const int64_t m = s->m;
  double most = 0;
  for (int64_t a = 0; a < m; a++) {
    double sum = 0;
    for (int64_t b = 0; b < m; b++) sum += w->a[a * m + b], w->p[a * m + b] = w->a[a * m + b];
    w->p[a * m + a] += s->ridge, sum += s->ridge, most = sum > most ? sum : most;
  }
  for (int64_t i = 0; i < m * m; i++) w->w[i] = 1.8 / (most * most) * w->p[i];
  for (int64_t step = 0; step < s->steps; step++) {
    multiply(w->p, w->w, m, m, w->q), multiply(w->w, w->q, m, m, w->r);
    for (int64_t i = 0; i < m * m; i++) w->w[i] = 2 * w->w[i] - w->r[i];
  }
}

static void roots(const landmarks *s, landmark_work *w) {
  for (int64_t a = 0; a < s->m; a++) {
    double sum = 0;
    for (int64_t b = 0; b < s->m; b++) sum += w->a[a * s->m + b];
    w->root[a] = 1 / __builtin_sqrt(sum);
  }
}
static void scale_rows(const landmarks *s, const landmark_work *w, double *rows) {
  for (int64_t i = 0; i < s->m * s->e && s->normalise; i++) rows[i] *= w->root[i / s->e];
}

/* Everything that all tokens share. */
static void gather(const landmarks *s, int64_t item, landmark_work *w) {
  const int64_t m = s->m, e = s->e;
  tensor_load(s->c, s->c->in.view + LANDMARK, item * m * s->d, m * s->d, w->z);
  for (int64_t a = 0; a < m; a++) kernel_row(s, w, w->z + a * s->d, w->a + a * m);
  invert(s, w), roots(s, w);
  memset(w->b, 0, (size_t)(m * e) * sizeof *w->b);
  if (s->backward) memset(w->dc, 0, (size_t)(m * e) * sizeof *w->dc);
  for (int64_t row = item * s->t; row < (item + 1) * s->t; row++) {
    tensor_load(s->c, s->c->in.view + X, row * s->d, s->d, w->x);
    tensor_load(s->c, s->c->in.view + V, row * e, e, w->v);
    kernel_row(s, w, w->x, w->k);
    for (int64_t a = 0; a < m; a++) add_row(w->k[a], w->v, e, w->b + a * e);
    if (!s->backward) continue;
    tensor_load(s->c, s->c->dout.view, row * e, e, w->g);
    for (int64_t a = 0; a < m; a++) add_row(w->k[a], w->g, e, w->dc + a * e);
  }
  scale_rows(s, w, w->b), multiply(w->w, w->b, m, e, w->c), scale_rows(s, w, w->c);
  if (!s->backward) return;
  scale_rows(s, w, w->dc), multiply(w->w, w->dc, m, e, w->db), scale_rows(s, w, w->db);
}

static double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

/* ---- tasks: an item each ---- */

static void answer(const landmarks *s, int64_t item, landmark_work *w) {
  for (int64_t row = item * s->t; row < (item + 1) * s->t; row++) {
    tensor_load(s->c, s->c->in.view + X, row * s->d, s->d, w->x);
    kernel_row(s, w, w->x, w->k);
    memset(w->y, 0, (size_t)s->e * sizeof *w->y);
    for (int64_t a = 0; a < s->m; a++) add_row(w->k[a], w->c + a * s->e, s->e, w->y);
    tensor_store(s->c, s->c->out.view, row * s->e, s->e, w->y);
  }
}

/* dx, dv and what tokens give for the landmarks. */
static void go_back(const landmarks *s, int64_t item, landmark_work *w) {
  const int64_t d = s->d, e = s->e;
  for (int64_t row = item * s->t; row < (item + 1) * s->t; row++) {
    tensor_load(s->c, s->c->in.view + X, row * d, d, w->x);
    tensor_load(s->c, s->c->in.view + V, row * e, e, w->v);
    tensor_load(s->c, s->c->dout.view, row * e, e, w->g);
    kernel_row(s, w, w->x, w->k);
    memset(w->y, 0, (size_t)e * sizeof *w->y), memset(w->dx, 0, (size_t)d * sizeof *w->dx);
    for (int64_t a = 0; a < s->m; a++) {
      const double dk = dot(w->g, w->c + a * e, e) + dot(w->v, w->db + a * e, e),
                   by = s->scale * dk * w->k[a];
      add_row(w->k[a], w->db + a * e, e, w->y);
      for (int64_t i = 0; i < d; i++) {
        const double slope = by * (w->z[a * d + i] - w->x[i]);
        w->dx[i] += slope, w->dz[a * d + i] -= slope;
      }
    }
    if (s->c->din.given[V]) tensor_store(s->c, s->c->din.view + V, row * e, e, w->y);
    if (s->c->din.given[X]) tensor_store(s->c, s->c->din.view + X, row * d, d, w->dx);
  }
}

/* What A gives for the landmarks. */
static void landmark_gradient(const landmarks *s, int64_t item, landmark_work *w) {
  const int64_t m = s->m, d = s->d, e = s->e;
  for (int64_t i = 0; i < m * m; i++) w->p[i] = -dot(w->dc + i / m * e, w->b + i % m * e, e);
  multiply(w->w, w->p, m, m, w->q), multiply(w->q, w->w, m, m, w->r);
  for (int64_t a = 0; a < m && s->normalise; a++) {
    const double both = dot(w->dc + a * e, w->c + a * e, e) + dot(w->db + a * e, w->b + a * e, e);
    for (int64_t b = 0; b < m; b++) w->r[a * m + b] -= w->root[a] * both / 2;
  }
  for (int64_t a = 0; a < m; a++)
    for (int64_t b = 0; b < m; b++) {
      const double by = s->scale * (w->r[a * m + b] + w->r[b * m + a]) * w->a[a * m + b];
      for (int64_t i = 0; i < d; i++) w->dz[a * d + i] += by * (w->z[b * d + i] - w->z[a * d + i]);
    }
  tensor_store(s->c, s->c->din.view + LANDMARK, item * m * d, m * d, w->dz);
}

static void task(void *arg, int64_t item) {
  landmarks *s = arg;
  landmark_work w;
  char *memory = smx_scratch_take(&s->scratch);
  lay_out(s, &(carver){.base = memory, .fits = true}, &w);
  gather(s, item, &w);
  if (!s->backward) answer(s, item, &w);
  else {
    memset(w.dz, 0, (size_t)(s->m * s->d) * sizeof *w.dz);
    go_back(s, item, &w);
    if (s->c->din.given[LANDMARK]) landmark_gradient(s, item, &w);
  }
  smx_scratch_give(&s->scratch, memory);
}

/* ---- calls ---- */

static smx_status run(const tensor_call *c, bool backward) {
  landmarks s = {.c = c, .t = tensor_dim(c, "t"), .m = tensor_dim(c, "m"), .d = tensor_dim(c, "d")};
  landmark_work none;
  carver size = {.fits = true};
  s.e = tensor_dim(c, "e"), s.backward = backward, s.scale = attention_scale(c);
  s.ridge = tensor_param(c, "ridge"), s.steps = (int64_t)tensor_param(c, "steps");
  s.normalise = tensor_param(c, "normalise") != 0;
  lay_out(&s, &size, &none);
  if (!size.fits || !smx_scratch_open(&s.scratch, c->ctx, 0, (size_t)size.at + 64, c->dims.lead_count))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld landmarks", c->op->name, (long long)s.m);
  smx_parallel(c->ctx, c->dims.lead_count, task, &s);
  smx_scratch_close(&s.scratch);
  return SMX_OK;
}
smx_status soft_attention_forward(const tensor_call *c) { return run(c, false); }
smx_status soft_attention_backward(const tensor_call *c) { return c->dout.given[0] ? run(c, true) : SMX_OK; }
