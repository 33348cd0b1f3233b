/* head/functions_chain.c - the model of a chain, log Z of its sequences, and their best paths (see
 * functions_chain.h). */
#include <string.h>

#include "functions_chain.h"
#include "functions_chain_steps.h"

/* ---- the model ---- */

size_t chain_bytes(const chain *m) {
  const int64_t tiles = m->panels * m->panels * HEAD_TILE * (m->gradients ? 2 : 1);
  return sizeof(double) * (size_t)(m->k * m->wide + 3 * m->wide + tiles);
}

chain chain_of(const tensor_call *c, int target, bool gradients) {
  chain m = {.c = c,
             .kernels = head_doubles(),
             .math = head_math(),
             .start = target < 0 ? 2 : target + 1,
             .mask = target < 0 ? 4 : target + 3,
             .target = target,
             .gradients = gradients,
             .sequences = c->dims.lead_count,
             .tokens = tensor_dim(c, "l"),
             .k = tensor_dim(c, "k")};
  m.panels = (m.k + HEAD_PANEL - 1) / HEAD_PANEL, m.wide = (m.k + 7) / 8 * 8;
  return m;
}

static void scores_of(const chain *m, int port, double *to) {
  memset(to, 0, sizeof *to * (size_t)m->wide);
  if (m->c->in.given[port]) tensor_load(m->c, m->c->in.view + port, 0, m->k, to);
}

/* The largest of each column, or a NaN of it. */
static void find_most(chain *m) {
  for (int64_t j = 0; j < m->wide; j++) m->most[j] = -__builtin_inf();
  for (int64_t i = 0; i < m->k; i++)
    for (int64_t j = 0; j < m->k; j++) {
      const double a = m->transitions[i * m->wide + j];
      if (a > m->most[j] || a != a) m->most[j] = a;
    }
}

/* Where element (row, column) of k x k is in tiles. */
static double *in_tiles(const chain *m, double *tiles, int64_t row, int64_t column) {
  return tiles + (row / HEAD_CHAIN * m->panels + column / HEAD_PANEL) * HEAD_TILE +
         row % HEAD_CHAIN * HEAD_PANEL + column % HEAD_PANEL;
}

void chain_open(chain *m, char *memory) {
  double *at = (double *)(void *)memory;
  const int64_t tiles = m->panels * m->panels * HEAD_TILE;
  m->tiles = at, at += tiles;
  if (m->gradients) m->turned = at, at += tiles;
  m->transitions = at, at += m->k * m->wide;
  m->most = at, m->first = at + m->wide, m->last = at + 2 * m->wide;
  memset(m->tiles, 0, sizeof *at * (size_t)tiles);
  if (m->gradients) memset(m->turned, 0, sizeof *at * (size_t)tiles);
  memset(m->transitions, 0, sizeof *at * (size_t)(m->k * m->wide));
  for (int64_t i = 0; i < m->k; i++)
    tensor_load(m->c, m->c->in.view + CHAIN_TRANSITIONS, i * m->k, m->k, m->transitions + i * m->wide);
  scores_of(m, m->start, m->first), scores_of(m, m->start + 1, m->last);
  find_most(m);
  for (int64_t i = 0; i < m->k; i++)
    for (int64_t j = 0; j < m->k; j++) {
      const double a = m->transitions[i * m->wide + j] - m->most[j], e = a == a ? m->math->exp(a) : 0;
      *in_tiles(m, m->tiles, i, j) = e;
      if (m->gradients) *in_tiles(m, m->turned, j, i) = e;
    }
}

void chain_times(const chain *m, const double *tiles, const head_product *a, int64_t panel_step, double *to) {
  head_product p = *a;
  p.factor = 1;
  for (int64_t panel = 0; panel < m->panels; panel++)
    for (int64_t x = 0; x < m->panels; x++) {
      p.columns = chain_least(HEAD_PANEL, m->k - panel * HEAD_PANEL);
      p.depth = chain_least(HEAD_CHAIN, m->k - x * HEAD_CHAIN);
      p.a = (const double *)a->a + x * panel_step, p.b = tiles + (x * m->panels + panel) * HEAD_TILE;
      p.c = to + panel * HEAD_PANEL, p.first = x == 0, p.last = x == m->panels - 1;
      m->kernels->product(&p);
    }
}

/* ---- a sequence ---- */

