/* attention/functions_kde.c - kde_attention: the keys in the block of a query by their codes in
 * full, and `samples` keys drawn for all queries in the place of the others. With P_j how likely a
 * draw is key j, weights are
 *
 *   e^(s_j) of keys in the block, e^(s_j) / (samples P_j) of each drawn key outside of it,
 *   P_j ~ |(v_j, 1)| / N + 1 / t,  N the largest eigenvalue of (V, 1)^T (V, 1) */
#include <string.h>

#include "cpu/cpu.h"
#include "driver/merge_sort.h"
#include "functions_lsh.h"
#include "score/score.h"

enum { Q, K, V, LSE = 1 }; /* inputs, and the second output */
enum { POWER_STEPS = 20 };

typedef struct kde {
  const tensor_call *c;
  const score_kernels *math;
  lsh hash;
  int64_t l, t, d, e, block, samples, queries; /* queries: of a block */
  uint64_t seed;
  double scale;
  bool limit;
  smx_scratch scratch;
} kde;

/* What a task works in. */
typedef struct kde_work {
  double *q, *k, *v, *part;      /* [l][d], [t][d], [t][e], [t]: sums of P */
  int64_t *code, *order, *spare; /* of l or t */
  int64_t *keys, *place;         /* [t]: keys in the order of codes, and where each is in it */
  int64_t *drawn;                /* [samples] */
  double *less, *z;              /* [samples]: log of samples P; [block + samples] */
  int64_t *at;                   /* the keys of z */
  double *y, *x, *g;             /* [e], [e + 1], the same */
} kde_work;

static void lay_out(const kde *s, carver *c, kde_work *w) {
  const int64_t b = sizeof(double), most = s->l > s->t ? s->l : s->t, e = s->e + 1;
  int64_t listed = s->block < s->t ? s->block : s->t;
  listed += s->samples;
  w->q = carve(c, s->l, s->d, b), w->k = carve(c, s->t, s->d, b), w->v = carve(c, s->t, s->e, b);
  w->part = carve(c, 1, s->t, b), w->code = carve(c, 1, most, b), w->order = carve(c, 1, most, b);
  w->spare = carve(c, 1, most, b), w->keys = carve(c, 1, s->t, b), w->place = carve(c, 1, s->t, b);
  w->drawn = carve(c, 1, s->samples, b);
  w->less = carve(c, 1, s->samples, b), w->z = carve(c, 1, listed, b), w->at = carve(c, 1, listed, b);
  w->y = carve(c, 1, e, b), w->x = carve(c, 1, e, b), w->g = carve(c, 1, e, b);
}

/* ---- drawn keys ---- */

/* The largest eigenvalue of (V, 1)^T (V, 1), by steps of the power method from ones. */
static double largest(const kde *s, kde_work *w) {
  const int64_t e = s->e;
  double norm = 0;
  for (int64_t i = 0; i <= e; i++) w->x[i] = 1;
  for (int step = 0; step < POWER_STEPS; step++) {
    const double size = __builtin_sqrt(square_of(w->x, e + 1));
    for (int64_t i = 0; i <= e; i++) w->x[i] /= size, w->g[i] = 0;
    for (int64_t j = 0; j < s->t; j++) {
      double dot = w->x[e];
      for (int64_t i = 0; i < e; i++) dot += w->v[j * e + i] * w->x[i];
      add_row(dot, w->v + j * e, e, w->g), w->g[e] += dot;
    }
    norm = __builtin_sqrt(square_of(w->g, e + 1));
    memcpy(w->x, w->g, (size_t)(e + 1) * sizeof *w->x);
  }
  return norm;
}

/* The first key up to which P comes to more than u of their sum. */
static int64_t drawn_by(const kde *s, const double *part, double u) {
  const double target = u * part[s->t - 1];
  int64_t low = 0, high = s->t - 1;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (part[middle] > target) high = middle;
    else low = middle + 1;
  }
  return low;
}

static void draw_keys(const kde *s, kde_work *w) {
  const double norm = s->samples > 0 && s->t > 0 ? largest(s, w) : 1;
  double sum = 0;
  for (int64_t j = 0; j < s->t; j++) {
    const double size = __builtin_sqrt(square_of(w->v + j * s->e, s->e) + 1);
    w->part[j] = sum += size / norm + 1 / (double)s->t;
  }
  for (int64_t i = 0; i < s->samples && s->t > 0; i++) {
    uint64_t words[2];
    s->math->draw(s->seed, 0, SCORE_DRAW_ROWS, (uint64_t)i / 2, words);
    const int64_t j = drawn_by(s, w->part, ((double)(words[i % 2] >> 12) + 0.5) * 0x1p-52);
    const double own = w->part[j] - (j > 0 ? w->part[j - 1] : 0);
    w->drawn[i] = j, w->less[i] = s->math->log((double)s->samples * (own / sum));
  }
}

/* ---- blocks ---- */

static bool smaller(const void *arg, int64_t a, int64_t b) {
  const int64_t *code = arg;
  return code[a] < code[b];
}

/* Rows in the order of their codes, of equal ones in their own. */
static const int64_t *in_order(const kde *s, const double *rows, int64_t count, kde_work *w) {
  for (int64_t i = 0; i < count; i++) {
    lsh_codes_of(&s->hash, rows + i * s->d, w->code + i);
    w->code[i] = lsh_of_gray(w->code[i]), w->order[i] = i;
  }
  return smx_merge_sort(w->order, w->spare, count, smaller, w->code);
}

