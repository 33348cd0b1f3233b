/* head/ref_factored.c - factored layers through the layer itself: all C scores of a row, the
 * gradient of all C rows, and inverses by elimination. */
#include "ref.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { H, V, STATE, TARGET, VALUE, GRAD };
enum { FORM, A, B, EPSILON, IGNORE, LR };
enum { LOSS, DH, ROWS, NEXT, CONDITION };
typedef long double real;

typedef struct layer {
  const tensor_ref_call *c;
  int64_t n, t, d, classes;
  const double *u, *omega;
  real *w, *o, *g; /* [classes, d]; of a row: scores, their gradient */
} layer;

static real *reals(int64_t n) { return calloc((size_t)n + 1, sizeof(real)); }

/* V U + omega */
static void weights(const double *v, const double *state, int64_t classes, int64_t d, real *w) {
  for (int64_t k = 0; k < classes; k++)
    for (int64_t j = 0; j < d; j++) {
      real sum = state[3 * d * d + j];
      for (int64_t i = 0; i < d; i++) sum += (real)v[k * d + i] * state[i * d + j];
      w[k * d + j] = sum;
    }
}

void ref_factored_spherical_weights(const tensor_ref_call *c) {
  const int64_t classes = c->in_shape[0][0], d = c->in_shape[0][1];
  real *const w = reals(classes * d);
  weights(c->in[0], c->in[1], classes, d, w);
  for (int64_t i = 0; i < classes * d; i++) c->out[0][i] = (double)w[i];
  free(w);
}

/* U and U^-T, Q, omega and sums of w = V U + omega. */
static void put_state(const real *u, const real *inverse, const real *omega, const real *w, int64_t classes,
                      int64_t d, double *to) {
  for (int64_t i = 0; i < d; i++) {
    real sum = 0;
    for (int64_t k = 0; k < classes; k++) sum += w[k * d + i];
    for (int64_t j = 0; j < d; j++) {
      real q = 0;
      for (int64_t k = 0; k < classes; k++) q += w[k * d + i] * w[k * d + j];
      to[i * d + j] = (double)u[i * d + j], to[(d + i) * d + j] = (double)inverse[j * d + i];
      to[(2 * d + i) * d + j] = (double)q;
    }
    to[3 * d * d + i] = (double)omega[i], to[(3 * d + 1) * d + i] = (double)sum;
  }
}

/* to = a^-1, both [d, d]; a is lost. */
static void invert(real *a, int64_t d, real *to) {
  for (int64_t i = 0; i < d * d; i++) to[i] = i % (d + 1) == 0;
  for (int64_t k = 0; k < d; k++) {
    int64_t best = k;
    for (int64_t i = k; i < d; i++)
      if (fabsl(a[i * d + k]) > fabsl(a[best * d + k])) best = i;
    for (int64_t j = 0; j < d; j++) {
      real x = a[k * d + j], y = to[k * d + j];
      a[k * d + j] = a[best * d + j], a[best * d + j] = x, to[k * d + j] = to[best * d + j],
                to[best * d + j] = y;
    }
    const real pivot = a[k * d + k];
    for (int64_t j = 0; j < d; j++) a[k * d + j] /= pivot, to[k * d + j] /= pivot;
    for (int64_t i = 0; i < d; i++) {
      const real by = i == k ? 0 : a[i * d + k];
      for (int64_t j = 0; j < d; j++) a[i * d + j] -= by * a[k * d + j], to[i * d + j] -= by * to[k * d + j];
    }
  }
}

void ref_factored_spherical_state(const tensor_ref_call *c) {
  const int64_t classes = c->in_shape[0][0], d = c->in_shape[0][1];
  real *const w = reals(classes * d), *const one = reals(d * d), *const zero = reals(d);
  for (int64_t i = 0; i < classes * d; i++) w[i] = c->in[0][i];
  for (int64_t i = 0; i < d; i++) one[i * d + i] = 1;
  put_state(one, one, zero, w, classes, d, c->out[0]);
  free(w), free(one), free(zero);
}

/* ---- losses ---- */

static real sigmoid(real x) { return 1 / (1 + expl(-x)); }
static real softplus(real x) { return x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x)); }

