/* linear_attention/functions_forward.c - linear_attention: y of every token, and the state.
 *
 *   S_t = a_t S_(t-1) + k_t u_t,  u_t = v_t or beta_t (v_t - k_t a_t S_(t-1)),  out_t = q_t S_t
 *
 * A head of keys is a task, with the heads of queries that share it: its state is formed for each
 * of them. Without causal order all keys come before the first query. */
#include <string.h>

#include "functions.h"
#include "functions_walks.h"

enum { CHUNK = 48 }; /* tokens, staged together, at most: whole tiles and vectors */

typedef struct forward_call {
  state_call s;
  int64_t chunk;
  smx_scratch scratch;
} forward_call;

/* What a task works in. */
typedef struct forward_work {
  state_tokens t;
  char *state, *out, *all, *delta, *recall;
  state_made made;
  double *y, *over; /* over: of the tokens of a chunk */
  const char *past; /* what the next walk begins with, if that is not in state */
  state_ahead ahead[AHEAD];
} forward_work;

static size_t work_of(const forward_call *f, char *memory, forward_work *w) {
  const state_call *s = &f->s;
  const int64_t rows = f->chunk * s->wide_n, tokens = state_tokens_size(s, f->chunk, false);
  const int64_t reals = tokens + s->m * s->wide_n + (s->delta ? 4 : 2) * rows;
  if (!memory) return (size_t)(reals * s->bytes) + (size_t)(4 * s->wide_n + f->chunk) * sizeof(double);
  w->t = state_tokens_at(s, f->chunk, false, memory), memory += tokens * s->bytes;
  w->state = memory, w->out = w->state + s->m * s->wide_n * s->bytes, w->all = w->out + rows * s->bytes;
  w->delta = w->all + rows * s->bytes, w->recall = w->delta + rows * s->bytes;
  w->made.out = (double *)(void *)(w->all + (s->delta ? 3 : 1) * rows * s->bytes);
  w->made.all = w->made.out + s->wide_n, w->y = w->made.all + s->wide_n, w->over = w->y + s->wide_n;
  return 0;
}

/* Whether the sums of the weights are a column that v and out have no room for: then those stay as
 * they lie, and the walks have no vectors of one number. */
static bool is_apart(const state_call *s) { return s->wide_v < s->n; }

static char *y_rows(const state_call *s, int64_t item, int64_t head, int64_t first) {
  return state_rows(s, s->c->out.view + OUT_Y, item, s->groups * s->per, head, s->queries, first, s->e);
}

/* What `state_norm_of` has of NORM_SUM, in the kernel. */
static void over_its_sum(const state_call *s, const char *out, char *y) {
  double sum;
  smx_reals_load(s->c->is_f64, out + s->e * s->bytes, 1, &sum);
  s->kernels->times(state_inverse(sum + s->eps), out, s->e, y);
}

static void write_queries(const state_call *s, int64_t item, int64_t head, int64_t first, int64_t count,
                          forward_work *w) {
  const bool f64 = s->c->is_f64;
  char *to = y_rows(s, item, head, first);
  if (s->norm == NORM_NONE) {
    for (int64_t i = 0; i < count && w->out != to; i++)
      memcpy(to + i * s->e * s->bytes, state_at(s, w->out, i, s->wide_n), (size_t)(s->e * s->bytes));
    if (s->delta) s->kernels->clean(to, count * s->e, true);
    return;
  }
  if (is_apart(s)) return; /* the walk did */
  if (s->norm == NORM_SUM) {
    for (int64_t i = 0; i < count; i++)
      over_its_sum(s, state_at(s, w->out, i, s->wide_n), state_at(s, to, i, s->e));
    s->kernels->clean(to, count * s->e, true);
    return;
  }
  for (int64_t i = 0; i < count; i++, to += s->e * s->bytes) {
    smx_reals_load(f64, state_at(s, w->out, i, s->wide_n), s->n, w->made.out);
    smx_reals_load(f64,
                   s->causal ? state_at(s, w->all, i, s->wide_n) : state_at(s, w->state, s->d, s->wide_n),
                   s->n, w->made.all);
    state_norm_of(s, &w->made, w->y);
    smx_reals_store(f64, w->y, s->e, to);
  }
}

/* Whether a walk of the tokens of a chunk leaves the state where it is an output, all of it. */
static bool is_result(const state_call *s, bool queries) {
  return s->keys == 1 && queries && s->causal && s->n == s->wide_n && s->n == s->e;
}

