/* fit/functions_classes.c - what is fitted to the probabilities of known rows and tells rows that
 * are other: templates of the classes (KL matching), centroids with the distance at which errors
 * begin, and which classes are taken for each other (relative uncertainty). Probabilities of a
 * block of rows are made by many tasks, and added up in the order of rows. */
#include "functions.h"

enum { LOGITS, TARGET }; /* inputs of fits */
enum { BLOCK = 512, ROWS = 16, COLUMNS = 64 };
enum { GOOD = 0, EMPTY = -2, INVALID = -3 }; /* a row: fine, without classes, with a NaN or +inf */
#define INF __builtin_inf()
#define NAN_ __builtin_nan("")

/* ---- probabilities of rows ---- */

/* p = softmax(z / temperature) of row `row`, and log p where it is wanted; of two equal logits the
 * first is *largest. Of rows that are not fine p is NaN. */
static int softmax_row(const tensor_call *c, int64_t row, int64_t n, double temperature, double *p,
                       double *log_p, int64_t *largest) {
  double most = -INF, sum = 0;
  int state = EMPTY;
  *largest = 0;
  tensor_load(c, c->in.view + LOGITS, row * n, n, p);
  for (int64_t j = 0; j < n; j++) {
    if (p[j] > most) most = p[j], *largest = j, state = GOOD;
    if (p[j] != p[j]) state = INVALID, most = INF;
  }
  if (state == GOOD && most == INF && smx_context_on_inf(c->ctx) != SMX_INF_LIMIT) state = INVALID;
  for (int64_t j = 0; j < n; j++) {
    const double d = state != GOOD ? NAN_ : p[j] == most ? 0 : (p[j] - most) / temperature;
    if (log_p) log_p[j] = d;
    sum += p[j] = fit_math()->exp(d);
  }
  const double log_sum = state == GOOD ? fit_math()->log(sum) : 0;
  for (int64_t j = 0; j < n; j++) {
    p[j] /= sum;
    if (log_p) log_p[j] -= log_sum;
  }
  return state;
}

/* Rows of a fit, block by block. */
typedef struct class_fit {
  const tensor_call *c;
  int64_t rows, classes, from, count; /* count rows from row `from` on are in p */
  double temperature;
  double *p, *sums; /* sums: [classes, classes] */
  int64_t *group;   /* of each row of the block: the class that it is added to; -1: none */
  int64_t *members; /* of each class */
  int64_t (*group_of)(const struct class_fit *f, int64_t row, int64_t largest);
} class_fit;

static int64_t target_of(const class_fit *f, int64_t row) {
  return f->c->in.given[TARGET] ? fit_whole(f->c, TARGET)[row] : 0;
}

static void block_task(void *arg, int64_t task) {
  class_fit *f = arg;
  for (int64_t i = task * ROWS; i < fit_task_end(task, f->count, ROWS); i++) {
    const int64_t row = f->from + i;
    int64_t largest;
    f->group[i] = -1;
    if (target_of(f, row) < 0) continue;
    const int state =
        softmax_row(f->c, row, f->classes, f->temperature, f->p + i * f->classes, NULL, &largest);
    f->group[i] = state == GOOD ? f->group_of(f, row, largest) : INVALID;
  }
}

/* The next rows come to p. False: there are none, or one that counts is not fine: *nan. */
static bool next_block(class_fit *f, bool *nan) {
  f->from += f->count;
  f->count = f->rows - f->from < BLOCK ? f->rows - f->from : BLOCK;
  smx_parallel(f->c->ctx, fit_tasks(f->count, ROWS), block_task, f);
  for (int64_t i = 0; i < f->count; i++) *nan |= f->group[i] == INVALID;
  return f->count > 0 && !*nan;
}