static int64_t rows_kept(const chain *m) { return m->gradients ? m->tokens : 2; }

size_t chain_walk_bytes(const chain *m) {
  const int64_t blocks = m->gradients ? CHAIN_BLOCK * (2 * m->wide + m->panels * HEAD_PANEL) : 0;
  return sizeof(double) * (size_t)((m->tokens + 7) / 8 * 8 + (rows_kept(m) + CHAIN_ROWS) * m->wide + blocks);
}

/* Tokens that count. */
static int64_t find_tokens(const chain *m, int64_t number, int64_t *at) {
  const tensor_call *c = m->c;
  const int64_t first = number * m->tokens;
  const int64_t ignored = m->target < 0 ? 0 : (int64_t)tensor_param(c, "ignore_index");
  const char *shown = c->in.given[m->mask] ? c->in.view[m->mask].data + first : NULL;
  const int64_t *target = m->target < 0 ? NULL : (const int64_t *)(void *)c->in.view[m->target].data + first;
  int64_t count = 0;
  for (int64_t t = 0; t < m->tokens; t++)
    if ((!shown || shown[t]) && (!target || target[t] != ignored)) at[count++] = t;
  return count;
}

void chain_begin(chain_walk *w, const chain *m, int64_t number, char *memory) {
  double *at = (double *)(void *)memory;
  *w = (chain_walk){.m = m, .number = number, .at = (int64_t *)(void *)memory};
  at += (m->tokens + 7) / 8 * 8;
  double **const rows[CHAIN_ROWS] = {&w->x, &w->p, &w->e, &w->logs, &w->w, &w->g};
  if (m->gradients) {
    w->q = at, at += CHAIN_BLOCK * m->panels * HEAD_PANEL;
    w->block_x = at, at += CHAIN_BLOCK * m->wide;
    w->block_p = at, at += CHAIN_BLOCK * m->wide;
  }
  for (int i = 0; i < CHAIN_ROWS; i++, at += m->wide) *rows[i] = at;
  w->rows = at;
  w->count = find_tokens(m, number, w->at);
}

void chain_emission(const chain_walk *w, int64_t t, double *e) {
  const chain *m = w->m;
  tensor_load(m->c, m->c->in.view, (w->number * m->tokens + w->at[t]) * m->k, m->k, e);
}

void chain_plain(const chain *m, const double *v, double *x) {
  for (int64_t j = 0; j < m->k; j++) x[j] = v[j] > 0 ? v[j] : 0;
}
void chain_logs(const chain *m, const double *v, double *logs) {
  for (int64_t j = 0; j < m->k; j++) logs[j] = v[j] > 0 ? m->math->log(v[j]) : v[j];
}

double chain_column(const chain *m, const double *logs, int64_t j) {
  double most = -__builtin_inf(), sum = 0;
  for (int64_t i = 0; i < m->k; i++) {
    const double x = logs[i] + m->transitions[i * m->wide + j];
    if (x > most) most = x;
  }
  if (most == -__builtin_inf()) return most;
  for (int64_t i = 0; i < m->k; i++) sum += m->math->exp(logs[i] + m->transitions[i * m->wide + j] - most);
  return most + m->math->log(sum);
}

static double number_of(const chain *m, double log) { return log >= CHAIN_LOW_LOG ? m->math->exp(log) : log; }

/* The row whose logarithms, beside the scale, are l; the largest goes to the scale. */
static void take_logs(chain_walk *w, const double *l, double *row) {
  double most = -__builtin_inf();
  for (int64_t j = 0; j < w->m->k; j++) {
    if (l[j] != l[j] || l[j] == __builtin_inf()) w->bad = true;
    if (l[j] > most) most = l[j];
  }
  if (most > -__builtin_inf()) head_add(&w->peaks, most);
  for (int64_t j = 0; j < w->m->k; j++) {
    row[j] = number_of(w->m, most > -__builtin_inf() ? l[j] - most : l[j]);
  }
}

