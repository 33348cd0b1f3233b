/* sample/steps.h - the steps of smx_sample that keep neither a mass (ops_sampler.c) nor the k best
 * (sampler.h): temperatures, bars, penalties. */
#ifndef SMX_SAMPLE_STEPS_H
#define SMX_SAMPLE_STEPS_H
#include "sampler.h"
#include "compress.h"
#include "divide.h"

/* ---- temperatures ---- */

/* z = x / t: whether all are numbers below +inf. */
NOINLINE bool sampler_divide(sampler *w, const real *x, double t) {
  const divisor by = divisor_of(t);
  vmask bad = v_lt(v_set1(0), v_set1(0));
  for (size_t i = 0; i < w->n; i += LANES) {
    int cnt = lanes_left(w->n - i);
    const vreal z = divide_by(&by, at(x, i, cnt));
    bad = m_or(bad, m_not(v_lt(z, v_set1(R_INF))));
    put(w->z, i, cnt, z);
  }
  return !m_any(bad);
}

/* Whether the best score divided by t is beyond the largest number: t is as good as 0 then. */
static bool sampler_frozen(const real *x, size_t n, double t) {
  const real best = (real)((double)topk_max(x, n, -R_INF) / t);
  return !(best <= R_MAX && best >= -R_MAX);
}

static void sampler_temperature(sampler *w, double t) {
  if (w->careful && t != 0 && sampler_frozen(w->z, w->n, t)) t = 0;
  if (t == 0) sampler_top_k(w, 1);
  if (t == 0 || t == 1) return;
  sampler_divide(w, w->z, t);
  sampler_changed(w);
}

static size_t sampler_count(const sampler *w) {
  size_t n = 0;
  for (size_t i = 0; i < w->n; i++) n += w->z[i] > -R_INF;
  return n;
}

/* T between a - b and a + b, by the ratio of the entropy to its largest value, to the power c. */
static void sampler_dynamic(sampler *w, const smx_step *s) {
  const double low = s->b < s->a ? s->a - s->b : 0, high = s->a + s->b;
  double level = 0;
  sampler_sum(w, s->b != 0);
  if (w->invalid) return;
  if (s->b == 0) {
    sampler_temperature(w, s->a);
    return;
  }
  const size_t n = sampler_count(w);
  if (n < 2) return;
  if (w->entropy > 0) level = w->entropy / d_log((double)n, 0);
  sampler_temperature(w, low + (high - low) * (s->c == 0   ? 1
                                               : level > 0 ? d_exp(s->c * d_log(level, 0))
                                                           : 0));
}

/* max - a d^2 ((3 - b) / 2 - (b - 1) / 2 d), d = z - max <= 0. */
static void sampler_quadratic(sampler *w, double a, double b) {
  sampler_sum(w, false);
  if (a == 0 || w->invalid) return;
  for (size_t i = 0; i < w->n; i++) {
    double d = (double)w->z[i] - w->top;
    if (w->z[i] > -R_INF) w->z[i] = (real)(w->top - a * (d * d) * (0.5 * (3 - b) - 0.5 * (b - 1) * d));
  }
  sampler_changed(w);
}

/* The terms of what is left, best first, in the keys: how many. */
static size_t sampler_sorted(sampler *w) {
  size_t n = 0;
  for (size_t i = 0; i < w->n; i++)
    if (w->z[i] > -R_INF) ((int64_t *)w->room)[n] = (int64_t)n, w->keys[n++] = w->z[i];
  topk_sort(w->keys, w->room, n);
  for (size_t i = 0; i < n; i += LANES) {
    int cnt = lanes_left(n - i);
    put(w->keys, i, cnt, sampler_term(w, at(w->keys, i, cnt)));
  }
  return n;
}
static void sampler_tail_free(sampler *w, double share) {
  if (share >= 1) return;
  sampler_sum(w, false);
  if (w->invalid) return;
  const size_t n = sampler_sorted(w);
  double total = 0, sum = 0;
#define BEND(i) __builtin_fabs((double)w->keys[i] - 2 * (double)w->keys[(i) + 1] + (double)w->keys[(i) + 2])
  for (size_t i = 0; i + 2 < n; i++) total += BEND(i);
  for (size_t i = 0; i + 2 < n; i++) {
    sum += BEND(i);
    if (sum <= share * total || i == 0) continue;
    sampler_top_k(w, (double)i);
    return;
  }
#undef BEND
}

