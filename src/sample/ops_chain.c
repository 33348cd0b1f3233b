/* sample/ops_chain.c - the chain of processors between logits and a draw, for one row (smx_sample). Compiled once per instruction set and type.
 *
 * Nothing sorts the vocabulary but tail-free sampling, which is defined by it: most steps keep what lies above a bar that follows from the row's
 * largest score, its logsumexp or its entropy; steps that keep a mass find theirs as mass.h says. A row that begins with a temperature and top-p
 * and has the mass in its best few hundred is read once. */
#include "mass.h"
#include "steps.h"

/* ---- the first read ---- */

typedef struct opening {
  chain *w;
  const real *x;
  double temperature, inverse;
  bool bad;
} opening;

/* A group of the row is copied and divided. */
static inline void open_group(void *own, size_t first, size_t n, const row_part *last) {
  opening *q = own;
  (void)last;
  const double t = q->temperature, c = q->inverse;
  const real *x = q->x;
  real *z = q->w->z;
  vmask bad = v_lt(v_set1(0), v_set1(0));
#define STEP(u, i, cnt) \
  { \
    v_prefetch_far(x + (i) + GROUP); \
    vreal v = at(x, i, cnt); \
    if (t != 1) v = chain_quotient(v, t, c); \
    bad = m_or(bad, m_not(v_lt(v, v_set1(R_INF)))); \
    put(z, i, cnt, v); \
  }
  WALK(first, n, STEP)
#undef STEP
  q->bad |= m_any(bad);
}

/* Copies the row, divided by a temperature; `sums`: forms its sums as well. */
static void chain_open(chain *w, double temperature, bool sums) {
  opening q = {.w = w, .x = w->row->x, .temperature = temperature, .inverse = chain_inverse(temperature)};
  if (!sums || w->n == 0) {
    for (size_t g = 0; g < w->n; g += GROUP) open_group(&q, g, group_size(g, w->n), NULL);
  } else {
    const row_kernel k = {.pass = total_pass, .fold = exp_fold};
    row_state st;
    row_call c = {.n = w->n, .rows = 1, .src = {w->z}};
    exp_begin(&total_body, &c, &st);
    pick_sum_pass(&total_body, &c, &st, NULL, open_group, &q);
    if (!q.bad) chain_settle(w, &total_body, &k, &c, &st);
  }
  w->hopeless |= q.bad || w->n == 0;
}

/* ---- keeping a mass ---- */

/* Where among the best, which have these terms, the mass is reached; false if they do not hold it and are not all there is. Of elements up to
 * `floor` some may be missing. Most of a peaked row's mass is in a few: the best is looked for again and again, which is sooner done than sorting. */
NOINLINE bool mass_among_best(const best_few *b, const real *terms, double target, real floor, struct row_pick *last) {
  real x[MASS_BEST + LANES];
  double all = 0, sum = 0;
  for (size_t i = 0; i < b->n; i += LANES) {
    int cnt = lanes_left(b->n - i);
    v_store(x + i, v_select(lanes_below(cnt), at(b->x, i, cnt), v_set1(-R_INF)));
    all += (double)v_hsum(at(terms, i, cnt));
  }
  if (b->n == MASS_BEST && all < target * (1 - 0x1p-10)) { /* they surely do not */
    const real least = pick_min(x, b->n);
    *last = (struct row_pick){(double)(least > floor ? least : floor), -1};
    return false;
  }
  for (size_t k = 0; k < b->n; k++) {
    const real top = pick_max(x, b->n, -R_INF);
    size_t i = 0;
    if (!(top > floor)) return false;
    while (!m_any(v_eq(v_load(x + i), v_set1(top)))) i += LANES;
    i += (size_t)__builtin_ctz(m_bits(v_eq(v_load(x + i), v_set1(top))));
    *last = (struct row_pick){(double)top, b->place[i]};
    sum += (double)terms[i];
    if (sum >= target) return true;
    x[i] = -R_INF;
  }
  return b->n < MASS_BEST && floor == -R_INF;
}

