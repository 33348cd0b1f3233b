/* sample/steps.h - the steps of smx_sample that neither keep a mass (ops_chain.c) nor the k best (chain.h): temperatures, bars, penalties. */
#ifndef SMX_SAMPLE_STEPS_H
#define SMX_SAMPLE_STEPS_H
#include "chain.h"
#include "quotient.h"

/* ---- temperatures ---- */

/* z = x / t: whether all are below +inf. */
NOINLINE bool chain_divide(chain *w, const real *x, double t) {
  const quotient by = quotient_by(t);
  vmask bad = v_lt(v_set1(0), v_set1(0));
  for (size_t i = 0; i < w->n; i += LANES) {
    int cnt = lanes_left(w->n - i);
    const vreal z = quotient_of(&by, at(x, i, cnt));
    bad = m_or(bad, m_not(v_lt(z, v_set1(R_INF))));
    put(w->z, i, cnt, z);
  }
  return !m_any(bad);
}

static void chain_temperature(chain *w, double t) {
  if (t == 0) chain_top_k(w, 1);
  if (t == 0 || t == 1) return;
  chain_divide(w, w->z, t);
  chain_changed(w);
}

static size_t chain_count(const chain *w) {
  size_t n = 0;
  for (size_t i = 0; i < w->n; i++) n += w->z[i] > -R_INF;
  return n;
}

/* T between a - b and a + b, by how close the entropy is to its largest, to the power c. */
static void chain_dynamic(chain *w, const smx_step *s) {
  const double low = s->b < s->a ? s->a - s->b : 0, high = s->a + s->b;
  double level = 0;
  chain_sum(w, s->b != 0);
  if (w->hopeless) return;
  if (s->b == 0) {
    chain_temperature(w, s->a);
    return;
  }
  const size_t n = chain_count(w);
  if (n < 2) return;
  if (w->entropy > 0) level = w->entropy / d_log((double)n, 0);
  chain_temperature(w, low + (high - low) * (s->c == 0 ? 1 : level > 0 ? d_exp(s->c * d_log(level, 0)) : 0));
}

/* max - a d^2 ((3 - b) / 2 - (b - 1) / 2 d), d = z - max <= 0. */
static void chain_quadratic(chain *w, double a, double b) {
  chain_sum(w, false);
  if (a == 0 || w->hopeless) return;
  for (size_t i = 0; i < w->n; i++) {
    double d = (double)w->z[i] - w->top;
    if (w->z[i] > -R_INF) w->z[i] = (real)(w->top - a * (d * d) * (0.5 * (3 - b) - 0.5 * (b - 1) * d));
  }
  chain_changed(w);
}

/* The terms of what is left, best first, in the keys: how many. */
static size_t chain_sorted(chain *w) {
  size_t n = 0;
  for (size_t i = 0; i < w->n; i++)
    if (w->z[i] > -R_INF) ((int64_t *)w->room)[n] = (int64_t)n, w->keys[n++] = w->z[i];
  pick_sort(w->keys, w->room, n);
  for (size_t i = 0; i < n; i += LANES) {
    int cnt = lanes_left(n - i);
    put(w->keys, i, cnt, chain_term(w, at(w->keys, i, cnt)));
  }
  return n;
}
static void chain_tail_free(chain *w, double share) {
  if (share >= 1) return;
  chain_sum(w, false);
  if (w->hopeless) return;
  const size_t n = chain_sorted(w);
  double total = 0, sum = 0;
#define BEND(i) __builtin_fabs((double)w->keys[i] - 2 * (double)w->keys[(i) + 1] + (double)w->keys[(i) + 2])
  for (size_t i = 0; i + 2 < n; i++) total += BEND(i);
  for (size_t i = 0; i + 2 < n; i++) {
    sum += BEND(i);
    if (sum <= share * total || i == 0) continue;
    chain_top_k(w, (double)i);
    return;
  }
#undef BEND
}

enum { BEST_MANY = 100 };

/* The scores of the best hundred, best first: how many there are. */
static size_t chain_hundred(const chain *w, real *z) {
  best_few b;
  chain_best(w->z, w->n, BEST_MANY, &b);
  pick_sort(b.x, b.place, b.n);
  memcpy(z, b.x, b.n * sizeof *z);
  return b.n;
}

static void chain_top_h(chain *w, double share) {
  real z[BEST_MANY + LANES] = {0}, e[BEST_MANY + LANES];
  double mass = 0, entropy = 0, sum = 0, part[BEST_MANY];
  chain_sum(w, false);
  if (w->hopeless) return;
  const size_t n = chain_hundred(w, z);
  for (size_t i = 0; i < n; i += LANES) v_store(e + i, chain_term(w, v_load(z + i)));
  for (size_t i = 0; i < n; i++) mass += (double)e[i];
  for (size_t i = 0; i < n; i++) {
    double p = (double)e[i] / mass;
    part[i] = p > 0 ? -p * d_log(p, 0) : 0;
    entropy += part[i];
  }
  size_t kept = 1;
  for (sum = part[0]; kept < n && sum + part[kept] <= share * entropy; kept++) sum += part[kept];
  chain_top_k(w, (double)kept);
}

