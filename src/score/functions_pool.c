/* score/functions_pool.c - rows of a pool that are worth a label: badge_select, whose gradients are
 * long and differ; anchor_subpool, near to rows that are labelled; neuronal_stream and
 * neuronal_pool, whose two best losses are near each other. */
#include "cpu/cpu.h"
#include "driver/number_sort.h"
#include "functions.h"

#define NAN_ __builtin_nan("")
#define INF __builtin_inf()
enum { ROWS = 64 };

static const score_kernels *math(void) { return smx_isa_current()->f64.score; }
static int64_t *whole_at(const tensor_call *c, int port, int64_t at) {
  return (int64_t *)(void *)c->out.view[port].data + at;
}
/* Four sums, of every fourth product each: one after another they would wait for each other. */
static double dot(const double *a, const double *b, int64_t n) {
  double s = 0, t = 0, u = 0, v = 0;
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    s += a[i] * b[i], t += a[i + 1] * b[i + 1], u += a[i + 2] * b[i + 2], v += a[i + 3] * b[i + 3];
  for (; i < n; i++) s += a[i] * b[i];
  return (s + t) + (u + v);
}
static double uniform_of(const tensor_call *c, int64_t stream, int64_t block) {
  uint64_t words[2];
  math()->draw((uint64_t)tensor_param(c, "seed"), (uint64_t)stream, SCORE_DRAW_ROWS, (uint64_t)block, words);
  return ((double)(words[0] >> 12) + 0.5) * 0x1p-52;
}
static double *reserve(const tensor_call *c, int64_t rows, int64_t each, int64_t more) {
  int64_t bytes;
  double *room = smx_multiply(rows + 1, (each + 1) * 8, &bytes) && bytes < INT64_MAX / 2
                     ? smx_alloc(c->ctx, (size_t)(bytes + more))
                     : NULL;
  if (!room) (void)smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows", c->op->name, (long long)rows);
  return room;
}

/* ---- badge_select ----
 *
 * The gradient of a row by the last layer, with its prediction as the target, is a h^T, a = p -
 * [prediction]: squares of distances are |a|^2 |h|^2 + |b|^2 |g|^2 - 2 (a b) (h g). */

enum { FEATURES, LOGITS }; /* inputs */
enum { CHOSEN, ORDER };    /* outputs */

typedef struct badge {
  const tensor_call *c;
  int64_t n, d, k, last;      /* last: the row that was chosen last */
  double *h, *a, *size, *far; /* size: the square of a row's gradient; NaN: it takes no part */
} badge;

static void embed_task(void *arg, int64_t task) {
  const badge *x = arg;
  for (int64_t i = task * ROWS; i < x->n && i < (task + 1) * ROWS; i++) {
    double *a = x->a + i * x->k, *h = x->h + i * x->d, most = -INF, sum = 0;
    int64_t best = 0;
    tensor_load(x->c, x->c->in.view + FEATURES, i * x->d, x->d, h);
    tensor_load(x->c, x->c->in.view + LOGITS, i * x->k, x->k, a);
    for (int64_t j = 0; j < x->k; j++)
      if (a[j] > most) most = a[j], best = j;
    for (int64_t j = 0; j < x->k; j++) sum += a[j] = math()->exp(a[j] - most);
    for (int64_t j = 0; j < x->k; j++) a[j] = a[j] / sum - (j == best);
    x->size[i] = dot(a, a, x->k) * dot(h, h, x->d);
    x->far[i] = INF;
  }
}

/* The square of the distance to the nearest that is chosen; what rounding leaves of 0 is 0. */
static void near_task(void *arg, int64_t task) {
  const badge *x = arg;
  const double *b = x->a + x->last * x->k, *g = x->h + x->last * x->d;
  for (int64_t i = task * ROWS; i < x->n && i < (task + 1) * ROWS; i++) {
    const double both = x->size[i] + x->size[x->last],
                 square = both - 2 * dot(x->a + i * x->k, b, x->k) * dot(x->h + i * x->d, g, x->d);
    const double own = square > 1e-13 * both && i != x->last ? square : 0;
    x->far[i] = own < x->far[i] ? own : x->far[i];
  }
}

static bool takes_part(const badge *x, int64_t i) { return x->size[i] - x->size[i] == 0; }

/* The row with the longest gradient; then one with a probability that rises with the square. Where
 * all that are left are copies, the first of them; -1: there are no more. */
