/* pool/functions_query.c - sim_pool and query_pool: attention of one query, itself a mean of the
 * items. In double, with items x_i, normalised or not, the mean u of some of them as they are
 * given, and heads h of columns of q = Wq u:
 *
 *   t_h = q_h Wk_h, a_h = softmax_i(scale <t_h, x_i>), o_h = sum_i a_hi (Wv_h x_i), y = Wo o
 *
 * where sim_pool has no Wv and Wo, and may take a power mean in place of the sum. As there is one
 * query, no item is multiplied by a matrix. Gradients, with go = Wo^T dy, dp_h = go_h Wv_h:
 *
 *   da_hi = <dp_h, x_i>, ds = a (da - sum a da), dt_h = scale sum_i ds_hi x_i, dq_h = Wk_h dt_h,
 *   dx_i = sum_h a_hi dp_h + scale ds_hi t_h, and Wq^T dq over their number to the items of u
 *
 * A power mean takes root_i = a_i^(1 / gamma): (sum a V^gamma)^(1 / gamma) is the norm of root V,
 * of numbers over their largest, and share_i = (root_i V_i / y)^gamma are what its gradients are
 * made of, a da_i = share y / gamma, dV_i = share y / V_i. Neither overflows, nor is lost. With
 * gamma below 1 a^(1 / gamma) would be lost, and V^gamma is not: there shares are a_i (V_i /
 * y)^gamma.
 *
 * Those of matrices are sums of outer products, one for each item of the batch, in their order. */
#include <string.h>

#include "driver/carve.h"
#include "functions_sets.h"

enum { X, WQ, WK, WV, WO, MATRICES = 4 }; /* inputs; sim_pool has no WV and WO */
static const double ABOVE = 1e-6;         /* what is added to values of a power mean */

typedef struct query_call {
  const tensor_call *c;
  pool_sets s;
  int64_t n, d, heads, width, listed; /* listed: tokens of the query, 0 for all */
  double scale, eps, gamma;           /* gamma 0: a sum */
  bool norm, backward;
  const int64_t *list;
  double *matrix[MATRICES], *gain, *bias; /* matrix[k]: of input WQ + k; NULL: there is none */
  double *kept;                           /* of each lead: what gradients of matrices are made of */
  smx_scratch scratch;
} query_call;

/* Of a lead. p, dt: [heads][d]; go: the gradient of o. */
typedef struct factors {
  double *u, *q, *o, *dy, *go, *dq, *dgain, *dbias, *p, *dt;
} factors;

/* What a task works in. a, da, root: [heads][n]; t, dp: [heads][d]; the rest are rows of d. */
typedef struct query_work {
  pool_set set;
  factors f;
  double *a, *da, *root, *t, *dp, *x, *made, *value, *dx, *y, *du, *top;
  double present, least; /* tokens of the query that are there; the smallest value */
  int64_t least_item, least_column;
  double sd; /* 1 / the deviation of the item that was loaded last */
} query_work;

static int64_t factor_count(const query_call *s) { return (8 + 2 * s->heads) * s->d; }
static factors factors_at(const query_call *s, double *at) {
  const int64_t d = s->d;
  return (factors){at,         at + d,     at + 2 * d, at + 3 * d, at + 4 * d,
                   at + 5 * d, at + 6 * d, at + 7 * d, at + 8 * d, at + (8 + s->heads) * d};
}
static void lay_out(const query_call *s, carver *c, query_work *w) {
  double **const rows[] = {&w->x, &w->made, &w->dx, &w->y, &w->du, &w->top, &w->value};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) *rows[i] = carve(c, 1, s->d, 8);
  w->a = carve(c, s->heads, s->n, 8), w->da = carve(c, s->heads, s->n, 8);
  w->root = carve(c, s->gamma > 0 ? s->heads : 0, s->n, 8);
  w->t = carve(c, s->heads, s->d, 8), w->dp = carve(c, s->heads, s->d, 8);
  w->f.u = carve(c, 8 + 2 * s->heads, s->d, 8);
}

/* ---- vectors ---- */

