/* head/functions_chain_back.c - gradients of log Z, from the last token to the first, and the best
 * path (see functions_chain.h). */
#include <string.h>

#include "functions_chain.h"
#include "functions_chain_steps.h"

/* mu of the last token. */
static void last_gradients(chain_walk *w, double weight) {
  for (int64_t j = 0; j < w->m->k; j++) w->g[j] = weight * w->m->math->exp(w->logs[j] - w->lse);
}

static void add_row(double *sum, const double *x, int64_t n) {
  for (int64_t j = 0; j < n; j++) sum[j] += x[j];
}

/* de = mu - loss where the tag is. */
static void put_gradients(const chain_walk *w, int64_t t, double loss, const int64_t *tag, char *de) {
  const chain *m = w->m;
  memcpy(w->e, w->g, sizeof *w->e * (size_t)m->k);
  if (tag) w->e[tag[w->at[t]]] -= loss;
  smx_reals_store(m->c->is_f64, w->e, m->k, de + w->at[t] * m->k * (m->c->is_f64 ? 8 : 4));
}

/* What q leaves out: columns whose sums are small. */
static void small_gradients(chain_walk *w, const double *v, const double *p, double *before,
                            const chain_sums *sums) {
  const chain *m = w->m;
  chain_logs(m, v, w->logs);
  for (int64_t j = 0; j < m->k; j++) {
    if (p[j] >= CHAIN_SUM || w->g[j] == 0) continue;
    const double column = chain_column(m, w->logs, j);
    for (int64_t i = 0; i < m->k; i++) {
      const double a = w->logs[i] + m->transitions[i * m->wide + j];
      const double x = a > -__builtin_inf() ? w->g[j] * m->math->exp(a - column) : 0;
      before[i] += x;
      if (sums->others) sums->others[i * m->wide + j] += x;
    }
  }
}

/* mu of token t becomes that of the token before; row: of the block, where x, p and q are. */
static void step_back(chain_walk *w, int64_t t, int64_t row, const chain_sums *sums) {
  const chain *m = w->m;
  const double *v = w->rows + (t - 1) * m->wide, *p = w->block_p + row * m->wide,
               *x = w->block_x + row * m->wide;
  bool small = false;
  for (int64_t panel = 0; panel < m->panels; panel++) {
    const int64_t j = panel * HEAD_PANEL;
    small |= m->kernels->chain->divide(w->g + j, p + j, chain_least(HEAD_PANEL, m->k - j), CHAIN_SUM,
                                       w->q + panel * HEAD_TILE + row * HEAD_PANEL);
  }
  const head_product q = {.rows = 1, .a = w->q + row * HEAD_PANEL, .a_depth = 1};
  chain_times(m, m->turned, &q, HEAD_TILE, w->w);
  for (int64_t i = 0; i < m->k; i++) w->w[i] *= x[i];
  if (small) small_gradients(w, v, p, w->w, sums);
  double *const swap = w->g;
  w->g = w->w, w->w = swap;
}

/* x of the tokens before those from..to, and the sums p. */
static void open_block(chain_walk *w, int64_t from, int64_t to) {
  const chain *m = w->m;
  for (int64_t t = from; t < to; t++)
    chain_plain(m, w->rows + (t - 1) * m->wide, w->block_x + (t - from) * m->wide);
  head_product p = {.rows = to - from, .a = w->block_x, .a_row = m->wide, .a_depth = 1, .c_row = m->wide};
  chain_times(m, m->tiles, &p, HEAD_CHAIN, w->block_p);
}

/* x^T q of a block. */
static void close_block(const chain_walk *w, int64_t rows, double *products) {
  const chain *m = w->m;
  head_product p = {.depth = rows, .a_row = 1, .a_depth = m->wide, .c_row = m->panels * HEAD_PANEL};
  for (int64_t panel = 0; panel < m->panels; panel++) {
    p.rows = m->k, p.columns = chain_least(HEAD_PANEL, m->k - panel * HEAD_PANEL), p.factor = 1;
    p.a = w->block_x, p.b = w->q + panel * HEAD_TILE, p.c = products + panel * HEAD_PANEL;
    m->kernels->product(&p);
  }
}

