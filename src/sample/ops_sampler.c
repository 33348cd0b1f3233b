/* sample/ops_sampler.c - the chain of steps between logits and a draw, for one row (smx_sample).
 * Compiled once per instruction set and real type.
 *
 * Only tail-free sampling, which is defined by it, sorts the vocabulary. Most steps keep what lies
 * above a bar that follows from the row's largest score, its logsumexp or its entropy; steps that
 * keep a mass find their bar as top_p.h describes. A row that begins with a temperature and top-p,
 * and whose best few hundred elements hold the mass, is read once. */
#include "allow.h"
#include "first_pass.h"

/* ---- keeping a mass ---- */

/* A margin, as a part of the target, by which the best few hundred miss it in whatever order they
 * are summed. */
#define TOP_P_SHORT 0x1p-6

/* Whether so many elements equal to the best would not hold the mass. */
static bool top_p_beyond(const sampler *w, double target, double count) {
  return count * (double)exp_of(&w->r, w->r.top, 0) < target * (1 - TOP_P_SHORT);
}

/* The best few hundred by some keys and their terms: the sum of these. */
static double top_p_of_best(const sampler *w, const top_few *best, real *terms) {
  double all = 0;
  for (size_t i = 0; i < best->n; i++) terms[i] = w->z[best->place[i]];
  for (size_t i = 0; i < best->n; i += LANES) {
    int cnt = lanes_left(best->n - i);
    const vreal e = v_select(lanes_below(cnt), sampler_term(w, at(terms, i, cnt)), v_set1(0));
    v_store(terms + i, e);
    all += (double)v_hsum(e);
  }
  return all;
}

/* Whether they hold the mass: then they alone are kept, up to the last that is wanted; else `last`
 * is a key that the bar is not above. */
static bool top_p_best(sampler *w, const real *keys, double target, struct row_cutoff *last) {
  const top_few *const best = sampler_best(w, keys, TOP_P_BEST);
  real terms[TOP_P_BEST + LANES] = {0};
  const double all = top_p_of_best(w, best, terms);
  if (!top_p_among_best(best, terms, all, target, -R_INF, last)) return false;
  if (keys == w->z && w->n > FEW) sampler_close_to(w, best, *last);
  else sampler_keep(w, keys, (real)last->value, last->limit);
  return true;
}

/* Finds the bar and keeps what is above it. Unless it is `sure` that the best few hundred do not
 * hold the mass, only if enough elements besides them are above the bar to show it; else nothing is
 * done. */
static bool top_p_keep(sampler *w, const real *keys, double target, real to, bool sure) {
  sampler_terms(w);
  const struct row_cutoff last = top_p_find(w, keys, target, to);
  const real bar = (real)last.value;
  if (!sure) {
    const double besides = (TOP_P_SHORT + 0x1p-10) * target / (double)v_first(sampler_term(w, v_set1(bar)));
    if (!(besides < (double)w->n) ||
        !sampler_many(w, radix_value(radix_key(bar) + 1), TOP_P_BEST + 1 + (size_t)besides))
      return false;
  }
  if (keys == w->z && last.limit == INT64_MAX && w->n > FEW && sampler_many(w, bar, FEW)) sampler_cut(w, bar);
  else sampler_keep(w, keys, bar, last.limit);
  return true;
}

/* Keeps the fewest elements, best key first, that hold the mass. */
static void sampler_mass(sampler *w, const real *keys, double share) {
  const bool scores = keys == w->z;
  const double target = share * w->sum;
  struct row_cutoff last = {scores && w->beyond < R_INF ? (double)w->beyond : w->top, 0};
  if (!scores || (!(w->beyond < R_INF) && !top_p_beyond(w, target, TOP_P_BEST))) {
    if (scores && top_p_beyond(w, target, PEAK) && top_p_keep(w, keys, target, (real)last.value, false))
      return;
    if (top_p_best(w, keys, target, &last)) return;
  }
  top_p_keep(w, keys, target, (real)last.value, true);
}

static void sampler_top_p(sampler *w, double share) {
  if (share >= 1) return;
  sampler_sum(w, false);
  if (!w->invalid) sampler_mass(w, w->z, share);
}

/* Keys by the distance of -log p from the entropy, the nearest first. */
static void sampler_typical(sampler *w, double share) {
  if (share >= 1) return;
  sampler_sum(w, true);
  if (w->invalid) return;
  for (size_t i = 0; i < w->n; i += LANES) {
    const int cnt = lanes_left(w->n - i);
    const vreal z = at(w->z, i, cnt);
    v_sum64 away = v_to64(z);
    for (int p = 0; p < LANES / 8; p++) away.part[p] = away.part[p] - w->lse + w->entropy;
    const vreal key = v_sub(v_set1((real)-0.0), v_abs(v_from64(away)));
    put(w->keys, i, cnt, v_select(v_lt(v_set1(-R_INF), z), key, v_set1(-R_INF)));
  }
  sampler_mass(w, w->keys, share);
}