static double dot(const double *a, const double *b, int64_t n) {
  double sum[4] = {0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int l = 0; l < 4; l++) sum[l] += a[i + l] * b[i + l];
  for (; i < n; i++) sum[0] += a[i] * b[i];
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}
static void add(double by, const double *x, int64_t n, double *to) {
  for (int64_t i = 0; i < n; i++) to[i] += by * x[i];
}
static void clear(double *x, int64_t n) { memset(x, 0, (size_t)n * sizeof *x); }
/* to = W x, or W^T x */
static void apply(const double *w, const double *x, int64_t d, double *to) {
  for (int64_t r = 0; r < d; r++) to[r] = dot(w + r * d, x, d);
}
static void apply_back(const double *w, const double *x, int64_t d, double *to) {
  clear(to, d);
  for (int64_t r = 0; r < d; r++) add(x[r], w + r * d, d, to);
}
/* Rows of a head: to[h] = sum over its columns r of x_r W_r. */
static void rows_of_heads(const query_call *s, const double *w, const double *x, double *to) {
  clear(to, s->heads * s->d);
  for (int64_t r = 0; r < s->d; r++) add(x[r], w + r * s->d, s->d, to + r / s->width * s->d);
}
/* to[r] = <W_r, x of the head of r> */
static void columns_of_heads(const query_call *s, const double *w, const double *x, double *to) {
  for (int64_t r = 0; r < s->d; r++) to[r] = dot(w + r * s->d, x + r / s->width * s->d, s->d);
}

/* ---- items ---- */

static void load(const query_call *s, query_work *w, int64_t i) {
  tensor_load(s->c, s->c->in.view + X, pool_set_item(&s->s, &w->set, i) * s->d, s->d, w->x);
}
/* x as it is, and normalised. */
static void take(const query_call *s, query_work *w, int64_t i) {
  double mean = 0, square = 0, by = 1;
  load(s, w, i);
  if (!s->norm) {
    memcpy(w->made, w->x, (size_t)s->d * sizeof *w->x);
    return;
  }
  if (s->c->is_f64) by = pool_tame(w->x, s->d);
  for (int64_t j = 0; j < s->d; j++) mean += w->x[j];
  mean /= (double)s->d;
  for (int64_t j = 0; j < s->d; j++) square += (w->x[j] - mean) * (w->x[j] - mean);
  const double eps = s->eps * by * by;
  w->sd = 1 / __builtin_sqrt(square / (double)s->d + (eps > 0x1p-1000 ? eps : 0x1p-1000));
  for (int64_t j = 0; j < s->d; j++) w->x[j] = (w->x[j] - mean) * w->sd;
  w->sd *= by;
  for (int64_t j = 0; j < s->d; j++)
    w->made[j] = (s->gain ? s->gain[j] * w->x[j] : w->x[j]) + (s->bias ? s->bias[j] : 0);
}
/* The gradient of `made` becomes that of x; w->x is normalised. */
static void norm_back(const query_call *s, query_work *w, double *dx) {
  double mean = 0, slope = 0;
  if (!s->norm) return;
  for (int64_t j = 0; j < s->d; j++) {
    w->f.dgain[j] += dx[j] * w->x[j], w->f.dbias[j] += dx[j];
    dx[j] *= s->gain ? s->gain[j] : 1;
    mean += dx[j], slope += dx[j] * w->x[j];
  }
  mean /= (double)s->d, slope /= (double)s->d;
  for (int64_t j = 0; j < s->d; j++) dx[j] = w->sd * (dx[j] - mean - w->x[j] * slope);
}

/* Which item is number k of the query; -1: it is not there. */
static int64_t of_query(const query_call *s, const query_work *w, int64_t k) {
  const int64_t i = s->list ? s->list[k] : k;
  return pool_set_has(&s->s, &w->set, i) ? i : -1;
}

/* ---- forward ---- */

static void take_query(const query_call *s, query_work *w) {
  const int64_t n = s->list ? s->listed : s->n;
  clear(w->f.u, s->d), w->present = 0;
  for (int64_t k = 0; k < n; k++) {
    const int64_t i = of_query(s, w, k);
    if (i < 0) continue;
    load(s, w, i), add(1, w->x, s->d, w->f.u), w->present++;
  }
  for (int64_t j = 0; j < s->d; j++) w->f.u[j] /= w->present;
  apply(s->matrix[0], w->f.u, s->d, w->f.q);
  rows_of_heads(s, s->matrix[1], w->f.q, w->t);
}

