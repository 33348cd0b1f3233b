/* engine/logcumsumexp.c - logcumsumexp and its gradient (logcumsumexp.h). */
#include "logcumsumexp.h"

enum { LOGCUMSUMEXP_CHECK, LOGCUMSUMEXP_RUN, LOGCUMSUMEXP_FILL };

static void logcumsumexp_forward_block(const span *s, size_t i, int cnt, row_state *st) {
  real x[LANES], away[LANES], e[LANES], m[LANES], d[LANES] = {0};
  real max = (real)st->cumulative.max;
  v_store(x, at(s->src[0], i, cnt));
  for (int j = 0; j < LANES; j++) {
    real up = x[j] - max; /* NaN only for -inf - -inf */
    away[j] = up > 0 ? -up : up == up ? up : -R_INF;
    m[j] = max = x[j] > max ? x[j] : max;
  }
  v_store(e, v_exp(v_load(away)));
  double sum = st->cumulative.sum;
  max = (real)st->cumulative.max;
  for (int j = 0; j < cnt; j++) {
    if (x[j] <= max) sum += max > -R_INF ? (double)e[j] : 0;
    else sum = max > -R_INF ? (sum + 1) * (double)e[j] : 0;
    max = m[j];
    d[j] = (real)sum;
  }
  st->cumulative.sum = sum;
  st->cumulative.max = (double)max;
  vreal top = v_load(m), y = v_add(top, v_log1p_pos(v_load(d)));
  y = v_select(v_eq(top, v_set1(-R_INF)), top, y);
  y = v_select(v_eq(top, v_set1(R_INF)), top, y);
  put(s->dst[0], i, cnt, v_clean(y));
}

static void logcumsumexp_backward_block(const span *s, size_t i, int cnt, row_state *st) {
  real y[LANES], next[LANES], r[LANES], g[LANES], v[LANES] = {0};
  vreal yv = at(s->src[SRC_Y], i, cnt), none = v_set1(-R_INF);
  v_store(y, yv);
  for (int j = 0; j < LANES; j++) next[j] = j + 1 < cnt ? y[(j + 1) % LANES] : (real)st->cumulative.next;
  vmask gone = v_eq(yv, none);
  v_store(r, v_exp(v_select(gone, none, v_sub(yv, v_load(next)))));
  v_store(g, at(s->src[SRC_DY], i, cnt));
  double sum = st->cumulative.sum;
  for (int j = cnt - 1; j >= 0; j--) v[j] = (real)(sum = (double)g[j] + sum * (double)r[j]);
  st->cumulative.sum = sum;
  st->cumulative.next = (double)y[0];
  vreal weight = v_exp(v_select(gone, none, v_sub(at(s->src[0], i, cnt), yv)));
  put(s->dst[0], i, cnt, v_clean(v_mul(v_load(v), weight)));
}

static void logcumsumexp_begin(const void *body, const row_call *c, row_state *st) {
  st->mode = LOGCUMSUMEXP_CHECK;
  st->writes = st->reverse = st->serial = st->nan = st->empty = false;
  st->cumulative = (cumulative_state){.next = (double)R_INF, .max = -R_INF};
}

/* Looks for NaN in what is read and for +inf and valid elements in x. */
static void logcumsumexp_check_group(const span *s, size_t i, size_t n, bool backward, row_part *part) {
  const int ports[] = {0, SRC_Y, SRC_DY};
  *part = (row_part){.index = -1, .max = (double)-R_INF};
  for (int p = 0; p < (backward ? 3 : 1); p++)
    for (size_t j = i; j < i + n; j += LANES) {
      int cnt = lanes_left(i + n - j);
      vreal x = at(s->src[ports[p]], j, cnt);
      part->nan |= m_any(m_not(v_eq(x, x)));
      if (p == 0) part->sum += m_any(m_and(v_lt(v_set1(-R_INF), x), lanes_below(cnt)));
      if (p == 0) part->sum2 += m_any(v_eq(x, v_set1(R_INF)));
    }
}

static void logcumsumexp_pass(const void *body, const row_call *c, row_state *st, row_part *parts) {
  const bool backward = *(const bool *)body;
  span s = span_of(c, 0);
  size_t base = c->start - c->origin, groups = (c->count + GROUP - 1) / GROUP;
  for (size_t j = 0; j < groups; j++) {
    size_t g = st->reverse ? groups - 1 - j : j, i = base + g * GROUP, n = group_size(g * GROUP, c->count);
    parts[g] = (row_part){.index = -1};
    if (st->mode == LOGCUMSUMEXP_CHECK) logcumsumexp_check_group(&s, i, n, backward, parts + g);
    if (st->mode == LOGCUMSUMEXP_FILL) fill(s.dst[0] + i, n, (real)st->cumulative.fill);
    if (st->mode != LOGCUMSUMEXP_RUN) continue;
    size_t blocks = (n + LANES - 1) / LANES;
    for (size_t q = 0; q < blocks; q++) {
      size_t at_block = (backward ? blocks - 1 - q : q) * LANES;
      int cnt = lanes_left(n - at_block);
      if (backward) logcumsumexp_backward_block(&s, i + at_block, cnt, st);
      else logcumsumexp_forward_block(&s, i + at_block, cnt, st);
    }
  }
}

static void logcumsumexp_merge(const void *body, const row_call *c, row_state *st, const row_part *parts,
                               size_t count) {
  if (st->mode != LOGCUMSUMEXP_CHECK) return;
  for (size_t g = 0; g < count; g++) {
    st->nan |= parts[g].nan;
    st->cumulative.infinite |= parts[g].sum2 > 0;
    st->cumulative.valid |= parts[g].sum > 0;
  }
}

static bool logcumsumexp_next(const void *body, const row_call *c, row_state *st) {
  const bool backward = *(const bool *)body;
  if (st->writes) return false;
  st->writes = true;
  st->mode = LOGCUMSUMEXP_RUN;
  st->serial = true;
  st->reverse = backward;
  if (st->nan || (st->cumulative.infinite && c->on_inf != SMX_INF_LIMIT)) {
    st->mode = LOGCUMSUMEXP_FILL, st->serial = false;
    st->cumulative.fill = (double)r_nan();
  } else if (!st->cumulative.valid && !backward) {
    st->empty = true;
    if (c->on_empty == SMX_EMPTY_ERROR) return false;
    st->mode = LOGCUMSUMEXP_FILL, st->serial = false;
    st->cumulative.fill = (double)(c->on_empty == SMX_EMPTY_NAN ? r_nan() : -R_INF);
  }
  return true;
}

const row_engine logcumsumexp_engine = {logcumsumexp_begin, logcumsumexp_pass, logcumsumexp_merge,
                                        logcumsumexp_next, run_rows};
