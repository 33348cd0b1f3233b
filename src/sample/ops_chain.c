/* sample/ops_chain.c - the chain of processors between logits and a draw, for one row (smx_sample). Compiled once per instruction set and type.
 *
 * The row is copied once; every step changes the copy, and what it removes becomes -inf. Nothing sorts the vocabulary: most steps keep what lies
 * above a bar that follows from the row's largest score, its logsumexp or its entropy. Steps that keep a mass (top-p, typical) first look among
 * the best few hundred; where those do not hold it, they bisect for the bar, each time summing what lies above. Sums run in the lanes of the
 * contract and the groups are added in double; a sum over fewer elements of the same row is never larger, so bisection is well defined, and
 * which way is taken depends on the row alone. */
#include "best.h"
#include "engine/pick.h"
#include "engine/scores.h"

enum { CHAIN_BEST = 256 };

EXP_MOMENT(chain_moment, score_plain, false, moment_away)
static const exp_body total_body = {
    .setup = setup_plain, .scores = &plain_scores, .kind = EXP_SCALAR, .others = true, .scalar = lse_scalar, .empty = -R_INF, .inf = R_INF};
static const exp_body entropy_body = {.setup = setup_plain,
                                      .scores = &plain_scores,
                                      .kind = EXP_SCALAR,
                                      .others = true,
                                      .scalar = lse_scalar,
                                      .moment = chain_moment,
                                      .empty = -R_INF,
                                      .inf = R_INF};
static void total_pass(const row_call *c, row_state *st, row_part *parts) { exp_pass(&total_body, c, st, parts); }
static void entropy_pass(const row_call *c, row_state *st, row_part *parts) { exp_pass(&entropy_body, c, st, parts); }

/* A row under way. */
typedef struct chain {
  chain_row *row;
  real *z, *terms, *keys; /* keys: for steps that need another order */
  size_t n;
  bool known;    /* r and lse are those of z */
  bool hopeless; /* NaN, +inf, or nothing left */
  exp_row r;
  double lse, top; /* top: the largest score */
  double entropy;
} chain;

/* Sums, and with `entropy` H = lse - sum p z as well. */
static void chain_sum(chain *w, bool entropy) {
  if (w->known && !entropy) return;
  const exp_body *b = entropy ? &entropy_body : &total_body;
  const row_kernel k = {.pass = entropy ? entropy_pass : total_pass, .fold = exp_fold};
  const consts none = {{0}};
  real lse = -R_INF;
  row_state st;
  row_call c = {.n = w->n, .rows = 1, .src = {w->z}, .dst = {&lse}};
  span s = span_of(&c, 0);
  exp_begin(b, &c, &st);
  do run_pass(&k, &c, &st);
  while (exp_next(b, &c, &st));
  w->hopeless = !(lse >= -R_MAX && lse <= R_MAX);
  w->known = !w->hopeless;
  if (w->hopeless) return;
  w->r = exp_row_of(b, &s, &none, &st);
  w->top = w->r.max, w->lse = (double)lse;
  if (entropy) w->entropy = d_log1p(w->r.others) + w->top - (st.top_x + st.sum2 / st.sum);
}

/* Removes what is below the bar; of its equals those after element `limit`. The best are always kept: the bar is at most the largest score. */
static void chain_keep(chain *w, real bar, int64_t limit) {
  for (size_t i = 0; i < w->n; i += LANES) {
    int cnt = lanes_left(w->n - i);
    vreal z = at(w->z, i, cnt);
    int64_t left = limit - (int64_t)i;
    vmask early = v_lt(v_iota(), v_set1(left < 0 ? 0 : left < LANES ? (real)(left + 1) : LANES));
    vmask keep = m_or(v_lt(v_set1(bar), z), m_and(v_eq(z, v_set1(bar)), early));
    put(w->z, i, cnt, v_select(keep, z, v_set1(-R_INF)));
  }
  w->known = false;
}

/* Keeps z >= bar, and the best. */
static void chain_above(chain *w, double bar) {
  real low = (real)(bar < w->top ? bar : w->top);
  if ((double)low < bar && (double)low < w->top) low = select_value(select_key(low) + 1); /* rounded down: the next */
  chain_keep(w, low, INT64_MAX);
}

static void select_fold(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  (void)c;
  (void)st;
  (void)parts;
  (void)count;
}
static void chain_top_k(chain *w, double k) {
  row_state st;
  row_call c = {.n = w->n, .src = {w->z}};
  static const row_kernel select = {.pass = select_pass, .fold = select_fold};
  if (k >= (double)w->n) return;
  select_begin(&st, (uint64_t)k);
  do run_pass(&select, &c, &st);
  while (select_next(&st));
  chain_keep(w, (real)st.pick.value, st.pick.limit);
}

