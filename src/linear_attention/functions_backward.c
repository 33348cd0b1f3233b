/* linear_attention/functions_backward.c - the gradients of linear_attention, by walks too. With g_t
 * the gradient of out_t, dS that of the state from the last token to the first, and a turned state
 * being one whose rows are the columns of S:
 *
 *   forward, only where needed: out_t of the norm, or u_t and v_t - r_t of the delta rule
 *   backward, dS:               dS += q g, du = k dS [, dr = -beta du, dS += k dr], dS = a dS
 *   forward, S turned:          S = a S [, dk' = dr S], S += k u, dq = g S
 *   backward, dS turned:        dS += q g, dk = u dS [, dS += k dr], da = <dS, S before>, dS = a dS
 */
#include <string.h>

#include "functions_walks.h"

enum { CHUNK = 36 }; /* tokens between states that are kept: whole tiles */

typedef struct backward_call {
  state_call s;
  smx_scratch scratch;
  int64_t tokens; /* the more of queries and keys */
} backward_call;

typedef struct backward_work {
  state_tokens t;
  char *state, *out, *all, *g, *dall, *du, *dsum, *u, *recall, *dr; /* [tokens][wide_n] */
  char *dq, *dk, *more, *da;                                        /* [tokens][wide_d] */
  char *before, *kept; /* states of the tokens of a chunk, and before each chunk */
  state_made made;
  double *row, *other;
} backward_work;

/* The pieces of a task's memory; their bytes. */
static size_t work_of(const backward_call *f, char *memory, backward_work *w) {
  const state_call *s = &f->s;
  const int64_t tokens = state_tokens_size(s, f->tokens, true), turned = s->n * s->wide_d;
  const int64_t state = larger(s->m * s->wide_n, turned), chunks = f->tokens / CHUNK + 1;
  char **const wide[] = {&w->out, &w->all, &w->g, &w->dall, &w->du, &w->dsum, &w->u, &w->recall, &w->dr},
               **const narrow[] = {&w->dq, &w->dk, &w->more, &w->da};
  const int64_t of_n = f->tokens * s->wide_n, of_d = f->tokens * s->wide_d, wides = 9, narrows = 4;
  const int64_t states = s->decays ? CHUNK + chunks : 0;
  const int64_t reals = tokens + state + wides * of_n + narrows * of_d + states * turned;
  const int64_t doubles = 5 * s->wide_n + 2 * larger(s->wide_n, s->wide_d);
  if (!memory) return (size_t)(reals * s->bytes) + (size_t)doubles * sizeof(double);
  w->t = state_tokens_at(s, f->tokens, true, memory);
  memset(memory + tokens * s->bytes, 0, (size_t)((reals - tokens) * s->bytes));
  memory += tokens * s->bytes, w->state = memory, memory += state * s->bytes;
  for (int i = 0; i < wides; i++, memory += of_n * s->bytes) *wide[i] = memory;
  for (int i = 0; i < narrows; i++, memory += of_d * s->bytes) *narrow[i] = memory;
  w->before = memory, w->kept = w->before + (s->decays ? CHUNK * turned : 0) * s->bytes;
  double *next = (double *)(void *)(memory + states * turned * s->bytes);
  double **const made[] = {&w->made.out, &w->made.all, &w->made.dy, &w->made.dout, &w->made.dall};
  for (int i = 0; i < 5; i++, next += s->wide_n) *made[i] = next;
  w->row = next, w->other = next + larger(s->wide_n, s->wide_d);
  return 0;
}

/* ---- walks ---- */

/* x y is added for `adds` tokens, z S is read for `reads`: at once in causal order, or first all
 * the one and then all the other. */
typedef struct ends {
  const char *x, *z;
  char *y, *out;
  int64_t adds, reads;
} ends;

static void walk_ends(const state_call *s, state_walk w, const ends *e) {
  w.step[0] = (state_step){e->x, e->y, s->causal ? e->z : NULL, e->out};
  w.tokens = e->adds;
  s->kernels->walk(&w);
  if (s->causal) return;
  w.step[0] = (state_step){NULL, NULL, e->z, e->out};
  w.tokens = e->reads;
  s->kernels->walk(&w);
}

/* out and all of the norm; u and v - r of the delta rule */
static void walk_values(const state_call *s, backward_work *w) {
  state_walk walk = walk_of(w->state, s->d, s->wide_n, s->wide_d, s->keys);
  walk_shrinks(s, &walk, &w->t, false);
  if (s->delta) {
    walk.step[0] = (state_step){NULL, NULL, w->t.k, w->recall};
    walk.step[1] = (state_step){w->t.k, w->u, NULL, NULL};
    walk.two = true, walk.rule = STATE_DELTA, walk.beta = w->t.beta, walk.value = w->t.v;
    s->kernels->walk(&walk);
  } else if (s->n > s->e) {
    const ends e = {w->t.k, w->t.q, w->t.v, w->out, s->keys, s->queries};
    const ends sums = {w->t.kept, w->t.one, w->t.v, w->all, s->keys, s->queries};
    walk_ends(s, walk, &e);
    walk_ends(s, walk_of(state_at(s, w->state, s->d, s->wide_n), 1, s->wide_n, 1, 0), &sums);
  }
}