/* ---- the steps ---- */

static void sampler_step(sampler *w, const smx_step *s, const draws *coin) {
  sampler_leave(w);
  switch (s->kind) {
    case SMX_STEP_TEMPERATURE: sampler_temperature(w, s->a); break;
    case SMX_STEP_TOP_K: sampler_top_k(w, s->a); break;
    case SMX_STEP_TOP_P: sampler_top_p(w, s->a); break;
    case SMX_STEP_TYPICAL: sampler_typical(w, s->a); break;
    case SMX_STEP_TOP_N_SIGMA: sampler_top_n_sigma(w, s->a, s->b); break;
    case SMX_STEP_XTC: sampler_xtc(w, s->a, s->b, coin); break;
    case SMX_STEP_ALLOW: sampler_allow(w, s); break;
    case SMX_STEP_DYNAMIC_TEMPERATURE: sampler_dynamic(w, s); break;
    case SMX_STEP_QUADRATIC: sampler_quadratic(w, s->a, s->b); break;
    case SMX_STEP_TAIL_FREE: sampler_tail_free(w, s->a); break;
    case SMX_STEP_TOP_H: sampler_top_h(w, s->a); break;
    case SMX_STEP_MIROSTAT: sampler_mirostat(w, s->a); break;
    case SMX_STEP_BAN:
    case SMX_STEP_BIAS:
    case SMX_STEP_REPETITION:
    case SMX_STEP_FREQUENCY: sampler_tokens(w, s); break;
    default:
      if (s->kind != SMX_STEP_SURPRISE && !(s->a > 0)) break; /* 0 = off */
      sampler_sum(w, s->kind == SMX_STEP_ETA);
      if (w->invalid) break;
      if (s->kind == SMX_STEP_SURPRISE && w->top < sampler_bar(w, s)) sampler_top_k(w, 1);
      else sampler_above(w, sampler_bar(w, s));
  }
}

/* ---- the draw ---- */

enum { DRAW_SIDE = 8 };

/* The sums of blocks of 256 terms, each from left to right; several blocks are summed side by side,
 * because they do not depend on each other. */
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

/* Of n terms, the first at which the running sum exceeds `bound`; n if there is none. sums: the
 * sums of their blocks, and the sum before each. */
static size_t draw_where(const real *terms, size_t n, const double *sums, double before, double bound) {
  for (size_t b = 0; b * DRAW_BLOCK < n; before += sums[b++]) {
    if (!(before + sums[b] > bound)) continue;
    double within = 0;
    for (size_t i = b * DRAW_BLOCK; i < n && i < (b + 1) * DRAW_BLOCK; i++) {
      within += (double)terms[i];
      if (terms[i] > 0 && before + within > bound) return i;
    }
  }
  return n;
}

/* The same for a row whose remaining terms are so alike that no sum of them in double is rounded:
 * the order of additions does not matter, and the groups' sums are known. SIZE_MAX: the row is not
 * like that. */
static size_t draw_cut(sampler *w, double u) {
  const sampler_sums *groups = w->room;
  /* a term may be a little less than that of a lower score */
  const int least = r_exponent(v_first(sampler_term(w, v_set1(w->bar)))) - 1;
  double total = 0, before = 0, sums[GROUP / DRAW_BLOCK];
  for (size_t g = 0; g < w->n; g += GROUP) total += groups[g / GROUP].total;
  if (!(total < (double)R_MAX) || r_exponent((real)total) + 1 - (least - MANT_BITS) > 53) return SIZE_MAX;
  for (size_t g = 0; g < w->n; before += groups[g / GROUP].total, g += GROUP) {
    if (!(before + groups[g / GROUP].total > u * total)) continue;
    const size_t n = group_size(g, w->n);
    sampler_clear(w, w->z, w->bar, INT64_MAX, g, n);
    draw_sums(w->terms + g, n, sums);
    return g + draw_where(w->terms + g, n, sums, before, u * total);
  }
  return SIZE_MAX;
}

/* The first place where the running sum is more than u times the whole; where rounding leaves none,
 * the last that has a term. */
static size_t draw_cdf(sampler *w, double u) {
  double total = 0, *sums = w->room;
  if (w->apart) return draw_apart(w, u);
  if (w->bar > -R_INF) {
    const size_t drawn = draw_cut(w, u);
    if (drawn < w->n) return drawn;
  }
  sampler_leave(w);
  draw_sums(w->terms, w->n, sums);
  for (size_t b = 0; b * DRAW_BLOCK < w->n; b++) total += sums[b];
  const size_t drawn = draw_where(w->terms, w->n, sums, 0, u * total);
  size_t last = w->n - 1;
  while (drawn == w->n && !(w->terms[last] > 0)) last--;
  return drawn < w->n ? drawn : last;
}

