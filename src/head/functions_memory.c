/* head/functions_memory.c - product_key_memory: a layer of m^2 values, of which a query chooses k
 * (Lample et al. 2019; Memory Layers at Scale, Berges et al. 2024). A query is two sub-queries, and
 * value i m + j the score q1 key1_i + q2 key2_j, so that the best k of all are among the best k of
 * either. With these, heads added up,
 *
 *   w = softmax(s),  y = sum w v,   ds = w (G - sum w G),  G = dy v + dw
 *
 * Scores of sub-queries are a linear layer; all else is in double. */
#include <string.h>

#include "functions_groups.h"
#include "functions_tree.h"

enum { QUERY, KEYS, VALUES }; /* inputs */
enum { Y, INDEX, WEIGHT };    /* outputs */
enum { HALVES = 2 };

typedef struct memory {
  const tensor_call *c;
  bool backward;
  int64_t n, heads, d, m, e, o, k, bytes;
  int64_t head;        /* under way */
  char *score[HALVES]; /* reals [n, m] of this head */
  int64_t *index;      /* [n, heads, k]; -1: the row has a score that is no number */
  double *w, *slope;   /* [n, heads, k], with ds */
  head_groups groups;  /* both sets of sub-keys, then values */
  smx_scratch scratch;
} memory;

smx_status memory_sizes(dims *d) {
  const char *const name = d->op->name;
  const int64_t m = dims_value(d, "m", 0), e = dims_value(d, "e", 0), k = (int64_t)dims_param(d, "k", 1),
                width = dims_value(d, "d", 0), v = dims_value(d, "v", 0);
  if (width != 2 * e)
    return smx_fail(SMX_ERR_SHAPE, "%s: a query has %lld numbers, not twice the %lld of a key", name,
                    (long long)width, (long long)e);
  if (m > 0 && (v / m != m || v % m != 0))
    return smx_fail(SMX_ERR_SHAPE, "%s: there are %lld values, not %lld x %lld", name, (long long)v,
                    (long long)m, (long long)m);
  if (k > m)
    return smx_fail(SMX_ERR_PARAM, "%s: k is %lld, more than the %lld keys", name, (long long)k,
                    (long long)m);
  dims_set(d, "k", 0, k);
  return SMX_OK;
}

/* ---- choices ---- */

/* The best so far: the largest first, of equal ones the lower number. */
typedef struct best {
  double *score;
  int64_t *number, count, most;
} best;
static void offer(best *b, double score, int64_t number) {
  int64_t at = b->count;
  const bool full = at == b->most;
  if (full && !(score > b->score[at - 1] || (score == b->score[at - 1] && number < b->number[at - 1])))
    return;
  if (full) at--;
  else b->count++;
  for (; at > 0 && (score > b->score[at - 1] || (score == b->score[at - 1] && number < b->number[at - 1]));
       at--)
    b->score[at] = b->score[at - 1], b->number[at] = b->number[at - 1];
  b->score[at] = score, b->number[at] = number;
}

/* What a task works in. */
typedef struct place {
  double *row;
  best half[HALVES], both;
} place;
static size_t place_bytes(const memory *p) {
  const int64_t width = p->m > 2 * p->o ? p->m : 2 * p->o, more = p->d > width ? p->d : width;
  return sizeof(double) * (size_t)(more + p->e + 6 * p->k + 1);
}
static place place_at(const memory *p, double *at) {
  place w = {.row = at + 6 * p->k};
  for (int b = 0; b < 3; b++) {
    best *const to = b < HALVES ? w.half + b : &w.both;
    *to = (best){.score = at + 2 * b * p->k, .most = p->k};
    to->number = (int64_t *)(void *)(to->score + p->k);
  }
  return w;
}

/* False: a score is no finite number. */
static bool choose_half(const memory *p, int64_t row, int half, place *w) {
  double *const s = w->row;
  smx_reals_load(p->c->is_f64, p->score[half] + row * p->m * p->bytes, p->m, s);
  for (int64_t i = 0; i < p->m; i++) {
    if (!(s[i] - s[i] == 0)) return false;
    offer(w->half + half, s[i], i);
  }
  return true;
}

static void choose_task(void *arg, int64_t row) {
  memory *p = arg;
  double *const room = smx_scratch_take(&p->scratch), sum = 0;
  place w = place_at(p, room);
  const int64_t at = (row * p->heads + p->head) * p->k;
  bool good = choose_half(p, row, 0, &w) && choose_half(p, row, 1, &w);
  for (int64_t a = 0; good && a < p->k; a++)
    for (int64_t b = 0; b < p->k; b++)
      offer(&w.both, w.half[0].score[a] + w.half[1].score[b],
            w.half[0].number[a] * p->m + w.half[1].number[b]);
  if (good && !(w.both.score[0] - w.both.score[0] == 0)) good = false; /* a sum beyond all numbers */
  for (int64_t i = 0; i < p->k; i++) {
    p->index[at + i] = good ? w.both.number[i] : -1;
    p->w[at + i] = good ? head_math()->exp(w.both.score[i] - w.both.score[0]) : __builtin_nan("");
    sum += p->w[at + i];
  }
  for (int64_t i = 0; i < p->k; i++) p->w[at + i] /= sum;
  smx_scratch_give(&p->scratch, room);
}