/* Mirostat 1: p ~ rank^-s, s from the slopes between the hundred best; with e = s - 1 the k best have a surprise of mu bits on average if
 * k^s = e 2^mu / (1 - n^-e). */
static void chain_mirostat(chain *w, double mu) {
  real z[BEST_MANY + LANES];
  double above = 0, below = 0;
  chain_sum(w, false);
  if (w->hopeless) return;
  const size_t best = chain_hundred(w, z), n = chain_count(w);
  for (size_t i = 0; i + 1 < best; i++) {
    double t = d_log((double)(i + 2) / (double)(i + 1), 0);
    above += t * ((double)z[i] - (double)z[i + 1]), below += t * t;
  }
  if (!(above > 0)) return; /* flat: all are kept */
  const double s = above / below, log_n = d_log((double)n, 0), y = (s - 1) * log_n;
  const double ratio = y > -1e-4 && y < 1e-4 ? 1 + 0.5 * y : y / (1 - d_exp(-y)); /* y / (1 - e^-y) */
  const double log_k = (mu * 0.69314718055994530942 + (ratio > 0 ? d_log(ratio / log_n, 0) : -700)) / s;
  if (log_k < log_n) chain_top_k(w, log_k > 0 ? __builtin_floor(d_exp(log_k)) : 1);
}

/* The deviation of the scores that are left, of all of them or of a sample. */
static void chain_top_n_sigma(chain *w, double sigmas, double ddof) {
  double sum = 0, squares = 0, count = 0;
  chain_sum(w, false);
  if (w->hopeless) return;
  for (size_t i = 0; i < w->n; i++)
    if (w->z[i] > -R_INF) sum += (double)w->z[i] - w->top, count++;
  for (size_t i = 0; i < w->n; i++) {
    double away = (double)w->z[i] - w->top - sum / count;
    if (w->z[i] > -R_INF) squares += away * away;
  }
  if (count > ddof) chain_above(w, w->top - sigmas * __builtin_sqrt(squares / (count - ddof)));
}

/* With probability a: every element of probability b or more is removed but the least probable of them. */
static void chain_xtc(chain *w, double chance, double threshold, const draws *coin) {
  if (!(uniform_of(draw_word(coin, 0)) < chance)) return;
  chain_sum(w, false);
  if (w->hopeless) return;
  real bar = (real)(w->lse + d_log(threshold, 0));
  int64_t last = -1;
  for (size_t i = 0; i < w->n; i++)
    if (w->z[i] >= bar && (last < 0 || !(w->z[i] > w->z[last]))) last = (int64_t)i;
  for (size_t i = 0; i < w->n; i++)
    if (w->z[i] >= bar && (int64_t)i != last) w->z[i] = -R_INF;
  chain_changed(w);
}

/* Elements named by the step, which are 0..n-1; each once, but for biases. */
static void chain_tokens(chain *w, const smx_step *s) {
  for (size_t i = 0; i < s->token_count; i++) {
    const size_t place = chain_place(w, s->tokens[i]);
    real *z = w->z + place;
    if (place == w->n) continue;
    if (s->kind == SMX_STEP_BAN) *z = -R_INF;
    else if (s->kind == SMX_STEP_BIAS) *z = (real)((double)*z + s->values[i]);
    else if (s->kind == SMX_STEP_REPETITION) *z = (real)(*z > 0 ? (double)*z / s->a : (double)*z * s->a);
    else *z = (real)((double)*z - s->a * (s->values ? s->values[i] : 1) - s->b);
  }
  chain_changed(w);
}

static void chain_allow(chain *w, const smx_step *s) {
  for (size_t i = 0; i < w->n; i++) w->keys[i] = -R_INF;
  for (size_t i = 0; i < s->token_count; i++) {
    const size_t place = chain_place(w, s->tokens[i]);
    if (place < w->n) w->keys[place] = w->z[place];
  }
  memcpy(w->z, w->keys, w->n * sizeof *w->z);
  chain_changed(w);
}

/* Steps whose bar follows from the best, the sum or the entropy. */
static double chain_bar(const chain *w, const smx_step *s) {
  double log_a = s->a > 0 ? d_log(s->a, 0) : (double)-R_INF;
  switch (s->kind) {
    case SMX_STEP_MIN_P: return w->top + log_a;
    case SMX_STEP_EPSILON: return w->lse + log_a;
    case SMX_STEP_ETA: {
      double typical = 0.5 * log_a - w->entropy;
      return w->lse + (log_a < typical ? log_a : typical);
    }
    default: return w->lse - s->a * 0.69314718055994530942; /* SMX_STEP_SURPRISE: bits */
  }
}

#endif
