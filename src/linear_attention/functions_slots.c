/* linear_attention/functions_slots.c - gated_slot_attention: m slots that remember a mean of
 * keys and of values each, and softmax attention over the slots. With a_t = e^decay_t and s_t =
 * 1 - a_t:
 *
 *   K_t = a_t K_(t-1) + s_t k_t,     p_t = softmax(scale q_t K_t),
 *   V_t = a_t V_(t-1) + s_t v_t,     y_t = p_t V_t
 *
 * Gradients, with g = dy, and dL = scale p (dp - p dp): each is read by a walk, of K or V, of their
 * gradients from the last token to the first, or of one of the four turned, whose columns are the
 * slots:
 *
 *   dp = g V     dv = s dV     dq = dL K     dk = s dK
 *   ds = v dV + k dK     da = <dV, V before> + <dK, K before>     d decay = a (da - ds)
 */
#include <string.h>

#include "functions_walks.h"

enum { Q, K, V, DECAY, PAST_K, PAST_V }; /* inputs */
enum { Y, STATE_K, STATE_V, LSE };       /* outputs */
enum { CHUNK = 8 };                      /* tokens between states that are kept */

typedef struct slots {
  const tensor_call *c;
  const linear_attention_kernels *kernels;
  int64_t tokens, m, width[2], wide_m, wide[2], bytes; /* width: of keys, of values */
  double scale;
  bool backward;
  smx_scratch scratch;
} slots;

/* What a task works in; [2]: of keys, of values. */
typedef struct slots_work {
  char *a, *s, *logit, *p, *dp, *dl, *ds[2], *da[2]; /* [tokens][wide_m] */
  char *x[2], *q, *dx[2], *dq;                       /* [tokens][wide]; q: as keys, x: k and v */
  char *out;                                         /* y, then dy: as values */
  char *state, *kept, *before;
  double *row, *other;
} slots_work;

enum { OF_M = 10, OF_KEYS = 4, OF_VALUES = 3 };

/* A state: slots as rows, or turned. */
static int64_t state_size(const slots *s) {
  const int64_t wide = larger(s->wide[0], s->wide[1]), width = larger(s->width[0], s->width[1]);
  return larger(s->m * wide, width * s->wide_m);
}

static char *piece(const slots *s, char **next, int64_t count) {
  char *here = *next;
  *next += count * s->bytes;
  return here;
}

static size_t work_of(const slots *s, char *memory, slots_work *w) {
  const int64_t n = s->tokens, before = s->backward ? CHUNK : 0, kept = s->backward ? n / CHUNK + 1 : 0,
                states = state_size(s) * (1 + before + kept);
  const int64_t reals = n * (OF_M * s->wide_m + OF_KEYS * s->wide[0] + OF_VALUES * s->wide[1]) + states;
  const int64_t row = larger(s->wide_m, larger(s->wide[0], s->wide[1]));
  if (!memory) return (size_t)(reals * s->bytes) + 2 * (size_t)row * sizeof(double) + 8;
  memset(memory, 0, (size_t)(reals * s->bytes));
  char **const of_m[OF_M] = {&w->a,  &w->s,     &w->logit, &w->p,     &w->dp,
                             &w->dl, &w->ds[0], &w->ds[1], &w->da[0], &w->da[1]},
               **const of_keys[OF_KEYS] = {&w->x[0], &w->q, &w->dx[0], &w->dq},
               **const of_values[OF_VALUES] = {&w->x[1], &w->dx[1], &w->out};
  for (int i = 0; i < OF_M; i++) *of_m[i] = piece(s, &memory, n * s->wide_m);
  for (int i = 0; i < OF_KEYS; i++) *of_keys[i] = piece(s, &memory, n * s->wide[0]);
  for (int i = 0; i < OF_VALUES; i++) *of_values[i] = piece(s, &memory, n * s->wide[1]);
  w->state = piece(s, &memory, state_size(s)), w->before = piece(s, &memory, before * state_size(s));
  w->kept = piece(s, &memory, kept * state_size(s));
  w->row = (double *)(void *)memory, w->other = w->row + row;
  return 0;
}

static char *row_at(const slots *s, char *array, int64_t t, int64_t width) {
  return array ? array + t * width * s->bytes : NULL;
}