/* room: numbers that the fit wants beside. They follow the sums. */
static smx_status class_open(class_fit *f, const tensor_call *c, int64_t room) {
  int64_t square;
  *f = (class_fit){.c = c, .rows = tensor_dim(c, "n"), .classes = tensor_dim(c, "c"), .temperature = 1};
  if (!smx_multiply(f->classes, f->classes + BLOCK + 1, &square) || square > INT64_MAX / 32)
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld classes", c->op->name, (long long)f->classes);
  f->p = fit_reserve(c, square + BLOCK + room);
  if (!f->p) return SMX_ERR_NOMEM;
  f->group = (int64_t *)(void *)(f->p + BLOCK * f->classes), f->members = f->group + BLOCK;
  f->sums = (double *)(void *)(f->members + f->classes);
  for (int64_t j = 0; j < f->classes * f->classes; j++) f->sums[j] = 0;
  for (int64_t j = 0; j < f->classes; j++) f->members[j] = 0;
  return SMX_OK;
}

/* Some columns of the sums, over the rows of the block in order. */
static void columns_task(void *arg, int64_t task) {
  class_fit *f = arg;
  const int64_t from = task * COLUMNS, end = fit_task_end(task, f->classes, COLUMNS), c = f->classes;
  for (int64_t i = 0; i < f->count; i++)
    for (int64_t j = from; j < end && f->group[i] >= 0; j++) f->sums[f->group[i] * c + j] += f->p[i * c + j];
}

/* The mean of p over the rows of each group; a class without rows keeps 0. False: a NaN. */
static bool means_of(class_fit *f) {
  bool nan = false;
  while (next_block(f, &nan)) {
    for (int64_t i = 0; i < f->count; i++)
      if (f->group[i] >= 0) f->members[f->group[i]]++;
    smx_parallel(f->c->ctx, fit_tasks(f->classes, COLUMNS), columns_task, f);
  }
  for (int64_t k = 0; k < f->classes; k++)
    for (int64_t j = 0; j < f->classes; j++) {
      if (f->members[k] > 0) f->sums[k * f->classes + j] /= (double)f->members[k];
      if (nan) f->sums[k * f->classes + j] = NAN_;
    }
  return !nan;
}

static void put_means(const class_fit *f) {
  const tensor_call *c = f->c;
  tensor_store(c, c->out.view, 0, f->classes * f->classes, f->sums);
}
static void put_members(const class_fit *f, int port) {
  int64_t *to = (int64_t *)(void *)f->c->out.view[port].data;
  for (int64_t j = 0; j < f->classes && f->c->out.given[port]; j++) to[j] = f->members[j];
}

/* ---- kl_matching ---- */

static int64_t group_of_template(const class_fit *f, int64_t row, int64_t largest) {
  return f->c->in.given[TARGET] ? target_of(f, row) : largest;
}
smx_status fit_templates(const tensor_call *c) {
  class_fit f;
  const smx_status status = class_open(&f, c, 0);
  if (status != SMX_OK) return status;
  f.group_of = group_of_template;
  (void)means_of(&f);
  put_means(&f), put_members(&f, 1);
  smx_free(c->ctx, f.p);
  return SMX_OK;
}

/* What is applied to rows: numbers of the fit, and room of a thread. */
typedef struct class_map {
  const tensor_call *c;
  int64_t rows, classes, templates;
  double *fitted;
  smx_scratch scratch;
} class_map;

/* A row's KL(p || t_k) = sum p (log p - log t_k) of all templates at once, which are turned. */
static void matching_task(void *arg, int64_t task) {
  class_map *x = arg;
  const tensor_call *c = x->c;
  const int64_t n = x->classes, k = x->templates;
  double *p = smx_scratch_take(&x->scratch), *log_p = p + n, *sum = log_p + n;
  for (int64_t row = task * ROWS; row < fit_task_end(task, x->rows, ROWS); row++) {
    int64_t best = -1, largest;
    double least = softmax_row(c, row, n, 1, p, log_p, &largest) == GOOD ? INF : NAN_;
    for (int64_t t = 0; t < k; t++) sum[t] = 0;
    for (int64_t j = 0; j < n && least == INF; j++) {
      const double *log_t = x->fitted + j * k;
      for (int64_t t = 0; t < k && p[j] > 0; t++) sum[t] += p[j] * (log_p[j] - log_t[t]);
    }
    for (int64_t t = 0; t < k; t++)
      if (sum[t] < least) least = sum[t], best = t;
    tensor_put(c, 0, row, -least);
    if (c->out.given[1]) ((int64_t *)(void *)c->out.view[1].data)[row] = best;
  }
  smx_scratch_give(&x->scratch, p);
}

