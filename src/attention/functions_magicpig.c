/* attention/functions_magicpig.c - magicpig_attention: softmax over some keys for certain, and over
 * those of the others that share a code with the query in enough tables, each counted 1 / u times,
 * u how likely that is. With c = cos of the query and the key less the mean key, one table agrees
 * with probability a = (1 - acos(c) / pi)^bits, and
 *
 *   u = sum_(j >= least) C(tables, j) a^j (1 - a)^(tables - j),  z = scale q k - log(u + eps) */
#include <string.h>

#include "cpu/cpu.h"
#include "functions_lsh.h"
#include "score/score.h"

enum { Q, K, V, MASK, EXACT }; /* inputs */
enum { Y, LSE, COUNT };        /* outputs */

typedef struct magicpig {
  const tensor_call *c;
  const score_kernels *math;
  lsh hash;
  int64_t l, t, d, e, least, first, last;
  double scale, eps;
  bool centre, causal, limit;
  const unsigned char *mask, *exact;
  smx_scratch scratch;
} magicpig;

/* What a task works in. */
typedef struct magicpig_work {
  double *k, *mean, *length; /* [t][d], [d], of keys less the mean, [t] */
  int64_t *code, *own;       /* [t][tables], [tables] of the query */
  double *q, *v, *y, *z;     /* rows */
  int64_t *at;               /* the keys of z */
  unsigned char *seen;       /* [t]: some query sees the key */
} magicpig_work;

static void lay_out(const magicpig *s, carver *c, magicpig_work *w) {
  const int64_t b = sizeof(double);
  w->k = carve(c, s->t, s->d, b), w->mean = carve(c, 1, s->d, b), w->length = carve(c, 1, s->t, b);
  w->code = carve(c, s->t, s->hash.tables, b), w->own = carve(c, 1, s->hash.tables, b);
  w->q = carve(c, 1, s->d, b), w->v = carve(c, 1, s->e, b), w->y = carve(c, 1, s->e, b);
  w->z = carve(c, 1, s->t, b), w->at = carve(c, 1, s->t, b), w->seen = carve(c, 1, s->t, 1);
}

/* ---- how likely ---- */

/* acos(c) / pi, from asin of at most sqrt(1/2) by its series. */
static double angle_of(double c) {
  const double size = c < 0 ? -c : c, half = __builtin_sqrt((1 - size) / 2), square = half * half;
  double term = half, sum = half;
  for (int n = 1; n < 200 && term > sum * 0x1p-56; n++) {
    term *= square * (2 * n - 1) / (2 * n);
    sum += term / (2 * n + 1);
  }
  const double part = 2 * sum * 0x1.45f306dc9c883p-2; /* 1 / pi */
  return c < 0 ? 1 - part : part;
}

/* C(n, m) a^m (1 - a)^(n - m), by factors in such an order that no product leaves its range. */
static double binomial(int64_t n, int64_t m, double a) {
  double p = 1;
  for (int64_t up = 0, down = n - m; up < m || down > 0;)
    if (down > 0 && (p >= 1 || up == m)) p *= 1 - a, down--;
    else p *= (double)(n - up) / (double)(up + 1) * a, up++;
  return p;
}

/* Of the two tails the one without the mean is summed up, so that nothing cancels. */
static double likely(const magicpig *s, double cosine) {
  const int64_t n = s->hash.tables;
  const double near = 1 - angle_of(cosine);
  double a = 1, sum = 0;
  for (int64_t b = 0; b < s->hash.bits; b++) a *= near;
  if (!(a > 0 && a < 1)) return a;
  const bool above = (double)n * a < (double)s->least;
  int64_t j = above ? s->least : s->least - 1;
  for (double term = binomial(n, j, a); term > sum * 0x1p-60; j += above ? 1 : -1) {
    sum += term;
    term *= above ? (double)(n - j) / (double)(j + 1) * (a / (1 - a))
                  : (double)j / (double)(n - j + 1) * ((1 - a) / a);
  }
  return above ? sum : 1 - sum;
}

/* ---- keys of a query ---- */