static int64_t next_row(const badge *x, int64_t step) {
  double total = 0, sum = 0;
  int64_t best = -1, last = -1;
  for (int64_t i = 0; i < x->n; i++) {
    if (!takes_part(x, i) || *whole_at(x->c, CHOSEN, i)) continue;
    if (step == 0 ? best < 0 || x->size[i] > x->size[best] : best < 0) best = i;
    if (step > 0) total += x->far[i];
  }
  if (step == 0 || !(total > 0)) return best;
  const double bar = uniform_of(x->c, 0, step) * total;
  for (int64_t i = 0; i < x->n && !(sum > bar); i++)
    if (takes_part(x, i) && x->far[i] > 0) sum += x->far[i], last = i;
  return last;
}

smx_status score_badge(const tensor_call *c) {
  badge x = {.c = c, .n = tensor_dim(c, "n"), .d = tensor_dim(c, "d"), .k = tensor_dim(c, "c")};
  const int64_t tasks = (x.n + ROWS - 1) / ROWS, budget = (int64_t)tensor_param(c, "budget");
  x.h = reserve(c, x.n, x.d + x.k + 2, 0);
  if (!x.h) return SMX_ERR_NOMEM;
  x.a = x.h + x.n * x.d, x.size = x.a + x.n * x.k, x.far = x.size + x.n;
  for (int64_t i = 0; i < x.n; i++) *whole_at(c, CHOSEN, i) = 0, *whole_at(c, ORDER, i) = -1;
  smx_parallel(c->ctx, tasks, embed_task, &x);
  for (int64_t step = 0; step < x.n && step < budget; step++) {
    x.last = next_row(&x, step);
    if (x.last < 0) break;
    *whole_at(c, CHOSEN, x.last) = 1, *whole_at(c, ORDER, step) = x.last;
    smx_parallel(c->ctx, tasks, near_task, &x);
  }
  smx_free(c->ctx, x.h);
  return SMX_OK;
}

/* ---- anchor_subpool ---- */

enum { POOL, ANCHORS };       /* inputs */
enum { OF_SCORE, SUB_ORDER }; /* outputs */

typedef struct subpool {
  const tensor_call *c;
  int64_t n, d, anchors;
  double *h, *anchor, *near, *sum, *count;
  sort_entry *entry;
  sort_counts *counts;
} subpool;

/* A row of length 1; NaN of one without a direction, or with a square beyond double. */
static void load_unit(const subpool *x, int port, int64_t row, double *to) {
  tensor_load(x->c, x->c->in.view + port, row * x->d, x->d, to);
  const double length = __builtin_sqrt(dot(to, to, x->d));
  for (int64_t j = 0; j < x->d; j++) to[j] = length > 0 && length < INF ? to[j] / length : NAN_;
}
static void cosine_task(void *arg, int64_t task) {
  const subpool *x = arg;
  for (int64_t i = task * ROWS; i < x->n && i < (task + 1) * ROWS; i++)
    x->near[i] = dot(x->h + i * x->d, x->anchor, x->d);
}

/* Rows by x, the largest first, of equal ones the first; those with a NaN are left out. */
static const sort_entry *sort_rows(const subpool *x, const double *by, int64_t *count) {
  *count = 0;
  for (int64_t i = 0; i < x->n; i++)
    if (by[i] == by[i]) x->entry[(*count)++] = (sort_entry){sort_key_descending(by[i]), (double)i};
  return sort_numbers(x->entry, x->entry + x->n, *count, x->counts);
}

static void retrieve(const subpool *x, int64_t number) {
  const int64_t k = (int64_t)tensor_param(x->c, "k");
  int64_t count;
  load_unit(x, ANCHORS, number, x->anchor);
  smx_parallel(x->c->ctx, (x->n + ROWS - 1) / ROWS, cosine_task, (void *)(uintptr_t)x);
  const sort_entry *order = sort_rows(x, x->near, &count);
  for (int64_t i = 0; i < count && i < k; i++) {
    const int64_t row = (int64_t)order[i].y;
    x->sum[row] += x->near[row], x->count[row]++;
  }
}

smx_status score_anchors(const tensor_call *c) {
  subpool x = {.c = c, .n = tensor_dim(c, "n"), .d = tensor_dim(c, "d"), .anchors = tensor_dim(c, "a")};
  const int64_t size = (int64_t)tensor_param(c, "size"), pair = (int64_t)sizeof(sort_entry) / 8;
  int64_t count;
  x.h = reserve(c, x.n + 1, x.d + 3 + 2 * pair, (int64_t)sizeof(sort_counts));
  if (!x.h) return SMX_ERR_NOMEM;
  x.entry = (sort_entry *)(void *)x.h, x.counts = (sort_counts *)(void *)(x.entry + 2 * x.n);
  x.h = (double *)(void *)(x.counts + 1), x.anchor = x.h + x.n * x.d, x.near = x.anchor + x.d;
  x.sum = x.near + x.n, x.count = x.sum + x.n;
  for (int64_t i = 0; i < x.n; i++) load_unit(&x, POOL, i, x.h + i * x.d), x.sum[i] = x.count[i] = 0;
  for (int64_t a = 0; a < x.anchors; a++) retrieve(&x, a);
  for (int64_t i = 0; i < x.n; i++) x.sum[i] /= x.count[i], tensor_put(c, OF_SCORE, i, x.sum[i]);
  const sort_entry *order = sort_rows(&x, x.sum, &count);
  for (int64_t i = 0; i < x.n; i++)
    *whole_at(c, SUB_ORDER, i) = i < count && i < size ? (int64_t)order[i].y : -1;
  smx_free(c->ctx, x.entry);
  return SMX_OK;
}