/* du, and dr of the delta rule; the state becomes the gradient of the past. */
static void walk_back(const state_call *s, backward_work *w) {
  const ends e = {w->t.q, w->t.k, w->g, w->du, s->queries, s->keys};
  state_walk walk = walk_of(w->state, s->d, s->wide_n, s->wide_d, s->keys);
  walk.backward = true;
  walk_shrinks(s, &walk, &w->t, false);
  if (s->delta) {
    walk.step[0] = (state_step){w->t.q, w->g, w->t.k, w->du};
    walk.step[1] = (state_step){w->t.k, w->dr, NULL, NULL};
    walk.two = true, walk.rule = STATE_BACK, walk.beta = w->t.beta;
    s->kernels->walk(&walk);
  } else {
    walk_ends(s, walk, &e);
  }
  if (s->n == s->e) return;
  const ends sums = {w->t.one, w->t.kept, w->dall, w->dsum, s->queries, s->keys};
  walk = walk_of(state_at(s, w->state, s->d, s->wide_n), 1, s->wide_n, 1, 0);
  walk.backward = true;
  walk_ends(s, walk, &sums);
}

static state_walk turned_walk(const state_call *s, const backward_work *w) {
  state_walk walk = walk_of(w->state, s->n, s->wide_d, s->wide_n, s->keys);
  walk_shrinks(s, &walk, &w->t, true);
  return walk;
}

static size_t turned_bytes(const state_call *s) { return (size_t)(s->n * s->wide_d * s->bytes); }

/* dq, and dk' of the delta rule; the states before each chunk. */
static void walk_turned(const state_call *s, backward_work *w, char *u) {
  const ends e = {u, w->g, w->t.k, w->dq, s->keys, s->queries};
  state_walk walk = turned_walk(s, w);
  if (!s->decays && !s->delta) {
    walk_ends(s, walk, &e);
    return;
  }
  walk.two = s->delta;
  walk.step[s->delta] = (state_step){u, w->t.k, w->g, w->dq};
  if (s->delta) walk.step[0] = (state_step){NULL, NULL, w->dr, w->more};
  for (int64_t first = 0; first < s->keys; first += CHUNK) {
    const int64_t count = s->keys - first < CHUNK ? s->keys - first : CHUNK;
    const state_walk part = walk_part(walk, first, count, s->bytes);
    if (s->decays) memcpy(w->kept + (size_t)(first / CHUNK) * turned_bytes(s), w->state, turned_bytes(s));
    s->kernels->walk(&part);
  }
}

/* The states before each token of a chunk, from that before the chunk. */
static void walk_again(const state_call *s, backward_work *w, char *u, int64_t first, int64_t count) {
  state_walk walk = turned_walk(s, w);
  walk.state = w->kept + (size_t)(first / CHUNK) * turned_bytes(s);
  walk.step[0] = (state_step){u, w->t.k, NULL, NULL};
  walk = walk_part(walk, first, count, s->bytes);
  walk.before = w->before;
  s->kernels->walk(&walk);
}

/* dk and da */
static void walk_turned_back(const state_call *s, backward_work *w, char *u) {
  const ends e = {w->g, u, w->t.q, w->dk, s->queries, s->keys};
  state_walk walk = turned_walk(s, w);
  walk.backward = true;
  if (!s->decays && !s->delta) {
    walk_ends(s, walk, &e);
    return;
  }
  walk.two = s->delta;
  walk.step[0] = (state_step){w->g, w->t.q, u, w->dk};
  if (s->delta) walk.step[1] = (state_step){w->dr, w->t.k, NULL, NULL};
  walk.product = s->decays ? w->da : NULL;
  for (int64_t first = (s->keys - 1) / CHUNK * CHUNK; first >= 0 && s->keys > 0; first -= CHUNK) {
    const int64_t count = s->keys - first < CHUNK ? s->keys - first : CHUNK;
    state_walk part = walk_part(walk, first, count, s->bytes);
    if (s->decays) walk_again(s, w, u, first, count);
    part.before = s->decays ? w->before : NULL;
    s->kernels->walk(&part);
  }
}