static bool hides(const magicpig *s, int64_t item, int64_t i, int64_t j) {
  if (s->causal && j - i > s->t - s->l) return true;
  return s->mask && !s->mask[(item * s->l + i) * s->t + j];
}

/* Keys, the mean of those that some query sees, and their codes. */
static void take_keys(const magicpig *s, int64_t item, magicpig_work *w) {
  const int64_t d = s->d, h = s->hash.tables;
  double count = 0;
  tensor_load(s->c, s->c->in.view + K, item * s->t * d, s->t * d, w->k);
  memset(w->mean, 0, (size_t)d * sizeof *w->mean);
  for (int64_t j = 0; j < s->t; j++) {
    w->seen[j] = 0;
    for (int64_t i = s->l - 1; i >= 0 && !w->seen[j]; i--) w->seen[j] = !hides(s, item, i, j);
    if (w->seen[j] && s->centre) add_row(1, w->k + j * d, d, w->mean), count++;
  }
  for (int64_t i = 0; i < d && count > 0; i++) w->mean[i] /= count;
  for (int64_t j = 0; j < s->t; j++) {
    if (!w->seen[j]) continue;
    for (int64_t i = 0; i < d; i++) w->q[i] = w->k[j * d + i] - w->mean[i];
    w->length[j] = __builtin_sqrt(square_of(w->q, d));
    lsh_codes_of(&s->hash, w->q, w->code + j * h);
  }
}

/* Whether so many tables agree; where something is no number they all do, so that it is seen. */
static bool collides(const magicpig *s, const int64_t *a, const int64_t *b) {
  int64_t count = 0;
  for (int64_t k = 0; k < s->hash.tables; k++) count += a[k] == b[k];
  return count >= s->least || a[0] < 0 || b[0] < 0;
}

/* z of key j: the query has the length `size`. */
static double score_of(const magicpig *s, const magicpig_work *w, int64_t j, double size, bool certain) {
  const double *k = w->k + j * s->d;
  double dot = 0, cosine = 0;
  for (int64_t i = 0; i < s->d; i++) dot += w->q[i] * k[i], cosine += w->q[i] * (k[i] - w->mean[i]);
  if (certain) return s->scale * dot;
  const double sizes = size * w->length[j];
  /* a vector of zeros is on no side: its codes are 0, as those of another one are */
  cosine = sizes > 0 || sizes != sizes ? cosine / sizes : size == 0 && w->length[j] == 0;
  if (cosine != cosine) return cosine;
  const double u = likely(s, cosine > 1 ? 1 : cosine < -1 ? -1 : cosine) + s->eps;
  return s->scale * dot - s->math->log(u > 0x1p-1022 ? u : 0x1p-1022);
}

/* z of the keys of query i, w->at which they are; how many. */
static int64_t list(const magicpig *s, int64_t item, int64_t i, magicpig_work *w) {
  const int64_t end = s->causal && i + s->t - s->l + 1 < s->t ? i + s->t - s->l + 1 : s->t;
  int64_t count = 0;
  tensor_load(s->c, s->c->in.view + Q, (item * s->l + i) * s->d, s->d, w->q);
  lsh_codes_of(&s->hash, w->q, w->own);
  const double size = __builtin_sqrt(square_of(w->q, s->d));
  for (int64_t j = 0; j < end; j++) {
    if (hides(s, item, i, j)) continue;
    const bool certain = j < s->first || j >= end - s->last || (s->exact && s->exact[item * s->t + j]);
    if (!certain && !collides(s, w->own, w->code + j * s->hash.tables)) continue;
    const double z = score_of(s, w, j, size, certain);
    if (z != -__builtin_inf()) w->z[count] = z, w->at[count++] = j;
  }
  return count;
}