/* made becomes root V, V = made - least + ABOVE, which goes to value. */
static void take_values(const query_call *s, query_work *w, int64_t i) {
  for (int64_t j = 0; j < s->d; j++) {
    w->value[j] = w->made[j] - w->least + ABOVE;
    w->made[j] = w->root[j / s->width * s->n + i] * w->value[j];
  }
}
/* made becomes (root V / over)^gamma of its columns, or a (V / over)^gamma. */
static void powers(const query_call *s, query_work *w, int64_t i, const double *over) {
  take_values(s, w, i);
  for (int64_t j = 0; j < s->d; j++) w->made[j] /= over[j] != 0 ? over[j] : 1; /* 0: there is no mass */
  s->s.math->run->power(s->gamma, w->made, s->d, w->made);
  for (int64_t j = 0; j < s->d && s->gamma < 1; j++) w->made[j] *= w->a[j / s->width * s->n + i];
}

static void take_weights(const query_call *s, query_work *w) {
  w->least = __builtin_inf();
  for (int64_t i = 0; i < s->n; i++) {
    if (!pool_set_has(&s->s, &w->set, i)) continue;
    take(s, w, i);
    for (int64_t h = 0; h < s->heads; h++)
      w->a[h * s->n + i] = s->scale * dot(w->t + h * s->d, w->made, s->d);
    for (int64_t j = 0; j < s->d; j++)
      if (w->made[j] < w->least) w->least = w->made[j], w->least_item = i, w->least_column = j;
  }
  for (int64_t h = 0; h < s->heads; h++) pool_softmax_of_set(&s->s, &w->set, w->a + h * s->n);
  if (s->gamma == 0) return;
  for (int64_t k = 0; k < s->heads * s->n; k++) w->root[k] = 1;
  if (s->gamma >= 1) s->s.math->run->power(1 / s->gamma, w->a, s->heads * s->n, w->root);
  clear(w->top, s->d);
  for (int64_t i = 0; i < s->n; i++) {
    if (!pool_set_has(&s->s, &w->set, i)) continue;
    take(s, w, i), take_values(s, w, i);
    for (int64_t j = 0; j < s->d; j++) w->top[j] = w->made[j] > w->top[j] ? w->made[j] : w->top[j];
  }
}

/* o, and p where there is a matrix of values. */
static void pool(const query_call *s, query_work *w) {
  double *to = s->matrix[2] ? w->f.p : w->f.o;
  const int64_t many = s->matrix[2] ? s->d : s->width, step = s->matrix[2] ? 0 : s->width;
  clear(w->f.p, s->heads * s->d), clear(w->f.o, s->d);
  for (int64_t i = 0; i < s->n; i++) {
    if (!pool_set_has(&s->s, &w->set, i)) continue;
    take(s, w, i);
    if (s->gamma > 0) powers(s, w, i, w->top), add(1, w->made, s->d, to);
    for (int64_t h = 0; h < s->heads && s->gamma == 0; h++)
      add(w->a[h * s->n + i], w->made + h * step, many, to + h * many);
  }
  if (s->matrix[2]) columns_of_heads(s, s->matrix[2], w->f.p, w->f.o);
  if (s->gamma > 0) s->s.math->run->power(1 / s->gamma, w->f.o, s->d, w->f.o);
  for (int64_t j = 0; j < s->d && s->gamma > 0; j++) w->f.o[j] *= w->top[j];
}

/* False: the query is of nothing. */
static bool look(const query_call *s, query_work *w) {
  take_query(s, w);
  if (w->present == 0) return false;
  take_weights(s, w), pool(s, w);
  return true;
}

static query_work open_work(query_call *s, int64_t lead, double **memory) {
  query_work w = {0};
  *memory = smx_scratch_take(&s->scratch);
  lay_out(s, &(carver){.base = (char *)*memory, .fits = true}, &w);
  w.f = factors_at(s, s->kept ? s->kept + lead * factor_count(s) : w.f.u);
  w.set = pool_set_at(&s->s, lead);
  return w;
}