/* log of each template, turned to [classes, templates]; of 0: -inf. */
static void take_templates(class_map *x, double *line) {
  for (int64_t t = 0; t < x->templates; t++) {
    tensor_load(x->c, x->c->in.view + 1, t * x->classes, x->classes, line);
    for (int64_t j = 0; j < x->classes; j++)
      x->fitted[j * x->templates + t] = line[j] >= 0 && line[j] < 0x1p-1022 ? -INF : fit_math()->log(line[j]);
  }
}

static smx_status map_open(class_map *x, const tensor_call *c, int64_t fitted, int64_t place) {
  *x = (class_map){.c = c, .rows = c->dims.lead_count, .classes = tensor_dim(c, "c")};
  x->fitted = fit_reserve(c, fitted);
  if (!x->fitted) return SMX_ERR_NOMEM;
  if (smx_scratch_open(&x->scratch, c->ctx, 0, (size_t)(place + 1) * 8, fit_tasks(x->rows, ROWS)))
    return SMX_OK;
  smx_free(c->ctx, x->fitted);
  return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld classes", c->op->name, (long long)x->classes);
}
static void map_run(class_map *x, void (*task)(void *arg, int64_t task)) {
  smx_parallel(x->c->ctx, fit_tasks(x->rows, ROWS), task, x);
  smx_scratch_close(&x->scratch);
  smx_free(x->c->ctx, x->fitted);
}

smx_status fit_matching(const tensor_call *c) {
  class_map x;
  const int64_t n = tensor_dim(c, "c"), k = tensor_dim(c, "k");
  smx_status status = tensor_check_empty(c, c->dims.lead_count, n, "row", "classes");
  if (status == SMX_OK) status = map_open(&x, c, k * n + n, 2 * n + k);
  if (status != SMX_OK) return status;
  x.templates = k;
  take_templates(&x, x.fitted + k * n);
  map_run(&x, matching_task);
  return SMX_OK;
}

/* ---- centroid_distance ---- */

static int64_t group_of_right(const class_fit *f, int64_t row, int64_t largest) {
  return target_of(f, row) == largest ? largest : -1;
}
static int64_t group_of_wrong(const class_fit *f, int64_t row, int64_t largest) {
  return target_of(f, row) == largest ? -1 : largest;
}
static double distance_of(const double *p, const double *mean, int64_t n) {
  double sum = 0;
  for (int64_t j = 0; j < n; j++) sum += (p[j] - mean[j]) * (p[j] - mean[j]);
  return __builtin_sqrt(sum);
}

/* The mean of the right rows of each class; then the least distance of a wrong one to that of the
 * class that was chosen. */
smx_status fit_centroid(const tensor_call *c) {
  class_fit f;
  const int64_t n = tensor_dim(c, "c");
  const smx_status status = class_open(&f, c, n);
  if (status != SMX_OK) return status;
  double *least = f.sums + n * n;
  f.group_of = group_of_right;
  bool nan = !means_of(&f);
  for (int64_t k = 0; k < n; k++) {
    if (f.members[k] == 0 && !nan) f.sums[k * n + k] = 1;
    least[k] = nan ? NAN_ : INF;
  }
  f.from = f.count = 0, f.group_of = group_of_wrong;
  while (!nan && next_block(&f, &nan))
    for (int64_t i = 0; i < f.count; i++) {
      const int64_t k = f.group[i];
      const double d = k < 0 ? INF : distance_of(f.p + i * n, f.sums + k * n, n);
      if (d < INF && d < least[k]) least[k] = d;
    }
  put_means(&f), put_members(&f, 2);
  tensor_store(c, c->out.view + 1, 0, n, least);
  smx_free(c->ctx, f.p);
  return SMX_OK;
}