/* What the path of the tags takes off. */
static void take_path(const chain_walk *w, double loss, const int64_t *tag, const chain_sums *s) {
  for (int64_t t = 1; t < w->count && s->others; t++)
    s->others[tag[w->at[t - 1]] * w->m->wide + tag[w->at[t]]] -= loss;
  if (s->first) s->first[tag[w->at[0]]] -= loss;
  if (s->last) s->last[tag[w->at[w->count - 1]]] -= loss;
}

/* A sequence that is bad makes all its gradients NaN. */
static void fill_gradients(const chain_walk *w, double value, char *de, const chain_sums *s) {
  const chain *m = w->m;
  for (int64_t j = 0; j < m->k; j++) w->g[j] = value;
  for (int64_t t = 0; t < w->count && de; t++) put_gradients(w, t, 0, NULL, de);
  if (s->others)
    for (int64_t i = 0; i < m->k; i++) add_row(s->others + i * m->wide, w->g, m->k);
  if (s->first) add_row(s->first, w->g, m->k);
  if (s->last) add_row(s->last, w->g, m->k);
}

void chain_backward(chain_walk *w, double weight, double loss, const int64_t *tag, char *de,
                    const chain_sums *sums) {
  const chain *m = w->m;
  if (w->count == 0) return;
  if (w->bad || !(w->lse > -__builtin_inf())) {
    fill_gradients(w, w->bad ? __builtin_nan("") : 0, de, sums);
    return;
  }
  last_gradients(w, weight);
  if (sums->last) add_row(sums->last, w->g, m->k);
  for (int64_t to = w->count, from; to > 0; to = from) {
    from = to > 1 ? (to - 2) / CHAIN_BLOCK * CHAIN_BLOCK + 1 : 0;
    if (to > 1) open_block(w, from, to);
    for (int64_t t = to - 1; t >= from; t--) {
      if (de) put_gradients(w, t, loss, tag, de);
      if (t > 0) step_back(w, t, t - from, sums);
    }
    if (to > 1 && sums->products) close_block(w, to - from, sums->products);
  }
  if (sums->first) add_row(sums->first, w->g, m->k);
  if (tag) take_path(w, loss, tag, sums);
}

void chain_transitions(const chain *m, const chain_sums *s, double *sum) {
  for (int64_t i = 0; i < m->k; i++)
    for (int64_t j = 0; j < m->k; j++) {
      const double e = m->tiles[(i / HEAD_CHAIN * m->panels + j / HEAD_PANEL) * HEAD_TILE +
                                i % HEAD_CHAIN * HEAD_PANEL + j % HEAD_PANEL];
      sum[i * m->k + j] += e * s->products[i * m->panels * HEAD_PANEL + j] + s->others[i * m->wide + j];
    }
}

/* ---- the best path ---- */

static bool is_bad(const double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (x[i] != x[i] || x[i] == __builtin_inf()) return true;
  return false;
}

/* The row x of token t from that of the token before, with which e changes places. */
static void best_step(chain_walk *w, int64_t t, int32_t *from) {
  const chain *m = w->m;
  const double *more = m->first;
  chain_emission(w, t, w->e);
  if (t) {
    m->kernels->chain->best(w->x, m->k, m->transitions, m->wide, m->k, w->p, w->g);
    for (int64_t j = 0; j < m->k; j++) from[t * m->k + j] = (int32_t)w->g[j];
    more = w->p;
  }
  add_row(w->e, more, m->k);
  w->bad |= is_bad(w->e, m->k) || (t && is_bad(m->most, m->k));
  double *const swap = w->x;
  w->x = w->e, w->e = swap;
}

double chain_best(chain_walk *w, int32_t *from, int64_t *tag) {
  const chain *m = w->m;
  const double none = -__builtin_inf();
  double most = none;
  int64_t y = -1;
  for (int64_t t = 0; t < m->tokens; t++) tag[t] = -1;
  if (w->count == 0) return 0;
  for (int64_t t = 0; t < w->count && !w->bad; t++) best_step(w, t, from);
  for (int64_t j = 0; j < m->k && !w->bad; j++) {
    const double x = w->x[j] + m->last[j];
    w->bad |= x != x || x == __builtin_inf();
    if (x > most) most = x, y = j;
  }
  if (w->bad) return __builtin_nan("");
  if (y < 0) return none;
  for (int64_t t = w->count - 1; t >= 0; t--) {
    tag[w->at[t]] = y;
    if (t) y = from[t * m->k + y];
  }
  const head_sum s = chain_score(w, tag);
  return s.high + s.low;
}