/* Rows of a tensor to wide rows. */
static void stage(const slots *s, const smx_view *from, int64_t item, int64_t width, int64_t wide, char *to) {
  for (int64_t t = 0; t < s->tokens; t++)
    memcpy(row_at(s, to, t, wide), row_at(s, from->data, item * s->tokens + t, width),
           (size_t)(width * s->bytes));
}
static void unstage(const slots *s, char *from, int64_t item, int64_t width, int64_t wide,
                    const smx_view *to) {
  for (int64_t t = 0; t < s->tokens; t++) {
    char *row = row_at(s, to->data, item * s->tokens + t, width);
    memcpy(row, row_at(s, from, t, wide), (size_t)(width * s->bytes));
    smx_reals_clean(s->c->is_f64, row, width);
  }
}

/* a and s = 1 - a */
static void stage_decay(const slots *s, int64_t item, slots_work *w) {
  for (int64_t t = 0; t < s->tokens; t++) {
    char *a = row_at(s, w->a, t, s->wide_m);
    s->kernels->map(STATE_EXP, 1, row_at(s, s->c->in.view[DECAY].data, item * s->tokens + t, s->m), s->m, a,
                    NULL);
    smx_reals_load(s->c->is_f64, a, s->m, w->row);
    for (int64_t j = 0; j < s->m; j++) w->row[j] = 1 - w->row[j];
    smx_reals_store(s->c->is_f64, w->row, s->m, row_at(s, w->s, t, s->wide_m));
  }
}

/* A state of keys or values (`of`) from a tensor [m][width], or of zeros. */
static void load_state(const slots *s, const smx_view *from, bool given, int64_t item, int of, bool turned,
                       char *to) {
  const int64_t width = s->width[of];
  memset(to, 0, (size_t)(state_size(s) * s->bytes));
  for (int64_t j = 0; given && j < s->m; j++)
    for (int64_t i = 0; i < width; i++)
      memcpy(to + (turned ? i * s->wide_m + j : j * s->wide[of] + i) * s->bytes,
             from->data + ((item * s->m + j) * width + i) * s->bytes, (size_t)s->bytes);
}
static void store_state(const slots *s, const char *state, int64_t item, int of, bool turned,
                        const smx_view *to) {
  const int64_t width = s->width[of];
  for (int64_t j = 0; j < s->m; j++) {
    char *row = row_at(s, to->data, item * s->m + j, width);
    for (int64_t i = 0; i < width; i++)
      memcpy(row + i * s->bytes, state + (turned ? i * s->wide_m + j : j * s->wide[of] + i) * s->bytes,
             (size_t)s->bytes);
    smx_reals_clean(s->c->is_f64, row, width);
  }
}

/* ---- walks ---- */

static state_walk slot_walk(const slots *s, const slots_work *w, int of, bool turned, bool backward) {
  state_walk walk = walk_of(w->state, turned ? s->width[of] : s->m, turned ? s->wide_m : s->wide[of],
                            turned ? s->wide[of] : s->wide_m, s->tokens);
  walk.decay = w->a, walk.decay_token = s->wide_m, walk.decay_row = !turned, walk.lanes = turned;
  walk.backward = backward;
  return walk;
}

static void walk_all(const slots *s, state_walk walk, char *x, char *y, char *z, char *out) {
  walk.step[0] = (state_step){x, y, z, out};
  s->kernels->walk(&walk);
}

/* The part of a walk that is a chunk from token `first` on. */
static state_walk part_of(const slots *s, state_walk walk, int64_t first) {
  const int64_t left = s->tokens - first;
  return walk_part(walk, first, left < CHUNK ? left : CHUNK, s->bytes);
}

static char *kept_at(const slots *s, const slots_work *w, int64_t first) {
  return w->kept + first / CHUNK * state_size(s) * s->bytes;
}

/* z S of the turned state, which is kept before every chunk. */
static void walk_keeping(const slots *s, slots_work *w, int of, char *z, char *out) {
  state_walk walk = slot_walk(s, w, of, true, false);
  walk.step[0] = (state_step){w->x[of], w->s, z, out};
  for (int64_t first = 0; first < s->tokens; first += CHUNK) {
    const state_walk part = part_of(s, walk, first);
    memcpy(kept_at(s, w, first), w->state, (size_t)(state_size(s) * s->bytes));
    s->kernels->walk(&part);
  }
}