/* The factor by which a term becomes a bound of 1 - u above which its element cannot have a larger
 * key than this one (gumbel_argmax.h), with room for rounding. */
static real draw_bound(const sampler *w, double key) {
  return (real)(1.01 * d_exp((double)w->r.shift + (double)w->r.scale_exp * 0.69314718055994530942 - key));
}

/* Whether any of WORDS elements is left. */
static inline bool draw_any(const sampler *w, size_t first) {
  vmask any = v_lt(v_set1(0), v_set1(0));
  for (size_t i = first; i < w->n && i < first + WORDS; i += LANES)
    any = m_or(any, v_lt(v_set1(0), at(w->terms, i, lanes_left(w->n - i))));
  return m_any(any);
}

/* The place of the best score with noise, of many. The largest score has its noise first; e^-d
 * comes from the terms, so few have a logarithm. */
NOINLINE size_t draw_noisy(sampler *w, const draws *d) {
  size_t best = w->top_at;
  double key = w->top + gumbel_of(draw_word(d, (uint64_t)best));
  vreal scale = v_set1(draw_bound(w, key));
  real rest[WORDS];
  sampler_terms(w);
  for (size_t first = 0; first < w->n; first += WORDS) {
    if (!draw_any(w, first)) continue;
    philox_rest(d, (uint64_t)first >> 1, rest);
    for (size_t i = first; i < w->n && i < first + WORDS; i += LANES) {
      const int cnt = lanes_left(w->n - i);
      const vmask here = m_not(v_lt(at(w->z, i, cnt), v_set1(w->bar)));
      const vmask may = m_and(here, v_lt(v_load(rest + (i - first)), v_mul(at(w->terms, i, cnt), scale)));
      for (uint32_t left = m_bits(may); left; left &= left - 1) {
        const size_t j = i + (size_t)__builtin_ctz(left);
        const double noisy = (double)w->z[j] + gumbel_of(draw_word(d, (uint64_t)j));
        if (!(noisy > key || (noisy == key && j < best))) continue;
        key = noisy, best = j, scale = v_set1(draw_bound(w, key));
      }
    }
  }
  return best;
}

/* The place of the best score with noise. */
NOINLINE size_t draw_best(sampler *w, const draws *d) {
  search b = ARGMAX_NONE;
  if (!w->closed) return draw_noisy(w, d);
  for (size_t i = 0; i < w->n; i++) {
    const double z = (double)w->z[i];
    if (z > (double)-R_INF) argmax_try(&b, z, z, (int64_t)i, draw_word(d, (uint64_t)w->at[i]));
  }
  return (size_t)b.index;
}

static void sampler_draw(sampler *w, uint64_t seed) {
  sampler_row *row = w->row;
  draws d = {seed, row->stream, PURPOSE_UNIFORM};
  size_t drawn;
  if (row->draw == SMX_DRAW_CDF) {
    sampler_terms(w);
    drawn = draw_cdf(w, uniform_of(draw_word(&d, 0)));
  } else {
    d.purpose = PURPOSE_GUMBEL;
    drawn = row->draw == SMX_DRAW_GREEDY ? w->top_at : draw_best(w, &d);
  }
  row->index = sampler_index(w, drawn);
  row->log =
      ((double)w->z[drawn] - (double)w->r.shift) - ((double)w->r.top + (double)w->r.top_l) - w->r.log1p;
  row->status = SMX_ROW_OK;
}

/* The draws of a row, and the scores that they are drawn from. */
#define DRAW_APART 0x9e3779b97f4a7c15u
static void sampler_finish(sampler *w) {
  sampler_row *row = w->row;
  sampler_sum(w, false);
  for (size_t j = 0; j < row->draws && !w->invalid; j++) {
    sampler_draw(w, row->seed + j * DRAW_APART);
    row->indices[j] = row->index;
    if (row->logs) ((real *)row->logs)[j] = (real)row->log;
  }
}
static void sampler_show(sampler *w) {
  sampler_row *row = w->row;
  real *out = row->processed;
  if (!out) return;
  const real none = row->status == SMX_ROW_OK || row->status == SMX_ROW_EMPTY ? -R_INF : r_nan();
  if (row->status == SMX_ROW_OK) sampler_leave(w);
  if (row->status == SMX_ROW_OK && !w->closed) memcpy(out, w->z, w->n * sizeof *out);
  else fill(out, row->n, none);
  for (size_t i = 0; i < w->n && w->closed && row->status == SMX_ROW_OK; i++) out[w->at[i]] = w->z[i];
}