/* 2^n, |n| < 1023; and the exponent of a normal number. */
static double power_of_two(int64_t n) {
  const int64_t bits = (n + 1023) << 52;
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
static int64_t exponent_of(double x) {
  int64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (bits >> 52) - 1023;
}

/* A step of which some sums or numbers are small: those by logarithms. Where all are small the
 * scale begins anew. */
static void small_step(chain_walk *w, const double *before, const head_step *s, double by, double shift,
                       double *row) {
  const chain *m = w->m;
  const bool anew = by == 0;
  chain_logs(m, before, w->logs);
  for (int64_t j = 0; j < m->k; j++) {
    const double z = w->e[j] + m->most[j];
    double log = z;
    if (!anew && s->p[j] >= CHAIN_SUM && s->w[j] * by >= CHAIN_LOW) {
      row[j] = s->w[j] * by;
      continue;
    }
    if (z > -__builtin_inf())
      log = s->p[j] >= CHAIN_SUM ? m->math->log(s->p[j]) + z : chain_column(m, w->logs, j) + w->e[j];
    row[j] = anew ? log : number_of(m, log - shift);
  }
  if (!anew) return;
  memcpy(w->x, row, sizeof *row * (size_t)m->k);
  take_logs(w, w->x, row);
}

static void step(chain_walk *w, const double *before, double *row) {
  const chain *m = w->m;
  head_step s = {.p = w->p, .e = w->e, .most = m->most, .w = row, .n = m->k};
  chain_plain(m, before, w->x);
  chain_times(m, m->tiles, &(head_product){.rows = 1, .a = w->x, .a_depth = 1}, HEAD_CHAIN, w->p);
  m->kernels->chain->step(&s);
  w->bad |= s.peak != s.peak || s.peak == __builtin_inf();
  const bool anew = !(s.w_most >= CHAIN_LOW);
  const int64_t exponent = anew ? 0 : exponent_of(s.w_most);
  const double by = anew ? 0 : power_of_two(-exponent);
  if (anew || !(s.p_least >= CHAIN_SUM && s.w_least * by >= CHAIN_LOW))
    small_step(w, before, &s, by, s.peak + (double)exponent * CHAIN_LN2, row);
  else
    for (int64_t j = 0; j < m->k; j++) row[j] *= by;
  if (!anew) head_add(&w->peaks, s.peak), w->exponent += exponent;
}

static void first_step(chain_walk *w, double *row) {
  const chain *m = w->m;
  chain_emission(w, 0, w->e);
  for (int64_t j = 0; j < m->k; j++) w->e[j] += m->first[j];
  take_logs(w, w->e, row);
}

/* log Z from the last row. */
static void finish(chain_walk *w, const double *row) {
  const chain *m = w->m;
  double most = -__builtin_inf(), sum = 0;
  chain_logs(m, row, w->logs);
  for (int64_t j = 0; j < m->k; j++) {
    w->logs[j] += m->last[j];
    w->bad |= w->logs[j] != w->logs[j] || w->logs[j] == __builtin_inf();
    if (w->logs[j] > most) most = w->logs[j];
  }
  for (int64_t j = 0; j < m->k && most > -__builtin_inf(); j++) sum += m->math->exp(w->logs[j] - most);
  w->lse = most > -__builtin_inf() ? most + m->math->log(sum) : most;
  w->log_z = w->peaks;
  head_add(&w->log_z, (double)w->exponent * CHAIN_LN2_HIGH);
  head_add(&w->log_z, (double)w->exponent * CHAIN_LN2_LOW + w->lse);
}

double chain_forward(chain_walk *w) {
  const chain *m = w->m;
  const int64_t kept = rows_kept(m);
  if (w->count == 0) return 0;
  first_step(w, w->rows);
  for (int64_t t = 1; t < w->count && !w->bad; t++) {
    chain_emission(w, t, w->e);
    step(w, w->rows + (t - 1) % kept * m->wide, w->rows + t % kept * m->wide);
  }
  if (!w->bad) finish(w, w->rows + (w->count - 1) % kept * m->wide);
  if (w->bad) w->log_z = (head_sum){__builtin_nan(""), 0};
  return w->log_z.high + w->log_z.low;
}

head_sum chain_score(const chain_walk *w, const int64_t *tag) {
  const chain *m = w->m;
  head_sum s = {0, 0};
  for (int64_t t = 0; t < w->count; t++) {
    const int64_t y = tag[w->at[t]];
    double e;
    tensor_load(m->c, m->c->in.view, (w->number * m->tokens + w->at[t]) * m->k + y, 1, &e);
    head_add(&s, e);
    head_add(&s, t ? m->transitions[tag[w->at[t - 1]] * m->wide + y] : m->first[y]);
  }
  if (w->count) head_add(&s, m->last[tag[w->at[w->count - 1]]]);
  return s;
}
