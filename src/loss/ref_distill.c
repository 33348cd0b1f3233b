/* loss/ref_distill.c - the references of distillation beyond the plain divergence. See ref.c. */
#include "ref.h"

/* ---- the head of the teacher's row ---- */

/* The classes of the teacher, likeliest first; of equals the first. */
static size_t *by_rank(const double *u, size_t n) {
  size_t *order = calloc(n + 1, sizeof *order);
  if (!order) abort();
  for (size_t j = 0; j < n; j++) {
    size_t place = j;
    for (; place > 0 && u[order[place - 1]] < u[j]; place--) order[place] = order[place - 1];
    order[place] = j;
  }
  return order;
}

static int *head_of_count(const row_ref_call *c, double k) {
  size_t *order = by_rank(c->in[1], c->n);
  int *in = calloc(c->n + 1, sizeof *in);
  if (!in) abort();
  for (size_t i = 0; i < c->n && (double)i < k; i++) in[order[i]] = 1;
  free(order);
  return in;
}

/* Whether a sum of weights is at most mu is decided in double. */
static int *head_of_mass(const row_ref_call *c, const row *t) {
  size_t *order = by_rank(c->in[1], c->n);
  int *in = calloc(c->n + 1, sizeof *in);
  real sum = 0, all = 0;
  if (!in) abort();
  for (size_t i = 0; i < c->n; i++) all += expl(t->z[order[i]] - t->max);
  for (size_t i = 0; i < c->n; i++) {
    sum += expl(t->z[order[i]] - t->max);
    if (i > 0 && (double)sum > (double)(c->q[0] * all)) break;
    in[order[i]] = i == 0 || (double)sum <= (double)(c->q[0] * all);
  }
  free(order);
  return in;
}

static int special(const row_ref_call *c, const row *s, const row *t) {
  if (!s->nan && !t->nan && !s->empty && !t->empty) return 0;
  give(c, (s->nan || t->nan) ? (double)NAN : 0);
  return 1;
}

/* Both rows, without the classes that `in` leaves out, if it is given. */
static void read_two(const row_ref_call *c, two *w, const int *in) {
  *w = (two){open_row(c->n), open_row(c->n)};
  for (size_t j = 0; j < c->n; j++) {
    int out = in && !in[j];
    w->s.z[j] = out && !isnan(c->in[0][j]) && c->in[0][j] != INFINITY ? -(real)INFINITY : c->in[0][j];
    w->t.z[j] = out && !isnan(c->in[1][j]) && c->in[1][j] != INFINITY ? -(real)INFINITY : c->in[1][j];
  }
  finalize(&w->s);
  finalize(&w->t);
}

void kl_top_k_ref(const row_ref_call *c) {
  two w;
  int *in = head_of_count(c, c->q[0]), reverse = c->q[3] == 1;
  for (size_t j = 0; j < c->n && c->q[2] == 1; j++) in[j] = !in[j];
  read_two(c, &w, in);
  if (!special(c, &w.s, &w.t)) {
    real d = reverse ? divergence(&w.s, &w.t) : divergence(&w.t, &w.s);
    c->out[LOSS][0] = (double)d;
    for (size_t j = 0; j < c->n; j++) {
      real g = w.s.p[j] - w.t.p[j];
      if (reverse) g = isinf(d) || w.s.p[j] == 0 ? 0 : w.s.p[j] * (w.s.log_p[j] - w.t.log_p[j] - d);
      c->out[DX][j] = (double)g;
    }
  }
  close_two(&w);
  free(in);
}

/* a from b over some classes; *mass: what a weighs there. */
static real partial(const row *a, const row *b, const int *in, int which, real *mass) {
  real sum = 0;
  *mass = 0;
  for (size_t j = 0; j < a->n; j++) {
    if (in[j] != which) continue;
    *mass += a->p[j];
    if (a->p[j] > 0) sum += a->p[j] * (a->log_p[j] - b->log_p[j]);
  }
  return sum;
}