/* Of the scores o and one class y, whose gradient is added to g. */
static real one_loss(const layer *l, int64_t y, real by) {
  const double *const q = l->c->q;
  real *const o = l->o, *const g = l->g, n = (real)l->classes, e = q[EPSILON], mean = 0, variance = 0,
              sum = 0;
  if (q[FORM] == 0) {
    for (int64_t k = 0; k < l->classes; k++) mean += o[k] / n;
    for (int64_t k = 0; k < l->classes; k++) variance += (o[k] - mean) * (o[k] - mean) / n;
    const real r = sqrtl(variance), z = r > 0 ? (o[y] - mean) / (r + e) : 0, s = -sigmoid(q[A] * (q[B] - z));
    for (int64_t k = 0; k < l->classes && r > 0; k++)
      g[k] += by * s * (((k == y) - 1 / n) / (r + e) - z * (o[k] - mean) / (n * r * (r + e)));
    return softplus(q[A] * (q[B] - z)) / q[A];
  }
  const bool taylor = q[FORM] == 3;
  for (int64_t k = 0; k < l->classes; k++) sum += taylor ? 1 + o[k] + o[k] * o[k] / 2 : o[k] * o[k] + e;
  const real own = taylor ? 1 + o[y] + o[y] * o[y] / 2 : o[y] * o[y] + e;
  for (int64_t k = 0; k < l->classes; k++) g[k] += by * (taylor ? 1 + o[k] : 2 * o[k]) / sum;
  g[y] -= by * (taylor ? 1 + o[y] : 2 * o[y]) / own;
  return logl(sum / own);
}

/* Of a row, whose gradient by its scores is in g. */
static real row_loss(const layer *l, int64_t row) {
  const tensor_ref_call *const c = l->c;
  bool any = false;
  real loss = 0;
  for (int64_t k = 0; k < l->classes; k++) {
    l->o[k] = l->g[k] = 0;
    for (int64_t j = 0; j < l->d; j++) l->o[k] += l->w[k * l->d + j] * c->in[H][row * l->d + j];
  }
  for (int64_t i = row * l->t; i < (row + 1) * l->t; i++) {
    const double y = c->in[TARGET][i], value = c->in[VALUE] ? c->in[VALUE][i] : 1;
    if (y == c->q[IGNORE]) continue;
    any = true;
    if (c->q[FORM] == 1) l->g[(int64_t)y] -= 2 * value;
    else loss += value * one_loss(l, (int64_t)y, value);
  }
  if (!any) {
    for (int64_t k = 0; k < l->classes; k++) l->g[k] = 0;
    return 0;
  }
  for (int64_t k = 0; k < l->classes && c->q[FORM] == 1; k++) {
    const real away = l->o[k] + l->g[k] / 2;
    loss += away * away, l->g[k] = 2 * away;
  }
  return loss;
}

static layer open_layer(const tensor_ref_call *c) {
  layer l = {.c = c, .n = c->in_shape[H][0], .d = c->in_shape[H][1], .classes = c->in_shape[V][0]};
  l.t = c->in_shape[TARGET][1], l.u = c->in[STATE], l.omega = c->in[STATE] + 3 * l.d * l.d;
  l.w = reals(l.classes * l.d), l.o = reals(l.classes), l.g = reals(l.classes);
  weights(c->in[V], c->in[STATE], l.classes, l.d, l.w);
  return l;
}
static void close_layer(layer *l) { free(l->w), free(l->o), free(l->g); }

void ref_factored_spherical_head(const tensor_ref_call *c) {
  layer l = open_layer(c);
  for (int64_t row = 0; row < l.n; row++) c->out[LOSS][row] = (double)row_loss(&l, row);
  close_layer(&l);
}

/* ---- the step ---- */