/* Sums alone, of the scores x (1 / t) in one rounding. */
SMI consts peak_setup(const row_call *c, const span *s) {
  (void)s;
  return (consts){{(real)(1 / c->params[0])}};
}
SMI score score_peak(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  return (score){v_mul(shifted_by(at(s->src[0], i, cnt), shift), v_set1(k->v[0])), v_set1(0)};
}
EXP_SCORES(peak, score_peak, false)
static const exp_body peak_body = {.setup = peak_setup, .scaled = true, .scores = &peak_scores, .kind = EXP_SUMS};
static void peak_pass(const row_call *c, row_state *st, row_part *parts) { exp_pass(&peak_body, c, st, parts); }

/* What one group more says of the best: elements so far below the sum that n of them are not half of what top-p leaves out are not wanted. */
typedef struct peak_floor {
  pick *p;
  real floor;                             /* elements up to it may be missing */
  double sum, ref, temperature, log_rest; /* the sum so far is sum 2^ref; log_rest: of half the share left out, for each element */
} peak_floor;
static inline void peak_each(void *own, size_t i, size_t n, const row_part *last) {
  peak_floor *q = own;
  (void)i;
  (void)n;
  if (!last || !(last->ref > (double)-R_INF) || last->nan) return;
  const double ref = last->ref > q->ref ? last->ref : q->ref;
  q->sum = d_scale(q->sum, q->ref - ref) + d_scale(last->sum, last->ref - ref), q->ref = ref;
  if (!(q->sum > 0)) return;
  const real floor = (real)((d_log(q->sum, 0) + ref * 0.69314718055994530942 + q->log_rest) * q->temperature);
  if (floor > q->p->bar) q->p->bar = q->floor = floor;
}

/* The first read of a row that begins with a temperature and top-p: its sums, and its best few hundred. If those hold the mass, nothing but them
 * is copied and divided, and the row is not touched again. False, with nothing done, where they do not. */
static bool chain_peaked(chain *w, double temperature, double share) {
  best_few best;
  real terms[MASS_BEST + LANES] = {0};
  struct row_pick last = {0, 0};
  row_state st;
  pick p;
  const row_kernel kernel = {.pass = peak_pass, .fold = exp_fold};
  const row_call c = {.n = w->n, .rows = 1, .src = {w->row->x}, .params = &temperature};
  const span s = span_of(&c, 0);
  const consts k = peak_setup(&c, &s);
  if (w->n <= FEW) return false;
  exp_begin(&peak_body, &c, &st);
  pick_start(&p, MASS_BEST, best.x, best.place, w->row->x, w->n);
  peak_floor q = {.p = &p, .floor = -R_INF, .ref = (double)-R_INF, .temperature = temperature};
  q.log_rest = d_log((1 - share) / (2 * (double)w->n), 0);
  pick_sum_pass(&peak_body, &c, &st, &p, peak_each, &q);
  while (exp_next(&peak_body, &c, &st)) run_pass(&kernel, &c, &st);
  if (st.mode == EXP_FILL || !(st.max > (double)-R_INF)) return false;
  const exp_row r = exp_row_of(&peak_body, &s, &k, &st);
  const span few = {.src = {best.x}};
  best.n = p.kept;
  for (size_t i = 0; i < best.n; i += LANES) {
    vreal d;
    int cnt = lanes_left(best.n - i);
    v_store(terms + i, v_select(lanes_below(cnt), exp_term(score_peak(&few, &k, &r.shift, i, cnt), false, r.ref, &d), v_set1(0)));
  }
  if (!mass_among_best(&best, terms, share * st.sum, q.floor, &last)) {
    if (best.n == MASS_BEST && last.limit < 0) w->beyond = (real)((double)(real)last.value / temperature);
    return false;
  }
  chain_close_to(w, &best, last);
  for (size_t i = 0; i < w->n; i += LANES) {
    int cnt = lanes_left(w->n - i);
    put(w->z, i, cnt, temperature == 1 ? at(w->z, i, cnt) : chain_quotient(at(w->z, i, cnt), temperature, chain_inverse(temperature)));
  }
  return true;
}