enum { MEAN = 1, THRESHOLD }; /* inputs of centroid_distance */

static void centroid_task(void *arg, int64_t task) {
  class_map *x = arg;
  const tensor_call *c = x->c;
  const int64_t n = x->classes;
  double *p = smx_scratch_take(&x->scratch);
  for (int64_t row = task * ROWS; row < fit_task_end(task, x->rows, ROWS); row++) {
    int64_t k;
    const bool good = softmax_row(c, row, n, 1, p, NULL, &k) == GOOD;
    const double d = good ? distance_of(p, x->fitted + k * n, n) : NAN_;
    tensor_put(c, 0, row, -d);
    ((int64_t *)(void *)c->out.view[1].data)[row] = good && d < x->fitted[n * n + k];
  }
  smx_scratch_give(&x->scratch, p);
}
smx_status fit_centroid_distance(const tensor_call *c) {
  class_map x;
  const int64_t n = tensor_dim(c, "c");
  smx_status status = tensor_check_empty(c, c->dims.lead_count, n, "row", "classes");
  if (status == SMX_OK) status = map_open(&x, c, n * n + n, n);
  if (status != SMX_OK) return status;
  tensor_load(c, c->in.view + MEAN, 0, n * n, x.fitted);
  tensor_load(c, c->in.view + THRESHOLD, 0, n, x.fitted + n * n);
  map_run(&x, centroid_task);
  return SMX_OK;
}

/* ---- relative_uncertainty ----
 *
 * R = sum over the rows of w p p^T, with w = lambda / (wrong rows) of a wrong row and (lambda - 1)
 * / (right rows) of another; D = max(R, 0) off the diagonal, over its Frobenius norm. Its score
 * p^T D p is large where p is spread over classes that are taken for each other. */

static int64_t group_is_right(const class_fit *f, int64_t row, int64_t largest) {
  return target_of(f, row) == largest;
}

/* R, as the sum of p (w p)^T over blocks; weighted: room for a block, product: for a matrix. */
static smx_status relation_of(class_fit *f, const double *weight, double *weighted, double *product) {
  const int64_t n = f->classes;
  smx_status status = SMX_OK;
  bool nan = false;
  while (status == SMX_OK && next_block(f, &nan)) {
    for (int64_t i = 0; i < f->count; i++)
      for (int64_t j = 0; j < n; j++) {
        if (f->group[i] < 0) f->p[i * n + j] = 0;
        weighted[i * n + j] = f->group[i] < 0 ? 0 : weight[f->group[i]] * f->p[i * n + j];
      }
    status = fit_product(f->c->ctx, n, n, f->count, weighted, true, f->p, true, product);
    for (int64_t j = 0; j < n * n; j++) f->sums[j] += product[j];
  }
  return status;
}

/* D from R; without a positive element: 1 off the diagonal, the score of Gini. */
static void relation_finish(double *r, int64_t n, bool nan) {
  double norm = 0;
  for (int pass = 0; pass < 2 && norm == 0; pass++)
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j < n; j++) {
        const double above = i < j ? r[i * n + j] : r[j * n + i]; /* symmetric to the last digit */
        r[i * n + j] = i == j ? 0 : pass ? 1 : above > 0 ? above : 0;
        norm += r[i * n + j] * r[i * n + j];
      }
  norm = __builtin_sqrt(norm);
  for (int64_t i = 0; i < n * n; i++) r[i] = nan ? NAN_ : norm > 0 ? r[i] / norm : 0;
}