void head_tail_kl_ref(const row_ref_call *c) {
  two w;
  int *in = head_of_count(c, c->q[0]);
  read_two(c, &w, NULL);
  if (!special(c, &w.s, &w.t)) {
    real loss = 0;
    fill(c->out[DX], c->n, 0);
    for (int side = 0; side < 2; side++) {
      real weight = side == 0 ? (real)c->q[1] : 1, mass;
      int reverse = c->q[side == 0 ? 3 : 2] == 1;
      const row *a = reverse ? &w.s : &w.t, *b = reverse ? &w.t : &w.s;
      real d = partial(a, b, in, side, &mass);
      loss += part(weight, d);
      for (size_t j = 0; j < c->n; j++) {
        real here = in[j] == side, g = w.s.p[j] * mass - here * w.t.p[j];
        if (reverse)
          g = isinf(d) || w.s.p[j] == 0
                  ? 0
                  : w.s.p[j] * ((here != 0 ? w.s.log_p[j] - w.t.log_p[j] + 1 : 0) - d - mass);
        c->out[DX][j] += (double)(weight * g);
      }
    }
    c->out[LOSS][0] = (double)loss;
  }
  close_two(&w);
  free(in);
}

void adaptive_kl_ref(const row_ref_call *c) {
  two w;
  read_two(c, &w, NULL);
  if (!special(c, &w.s, &w.t)) {
    int *in = head_of_mass(c, &w.t);
    real away[2] = {0, 0}, forward = divergence(&w.t, &w.s), reverse = divergence(&w.s, &w.t);
    for (size_t j = 0; j < c->n; j++) away[in[j]] += fabsl(w.t.p[j] - w.s.p[j]);
    real head = away[0] + away[1] == 0 ? 0.5L : away[1] / (away[0] + away[1]),
         tail = away[0] + away[1] == 0 ? 0.5L : away[0] / (away[0] + away[1]);
    c->out[LOSS][0] = (double)(part(head, forward) + part(tail, reverse));
    for (size_t j = 0; j < c->n; j++) {
      real g = head * (w.s.p[j] - w.t.p[j]);
      if (!isinf(reverse) && w.s.p[j] > 0) g += tail * w.s.p[j] * (w.s.log_p[j] - w.t.log_p[j] - reverse);
      c->out[DX][j] = (double)g;
    }
    free(in);
  }
  close_two(&w);
}

/* ---- standardised_kd ---- */

/* Mean and deviation of the finite logits; how many there are. */
static real moments(const double *x, size_t n, real *mean, real *deviation) {
  real count = 0, sum = 0, squares = 0;
  for (size_t j = 0; j < n; j++)
    if (!isinf(x[j])) count++, sum += x[j];
  *mean = sum / count;
  for (size_t j = 0; j < n; j++)
    if (!isinf(x[j])) squares += (x[j] - *mean) * (x[j] - *mean);
  *deviation = count > 1 ? sqrtl(squares / (count - 1)) : 0;
  return count;
}

static void standardised(row *r, const double *x, real t, real e) {
  real mean, s;
  moments(x, r->n, &mean, &s);
  for (size_t j = 0; j < r->n; j++) {
    r->z[j] = isinf(x[j]) ? (real)x[j] : s == 0 ? 0 : (x[j] - mean) / (e + s) / t;
    r->nan |= isnan(x[j]);
  }
}

void standardised_kd_ref(const row_ref_call *c) {
  two w = {open_row(c->n), open_row(c->n)};
  real t = c->q[0], e = c->q[1], mean, s, gap = 0, gap_away = 0, count = moments(c->in[0], c->n, &mean, &s);
  standardised(&w.s, c->in[0], t, e);
  standardised(&w.t, c->in[1], t, e);
  finalize(&w.s);
  finalize(&w.t);
  if (!special(c, &w.s, &w.t)) {
    real at = constant(&w);
    c->out[LOSS][0] = (double)(t * t * even_divergence(&w, 0));
    for (size_t j = 0; j < c->n; j++) {
      if (isinf(c->in[0][j])) continue;
      gap += t * even_gap(&w, at, j);
      gap_away += t * even_gap(&w, at, j) * (c->in[0][j] - mean);
    }
    for (size_t j = 0; j < c->n; j++) {
      real g = t * even_gap(&w, at, j), width = s + e;
      c->out[DX][j] = isinf(c->in[0][j]) || s == 0
                          ? 0
                          : (double)((g - gap / count) / width -
                                     (c->in[0][j] - mean) * gap_away / ((count - 1) * s * width * width));
    }
  }
  close_two(&w);
}

/* dL/dz of decoupled_kd, a numeric chain away from the gradient: dz_i / dx_j = ([i = j] - 1 / n) /
 * w - a_i a_j / ((n - 1) s w^2), a = x - mean. */