/* Scores of one sub-query of each query of this head, one after another in memory. */
static smx_status half_scores(const memory *p, int half) {
  const smx_dtype real = p->c->is_f64 ? SMX_F64 : SMX_F32;
  int64_t qs[] = {p->n, p->e}, q_step[] = {p->heads * p->d, 1}, ks[] = {p->m, p->e}, zs[] = {p->n, p->m};
  const smx_tensor q = smx_tensor_of(p->c->in.view[QUERY].data + (p->head * p->d + half * p->e) * p->bytes,
                                     real, 2, qs, q_step),
                   k = smx_tensor_of(p->c->in.view[KEYS].data +
                                         (p->head * HALVES + half) * p->m * p->e * p->bytes,
                                     real, 2, ks, NULL),
                   z = smx_tensor_of(p->score[half], real, 2, zs, NULL);
  const smx_linear layer = {.size = sizeof layer, .h = &q, .w = &k};
  return smx_linear_logits(p->c->ctx, &layer, &z);
}

static smx_status choose(memory *p) {
  smx_status status = SMX_OK;
  for (p->head = 0; p->head < p->heads && status == SMX_OK && p->n > 0 && p->m > 0; p->head++) {
    status = half_scores(p, 0);
    if (status == SMX_OK) status = half_scores(p, 1);
    if (status == SMX_OK) smx_parallel(p->c->ctx, p->n, choose_task, p);
  }
  return status;
}

/* ---- results ---- */

static void value_at(const memory *p, int64_t index, double *to) {
  tensor_load(p->c, p->c->in.view + VALUES, index * p->o, p->o, to);
}

static void forward_task(void *arg, int64_t row) {
  memory *p = arg;
  const int64_t chosen = p->heads * p->k, at = row * chosen;
  double *const sum = smx_scratch_take(&p->scratch), *const value = sum + p->o;
  memset(sum, 0, sizeof *sum * (size_t)p->o);
  for (int64_t i = at; i < at + chosen; i++) {
    if (p->index[i] >= 0) value_at(p, p->index[i], value), tree_add(sum, p->w[i], value, p->o);
    else
      for (int64_t j = 0; j < p->o; j++) sum[j] = __builtin_nan("");
  }
  tensor_store(p->c, p->c->out.view + Y, row * p->o, p->o, sum);
  tensor_store(p->c, p->c->out.view + WEIGHT, at, chosen, p->w + at);
  memcpy((int64_t *)(void *)p->c->out.view[INDEX].data + at, p->index + at,
         sizeof *p->index * (size_t)chosen);
  smx_scratch_give(&p->scratch, sum);
}

/* The row of `keys` that sub-query `half` of choice i belongs to. */
static int64_t key_of(const memory *p, int64_t i, int half) {
  const int64_t head = i / p->k % p->heads, at = half ? p->index[i] % p->m : p->index[i] / p->m;
  return p->index[i] < 0 ? -1 : (head * HALVES + half) * p->m + at;
}

static void slopes_of(const memory *p, int64_t row, double *g, double *value) {
  memset(g, 0, sizeof *g * (size_t)p->o);
  if (p->c->dout.given[Y]) tensor_load(p->c, p->c->dout.view + Y, row * p->o, p->o, g);
  for (int64_t at = row * p->heads * p->k; at < (row + 1) * p->heads * p->k; at += p->k) {
    double mean = 0;
    for (int64_t i = at; i < at + p->k; i++) {
      if (p->index[i] >= 0) value_at(p, p->index[i], value);
      p->slope[i] = (p->index[i] >= 0 ? tree_dot(g, value, p->o) : __builtin_nan("")) +
                    tensor_upstream(p->c, WEIGHT, i);
      mean += p->w[i] * p->slope[i];
    }
    for (int64_t i = at; i < at + p->k; i++) p->slope[i] = p->w[i] * (p->slope[i] - mean);
  }
}

/* ds of a row, and its dq. */
static void query_task(void *arg, int64_t row) {
  memory *p = arg;
  double *const q = smx_scratch_take(&p->scratch), *const key = q + p->d;
  slopes_of(p, row, q, q + p->o);
  for (int64_t head = 0; head < p->heads && p->c->din.given[QUERY]; head++) {
    const int64_t at = row * p->heads + head;
    memset(q, 0, sizeof *q * (size_t)p->d);
    for (int64_t i = at * p->k; i < (at + 1) * p->k; i++)
      for (int half = 0; half < HALVES; half++) {
        if (p->index[i] >= 0) tensor_load(p->c, p->c->in.view + KEYS, key_of(p, i, half) * p->e, p->e, key);
        else memset(key, 0, sizeof *key * (size_t)p->e);
        tree_add(q + half * p->e, p->slope[i], key, p->e);
      }
    tensor_store(p->c, p->c->din.view + QUERY, at * p->d, p->d, q);
  }
  smx_scratch_give(&p->scratch, q);
}