/* ---- keeping a mass ---- */

static void chain_terms(chain *w) {
  for (size_t i = 0; i < w->n; i += LANES) {
    vreal d;
    int cnt = lanes_left(w->n - i);
    put(w->terms, i, cnt, exp_term((score){v_sub(at(w->z, i, cnt), v_set1(w->r.shift)), v_set1(0)}, false, w->r.ref, &d));
  }
}

/* The terms whose key is at least `least`. */
static double mass_above(const real *keys, const real *terms, size_t n, real least) {
  const vreal bar = v_set1(least), zero = v_set1(0);
  double sum = 0;
  for (size_t g = 0; g < n; g += GROUP) {
    vreal acc[VPB];
    UNROLL_BLOCK for (int u = 0; u < VPB; u++) acc[u] = zero;
#define STEP(u, i, cnt) acc[u] = v_add(acc[u], v_select(v_lt(at(keys, i, cnt), bar), zero, at(terms, i, cnt)))
    WALK(g, group_size(g, n), STEP)
#undef STEP
    sum += (double)v_fold(acc);
  }
  return sum;
}

/* The first elements, best key first, that have the mass: all before whom there is less of it. True if the best few hundred hold it. */
static bool mass_among_best(const real *keys, const real *terms, size_t n, double target, struct row_pick *found) {
  real x[CHAIN_BEST];
  int64_t index[CHAIN_BEST];
  pick p;
  double sum = 0;
  pick_start(&p, CHAIN_BEST, x, index, keys, n);
  for (size_t g = 0; g < n; g += GROUP) pick_group(&p, keys + g, group_size(g, n), (int64_t)g);
  pick_cut(&p);
  pick_sort(x, index, p.kept);
  for (size_t i = 0; i < p.kept; i++) {
    *found = (struct row_pick){(double)x[i], index[i]};
    sum += (double)terms[index[i]];
    if (sum >= target) return true;
  }
  return p.kept < CHAIN_BEST; /* there are no more */
}

static struct row_pick mass_find(const real *keys, const real *terms, size_t n, double target) {
  struct row_pick found = {0, 0};
  if (mass_among_best(keys, terms, n, target, &found)) return found;
  rbits from = select_key(-R_MAX), to = select_key((real)found.value);
  while (from < to) { /* what is at least `from` has the mass */
    rbits middle = from + (to - from) / 2 + 1;
    if (mass_above(keys, terms, n, select_value(middle)) >= target) from = middle;
    else to = middle - 1;
  }
  found.value = (double)select_value(from);
  double sum = mass_above(keys, terms, n, select_value(select_key((real)found.value) + 1));
  for (size_t i = 0; i < n; i++) {
    if ((double)keys[i] != found.value) continue;
    found.limit = (int64_t)i;
    sum += (double)terms[i];
    if (sum >= target) break;
  }
  return found;
}

static void chain_top_p(chain *w, double share) {
  if (share >= 1) return;
  chain_sum(w, false);
  if (w->hopeless) return;
  chain_terms(w);
  const struct row_pick found = mass_find(w->z, w->terms, w->n, share * mass_above(w->z, w->terms, w->n, -R_INF));
  chain_keep(w, (real)found.value, found.limit);
}

/* Scores by how far -log p is from the entropy, the nearest first; the bar is then one of those. */
static void chain_typical(chain *w, double share) {
  if (share >= 1) return;
  chain_sum(w, true);
  if (w->hopeless) return;
  real *keys = w->keys;
  chain_terms(w);
  for (size_t i = 0; i < w->n; i++) {
    double away = (double)w->z[i] - w->lse + w->entropy;
    keys[i] = w->z[i] > -R_INF ? (real)(away < 0 ? away : -away) : -R_INF;
  }
  const struct row_pick found = mass_find(keys, w->terms, w->n, share * mass_above(w->z, w->terms, w->n, -R_INF));
  for (size_t i = 0; i < w->n; i++) {
    double key = (double)keys[i];
    if (!(key > found.value || (key == found.value && (int64_t)i <= found.limit))) w->z[i] = -R_INF;
  }
  w->known = false;
}

/* ---- the other steps ---- */

static void chain_temperature(chain *w, double t) {
  if (t == 1) return;
  for (size_t i = 0; i < w->n; i++) w->z[i] = (real)((double)w->z[i] / t);
  w->known = false;
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
  w->known = false;
}

/* Elements named by the step: at[i] in 0..n-1, checked by the caller. */
static void chain_tokens(chain *w, const smx_step *s) {
  for (size_t i = 0; i < s->token_count; i++) {
    real *z = w->z + s->tokens[i];
    if (s->kind == SMX_STEP_BAN) *z = -R_INF;
    else if (s->kind == SMX_STEP_BIAS) *z = (real)((double)*z + s->values[i]);
    else if (s->kind == SMX_STEP_REPETITION) *z = (real)(*z > 0 ? (double)*z / s->a : (double)*z * s->a);
    else *z = (real)((double)*z - s->a * (s->values ? s->values[i] : 1) - s->b);
  }
  w->known = false;
}