/* ds and da: dS, turned, of g and the weights that read S, from the last token to the first. */
static void walk_back(const slots *s, slots_work *w, int of, char *g, char *weights) {
  state_walk walk = slot_walk(s, w, of, true, true), again = slot_walk(s, w, of, true, false);
  walk.step[0] = (state_step){g, weights, w->x[of], w->ds[of]};
  walk.product = w->da[of];
  again.step[0] = (state_step){w->x[of], w->s, NULL, NULL};
  for (int64_t first = (s->tokens - 1) / CHUNK * CHUNK; first >= 0 && s->tokens > 0; first -= CHUNK) {
    state_walk states = part_of(s, again, first), part = part_of(s, walk, first);
    states.state = kept_at(s, w, first);
    states.before = part.before = w->before;
    s->kernels->walk(&states);
    s->kernels->walk(&part);
  }
}

/* ---- forward ---- */

/* p = softmax(scale logits) of every token; lse where that is an output. */
static void weigh(const slots *s, int64_t item, slots_work *w, bool writes) {
  for (int64_t t = 0; t < s->tokens; t++) {
    double most = -__builtin_inf(), sum = 0;
    smx_reals_load(s->c->is_f64, row_at(s, w->logit, t, s->wide_m), s->m, w->row);
    for (int64_t j = 0; j < s->m; j++) {
      w->row[j] *= s->scale;
      if (w->row[j] > most || w->row[j] != w->row[j]) most = w->row[j];
    }
    for (int64_t j = 0; j < s->m; j++) sum += w->row[j] = state_math()->exp(w->row[j] - most);
    for (int64_t j = 0; j < s->m; j++) w->row[j] /= sum;
    smx_reals_store(s->c->is_f64, w->row, s->m, row_at(s, w->p, t, s->wide_m));
    if (writes) tensor_put(s->c, LSE, item * s->tokens + t, s->m > 0 ? most + state_math()->log(sum) : most);
  }
}

/* The weights of all tokens; the state becomes the last K, turned. */
static void make_weights(const slots *s, int64_t item, slots_work *w, bool writes) {
  const tensor_call *c = s->c;
  stage(s, c->in.view + Q, item, s->width[0], s->wide[0], w->q);
  for (int of = 0; of < 2; of++) stage(s, c->in.view + K + of, item, s->width[of], s->wide[of], w->x[of]);
  stage_decay(s, item, w);
  load_state(s, c->in.view + PAST_K, c->in.given[PAST_K], item, 0, true, w->state);
  walk_all(s, slot_walk(s, w, 0, true, false), w->x[0], w->s, w->q, w->logit);
  weigh(s, item, w, writes);
}

static void forward_task(void *arg, int64_t item) {
  slots *s = arg;
  const tensor_call *c = s->c;
  char *memory = smx_scratch_take(&s->scratch);
  slots_work w;
  work_of(s, memory, &w);
  make_weights(s, item, &w, true);
  store_state(s, w.state, item, 0, true, c->out.view + STATE_K);
  load_state(s, c->in.view + PAST_V, c->in.given[PAST_V], item, 1, false, w.state);
  walk_all(s, slot_walk(s, &w, 1, false, false), w.s, w.x[1], w.p, w.out);
  store_state(s, w.state, item, 1, false, c->out.view + STATE_V);
  unstage(s, w.out, item, s->width[1], s->wide[1], c->out.view + Y);
  smx_scratch_give(&s->scratch, memory);
}

/* ---- backward ---- */

/* dL, the gradient of the logits. */
static void leave_weights(const slots *s, int64_t item, slots_work *w) {
  for (int64_t t = 0; t < s->tokens; t++) {
    const double up = tensor_upstream(s->c, LSE, item * s->tokens + t);
    double sum = 0;
    smx_reals_load(s->c->is_f64, row_at(s, w->p, t, s->wide_m), s->m, w->row);
    smx_reals_load(s->c->is_f64, row_at(s, w->dp, t, s->wide_m), s->m, w->other);
    for (int64_t j = 0; j < s->m; j++) sum += w->row[j] * w->other[j];
    for (int64_t j = 0; j < s->m; j++) w->row[j] *= s->scale * (w->other[j] - sum + up);
    smx_reals_store(s->c->is_f64, w->row, s->m, row_at(s, w->dl, t, s->wide_m));
  }
}