smx_status fit_relation(const tensor_call *c) {
  class_fit f;
  const int64_t n = tensor_dim(c, "c");
  smx_status status = class_open(&f, c, (n + BLOCK) * n);
  if (status != SMX_OK) return status;
  const double lambda = tensor_param(c, "lambda");
  double *product = f.sums + n * n, *weighted = product + n * n, count[2] = {0};
  bool nan = false;
  f.temperature = tensor_param(c, "temperature"), f.group_of = group_is_right;
  while (next_block(&f, &nan))
    for (int64_t i = 0; i < f.count; i++)
      if (f.group[i] >= 0) count[f.group[i]]++;
  const double weight[] = {count[0] > 0 ? lambda / count[0] : 0, count[1] > 0 ? (lambda - 1) / count[1] : 0};
  f.from = f.count = 0;
  if (n > 0 && !nan) status = relation_of(&f, weight, weighted, product);
  if (status == SMX_OK) relation_finish(f.sums, n, nan), put_means(&f);
  smx_free(c->ctx, f.p);
  return status;
}

/* Rows with M = (D + D^T) / 2: p^T D p = p^T M p, whose gradient is 2 (p M p - p p^T M p) / T. */
typedef struct relation_map {
  const tensor_call *c;
  int64_t classes, from, count;
  double temperature;
  bool backward;
  double *m, *p, *mp;
  int64_t *state;
} relation_map;

static void relation_load_task(void *arg, int64_t task) {
  relation_map *x = arg;
  int64_t largest;
  for (int64_t i = task * ROWS; i < fit_task_end(task, x->count, ROWS); i++)
    x->state[i] =
        softmax_row(x->c, x->from + i, x->classes, x->temperature, x->p + i * x->classes, NULL, &largest);
}
static void relation_task(void *arg, int64_t task) {
  relation_map *x = arg;
  const tensor_call *c = x->c;
  const int64_t n = x->classes;
  for (int64_t i = task * ROWS; i < fit_task_end(task, x->count, ROWS); i++) {
    const int64_t row = x->from + i;
    const double *p = x->p + i * n;
    double *mp = x->mp + i * n, score = 0;
    for (int64_t j = 0; j < n; j++) score += p[j] * mp[j];
    if (!x->backward) {
      tensor_put(c, 0, row, x->state[i] == GOOD ? score : NAN_);
      continue;
    }
    const double by = 2 * tensor_upstream(c, 0, row) / x->temperature;
    for (int64_t j = 0; j < n; j++)
      mp[j] = x->state[i] == GOOD ? by * p[j] * (mp[j] - score) : x->state[i] == EMPTY ? 0 : NAN_;
    tensor_store(c, c->din.view, row * n, n, mp);
  }
}

static smx_status relation_apply(const tensor_call *c, bool backward) {
  const int64_t n = tensor_dim(c, "c"), rows = c->dims.lead_count;
  relation_map x = {
      .c = c, .classes = n, .temperature = tensor_param(c, "temperature"), .backward = backward};
  smx_status status = tensor_check_empty(c, rows, n, "row", "classes");
  if (status != SMX_OK || (backward && !c->din.given[LOGITS])) return status;
  x.m = fit_reserve(c, n * n + 2 * BLOCK * n + BLOCK);
  if (!x.m) return SMX_ERR_NOMEM;
  x.p = x.m + n * n, x.mp = x.p + BLOCK * n, x.state = (int64_t *)(void *)(x.mp + BLOCK * n);
  tensor_load(c, c->in.view + 1, 0, n * n, x.m);
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < i; j++) x.m[i * n + j] = x.m[j * n + i] = (x.m[i * n + j] + x.m[j * n + i]) / 2;
  for (; x.from < rows && status == SMX_OK; x.from += x.count) {
    x.count = rows - x.from < BLOCK ? rows - x.from : BLOCK;
    smx_parallel(c->ctx, fit_tasks(x.count, ROWS), relation_load_task, &x);
    if (n > 0) status = fit_product(c->ctx, x.count, n, n, x.p, false, x.m, false, x.mp);
    if (status == SMX_OK) smx_parallel(c->ctx, fit_tasks(x.count, ROWS), relation_task, &x);
  }
  smx_free(c->ctx, x.m);
  return status;
}
smx_status fit_relation_apply(const tensor_call *c) { return relation_apply(c, false); }
smx_status fit_relation_backward(const tensor_call *c) { return relation_apply(c, true); }