static void forward_task(void *arg, int64_t lead) {
  query_call *s = arg;
  double *memory;
  query_work w = open_work(s, lead, &memory);
  const bool any = look(s, &w);
  for (int64_t j = 0; j < s->d; j++) w.y[j] = any ? w.f.o[j] : pool_empty_value(s->c);
  if (any && s->matrix[3]) apply(s->matrix[3], w.f.o, s->d, w.y);
  if (any && s->listed == 1) add(1, w.f.u, s->d, w.y);
  tensor_store(s->c, s->c->out.view, lead * s->d, s->d, w.y);
  smx_scratch_give(&s->scratch, memory);
}

/* ---- gradients ---- */

/* <what a head gives its part of o, o's gradient> for an item: a da, which becomes ds. */
static void take_slopes(const query_call *s, query_work *w) {
  for (int64_t i = 0; i < s->n; i++) {
    if (!pool_set_has(&s->s, &w->set, i)) continue;
    take(s, w, i);
    if (s->gamma > 0) powers(s, w, i, w->f.o);
    for (int64_t j = 0; j < s->d && s->gamma > 0; j++) w->made[j] *= w->f.o[j] / s->gamma;
    for (int64_t h = 0; h < s->heads; h++)
      w->da[h * s->n + i] = (s->gamma > 0 ? 1 : w->a[h * s->n + i]) * dot(w->dp + h * s->d, w->made, s->d);
  }
  for (int64_t h = 0; h < s->heads; h++) {
    double *a = w->a + h * s->n, *da = w->da + h * s->n, mean = 0;
    for (int64_t i = 0; i < s->n; i++) mean += a[i] == 0 ? 0 : da[i];
    for (int64_t i = 0; i < s->n; i++) da[i] = a[i] == 0 ? 0 : s->scale * (da[i] - a[i] * mean);
  }
}

/* The gradient of `made` of an item through the values, to w->dx. */
static void values_back(const query_call *s, query_work *w, int64_t i) {
  clear(w->dx, s->d);
  for (int64_t h = 0; h < s->heads; h++)
    add(s->gamma > 0 ? 1 : w->a[h * s->n + i], w->dp + h * s->d, s->d, w->dx);
  if (s->gamma > 0) powers(s, w, i, w->f.o);
  for (int64_t j = 0; j < s->d && s->gamma > 0; j++) w->dx[j] *= w->made[j] * (w->f.o[j] / w->value[j]);
}
/* What all values give for the smallest one. */
static double least_back(const query_call *s, query_work *w) {
  double sum = 0;
  for (int64_t i = 0; i < s->n && s->gamma > 0; i++) {
    if (!pool_set_has(&s->s, &w->set, i)) continue;
    take(s, w, i), values_back(s, w, i);
    for (int64_t j = 0; j < s->d; j++) sum += w->dx[j];
  }
  return sum;
}

/* dx of all items, but for their part in the query; dt. */
static void items_back(const query_call *s, query_work *w, double least) {
  const double *t = w->t;
  clear(w->f.dt, s->heads * s->d);
  for (int64_t i = 0; i < s->n; i++) {
    const int64_t at = pool_set_item(&s->s, &w->set, i) * s->d;
    const bool there = pool_set_has(&s->s, &w->set, i);
    if (there) {
      take(s, w, i);
      for (int64_t h = 0; h < s->heads; h++) add(w->da[h * s->n + i], w->made, s->d, w->f.dt + h * s->d);
      values_back(s, w, i);
      if (s->gamma > 0 && i == w->least_item) w->dx[w->least_column] -= least;
      for (int64_t h = 0; h < s->heads; h++) add(w->da[h * s->n + i], t + h * s->d, s->d, w->dx);
      norm_back(s, w, w->dx);
    } else clear(w->dx, s->d);
    if (s->c->din.given[X]) tensor_store(s->c, s->c->din.view + X, at, s->d, w->dx);
  }
}