static double number(const slots *s, char *array, int64_t t, int64_t j) {
  double x;
  smx_reals_load(s->c->is_f64, row_at(s, array, t, s->wide_m) + j * s->bytes, 1, &x);
  return x;
}

static void write_decay(const slots *s, int64_t item, slots_work *w) {
  for (int64_t t = 0; t < s->tokens && s->c->din.given[DECAY]; t++) {
    for (int64_t j = 0; j < s->m; j++) {
      const double da = number(s, w->da[0], t, j) + number(s, w->da[1], t, j);
      w->row[j] = number(s, w->a, t, j) * (da - number(s, w->ds[0], t, j) - number(s, w->ds[1], t, j));
    }
    tensor_store(s->c, s->c->din.view + DECAY, (item * s->tokens + t) * s->m, s->m, w->row);
  }
}

/* What keys (of = 0) or values have of the gradient of their state: dx, ds, da, and the past. */
static void walk_gradients(const slots *s, int64_t item, slots_work *w, int of, char *g, char *weights) {
  const tensor_call *c = s->c;
  const smx_view *up = c->dout.view + STATE_K + of;
  const bool given = c->dout.given[STATE_K + of] != NULL;
  load_state(s, up, given, item, of, true, w->state);
  walk_back(s, w, of, g, weights);
  load_state(s, up, given, item, of, false, w->state);
  walk_all(s, slot_walk(s, w, of, false, true), weights, g, w->s, w->dx[of]);
  if (c->din.given[PAST_K + of]) store_state(s, w->state, item, of, false, c->din.view + PAST_K + of);
  if (c->din.given[K + of]) unstage(s, w->dx[of], item, s->width[of], s->wide[of], c->din.view + K + of);
}

static void backward_task(void *arg, int64_t item) {
  slots *s = arg;
  const tensor_call *c = s->c;
  char *memory = smx_scratch_take(&s->scratch);
  slots_work w;
  work_of(s, memory, &w);
  make_weights(s, item, &w, false);
  if (c->dout.given[Y]) stage(s, c->dout.view + Y, item, s->width[1], s->wide[1], w.out);
  load_state(s, c->in.view + PAST_V, c->in.given[PAST_V], item, 1, true, w.state);
  walk_keeping(s, &w, 1, w.out, w.dp);
  walk_gradients(s, item, &w, 1, w.out, w.p);
  leave_weights(s, item, &w);
  load_state(s, c->in.view + PAST_K, c->in.given[PAST_K], item, 0, true, w.state);
  walk_keeping(s, &w, 0, w.q, w.logit); /* for what it keeps */
  walk_gradients(s, item, &w, 0, w.q, w.dl);
  load_state(s, c->in.view + PAST_K, c->in.given[PAST_K], item, 0, false, w.state);
  walk_all(s, slot_walk(s, &w, 0, false, false), w.s, w.x[0], w.dl, w.dq);
  if (c->din.given[Q]) unstage(s, w.dq, item, s->width[0], s->wide[0], c->din.view + Q);
  write_decay(s, item, &w);
  smx_scratch_give(&s->scratch, memory);
}

/* ---- calls ---- */

static smx_status run(const tensor_call *c, bool backward) {
  slots s = {.c = c,
             .tokens = tensor_dim(c, "t"),
             .m = tensor_dim(c, "m"),
             .bytes = c->is_f64 ? 8 : 4,
             .backward = backward};
  s.width[0] = tensor_dim(c, "d"), s.width[1] = tensor_dim(c, "e"), s.wide_m = state_padded(s.m);
  s.kernels = state_kernels(c->is_f64), s.scale = state_scale(tensor_param(c, "scale"), s.width[0]);
  for (int of = 0; of < 2; of++) s.wide[of] = state_padded(s.width[of]);
  if (!smx_scratch_open(&s.scratch, c->ctx, 0, work_of(&s, NULL, NULL), c->dims.lead_count))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld tokens", c->op->name, (long long)s.tokens);
  smx_parallel(c->ctx, c->dims.lead_count, backward ? backward_task : forward_task, &s);
  smx_scratch_close(&s.scratch);
  return SMX_OK;
}
smx_status slots_forward(const tensor_call *c) { return run(c, false); }
smx_status slots_backward(const tensor_call *c) { return run(c, true); }