static void answer(const magicpig *s, int64_t item, int64_t i, magicpig_work *w) {
  const int64_t row = item * s->l + i, count = list(s, item, i, w);
  const bool none = count == 0 && smx_context_on_empty(s->c->ctx) == SMX_EMPTY_NAN;
  const double lse = listed_soften(s->limit, w->z, count);
  for (int64_t x = 0; x < s->e; x++) w->y[x] = none ? __builtin_nan("") : 0;
  for (int64_t x = 0; x < count; x++) {
    tensor_load(s->c, s->c->in.view + V, (item * s->t + w->at[x]) * s->e, s->e, w->v);
    add_row(w->z[x], w->v, s->e, w->y);
  }
  tensor_store(s->c, s->c->out.view + Y, row * s->e, s->e, w->y);
  tensor_put(s->c, LSE, row, lse);
  ((int64_t *)(void *)s->c->out.view[COUNT].data)[row] = count;
}

static void task(void *arg, int64_t item) {
  magicpig *s = arg;
  char *memory = smx_scratch_take(&s->scratch);
  magicpig_work w;
  lay_out(s, &(carver){.base = memory, .fits = true}, &w);
  take_keys(s, item, &w);
  for (int64_t i = 0; i < s->l; i++) answer(s, item, i, &w);
  smx_scratch_give(&s->scratch, memory);
}

/* ---- calls ---- */

smx_status magicpig_attention_sizes(dims *d) {
  const double least = dims_param(d, "least", 0), tables = dims_param(d, "tables", 0);
  if (least <= tables) return SMX_OK;
  return smx_fail(SMX_ERR_PARAM, "%s: least is %.0f, but there are %.0f tables", d->op->name, least, tables);
}

/* SMX_EMPTY_ERROR: before anything is written. */
static smx_status check_empty(magicpig *s) {
  char *memory = smx_scratch_take(&s->scratch);
  smx_status status = SMX_OK;
  magicpig_work w;
  lay_out(s, &(carver){.base = memory, .fits = true}, &w);
  for (int64_t item = 0; item < s->c->dims.lead_count && s->l > 0; item++) {
    take_keys(s, item, &w);
    for (int64_t i = 0; i < s->l && status == SMX_OK; i++)
      if (list(s, item, i, &w) == 0)
        status = smx_fail(SMX_ERR_EMPTY, "%s: query %lld has no keys", s->c->op->name,
                          (long long)(item * s->l + i));
  }
  smx_scratch_give(&s->scratch, memory);
  return status;
}

static magicpig magicpig_of(const tensor_call *c) {
  magicpig s = {.c = c, .math = smx_isa_current()->f64.score, .scale = attention_scale(c)};
  s.l = tensor_dim(c, "l"), s.t = tensor_dim(c, "t"), s.d = tensor_dim(c, "d"), s.e = tensor_dim(c, "e");
  s.hash = (lsh){(int64_t)tensor_param(c, "bits"), (int64_t)tensor_param(c, "tables"), s.d};
  s.least = (int64_t)tensor_param(c, "least"), s.first = (int64_t)tensor_param(c, "first");
  s.last = (int64_t)tensor_param(c, "last"), s.eps = tensor_param(c, "eps");
  s.centre = tensor_param(c, "centre") != 0, s.causal = tensor_param(c, "causal") != 0;
  s.limit = smx_context_on_inf(c->ctx) == SMX_INF_LIMIT;
  if (c->in.given[MASK]) s.mask = (const unsigned char *)c->in.view[MASK].data;
  if (c->in.given[EXACT]) s.exact = (const unsigned char *)c->in.view[EXACT].data;
  return s;
}

smx_status magicpig_attention_forward(const tensor_call *c) {
  magicpig s = magicpig_of(c);
  magicpig_work none;
  carver place = {.fits = true};
  lay_out(&s, &place, &none);
  const int64_t items = c->dims.lead_count;
  if (!lsh_open(&s.hash, c, &place, items, &s.scratch))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld keys", c->op->name, (long long)s.t);
  smx_status status = lsh_draw(&s.hash, c);
  if (status == SMX_OK && smx_context_on_empty(c->ctx) == SMX_EMPTY_ERROR) status = check_empty(&s);
  if (status == SMX_OK) smx_parallel(c->ctx, items, task, &s);
  smx_scratch_close(&s.scratch);
  return status;
}