/* Tokens of one chunk: their keys are added to the state, their queries read it. */
static void walk_chunk(const state_call *s, forward_work *w, int64_t count, bool keys, bool queries) {
  state_walk walk = walk_of(w->state, s->d, s->wide_v, s->wide_d, count);
  walk.stride = s->wide_n;
  if (s->n > s->e && keys && !is_apart(s)) {
    state_walk sums = walk_of(state_at(s, w->state, s->d, s->wide_n), 1, s->wide_n, 1, count);
    const bool reads = queries && s->norm != NORM_SUM;
    sums.step[0] = (state_step){w->t.kept, w->t.v, reads ? w->t.one : NULL, w->all};
    s->kernels->walk(&sums);
  }
  walk_shrinks(s, &walk, &w->t, false);
  if (is_apart(s)) {
    const state_sums sums = {w->state,  w->t.k,    w->t.q, w->t.v, w->t.kept, s->d,   s->e,
                             s->wide_n, s->wide_d, count,  w->all, s->eps,    w->over};
    s->kernels->sums(&sums);
    walk.over = w->over;
  }
  walk.cleans = queries && !s->delta && (s->norm == NORM_NONE || is_apart(s));
  walk.from = w->past, w->past = NULL;
  memcpy(walk.ahead, w->ahead, sizeof walk.ahead);
  if (s->delta) {
    walk.step[0] = (state_step){NULL, NULL, w->t.k, w->recall};
    walk.step[1] = (state_step){w->t.k, w->delta, w->t.q, w->out};
    walk.two = true, walk.rule = STATE_DELTA, walk.beta = w->t.beta, walk.value = w->t.v;
  } else {
    walk.step[0] = (state_step){keys ? w->t.k : NULL, w->t.v, queries ? w->t.q : NULL, w->out};
    if (is_result(s, queries))
      walk.result = (size_t)(s->c->dims.lead_count * s->groups * s->m * s->n * s->bytes);
  }
  s->kernels->walk(&walk);
}

/* `out` is y itself where its rows are wide. */
static void open_queries(const state_call *s, int64_t item, int64_t head, int64_t first, int64_t count,
                         forward_work *w) {
  state_stage_queries(s, item, head, first, count, &w->t);
  if (s->e == s->wide_v) w->out = y_rows(s, item, head, first);
}

/* The first walk may read the past where it is. */
static void begin_state(const state_call *s, int64_t item, int64_t group, forward_work *w) {
  const char *past = s->c->in.given[IN_PAST] ? s->c->in.view[IN_PAST].data : NULL;
  const bool there = past && s->n == s->wide_n && s->n == s->e && !s->delta && s->keys > 0;
  if (there) w->past = past + (item * s->groups + group) * s->m * s->n * s->bytes;
  else state_load(s, item, group, past, w->state);
}

/* Tokens of the next chunk, if there is one of as many. */
static void look_ahead(const forward_call *f, int64_t item, int64_t group, int64_t head, int64_t next,
                       forward_work *w) {
  const state_call *s = &f->s;
  const smx_view *in = s->c->in.view;
  memset(w->ahead, 0, sizeof w->ahead);
  if (!s->causal || next + f->chunk > s->keys) return;
  const int64_t d = s->d * s->bytes, e = s->e * s->bytes;
  w->ahead[0] =
      (state_ahead){state_rows(s, in + IN_Q, item, s->groups * s->per, head, s->queries, next, s->d), d};
  w->ahead[1] = (state_ahead){state_rows(s, in + IN_K, item, s->groups, group, s->keys, next, s->d), d};
  w->ahead[2] = (state_ahead){state_rows(s, in + IN_V, item, s->groups, group, s->keys, next, s->e), e};
  if (s->e == s->wide_v) w->ahead[3] = (state_ahead){y_rows(s, item, head, next), e};
}

static void walk_head(const forward_call *f, int64_t item, int64_t group, int64_t head, forward_work *w) {
  const state_call *s = &f->s;
  begin_state(s, item, group, w);
  for (int64_t first = 0; first < s->keys; first += f->chunk) {
    const int64_t count = s->keys - first < f->chunk ? s->keys - first : f->chunk;
    state_stage_keys(s, item, group, first, count, &w->t);
    if (s->causal) open_queries(s, item, head, first, count, w);
    look_ahead(f, item, group, head, first + f->chunk, w);
    walk_chunk(s, w, count, true, s->causal);
    if (s->causal) write_queries(s, item, head, first, count, w);
  }
  for (int64_t first = 0; !s->causal && first < s->queries; first += f->chunk) {
    const int64_t count = s->queries - first < f->chunk ? s->queries - first : f->chunk;
    open_queries(s, item, head, first, count, w);
    walk_chunk(s, w, count, false, true);
    write_queries(s, item, head, first, count, w);
  }
}

static void task(void *arg, int64_t number) {
  forward_call *f = arg;
  const state_call *s = &f->s;
  const int64_t item = number / s->groups, group = number % s->groups;
  char *memory = smx_scratch_take(&f->scratch);
  forward_work w = {0};
  work_of(f, memory, &w);
  if (s->n == s->wide_n) w.state = s->c->out.view[OUT_STATE].data + number * s->m * s->n * s->bytes;
  for (int64_t r = 0; r < s->per; r++) walk_head(f, item, group, group * s->per + r, &w);
  if (s->delta || !is_result(s, true)) state_store(s, item, group, w.state, s->c->out.view[OUT_STATE].data);
  smx_scratch_give(&f->scratch, memory);
}

smx_status linear_attention_forward(const tensor_call *c) {
  forward_call f;
  const smx_status status = state_open(&f.s, c);
  if (status != SMX_OK) return status;
  if (f.s.norm == NORM_SUM && f.s.causal && !f.s.decays && f.s.e % 16 == 0 && f.s.e > 0) f.s.wide_v = f.s.e;
  const int64_t tasks = c->dims.lead_count * f.s.groups, most = larger(f.s.queries, f.s.keys);
  f.chunk = most < CHUNK ? larger(most, 1) : CHUNK;
  if (!smx_scratch_open(&f.scratch, c->ctx, 0, work_of(&f, NULL, NULL), tasks))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for states of %lld x %lld", c->op->name, (long long)f.s.m,
                    (long long)f.s.n);
  smx_parallel(c->ctx, tasks, task, &f);
  smx_scratch_close(&f.scratch);
  return SMX_OK;
}