enum { BEST_MANY = 100 };

/* The scores of the best hundred, best first: how many there are. */
static size_t sampler_hundred(const sampler *w, real *z) {
  top_few *const b = sampler_best(w, w->z, BEST_MANY);
  topk_sort(b->x, b->place, b->n);
  memcpy(z, b->x, b->n * sizeof *z);
  return b->n;
}

SMI double sampler_entropy_of(double p) { return p > 0 ? -p * d_log(p, 0) : 0; }
static void sampler_top_h(sampler *w, double share) {
  real z[BEST_MANY + LANES] = {0}, e[BEST_MANY + LANES] = {0};
  double mass = 0, entropy = 0;
  sampler_sum(w, false);
  if (w->invalid) return;
  const size_t n = sampler_hundred(w, z);
  for (size_t i = 0; i < n; i += LANES) v_store(e + i, sampler_term(w, v_load(z + i)));
  for (size_t i = 0; i < n; i++) mass += (double)e[i];
  for (size_t i = 0; i < n; i++) entropy += sampler_entropy_of((double)e[i] / mass);
  size_t kept = 1;
  double sum = sampler_entropy_of((double)e[0] / mass), next;
  for (; kept < n; kept++, sum += next) {
    next = sampler_entropy_of((double)e[kept] / mass);
    if (!(sum + next <= share * entropy)) break;
  }
  sampler_top_k(w, (double)kept);
}

/* Mirostat 1: p ~ rank^-s, s from the slopes between the hundred best; with e = s - 1 the k best
 * have a surprise of mu bits on average if k^s = e 2^mu / (1 - n^-e). */
static void sampler_mirostat(sampler *w, double mu) {
  real z[BEST_MANY + LANES];
  double above = 0, below = 0;
  sampler_sum(w, false);
  if (w->invalid) return;
  const size_t best = sampler_hundred(w, z), n = sampler_count(w);
  for (size_t i = 0; i + 1 < best; i++) {
    double t = d_log((double)(i + 2) / (double)(i + 1), 0);
    above += t * ((double)z[i] - (double)z[i + 1]), below += t * t;
  }
  if (!(above > 0)) { /* flat, the limit of s = 0: the power of 2^mu / (n - 1) is 0 or infinite */
    if (n > 1 && mu * 0.69314718055994530942 <= d_log((double)n - 1, 0)) sampler_top_k(w, 1);
    return;
  }
  const double s = above / below, log_n = d_log((double)n, 0), y = (s - 1) * log_n;
  const double ratio = y > -1e-4 && y < 1e-4 ? 1 + 0.5 * y : y / (1 - d_exp(-y)); /* y / (1 - e^-y) */
  const double log_k = (mu * 0.69314718055994530942 + (ratio > 0 ? d_log(ratio / log_n, 0) : -700)) / s;
  if (log_k < log_n) sampler_top_k(w, log_k > 0 ? __builtin_floor(d_exp(log_k)) : 1);
}

/* The scores that are left, less the largest: their number, sum, and the sum of their squares
 * around the mean. The bar of top-n-sigma is made of sums in index order. */
typedef struct sampler_spread_of {
  double count, squares;
  double doubt; /* by how much squares may differ from those in index order */
} sampler_spread_of;
NOINLINE sampler_spread_of spread_in_order(const sampler *w) {
  double sum = 0;
  sampler_spread_of s = {0};
  for (size_t i = 0; i < w->n; i++)
    if (w->z[i] > -R_INF) sum += (double)w->z[i] - w->top, s.count++;
  for (size_t i = 0; i < w->n; i++) {
    double away = (double)w->z[i] - w->top - sum / s.count;
    if (w->z[i] > -R_INF) s.squares += away * away;
  }
  return s;
}

/* Sums of what is left, less `near`, one of its scores, and of its squares; its number, and the
 * largest score. all: nothing has been removed. */