/* d loss / d q of a row: half the slope of its gradient by the scores, away from the targets. */
static real q_slope(const layer *l, int64_t row) {
  const tensor_ref_call *const c = l->c;
  real sum = 0, n = (real)l->classes, mean = 0, square = 0;
  for (int64_t k = 0; k < l->classes; k++) mean += l->o[k] / n, square += l->o[k] * l->o[k];
  for (int64_t i = row * l->t; i < (row + 1) * l->t; i++) {
    const real value = c->in[VALUE] ? c->in[VALUE][i] : 1, r = sqrtl(square / n - mean * mean),
               e = c->q[EPSILON];
    if (c->in[TARGET][i] == c->q[IGNORE]) continue;
    const real z = (l->o[(int64_t)c->in[TARGET][i]] - mean) / (r + e);
    if (c->q[FORM] == 0) sum += value * sigmoid(c->q[A] * (c->q[B] - z)) * z / (2 * n * r * (r + e));
    if (c->q[FORM] == 1) sum = 1;
    if (c->q[FORM] == 2) sum += value / (square + n * e);
    if (c->q[FORM] == 3) sum += value / (2 * n + 2 * n * mean + square);
  }
  return sum;
}

typedef struct step {
  real *gradient, *s, *next, *inverse, *omega, *room; /* of W; S, U S and its inverse [d, d] */
} step;

/* Adds up, over the rows: losses, the gradient of W, S = I - lr H^T D H, and the slope of s that is
 * what is left of a gradient where no target and no square is. */
static void take_rows(const tensor_ref_call *c, layer *l, step *p) {
  const int64_t d = l->d;
  for (int64_t row = 0; row < l->n; row++) {
    const double *const h = c->in[H] + row * d, up = c->in[GRAD] ? c->in[GRAD][row] : 1;
    c->out[LOSS][row] = (double)row_loss(l, row);
    const real slope = q_slope(l, row);
    real even = 0, others = 0;
    for (int64_t k = 0; k < l->classes; k++) {
      bool target = false;
      for (int64_t i = 0; i < l->t; i++) target |= c->in[TARGET][row * l->t + i] == (double)k;
      if (!target) even += l->g[k] - 2 * slope * l->o[k], others++;
    }
    if (others > 0) even /= others;
    for (int64_t j = 0; j < d; j++) {
      real sum = 0;
      for (int64_t k = 0; k < l->classes; k++) {
        sum += l->g[k] * up * l->w[k * d + j];
        p->gradient[k * d + j] += l->g[k] * up * h[j];
      }
      c->out[DH][row * d + j] = (double)sum;
      p->omega[j] -= c->q[LR] * even * up * h[j];
      for (int64_t i = 0; i < d; i++) p->s[i * d + j] -= c->q[LR] * 2 * slope * up * h[i] * h[j];
    }
  }
}

void ref_factored_spherical_step(const tensor_ref_call *c) {
  layer l = open_layer(c);
  const int64_t d = l.d;
  step p = {reals(l.classes * d), reals(d * d), reals(d * d), reals(d * d), reals(d), reals(d * d)};
  for (int64_t i = 0; i < d; i++) p.s[i * d + i] = 1;
  take_rows(c, &l, &p);
  real size = 0, inverse_size = 0;
  for (int64_t i = 0; i < d; i++)
    for (int64_t j = 0; j < d; j++) {
      for (int64_t k = 0; k < d; k++) p.next[i * d + j] += l.u[i * d + k] * p.s[k * d + j];
      p.omega[j] += p.s[i * d + j] * l.omega[i];
    }
  for (int64_t i = 0; i < d * d; i++) p.room[i] = p.next[i], size += p.next[i] * p.next[i];
  invert(p.room, d, p.inverse);
  for (int64_t i = 0; i < d * d; i++) inverse_size += p.inverse[i] * p.inverse[i];
  c->out[CONDITION][0] = (double)(sqrtl(size * inverse_size) / (real)d);
  for (int64_t i = 0; i < l.classes * d; i++) l.w[i] -= c->q[LR] * p.gradient[i];
  put_state(p.next, p.inverse, p.omega, l.w, l.classes, d, c->out[NEXT]);
  for (int64_t i = 0; i < l.n * l.t * d; i++) { /* (W' - omega') U'^-1 */
    const double y = c->in[TARGET][i / d];
    real sum = 0;
    for (int64_t k = 0; k < d && y != c->q[IGNORE]; k++)
      sum += (l.w[(int64_t)y * d + k] - p.omega[k]) * p.inverse[k * d + i % d];
    c->out[ROWS][i] = (double)sum;
  }
  free(p.gradient), free(p.s), free(p.next), free(p.inverse), free(p.omega), free(p.room);
  close_layer(&l);
}