/* The query's part in dx. */
static void query_back(const query_call *s, query_work *w) {
  const smx_view *dx = s->c->din.view + X;
  apply_back(s->matrix[0], w->f.dq, s->d, w->du);
  if (s->listed == 1) add(1, w->f.dy, s->d, w->du);
  for (int64_t k = 0; k < (s->list ? s->listed : s->n); k++) {
    const int64_t i = of_query(s, w, k), at = pool_set_item(&s->s, &w->set, i) * s->d;
    if (i < 0) continue;
    tensor_load(s->c, dx, at, s->d, w->dx), add(1 / w->present, w->du, s->d, w->dx);
    tensor_store(s->c, dx, at, s->d, w->dx);
  }
}

static void backward_task(void *arg, int64_t lead) {
  query_call *s = arg;
  double *memory;
  query_work w = open_work(s, lead, &memory);
  const bool any = look(s, &w);
  clear(w.f.dgain, s->d), clear(w.f.dbias, s->d), clear(w.dp, s->heads * s->d);
  tensor_load(s->c, s->c->dout.view, lead * s->d, s->d, w.f.dy);
  if (!any) { /* nothing depends on anything */
    clear(w.f.u, factor_count(s)), clear(w.dx, s->d);
    for (int64_t i = 0; i < s->n && s->c->din.given[X]; i++)
      tensor_store(s->c, s->c->din.view + X, pool_set_item(&s->s, &w.set, i) * s->d, s->d, w.dx);
  } else {
    if (s->matrix[3]) apply_back(s->matrix[3], w.f.dy, s->d, w.f.go);
    else memcpy(w.f.go, w.f.dy, (size_t)s->d * sizeof *w.f.go);
    if (s->matrix[2]) rows_of_heads(s, s->matrix[2], w.f.go, w.dp);
    for (int64_t j = 0; j < s->d && !s->matrix[2]; j++) w.dp[j / s->width * s->d + j] = w.f.go[j];
    take_slopes(s, &w), items_back(s, &w, least_back(s, &w));
    columns_of_heads(s, s->matrix[1], w.f.dt, w.f.dq);
    if (s->c->din.given[X]) query_back(s, &w);
  }
  smx_scratch_give(&s->scratch, memory);
}

/* A row of the gradient of a matrix, or of gain and bias: leads in their order. */
typedef struct sum_call {
  query_call *s;
  int matrix;
} sum_call;
static void sum_row(void *arg, int64_t row) {
  const sum_call *m = arg;
  query_call *s = m->s;
  double *sum = smx_scratch_take(&s->scratch);
  clear(sum, s->d);
  for (int64_t lead = 0; lead < s->s.leads; lead++) {
    const factors f = factors_at(s, s->kept + lead * factor_count(s));
    const int64_t head = row / s->width * s->d;
    const double *left[] = {f.dq, f.q, f.go, f.dy}, *right[] = {f.u, f.dt + head, f.p + head, f.o};
    add(left[m->matrix][row], right[m->matrix], s->d, sum);
  }
  tensor_store(s->c, s->c->din.view + WQ + m->matrix, row * s->d, s->d, sum);
  smx_scratch_give(&s->scratch, sum);
}
static void sum_norm(query_call *s, int port, int which) {
  double *sum = smx_scratch_take(&s->scratch);
  clear(sum, s->d);
  for (int64_t lead = 0; lead < s->s.leads; lead++) {
    const factors f = factors_at(s, s->kept + lead * factor_count(s));
    add(1, which ? f.dbias : f.dgain, s->d, sum);
  }
  if (port >= 0 && s->c->din.given[port]) tensor_store(s->c, s->c->din.view + port, 0, s->d, sum);
  smx_scratch_give(&s->scratch, sum);
}

/* ---- calls ---- */

smx_status pool_query_sizes(dims *d) {
  const int64_t width = dims_value(d, "d", 0), heads = (int64_t)dims_param(d, "heads", 1);
  if (width >= 0 && width % heads != 0)
    return smx_fail(SMX_ERR_SHAPE, "%s: heads: %lld columns are not %lld heads of one size", d->op->name,
                    (long long)width, (long long)heads);
  return SMX_OK;
}