typedef struct spread_sums {
  double count, s1, s2;
  real top;
} spread_sums;
typedef struct spread_lanes {
  v_sum64 sums, squares;
  vreal most;
} spread_lanes;
SMI void spread_add(spread_lanes *a, vreal z, double near) {
  const v_sum64 d = v_to64(z);
  a->most = v_max(z, a->most);
  for (int p = 0; p < LANES / 8; p++) {
    const v_eight away = d.part[p] - near;
    a->sums.part[p] += away, a->squares.part[p] = v_eight_fma(away, away, a->squares.part[p]);
  }
}
SMI spread_sums spread_read(const sampler *w, real near, bool all) {
  spread_lanes a = {.most = v_set1(-R_INF)}, b = a;
  const vreal gone = v_set1(-R_INF), from = v_set1(near);
  const real *const z = w->z;
  spread_sums s = {.count = (double)w->n};
  size_t i = 0;
  for (; all && i + 2 * LANES <= w->n; i += 2 * LANES)
    spread_add(&a, v_load(z + i), (double)near), spread_add(&b, v_load(z + i + LANES), (double)near);
  for (; i < w->n; i += LANES) { /* `near` in the place of what is not there */
    const int cnt = lanes_left(w->n - i);
    const vmask here = lanes_below(cnt), left = all ? here : m_and(v_lt(gone, at(z, i, cnt)), here);
    s.count -= cnt - __builtin_popcount(m_bits(left));
    spread_add(&a, v_select(left, at(z, i, cnt), from), (double)near);
  }
  s.s1 = v_sum64_total(&a.sums) + v_sum64_total(&b.sums);
  s.s2 = v_sum64_total(&a.squares) + v_sum64_total(&b.squares);
  s.top = v_hmax(v_max(a.most, b.most));
  return s;
}
NOINLINE spread_sums spread_of_all(const sampler *w, real near) { return spread_read(w, near, true); }
NOINLINE spread_sums spread_of_left(const sampler *w, real near) { return spread_read(w, near, false); }

/* The same side by side, from one read: S2 - S1^2 / n. With u = 2^-53 the sums in index order are
 * wrong by n u of the squares, and these by n u / 32 of S2 and S1^2 / n, three of them in all.
 * near: one of the scores that are left; *top: the largest. */
static sampler_spread_of spread_side_by_side(const sampler *w, real near, real *top) {
  spread_sums of = spread_of_all(w, near);
  if (!(of.s2 <= (double)R_MAX)) of = spread_of_left(w, near);
  const double mean_part = of.s1 * of.s1 / of.count, n = (double)w->n;
  sampler_spread_of s = {.count = of.count, .squares = of.s2 - mean_part};
  s.doubt = 0x1p-53 * ((n + 16) * (s.squares > 0 ? s.squares : 0) + (3 * n / 32 + 64) * (of.s2 + mean_part));
  *top = of.top;
  return s;
}

static double sigma_bar(const sampler *w, double sigmas, double ddof, double count, double squares) {
  return w->top - sigmas * __builtin_sqrt((squares > 0 ? squares : 0) / (count - ddof));
}

/* Whether no sum of a row with this largest score is beyond the range. */
SMI bool sampler_mild(real top) { return top <= 1024 && top >= -1024; }

/* The deviation of the scores that are left, of all of them or of a sample. Where the bar is the
 * same number whatever the order of additions, any order will do. Of an ordinary row the largest
 * score is enough, so that terms are those of what is kept alone. */
static void sampler_top_n_sigma(sampler *w, double sigmas, double ddof) {
  real near = sampler_beginning(w->z, w->n), top;
  if (!sampler_mild(near)) {
    sampler_sum(w, false);
    if (w->invalid) return;
    near = (real)w->top;
  }
  sampler_spread_of s = spread_side_by_side(w, near, &top);
  if (!w->known && !sampler_mild(top)) sampler_sum(w, false);
  if (w->invalid) return;
  if (!w->known) w->top = (double)top;
  if (!(s.count > ddof)) return;
  const double most = 0x1p-49 * (w->top < 0 ? -w->top : w->top);
  const real low = sampler_low(w, sigma_bar(w, sigmas, ddof, s.count, s.squares + s.doubt) - most),
             high = sampler_low(w, sigma_bar(w, sigmas, ddof, s.count, s.squares - s.doubt) + most);
  if (low == high) {
    sampler_keep(w, w->z, low, INT64_MAX);
    return;
  }
  s = spread_in_order(w);
  sampler_above(w, sigma_bar(w, sigmas, ddof, s.count, s.squares));
}