/* The entries of a row of keys: those of the first sub-queries, then of the second. */
static void key_task(void *arg, int64_t slot) {
  memory *p = arg;
  const int64_t choices = p->n * p->heads * p->k, key = head_groups_at(&p->groups, slot);
  if (key < 0 || !head_groups_begin(&p->groups, slot)) return;
  double *const sum = smx_scratch_take(&p->scratch), *const q = sum + p->e;
  memset(sum, 0, sizeof *sum * (size_t)p->e);
  for (; slot < HALVES * choices && head_groups_at(&p->groups, slot) == key; slot++) {
    const int64_t i = p->groups.order[slot] % choices, half = p->groups.order[slot] / choices;
    tensor_load(p->c, p->c->in.view + QUERY, i / p->k * p->d + half * p->e, p->e, q);
    tree_add(sum, p->slope[i], q, p->e);
  }
  tensor_store(p->c, p->c->din.view + KEYS, key * p->e, p->e, sum);
  smx_scratch_give(&p->scratch, sum);
}

static void value_task(void *arg, int64_t slot) {
  memory *p = arg;
  const int64_t choices = p->n * p->heads * p->k, value = head_groups_at(&p->groups, slot);
  if (value < 0 || !head_groups_begin(&p->groups, slot)) return;
  double *const sum = smx_scratch_take(&p->scratch), *const g = sum + p->o;
  memset(sum, 0, sizeof *sum * (size_t)p->o);
  for (; slot < choices && head_groups_at(&p->groups, slot) == value; slot++) {
    const int64_t i = p->groups.order[slot];
    tensor_load(p->c, p->c->dout.view + Y, i / (p->heads * p->k) * p->o, p->o, g);
    tree_add(sum, p->w[i], g, p->o);
  }
  tensor_store(p->c, p->c->din.view + VALUES, value * p->o, p->o, sum);
  smx_scratch_give(&p->scratch, sum);
}

static void put_keys(memory *p) {
  const int64_t choices = p->n * p->heads * p->k;
  memset(p->c->din.view[KEYS].data, 0, (size_t)(p->heads * HALVES * p->m * p->e * p->bytes));
  for (int64_t i = 0; i < HALVES * choices; i++) p->groups.number[i] = key_of(p, i % choices, i >= choices);
  head_groups_sort(&p->groups, HALVES * choices);
  smx_parallel(p->c->ctx, HALVES * choices, key_task, p);
}
static void put_values(memory *p) {
  const int64_t choices = p->n * p->heads * p->k;
  memset(p->c->din.view[VALUES].data, 0, (size_t)(p->m * p->m * p->o * p->bytes));
  memcpy(p->groups.number, p->index, sizeof *p->index * (size_t)choices);
  head_groups_sort(&p->groups, choices);
  if (p->c->dout.given[Y]) smx_parallel(p->c->ctx, choices, value_task, p);
}

/* ---- calls ---- */

static void divide(memory *p, carver *m) {
  const int64_t choices = p->n * p->heads;
  for (int half = 0; half < HALVES; half++) p->score[half] = carve(m, p->n, p->m, p->bytes);
  p->index = carve(m, choices, p->k, sizeof *p->index), p->w = carve(m, choices, p->k, sizeof *p->w);
  if (!p->backward) return;
  p->slope = carve(m, choices, p->k, sizeof *p->slope);
  p->groups = head_groups_carve(m, HALVES * choices * p->k);
}

static smx_status memory_call(const tensor_call *c, bool backward) {
  memory p = {.c = c, .backward = backward, .n = c->dims.lead_count, .bytes = c->is_f64 ? 8 : 4};
  carver m = {.fits = true};
  p.heads = tensor_dim(c, "h"), p.d = tensor_dim(c, "d"), p.m = tensor_dim(c, "m");
  p.e = tensor_dim(c, "e"), p.o = tensor_dim(c, "o"), p.k = tensor_dim(c, "k");
  divide(&p, &m);
  char *const room = m.fits ? smx_alloc(c->ctx, (size_t)m.at + 1) : NULL;
  m = (carver){.base = room, .fits = true};
  if (!room || !smx_scratch_open(&p.scratch, c->ctx, 0, place_bytes(&p), INT64_MAX)) {
    smx_free(c->ctx, room);
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld queries of %lld heads", c->op->name,
                    (long long)p.n, (long long)p.heads);
  }
  divide(&p, &m);
  const smx_status status = choose(&p);
  if (status == SMX_OK && !backward) smx_parallel(c->ctx, p.n, forward_task, &p);
  if (status == SMX_OK && backward) smx_parallel(c->ctx, p.n, query_task, &p);
  if (status == SMX_OK && c->din.given[KEYS] && backward) put_keys(&p);
  if (status == SMX_OK && c->din.given[VALUES] && backward) put_values(&p);
  smx_scratch_close(&p.scratch);
  smx_free(c->ctx, room);
  return status;
}
smx_status memory_forward(const tensor_call *c) { return memory_call(c, false); }
smx_status memory_backward(const tensor_call *c) { return memory_call(c, true); }