static query_call call_of(const tensor_call *c, bool backward) {
  const int list = pool_input(c->op, "index");
  query_call s = {.c = c, .s = pool_sets_of(c), .n = tensor_dim(c, "n"), .d = tensor_dim(c, "d")};
  s.heads = (int64_t)tensor_param(c, "heads"), s.width = s.d / s.heads, s.backward = backward;
  s.norm = c->op == pool_table + POOL_sim_pool;
  s.eps = dims_param(&c->dims, "eps", 0), s.gamma = dims_param(&c->dims, "gamma", 0);
  const bool all = dims_param(&c->dims, "scale", 1) == 0;
  s.scale = s.d > 0 ? 1 / __builtin_sqrt((double)(all ? s.d : s.width)) : 1;
  if (list >= 0 && c->in.given[list])
    s.list = (const void *)c->in.view[list].data, s.listed = tensor_dim(c, "j");
  return s;
}

/* Matrices, gain and bias in double, and what is kept. */
static bool take_weights_of(query_call *s, double **memory) {
  const tensor_call *c = s->c;
  const int64_t d = s->d, square = d < (1 << 20) ? d * d : INT64_MAX / 64, leads = s->s.leads;
  const int norm[] = {pool_input(c->op, "gain"), pool_input(c->op, "bias")};
  int64_t kept = 0;
  if (s->backward && !smx_multiply(leads, factor_count(s), &kept)) return false;
  *memory = kept < INT64_MAX / 64 ? pool_reserve(c, MATRICES * square + 2 * d + kept) : NULL;
  if (!*memory) return false;
  for (int k = 0; k < (s->norm ? 2 : MATRICES); k++) {
    s->matrix[k] = *memory + k * square;
    tensor_load(c, c->in.view + WQ + k, 0, square, s->matrix[k]);
  }
  double *rest = *memory + MATRICES * square;
  for (int k = 0; k < 2; k++, rest += d)
    if (norm[k] >= 0 && c->in.given[norm[k]])
      tensor_load(c, c->in.view + norm[k], 0, d, rest), *(k ? &s->bias : &s->gain) = rest;
  s->kept = s->backward ? rest : NULL;
  return true;
}

/* A query of nothing has to be found before anything is written. */
static smx_status check_query(const query_call *s) {
  const smx_status status = pool_check_empty(&s->s);
  if (status != SMX_OK || !s->list || smx_context_on_empty(s->c->ctx) != SMX_EMPTY_ERROR) return status;
  for (int64_t lead = 0; lead < s->s.leads; lead++) {
    const query_work w = {.set = pool_set_at(&s->s, lead)};
    int64_t k = 0;
    while (k < s->listed && of_query(s, &w, k) < 0) k++;
    if (k == s->listed)
      return smx_fail(SMX_ERR_EMPTY, "%s: index: no item of set %lld that asks is there", s->c->op->name,
                      (long long)lead);
  }
  return SMX_OK;
}

static smx_status run(const tensor_call *c, bool backward) {
  query_call s = call_of(c, backward);
  query_work none;
  carver size = {.fits = true};
  double *memory;
  const smx_status status = check_query(&s);
  if (status != SMX_OK || s.d == 0) return status;
  lay_out(&s, &size, &none);
  if (!size.fits || !take_weights_of(&s, &memory))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld items", c->op->name, (long long)s.n);
  const bool open = smx_scratch_open(&s.scratch, c->ctx, 0, (size_t)size.at + 64, s.s.leads + s.d);
  if (open) {
    smx_parallel(c->ctx, s.s.leads, backward ? backward_task : forward_task, &s);
    for (int k = 0; k < MATRICES && backward; k++)
      if (s.matrix[k] && c->din.given[WQ + k]) smx_parallel(c->ctx, s.d, sum_row, &(sum_call){&s, k});
    for (int k = 0; k < 2 && backward; k++) sum_norm(&s, pool_input(c->op, k ? "bias" : "gain"), k);
    smx_scratch_close(&s.scratch);
  }
  smx_free(c->ctx, memory);
  return open ? SMX_OK : smx_fail(SMX_ERR_NOMEM, "%s: no memory for items", c->op->name);
}
smx_status pool_query(const tensor_call *c) { return run(c, false); }
smx_status pool_query_backward(const tensor_call *c) { return run(c, true); }