static void chain_allow(chain *w, const smx_step *s) {
  for (size_t i = 0; i < w->n; i++) w->keys[i] = -R_INF;
  for (size_t i = 0; i < s->token_count; i++) w->keys[s->tokens[i]] = w->z[s->tokens[i]];
  memcpy(w->z, w->keys, w->n * sizeof *w->z);
  w->known = false;
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

static void chain_step(chain *w, const smx_step *s, const draws *coin) {
  switch (s->kind) {
    case SMX_STEP_TEMPERATURE:
      if (s->a == 0) chain_top_k(w, 1);
      else chain_temperature(w, s->a);
      break;
    case SMX_STEP_TOP_K: chain_top_k(w, s->a); break;
    case SMX_STEP_TOP_P: chain_top_p(w, s->a); break;
    case SMX_STEP_TYPICAL: chain_typical(w, s->a); break;
    case SMX_STEP_TOP_N_SIGMA: chain_top_n_sigma(w, s->a, s->b); break;
    case SMX_STEP_XTC: chain_xtc(w, s->a, s->b, coin); break;
    case SMX_STEP_ALLOW: chain_allow(w, s); break;
    case SMX_STEP_BAN:
    case SMX_STEP_BIAS:
    case SMX_STEP_REPETITION:
    case SMX_STEP_FREQUENCY: chain_tokens(w, s); break;
    default:
      if (s->kind != SMX_STEP_SURPRISE && !(s->a > 0)) break; /* 0 = off */
      chain_sum(w, s->kind == SMX_STEP_ETA);
      if (!w->hopeless) chain_above(w, chain_bar(w, s));
  }
}

/* ---- the draw ---- */

static int64_t chain_cdf(const chain *w, double u) {
  double total = 0, before = 0;
  int64_t last = -1;
  for (int round = 0; round < 2; round++)
    for (size_t b = 0; b < w->n; b += 256) {
      double within = 0;
      size_t end = w->n - b < 256 ? w->n : b + 256;
      for (size_t i = b; i < end; i++) within += (double)w->terms[i];
      if (round == 0) {
        total += within;
        continue;
      }
      double sum = 0;
      for (size_t i = b; i < end && before + within > u * total; i++) {
        sum += (double)w->terms[i];
        if (w->terms[i] > 0) last = (int64_t)i;
        if (w->terms[i] > 0 && before + sum > u * total) return last;
      }
      before += within;
    }
  return last;
}

static void chain_draw(chain *w) {
  chain_row *row = w->row;
  draws d = {row->seed, row->stream, PURPOSE_UNIFORM};
  chain_sum(w, false);
  if (w->hopeless) return;
  if (row->draw == SMX_DRAW_CDF) {
    chain_terms(w);
    row->index = chain_cdf(w, uniform_of(draw_word(&d, 0)));
  } else {
    d.purpose = PURPOSE_GUMBEL;
    search b = BEST_NONE;
    for (size_t g = 0; g < w->n; g += GROUP)
      b = best_group(w->z + g, group_size(g, w->n), (int64_t)g, 1, row->draw == SMX_DRAW_GREEDY ? NULL : &d, b);
    row->index = b.index;
  }
  if (row->index < 0) return;
  row->log = ((double)w->z[row->index] - (double)w->r.shift) - ((double)w->r.top + (double)w->r.top_l) - d_log1p(w->r.others);
}

/* True if there is a NaN or +inf. */
static bool chain_copy(const real *x, size_t n, real *z) {
  vmask bad = v_lt(v_set1(0), v_set1(0));
  for (size_t i = 0; i < n; i += LANES) {
    int cnt = lanes_left(n - i);
    vreal v = at(x, i, cnt);
    bad = m_or(bad, m_not(v_lt(v, v_set1(R_INF))));
    put(z, i, cnt, v);
  }
  return m_any(bad);
}

void SMX_FN(sample_chain)(chain_row *row);
void SMX_FN(sample_chain)(chain_row *row) {
  chain w = {.row = row, .z = row->scratch[0], .terms = row->scratch[1], .keys = row->scratch[2], .n = row->n};
  const draws coin = {row->seed, row->stream, PURPOSE_COIN};
  w.hopeless = chain_copy(row->x, row->n, w.z);
  row->index = -1;
  row->log = (double)r_nan();
  for (size_t i = 0; i < row->step_count && !w.hopeless; i++) chain_step(&w, row->steps + i, &coin);
  if (!w.hopeless) chain_draw(&w);
}