/* Keeps the first elements, best key first, that have the mass: all before whom there is less of it. */
static void chain_mass(chain *w, const real *keys, double share) {
  best_few best;
  real terms[MASS_BEST + LANES] = {0};
  struct row_pick last = {0, 0};
  const double target = share * w->sum;
  if (keys == w->z && w->beyond < R_INF) {
    chain_terms(w);
    last = mass_find(w, keys, share, target, w->beyond);
    chain_keep(w, keys, (real)last.value, last.limit);
    return;
  }
  chain_best(keys, w->n, MASS_BEST, &best);
  for (size_t i = 0; i < best.n; i++) terms[i] = w->z[best.place[i]];
  for (size_t i = 0; i < best.n; i += LANES) {
    int cnt = lanes_left(best.n - i);
    v_store(terms + i, v_select(lanes_below(cnt), chain_term(w, at(terms, i, cnt)), v_set1(0)));
  }
  if (!mass_among_best(&best, terms, target, -R_INF, &last)) {
    chain_terms(w);
    last = mass_find(w, keys, share, target, (real)last.value);
  } else if (keys == w->z && w->n > FEW) {
    chain_close_to(w, &best, last);
    return;
  }
  chain_keep(w, keys, (real)last.value, last.limit);
}

static void chain_top_p(chain *w, double share) {
  if (share >= 1) return;
  chain_sum(w, false);
  if (!w->hopeless) chain_mass(w, w->z, share);
}

/* Scores by how far -log p is from the entropy, the nearest first. */
static void chain_typical(chain *w, double share) {
  if (share >= 1) return;
  chain_sum(w, true);
  if (w->hopeless) return;
  for (size_t i = 0; i < w->n; i++) {
    double away = (double)w->z[i] - w->lse + w->entropy;
    w->keys[i] = w->z[i] > -R_INF ? (real)(away < 0 ? away : -away) : -R_INF;
  }
  chain_mass(w, w->keys, share);
}

/* ---- the steps ---- */