void standardised_dkd_ref(const row_ref_call *c) {
  two w = {open_row(c->n), open_row(c->n)};
  real t = c->q[1], alpha = c->q[2], beta = c->q[3], e = c->q[4], mean, s,
       count = moments(c->in[0], c->n, &mean, &s), zs = 0, zt = 0;
  size_t y = c->in[2][0] == c->q[0] ? c->n : (size_t)c->in[2][0];
  standardised(&w.s, c->in[0], t, e);
  standardised(&w.t, c->in[1], t, e);
  for (size_t j = 0; j < c->n; j++)
    w.s.nan |= c->in[0][j] == (double)INFINITY, w.t.nan |= c->in[1][j] == (double)INFINITY;
  if (y < c->n) zs = w.s.z[y], zt = w.t.z[y], w.s.z[y] = w.t.z[y] = -(real)INFINITY;
  finalize(&w.s);
  finalize(&w.t);
  if (y == c->n) {
    give(c, 0);
  } else if (!special(c, &w.s, &w.t)) {
    real away, through = 0, at = constant(&w), *g = numbers(c->n);
    real own = even_own(&w, zs, zt, &away);
    c->out[LOSS][0] = (double)(t * t * (part(alpha, own) + part(beta, even_divergence(&w, 0))));
    for (size_t j = 0; j < c->n; j++) {
      g[j] = t * (j == y ? alpha * away : beta * even_gap(&w, at, j) - alpha * away * w.s.p[j]);
      if (!isinf(c->in[0][j])) through += g[j] * (c->in[0][j] - mean);
    }
    for (size_t j = 0; j < c->n; j++) {
      real back = (c->in[0][j] - mean) * through / ((count - 1) * s * (s + e) * (s + e));
      c->out[DX][j] = isinf(c->in[0][j]) || s == 0 ? 0 : (double)(g[j] / (s + e) - back);
    }
    free(g);
  }
  close_two(&w);
}

/* ---- universal_self_kd ---- */

void universal_self_kd_ref(const row_ref_call *c) {
  row r;
  size_t y;
  if (c->in[2][0] == c->q[0]) {
    give(c, 0);
    return;
  }
  y = (size_t)c->in[2][0];
  r = open_row(c->n);
  row others = open_row(c->n);
  real mass = 0, rest = 0, weight = c->in[3] ? (real)c->in[3][0] : 1, a = (real)c->q[1] * weight, b = c->q[2];
  for (size_t j = 0; j < c->n; j++) {
    r.z[j] = c->in[0][j];
    others.z[j] = j == y ? -(real)INFINITY : r.z[j];
    mass += j == y ? 0 : c->in[1][j];
  }
  finalize(&r);
  finalize(&others);
  others.nan |= r.nan || isnan(mass) || isnan(a);
  if (others.nan || others.empty) {
    give(c, others.nan ? (double)NAN : 0);
  } else {
    for (size_t j = 0; j < c->n; j++)
      if (j != y && mass > 0) rest += part(c->in[1][j] / mass, -others.log_p[j]);
    if (mass <= 0) b = 0;
    c->out[LOSS][0] = (double)(part(a, -r.log_p[y]) + part(b, rest));
    for (size_t j = 0; j < c->n; j++) {
      real g = a * r.p[j] + b * (others.p[j] - (mass > 0 ? c->in[1][j] / mass : 0));
      c->out[DX][j] = (double)(j == y ? -a * without(&r, y) : g);
    }
  }
  close_row(&r);
  close_row(&others);
}

/* ---- dynamic_temperature ---- */

void dynamic_temperature_ref(const row_ref_call *c) {
  const double *q = c->q;
  real start = q[1], low = q[2], high = q[3], m = q[4], before = q[5] > 0 ? q[5] : q[1],
       done = fminl((real)q[6] / (real)q[7], 1);
  int nan = 0;
  for (size_t j = 0; j < c->n; j++) nan |= isnan(c->in[0][j]);
  for (size_t j = 0; j < c->n; j++) {
    real x = c->in[0][j], t;
    if (q[0] == 1) {
      real log = logl(x), a = x > 0 && !isinf(x) ? log / (log + 1) : 0;
      t = start * (1 + cosl(acosl(-1) * done)) / 2 * (a > 1 ? 1 + a : 1);
      t = m * before + (1 - m) * fmaxl(fminl(t, high), low);
    } else {
      t = 0.1L + start * (0.5L + cosl(acosl(-1) * 0.7L * done)) * (0.5L + 0.7L * logl(1 + fabsl(x))) *
                     expl(-0.75L * done);
      t = fmaxl(fminl(t, high * expl(-0.4L * done)), low);
    }
    c->out[0][j] = nan ? (double)NAN : (double)t;
  }
}