/* ---- neuronal_stream, neuronal_pool ---- */

enum { QUERY, GAP, BOUND };  /* outputs of neuronal_stream */
enum { PROBABILITY, DRAWN }; /* of neuronal_pool */

/* The second least less the least; inf of one number, NaN with a NaN. */
static double gap_of(const double *f, int64_t k) {
  double least = INF, second = INF, sum = 0;
  for (int64_t j = 0; j < k; j++) {
    if (f[j] < least) second = least, least = f[j];
    else if (f[j] < second) second = f[j];
    sum += f[j] - f[j];
  }
  return sum == 0 ? second - least : NAN_;
}

/* Asks where gap < 2 gamma beta_t, beta_t = sqrt(k S^2 / t) + sqrt(2 log(3 T / delta) / t). */
smx_status score_neuronal_stream(const tensor_call *c) {
  const int64_t n = tensor_dim(c, "n"), k = tensor_dim(c, "k");
  const double s = tensor_param(c, "scale"), horizon = tensor_param(c, "horizon"),
               rounds = horizon > 0 ? horizon : (double)n,
               spread = 2 * math()->log(3 * (rounds > 1 ? rounds : 1) / tensor_param(c, "delta"));
  double *f = reserve(c, 1, k, 0);
  if (!f) return SMX_ERR_NOMEM;
  for (int64_t i = 0; i < c->dims.lead_count * n; i++) {
    const double t = (double)(i % n + 1),
                 beta = __builtin_sqrt((double)k * s * s / t) + __builtin_sqrt(spread / t),
                 bound = 2 * tensor_param(c, "gamma") * beta;
    tensor_load(c, c->in.view, i * k, k, f);
    const double gap = gap_of(f, k);
    *whole_at(c, QUERY, i) = gap < bound;
    tensor_put(c, GAP, i, gap), tensor_put(c, BOUND, i, bound);
  }
  smx_free(c->ctx, f);
  return SMX_OK;
}

/* w: gaps of a set. p_i = w_0 / (mu w_0 + gamma (w_i - w_0)) of all but the least, w_0, which has
 * what is left: not below 0, as mu is at least n. */
static void draw_set(const tensor_call *c, int64_t set, int64_t n, double *w) {
  const double mu = tensor_param(c, "mu") * (double)n, gamma = tensor_param(c, "gamma");
  int64_t best = -1, drawn = -1;
  double left = 1, sum = 0;
  bool nan = n == 0;
  tensor_load(c, c->in.view, set * n, n, w);
  for (int64_t i = 0; i < n; i++) {
    nan |= w[i] != w[i];
    if (best < 0 || w[i] < w[best]) best = i;
  }
  nan = nan || w[best] == INF;
  const double least = nan ? 0 : w[best], u = uniform_of(c, set, 0);
  for (int64_t i = 0; i < n; i++)
    if (i != best) w[i] = least == 0 ? 0 : least / (mu * least + gamma * (w[i] - least)), left -= w[i];
  if (!nan) w[best] = left > 0 ? left : 0;
  for (int64_t i = 0; i < n; i++) {
    if (!nan && drawn < 0 && (sum += w[i]) > u) drawn = i;
    tensor_put(c, PROBABILITY, set * n + i, nan ? NAN_ : w[i]);
  }
  *whole_at(c, DRAWN, set) = nan || drawn >= 0 ? drawn : best;
}

smx_status score_neuronal_pool(const tensor_call *c) {
  const int64_t n = tensor_dim(c, "n");
  const smx_status status = score_check_cost(c, 0);
  double *w = status == SMX_OK ? reserve(c, n, 1, 0) : NULL;
  if (status != SMX_OK || !w) return status != SMX_OK ? status : SMX_ERR_NOMEM;
  for (int64_t s = 0; s < c->dims.lead_count; s++) draw_set(c, s, n, w);
  smx_free(c->ctx, w);
  return SMX_OK;
}