/* The first d rows of a state, turned. */
static void load_turned(const state_call *s, int64_t item, int64_t group, const char *from, char *state) {
  const int64_t first = (item * s->groups + group) * s->m;
  memset(state, 0, turned_bytes(s));
  for (int64_t i = 0; from && i < s->d; i++)
    for (int64_t j = 0; j < s->n; j++)
      memcpy(state + (j * s->wide_d + i) * s->bytes, from + ((first + i) * s->n + j) * s->bytes,
             (size_t)s->bytes);
}

/* ---- what is left to do with each token ---- */

/* g and dall of the queries, from dy. */
static void load_upstream(const state_call *s, int64_t item, int64_t head, backward_work *w) {
  const tensor_call *c = s->c;
  if (!c->dout.given[OUT_Y]) {
    memset(w->g, 0, (size_t)(s->queries * s->wide_n * s->bytes));
    memset(w->dall, 0, (size_t)(s->queries * s->wide_n * s->bytes));
    return;
  }
  for (int64_t i = 0; i < s->queries; i++) {
    const char *all = s->causal ? state_at(s, w->all, i, s->wide_n) : state_at(s, w->state, s->d, s->wide_n);
    smx_reals_load(c->is_f64,
                   state_rows(s, c->dout.view + OUT_Y, item, s->groups * s->per, head, s->queries, i, s->e),
                   s->e, w->made.dy);
    smx_reals_load(c->is_f64, state_at(s, w->out, i, s->wide_n), s->n, w->made.out);
    if (s->n > s->e) smx_reals_load(c->is_f64, all, s->n, w->made.all);
    state_norm_back(s, &w->made);
    smx_reals_store(c->is_f64, w->made.dout, s->n, state_at(s, w->g, i, s->wide_n));
    smx_reals_store(c->is_f64, w->made.dall, s->n, state_at(s, w->dall, i, s->wide_n));
  }
}

/* n numbers in w->row go to a gradient, or are added to it: other queries came before. */
static void hand_out(const state_call *s, backward_work *w, char *to, int64_t n, bool add) {
  if (add) smx_reals_load(s->c->is_f64, to, n, w->other);
  for (int64_t j = 0; j < n && add; j++) w->row[j] += w->other[j];
  smx_reals_store(s->c->is_f64, w->row, n, to);
}

static double number(const state_call *s, const char *array, int64_t at) {
  double x;
  smx_reals_load(s->c->is_f64, array + at * s->bytes, 1, &x);
  return x;
}

static void load_times(const state_call *s, const char *a, const char *more, const char *slope, int64_t n,
                       backward_work *w) {
  smx_reals_load(s->c->is_f64, a, n, w->row);
  if (more) smx_reals_load(s->c->is_f64, more, n, w->other);
  for (int64_t j = 0; j < n && more; j++) w->row[j] += w->other[j];
  smx_reals_load(s->c->is_f64, slope, n, w->other);
  for (int64_t j = 0; j < n; j++) w->row[j] *= w->other[j];
}

static void write_decay(const state_call *s, backward_work *w, int64_t i, char *to, bool add) {
  const bool each = s->decay_width != 1;
  double kept = number(s, w->t.kept, i), sum = 0;
  smx_reals_load(s->c->is_f64, state_at(s, w->da, i, s->wide_d), s->d, w->row);
  for (int64_t j = 0; j < s->d; j++) sum += w->row[j];
  if (!each) w->row[0] = sum;
  smx_reals_load(s->c->is_f64, state_at(s, w->t.decay, i, each ? s->wide_d : 1), s->decay_width, w->other);
  for (int64_t j = 0; j < s->decay_width; j++) w->row[j] = kept == 0 ? 0 : w->row[j] * w->other[j];
  hand_out(s, w, to, s->decay_width, add);
}

static void write_value(const state_call *s, backward_work *w, int64_t i, char *to, bool add) {
  const double by = s->delta ? number(s, w->t.beta, i) : 1;
  smx_reals_load(s->c->is_f64, state_at(s, w->du, i, s->wide_n), s->e, w->row);
  if (s->n > s->e) smx_reals_load(s->c->is_f64, state_at(s, w->dsum, i, s->wide_n), s->e, w->other);
  for (int64_t j = 0; j < s->e; j++) w->row[j] = by * w->row[j] + (s->n > s->e ? w->other[j] : 0);
  hand_out(s, w, to, s->e, add);
}

static void write_beta(const state_call *s, backward_work *w, int64_t i, char *to, bool add) {
  double sum = 0;
  const bool kept = number(s, w->t.kept, i) != 0;
  smx_reals_load(s->c->is_f64, state_at(s, w->du, i, s->wide_n), s->e, w->row);
  smx_reals_load(s->c->is_f64, state_at(s, w->t.v, i, s->wide_n), s->e, w->other);
  for (int64_t j = 0; j < s->e && kept; j++)
    sum += w->row[j] * (w->other[j] - number(s, state_at(s, w->recall, i, s->wide_n), j));
  w->row[0] = sum;
  hand_out(s, w, to, 1, add);
}