/* Whether a step begins with the sums of the row; those with its entropy are formed apart. */
static bool step_sums(const smx_step *s) {
  switch (s->kind) {
    case SMX_STEP_TYPICAL:
    case SMX_STEP_ETA:
    case SMX_STEP_DYNAMIC_TEMPERATURE:
    case SMX_STEP_TEMPERATURE:
    case SMX_STEP_TOP_K:
    case SMX_STEP_TOP_N_SIGMA:
    case SMX_STEP_REPETITION:
    case SMX_STEP_FREQUENCY:
    case SMX_STEP_BIAS:
    case SMX_STEP_BAN:
    case SMX_STEP_ALLOW: return false;
    default: return true;
  }
}

/* The same for a row that did not go through sampler_best_alone(): the best do not hold the mass by
 * their terms either, whose scores are rounded otherwise. False: they may. */
static bool sampler_spread(sampler *w, double share, bool *done) {
  const double target = share * w->sum;
  if (!w->known || !sampler_mild((real)w->top)) return false;
  if (top_p_beyond(w, target, TOP_P_BEST)) return true;
  *done = top_p_keep(w, w->z, target, (real)w->top, false);
  return *done;
}

/* The first read of a row that begins with a temperature and top-p. False: top-p is still to
 * come. */
static bool sampler_begin(sampler *w, double temperature, double share) {
  bool done = false;
  const bool opened = w->row->spread && w->n > FEW && sampler_first_pass(w, temperature, true, true);
  if (opened && (w->invalid || sampler_spread(w, share, &done))) return done;
  done = sampler_best_alone(w, temperature, share);
  w->row->spread = w->beyond < R_INF;
  if (!done && !opened) sampler_first_pass(w, temperature, true, false);
  return done;
}

static bool divides(const smx_step *s) {
  return s->kind == SMX_STEP_TEMPERATURE || s->kind == SMX_STEP_DYNAMIC_TEMPERATURE;
}

/* Whether something was left to draw from. The row is overwritten in the last attempt only. */
static bool sampler_try(sampler_row *row, bool careful, bool last) {
  sampler_work *const work = row->work;
  sampler *const w = &work->own;
  *w = (sampler){.row = row,
                 .work = work,
                 .careful = careful,
                 .z = row->scratch[0],
                 .terms = row->scratch[1],
                 .keys = row->scratch[2],
                 .room = row->room,
                 .n = row->n,
                 .low = -R_INF,
                 .bar = -R_INF,
                 .beyond = R_INF};
  const draws coin = {row->seed, row->stream, PURPOSE_COIN};
  const smx_step *s = row->steps, *end = s + row->step_count;
  double temperature = 1;
  row->index = -1;
  row->log = (double)r_nan();
  if (s < end && s->kind == SMX_STEP_TEMPERATURE && s->a != 0 &&
      !(careful && sampler_frozen(row->x, row->n, s->a)))
    temperature = s++->a;
  if (!row->step_count && row->draw == SMX_DRAW_GREEDY) w->z = (real *)(uintptr_t)row->x; /* read only */
  else if (s + 1 == end && s->kind == SMX_STEP_ALLOW && sampler_allow_few(w, temperature, s)) s++;
  else if (s < end && s->kind == SMX_STEP_TOP_P && s->a < 1) s += sampler_begin(w, temperature, s->a);
  else sampler_first_pass(w, temperature, s == end || step_sums(s), false);
  for (; s < end && !w->invalid; s++, w->beyond = R_INF) sampler_step(w, s, &coin);
  if (!w->invalid) sampler_finish(w);
  if (w->invalid) row->status = sampler_verdict(w);
  if (last || !w->invalid) sampler_show(w);
  return !w->invalid;
}

/* The best alone, of which nothing else is wanted. False: there is none, or a NaN or +inf. */
static bool sampler_greedy(sampler_row *row) {
  search b;
  if (row->step_count || row->draw != SMX_DRAW_GREEDY || row->logs || row->processed) return false;
  if (!sampler_best_plain(row, &b)) return false;
  for (size_t j = 0; j < row->draws; j++) row->indices[j] = b.index;
  row->index = b.index, row->status = SMX_ROW_OK;
  return b.index >= 0;
}

void SMX_FN(sampler_run)(sampler_row *row);
void SMX_FN(sampler_run)(sampler_row *row) {
  size_t i = 0;
  if (sampler_greedy(row)) return;
  while (i < row->step_count && !divides(row->steps + i)) i++;
  const bool last = i == row->step_count;
  if (!sampler_try(row, false, last) && !last) sampler_try(row, true, true);
}