static void chain_step(chain *w, const smx_step *s, const draws *coin) {
  switch (s->kind) {
    case SMX_STEP_TEMPERATURE: chain_temperature(w, s->a); break;
    case SMX_STEP_TOP_K: chain_top_k(w, s->a); break;
    case SMX_STEP_TOP_P: chain_top_p(w, s->a); break;
    case SMX_STEP_TYPICAL: chain_typical(w, s->a); break;
    case SMX_STEP_TOP_N_SIGMA: chain_top_n_sigma(w, s->a, s->b); break;
    case SMX_STEP_XTC: chain_xtc(w, s->a, s->b, coin); break;
    case SMX_STEP_ALLOW: chain_allow(w, s); break;
    case SMX_STEP_DYNAMIC_TEMPERATURE: chain_dynamic(w, s); break;
    case SMX_STEP_QUADRATIC: chain_quadratic(w, s->a, s->b); break;
    case SMX_STEP_TAIL_FREE: chain_tail_free(w, s->a); break;
    case SMX_STEP_TOP_H: chain_top_h(w, s->a); break;
    case SMX_STEP_MIROSTAT: chain_mirostat(w, s->a); break;
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

enum { DRAW_BLOCK = 256, DRAW_SIDE = 8 };

/* The sums of blocks of 256 terms, each from left to right; several blocks side by side, for none of them waits for another. */
NOINLINE void draw_sums(const real *terms, size_t n, double *sums) {
  const size_t whole = n / (DRAW_BLOCK * DRAW_SIDE) * DRAW_SIDE;
  for (size_t b = 0; b < whole; b += DRAW_SIDE) {
    const real *t = terms + b * DRAW_BLOCK;
    double sum[DRAW_SIDE] = {0};
    for (size_t i = 0; i < DRAW_BLOCK; i++)
#pragma GCC unroll 8
      for (size_t j = 0; j < DRAW_SIDE; j++) sum[j] += (double)t[j * DRAW_BLOCK + i];
    memcpy(sums + b, sum, sizeof sum);
  }
  for (size_t b = whole; b * DRAW_BLOCK < n; b++) {
    sums[b] = 0;
    for (size_t i = b * DRAW_BLOCK; i < n && i < (b + 1) * DRAW_BLOCK; i++) sums[b] += (double)terms[i];
  }
}

/* The first place where the running sum is more than u times the whole; where rounding leaves none, the last that has a term. */
static size_t draw_cdf(const chain *w, double u) {
  double total = 0, before = 0, *sums = w->room;
  const size_t blocks = (w->n + DRAW_BLOCK - 1) / DRAW_BLOCK;
  draw_sums(w->terms, w->n, sums);
  for (size_t b = 0; b < blocks; b++) total += sums[b];
  for (size_t b = 0; b < blocks; before += sums[b++]) {
    if (!(before + sums[b] > u * total)) continue;
    double within = 0;
    for (size_t i = b * DRAW_BLOCK; i < w->n && i < (b + 1) * DRAW_BLOCK; i++) {
      within += (double)w->terms[i];
      if (w->terms[i] > 0 && before + within > u * total) return i;
    }
  }
  size_t last = w->n - 1;
  while (!(w->terms[last] > 0)) last--;
  return last;
}

/* The place of the best score, with noise unless d is NULL. */
NOINLINE size_t draw_best(const chain *w, const draws *d) {
  search b = BEST_NONE;
  if (!w->closed) {
    for (size_t g = 0; g < w->n; g += GROUP) b = best_group(w->z + g, group_size(g, w->n), (int64_t)g, 1, d, b);
    return (size_t)b.index;
  }
  for (size_t i = 0; i < w->n; i++) {
    const double z = (double)w->z[i];
    if (!(z > (double)-R_INF)) continue;
    if (d) best_try(&b, z, z, (int64_t)i, draw_word(d, (uint64_t)w->at[i]));
    else if (b.index < 0 || z > b.key) b.key = z, b.index = (int64_t)i;
  }
  return (size_t)b.index;
}

static void chain_draw(chain *w) {
  chain_row *row = w->row;
  draws d = {row->seed, row->stream, PURPOSE_UNIFORM};
  size_t drawn;
  chain_sum(w, false);
  if (w->hopeless) return;
  if (row->draw == SMX_DRAW_CDF) {
    chain_terms(w);
    drawn = draw_cdf(w, uniform_of(draw_word(&d, 0)));
  } else {
    d.purpose = PURPOSE_GUMBEL;
    drawn = draw_best(w, row->draw == SMX_DRAW_GREEDY ? NULL : &d);
  }
  row->index = chain_index(w, drawn);
  row->log = ((double)w->z[drawn] - (double)w->r.shift) - ((double)w->r.top + (double)w->r.top_l) - d_log1p(w->r.others);
  row->status = SMX_ROW_OK;
}

/* Why there was nothing to draw. */
static smx_row_status chain_verdict(const chain *w) {
  bool nan = false, inf = false;
  for (size_t i = 0; i < w->n; i++) nan |= w->z[i] != w->z[i], inf |= w->z[i] > R_MAX;
  return nan ? SMX_ROW_NAN : inf ? SMX_ROW_INF : SMX_ROW_EMPTY;
}

/* Whether a step begins with the sums of the row. */
static bool step_sums(const smx_step *s) {
  switch (s->kind) {
    case SMX_STEP_TEMPERATURE:
    case SMX_STEP_TOP_K:
    case SMX_STEP_REPETITION:
    case SMX_STEP_FREQUENCY:
    case SMX_STEP_BIAS:
    case SMX_STEP_BAN:
    case SMX_STEP_ALLOW: return false;
    default: return true;
  }
}

void SMX_FN(sample_chain)(chain_row *row);
void SMX_FN(sample_chain)(chain_row *row) {
  chain w = {
      .row = row, .z = row->scratch[0], .terms = row->scratch[1], .keys = row->scratch[2], .room = row->room, .n = row->n, .beyond = R_INF};
  const draws coin = {row->seed, row->stream, PURPOSE_COIN};
  const smx_step *s = row->steps, *end = s + row->step_count;
  double temperature = 1;
  row->index = -1;
  row->log = (double)r_nan();
  if (s < end && s->kind == SMX_STEP_TEMPERATURE && s->a != 0) temperature = s++->a;
  if (s < end && s->kind == SMX_STEP_TOP_P && s->a < 1 && chain_peaked(&w, temperature, s->a)) s++;
  else chain_open(&w, temperature, s == end || step_sums(s));
  for (; s < end && !w.hopeless; s++, w.beyond = R_INF) chain_step(&w, s, &coin);
  if (!w.hopeless) chain_draw(&w);
  if (w.hopeless) row->status = chain_verdict(&w);
}