static void add_key(const kde *s, kde_work *w, const double *q, int64_t j, double less, int64_t *count) {
  double dot = 0;
  for (int64_t i = 0; i < s->d; i++) dot += q[i] * w->k[j * s->d + i];
  const double z = s->scale * dot - less;
  if (z != -__builtin_inf()) w->z[*count] = z, w->at[(*count)++] = j;
}

/* Keys of block b in the order of their codes, and the drawn ones that are in other blocks. */
static int64_t list(const kde *s, kde_work *w, const double *q, int64_t b) {
  const int64_t end = s->t - b * s->block < s->block ? s->t : (b + 1) * s->block;
  int64_t count = 0;
  for (int64_t j = b * s->block; j < end; j++) add_key(s, w, q, w->keys[j], 0, &count);
  for (int64_t i = 0; i < s->samples && s->t > 0; i++)
    if (w->place[w->drawn[i]] / s->block != b) add_key(s, w, q, w->drawn[i], w->less[i], &count);
  return count;
}

/* ---- tasks: an item each ---- */

static void answer(const kde *s, int64_t row, int64_t count, kde_work *w) {
  const bool none = count == 0 && smx_context_on_empty(s->c->ctx) == SMX_EMPTY_NAN;
  const double lse = listed_soften(s->limit, w->z, count);
  for (int64_t x = 0; x < s->e; x++) w->y[x] = none ? __builtin_nan("") : 0;
  for (int64_t x = 0; x < count; x++) add_row(w->z[x], w->v + w->at[x] * s->e, s->e, w->y);
  tensor_store(s->c, s->c->out.view, row * s->e, s->e, w->y);
  tensor_put(s->c, LSE, row, lse);
}

/* The first query without keys, or -1; without `write` nothing is written. */
static int64_t run_item(const kde *s, int64_t item, bool write, kde_work *w) {
  int64_t empty = -1;
  tensor_load(s->c, s->c->in.view + Q, item * s->l * s->d, s->l * s->d, w->q);
  tensor_load(s->c, s->c->in.view + K, item * s->t * s->d, s->t * s->d, w->k);
  tensor_load(s->c, s->c->in.view + V, item * s->t * s->e, s->t * s->e, w->v);
  if (s->t > 0) memcpy(w->keys, in_order(s, w->k, s->t, w), (size_t)s->t * sizeof *w->keys);
  for (int64_t j = 0; j < s->t; j++) w->place[w->keys[j]] = j;
  draw_keys(s, w);
  const int64_t *rows = in_order(s, w->q, s->l, w);
  for (int64_t r = 0; r < s->l; r++) {
    const int64_t count = list(s, w, w->q + rows[r] * s->d, r / s->queries);
    if (count == 0 && (empty < 0 || rows[r] < empty)) empty = rows[r];
    if (write) answer(s, item * s->l + rows[r], count, w);
  }
  return empty;
}

static void task(void *arg, int64_t item) {
  kde *s = arg;
  char *memory = smx_scratch_take(&s->scratch);
  kde_work w;
  lay_out(s, &(carver){.base = memory, .fits = true}, &w);
  run_item(s, item, true, &w);
  smx_scratch_give(&s->scratch, memory);
}

/* ---- calls ---- */

/* SMX_EMPTY_ERROR: before anything is written. */
static smx_status check_empty(kde *s) {
  char *memory = smx_scratch_take(&s->scratch);
  smx_status status = SMX_OK;
  kde_work w;
  lay_out(s, &(carver){.base = memory, .fits = true}, &w);
  for (int64_t item = 0; item < s->c->dims.lead_count && status == SMX_OK; item++) {
    const int64_t empty = run_item(s, item, false, &w);
    if (empty >= 0)
      status = smx_fail(SMX_ERR_EMPTY, "%s: query %lld has no keys", s->c->op->name,
                        (long long)(item * s->l + empty));
  }
  smx_scratch_give(&s->scratch, memory);
  return status;
}

smx_status kde_attention_forward(const tensor_call *c) {
  kde s = {.c = c, .math = smx_isa_current()->f64.score, .scale = attention_scale(c)};
  const int64_t items = c->dims.lead_count;
  s.l = tensor_dim(c, "l"), s.t = tensor_dim(c, "t"), s.d = tensor_dim(c, "d"), s.e = tensor_dim(c, "e");
  s.hash = (lsh){(int64_t)tensor_param(c, "bits"), 1, s.d};
  s.block = (int64_t)tensor_param(c, "block_keys"), s.samples = (int64_t)tensor_param(c, "samples");
  s.seed = (uint64_t)tensor_param(c, "seed"), s.limit = smx_context_on_inf(c->ctx) == SMX_INF_LIMIT;
  const int64_t blocks = s.t > s.block ? (s.t + s.block - 1) / s.block : 1;
  s.queries = s.l > blocks ? (s.l + blocks - 1) / blocks : 1;
  kde_work none;
  carver place = {.fits = true};
  lay_out(&s, &place, &none);
  if (!lsh_open(&s.hash, c, &place, items, &s.scratch))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld keys", c->op->name, (long long)s.t);
  smx_status status = lsh_draw(&s.hash, c);
  if (status == SMX_OK && smx_context_on_empty(c->ctx) == SMX_EMPTY_ERROR) status = check_empty(&s);
  if (status == SMX_OK) smx_parallel(c->ctx, items, task, &s);
  smx_scratch_close(&s.scratch);
  return status;
}