/* The places, at most n of them, of scores that are not below the bar: how many such scores there
 * are. */
NOINLINE size_t sampler_places(const sampler *w, real bar, size_t n, size_t *places) {
  const vreal low = v_set1(bar);
  size_t found = 0;
  for (size_t i = 0; i < w->n; i += LANES) {
    while (i + NEAR_SIDE * LANES <= w->n && !sampler_near(w->z + i, low)) i += NEAR_SIDE * LANES;
    if (i >= w->n) break;
    const int cnt = lanes_left(w->n - i);
    uint32_t here = m_bits(m_and(m_not(v_lt(at(w->z, i, cnt), low)), lanes_below(cnt)));
    for (; here; here &= here - 1, found++)
      if (found < n) places[found] = i + (size_t)__builtin_ctz(here);
  }
  return found;
}

/* Sums of a row that had terms and has lost its largest scores, but for that at `top`: no term is
 * flushed by the reference that it had. */
static bool sampler_sum_lower(sampler *w, size_t top) {
  const bool exact = w->known && w->termed && w->r.shift == 0 && w->low > -R_INF && w->z[top] > -R_INF &&
                     k_of(w->low) - w->r.scale_exp >= MIN_EXP;
  if (!exact) return false;
  w->r = (exp_row){.scale_exp = w->r.scale_exp, .top = w->z[top], .max = (double)w->z[top]};
  w->top_at = top;
  sampler_sum_terms(w);
  return true;
}

/* With probability a: every element of probability b or more is removed but the least probable of
 * them, the last of its equals. */
static void sampler_xtc(sampler *w, double chance, double threshold, const draws *coin) {
  if (!(uniform_of(draw_word(coin, 0)) < chance)) return;
  sampler_sum(w, false);
  if (w->invalid) return;
  size_t *const places = w->room;
  const size_t above = sampler_places(w, (real)(w->lse + d_log(threshold, 0)), w->n, places);
  if (above < 2) return;
  size_t last = places[0];
  for (size_t i = 1; i < above; i++)
    if (!(w->z[places[i]] > w->z[last])) last = places[i];
  for (size_t i = 0; i < above; i++) {
    if (places[i] == last) continue;
    w->z[places[i]] = -R_INF;
    if (w->termed) w->terms[places[i]] = 0;
  }
  if (!sampler_sum_lower(w, last)) sampler_changed(w);
}

/* Elements named by the step, which are 0..n-1; each once, but for biases. */
static void sampler_tokens(sampler *w, const smx_step *s) {
  for (size_t i = 0; i < s->token_count; i++) {
    const size_t place = sampler_place(w, s->tokens[i]);
    real *z = w->z + place;
    if (place == w->n) continue;
    if (s->kind == SMX_STEP_BAN) *z = -R_INF;
    else if (s->kind == SMX_STEP_BIAS) *z = (real)((double)*z + s->values[i]);
    else if (s->kind == SMX_STEP_REPETITION) *z = (real)(*z > 0 ? (double)*z / s->a : (double)*z * s->a);
    else *z = (real)((double)*z - s->a * (s->values ? s->values[i] : 1) - s->b);
  }
  sampler_changed(w);
}

static void sampler_allow(sampler *w, const smx_step *s) {
  for (size_t i = 0; i < w->n; i++) w->keys[i] = -R_INF;
  for (size_t i = 0; i < s->token_count; i++) {
    const size_t place = sampler_place(w, s->tokens[i]);
    if (place < w->n) w->keys[place] = w->z[place];
  }
  memcpy(w->z, w->keys, w->n * sizeof *w->z);
  sampler_changed(w);
}

/* Steps whose bar follows from the best, the sum or the entropy. */
static double sampler_bar(const sampler *w, const smx_step *s) {
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