static void write_keys(const state_call *s, int64_t item, int64_t group, backward_work *w, bool add) {
  const tensor_ports *in = &s->c->din;
  const int64_t g = s->groups, t = s->keys;
  for (int64_t i = 0; i < t; i++) {
    if (in->given[IN_K]) {
      load_times(s, state_at(s, w->dk, i, s->wide_d), s->delta ? state_at(s, w->more, i, s->wide_d) : NULL,
                 state_at(s, w->t.k_slope, i, s->wide_d), s->d, w);
      hand_out(s, w, state_rows(s, in->view + IN_K, item, g, group, t, i, s->d), s->d, add);
    }
    if (in->given[IN_V])
      write_value(s, w, i, state_rows(s, in->view + IN_V, item, g, group, t, i, s->e), add);
    if (in->given[IN_BETA])
      write_beta(s, w, i, state_rows(s, in->view + IN_BETA, item, g, group, t, i, 1), add);
    if (in->given[IN_DECAY])
      write_decay(s, w, i, state_rows(s, in->view + IN_DECAY, item, g, group, t, i, s->decay_width), add);
  }
}

static void write_queries(const state_call *s, int64_t item, int64_t head, backward_work *w) {
  for (int64_t i = 0; i < s->queries && s->c->din.given[IN_Q]; i++) {
    load_times(s, state_at(s, w->dq, i, s->wide_d), NULL, state_at(s, w->t.q_slope, i, s->wide_d), s->d, w);
    hand_out(s, w, state_rows(s, s->c->din.view + IN_Q, item, s->groups * s->per, head, s->queries, i, s->d),
             s->d, false);
  }
}

static void write_past(const state_call *s, int64_t item, int64_t group, backward_work *w, bool add) {
  for (int64_t i = 0; i < s->m && s->c->din.given[IN_PAST]; i++) {
    const int64_t at = ((item * s->groups + group) * s->m + i) * s->n;
    smx_reals_load(s->c->is_f64, state_at(s, w->state, i, s->wide_n), s->n, w->row);
    hand_out(s, w, s->c->din.view[IN_PAST].data + at * s->bytes, s->n, add);
  }
}

/* ---- calls ---- */

/* The state itself has a gradient too, which the first head of queries takes. */
static void walk_head(const state_call *s, int64_t item, int64_t group, int64_t r, backward_work *w) {
  const tensor_call *c = s->c;
  const char *past = c->in.given[IN_PAST] ? c->in.view[IN_PAST].data : NULL,
             *upstream = r == 0 && c->dout.given[OUT_STATE] ? c->dout.view[OUT_STATE].data : NULL;
  char *u = s->delta ? w->u : w->t.v;
  state_stage_queries(s, item, group * s->per + r, 0, s->queries, &w->t);
  state_load(s, item, group, past, w->state);
  walk_values(s, w);
  load_upstream(s, item, group * s->per + r, w);
  state_load(s, item, group, upstream, w->state);
  walk_back(s, w);
  write_past(s, item, group, w, r > 0);
  load_turned(s, item, group, past, w->state);
  walk_turned(s, w, u);
  load_turned(s, item, group, upstream, w->state);
  walk_turned_back(s, w, u);
  write_queries(s, item, group * s->per + r, w);
  write_keys(s, item, group, w, r > 0);
}

static void task(void *arg, int64_t number) {
  backward_call *f = arg;
  const int64_t item = number / f->s.groups, group = number % f->s.groups;
  char *memory = smx_scratch_take(&f->scratch);
  backward_work w = {0};
  work_of(f, memory, &w);
  state_stage_keys(&f->s, item, group, 0, f->s.keys, &w.t);
  for (int64_t r = 0; r < f->s.per; r++) walk_head(&f->s, item, group, r, &w);
  smx_scratch_give(&f->scratch, memory);
}

smx_status linear_attention_backward(const tensor_call *c) {
  backward_call f;
  const smx_status status = state_open(&f.s, c);
  if (status != SMX_OK) return status;
  f.tokens = larger(f.s.queries, f.s.keys);
  const int64_t tasks = c->dims.lead_count * f.s.groups;
  backward_work none = {0};
  if (!smx_scratch_open(&f.scratch, c->ctx, 0, work_of(&f, NULL, &none), tasks))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld tokens", c->op->name, (long long)f.tokens);
  smx_parallel(c->ctx, tasks, task, &f);
  smx_scratch_close(&f.scratch);
  return SMX_OK;
}
