/* pool/functions_attsets.c - means of sets by a softmax of its own for each channel, of m rows of
 * scores: y_mc = sum_i w_imc x_ic, w_mc = softmax_i(score_imc). Gradients: dscore_imc = dy_mc w_imc
 * (x_ic - y_mc), dx_ic = sum_m w_imc dy_mc. */
#include "functions_columns.h"

enum { X, SCORE };

typedef struct attsets_call {
  pool_sets s;
  int64_t rows; /* m */
  bool limit;
  smx_scratch scratch;
} attsets_call;

/* Of some channels of a row of scores: the largest, what is subtracted, sum e^(score - that), y,
 * and its gradient over that sum. infinite: +inf shares the mass of some channel. */
typedef struct sums {
  int64_t row;
  bool infinite;
  double top[SET_WIDTH], reference[SET_WIDTH], sum[SET_WIDTH], y[SET_WIDTH], up[SET_WIDTH];
} sums;

/* Some channels of a set. */
typedef struct part {
  pool_set q;
  pool_columns in;
  int64_t first;
  double share; /* of the items, so that no sum overflows before its mean */
} part;

static int64_t pieces_of(const attsets_call *a) { return (a->s.channels + SET_WIDTH - 1) / SET_WIDTH; }
static int64_t tasks_of(const attsets_call *a) { return a->s.leads * a->s.sets * pieces_of(a); }

static void take_part(const attsets_call *a, int64_t task, part *p) {
  p->q = pool_set_at(&a->s, task / pieces_of(a)), p->first = task % pieces_of(a) * SET_WIDTH;
  const int64_t left = a->s.channels - p->first;
  p->in = pool_columns_of(&a->s, &p->q, left < SET_WIDTH ? left : SET_WIDTH);
  p->share = pool_share_of(p->q.count);
}

static void load_x(const attsets_call *a, const part *p, const pool_run *r, double *x) {
  const int64_t c = a->s.channels;
  pool_load_run(&p->in, r, a->s.c->in.view + X, p->q.lead * a->s.n * c + p->first, c, x);
}
static int64_t score_at(const attsets_call *a, const part *p, int64_t row) {
  return (p->q.lead * a->s.n * a->rows + row) * a->s.channels + p->first;
}
static void load_scores(const attsets_call *a, const part *p, int64_t row, const pool_run *r, double *z) {
  pool_load_run(&p->in, r, a->s.c->in.view + SCORE, score_at(a, p, row), a->rows * a->s.channels, z);
}

static void take_tops(const attsets_call *a, const part *p, int64_t row, double *top) {
  double z[POOL_RUN], lane[POOL_RUN];
  for (int t = 0; t < POOL_RUN; t++) lane[t] = -__builtin_inf();
  for (pool_run r = {0}; pool_next_run(&p->in, &r);) {
    load_scores(a, p, row, &r, z);
    pool_hide(&p->in, &r, -__builtin_inf(), z);
    pool_raise(&p->in, &r, 1, z, lane);
  }
  pool_fold_largest(&p->in, lane, top);
}

/* What is subtracted from scores: NaN where all of a channel is that, 0 where nothing has mass, and
 * where +inf shares it (take_exps). */
static void take_references(const attsets_call *a, const part *p, sums *s) {
  take_tops(a, p, s->row, s->top);
  s->infinite = false;
  for (int64_t j = 0; j < p->in.width; j++) {
    const double top = s->top[j];
    s->infinite |= top == __builtin_inf() && a->limit;
    s->reference[j] = top - top == 0 ? top : top < 0 || (top > 0 && a->limit) ? 0 : __builtin_nan("");
  }
}

/* e^(score - reference) of a run, 0 of what is not there. */
static void take_exps(const attsets_call *a, const part *p, const sums *s, const pool_run *r, double *e) {
  const int64_t w = p->in.width;
  load_scores(a, p, s->row, r, e);
  for (int64_t i = 0; i < r->n; i += w)
    for (int64_t j = 0; j < w; j++) e[i + j] -= s->reference[j];
  for (int64_t i = 0; s->infinite && i < r->n; i += w)
    for (int64_t j = 0; j < w; j++)
      if (s->top[j] == __builtin_inf()) e[i + j] = e[i + j] == __builtin_inf() ? 0 : -__builtin_inf();
  a->s.math->run->exp(e, r->n, e);
  pool_hide(&p->in, r, 0, e);
}

static void take_sums(const attsets_call *a, const part *p, int64_t row, sums *s) {
  double e[POOL_RUN], x[POOL_RUN], lane[POOL_RUN] = {0}, products[POOL_RUN] = {0};
  s->row = row, take_references(a, p, s);
  for (pool_run r = {0}; pool_next_run(&p->in, &r);) {
    take_exps(a, p, s, &r, e);
    load_x(a, p, &r, x);
    for (int64_t i = 0; i < r.n; i++) x[i] = e[i] == 0 ? 0 : p->share * e[i] * x[i];
    pool_add(&p->in, &r, e, lane), pool_add(&p->in, &r, x, products);
  }
  pool_fold(&p->in, lane, s->sum), pool_fold(&p->in, products, s->y);
  for (int64_t j = 0; j < p->in.width; j++) {
    const bool none = s->top[j] == -__builtin_inf();
    s->y[j] = none ? pool_empty_value(a->s.c) : s->y[j] / (p->share * s->sum[j]);
  }
}

static int64_t out_at(const attsets_call *a, const part *p, int64_t row) {
  return (p->q.number * a->rows + row) * a->s.channels + p->first;
}

static void forward_task(void *arg, int64_t task) {
  const attsets_call *a = arg;
  part p;
  sums s;
  take_part(a, task, &p);
  for (int64_t row = 0; row < a->rows; row++) {
    take_sums(a, &p, row, &s);
    tensor_store(a->s.c, a->s.c->out.view, out_at(a, &p, row), p.in.width, s.y);
  }
}

/* Of a run: w of a row becomes dscore, and dx gets its part. */
static void give(const part *p, const sums *s, const pool_run *r, const double *x, double *w, double *dx) {
  for (int64_t i = 0; i < r->n; i += p->in.width)
    for (int64_t j = 0; j < p->in.width; j++) {
      const double weight = w[i + j] == 0 ? 0 : w[i + j] * s->up[j];
      dx[i + j] += weight;
      w[i + j] = weight == 0 ? 0 : weight * (x[i + j] - s->y[j]);
    }
}

static void backward_task(void *arg, int64_t task) {
  attsets_call *a = arg;
  const tensor_call *c = a->s.c;
  const int64_t channels = a->s.channels;
  part p;
  sums *all = smx_scratch_take(&a->scratch);
  double x[POOL_RUN], w[POOL_RUN], dx[POOL_RUN];
  take_part(a, task, &p);
  for (int64_t row = 0; row < a->rows; row++) {
    take_sums(a, &p, row, all + row);
    tensor_load(c, c->dout.view, out_at(a, &p, row), p.in.width, all[row].up);
    for (int64_t j = 0; j < p.in.width; j++) all[row].up[j] /= all[row].sum[j];
  }
  for (pool_run r = {0}; pool_next_run(&p.in, &r);) {
    load_x(a, &p, &r, x);
    for (int64_t i = 0; i < r.n; i++) dx[i] = 0;
    for (int64_t row = 0; row < a->rows; row++) {
      take_exps(a, &p, all + row, &r, w);
      give(&p, all + row, &r, x, w, dx);
      if (c->din.given[SCORE])
        pool_store_run(&p.in, &r, c->din.view + SCORE, score_at(a, &p, row), a->rows * channels, w);
    }
    if (c->din.given[X])
      pool_store_run(&p.in, &r, c->din.view + X, p.q.lead * a->s.n * channels + p.first, channels, dx);
  }
  smx_scratch_give(&a->scratch, all);
}

/* Channels without mass have to be found before anything is written. */
static smx_status check_mass(const attsets_call *a) {
  part p;
  double top[SET_WIDTH];
  if (smx_context_on_empty(a->s.c->ctx) != SMX_EMPTY_ERROR) return SMX_OK;
  for (int64_t task = 0; task < tasks_of(a); task++)
    for (int64_t row = 0; row < a->rows; row++) {
      take_part(a, task, &p), take_tops(a, &p, row, top);
      for (int64_t j = 0; j < p.in.width; j++)
        if (top[j] == -__builtin_inf())
          return smx_fail(SMX_ERR_EMPTY, "%s: set %lld has nothing in it", a->s.c->op->name,
                          (long long)p.q.number);
    }
  return SMX_OK;
}

static attsets_call call_of(const tensor_call *c) {
  return (attsets_call){
      .s = pool_sets_of(c), .rows = tensor_dim(c, "m"), .limit = smx_context_on_inf(c->ctx) == SMX_INF_LIMIT};
}

smx_status pool_attsets(const tensor_call *c) {
  attsets_call a = call_of(c);
  const smx_status status = check_mass(&a);
  if (status == SMX_OK) smx_parallel(c->ctx, tasks_of(&a), forward_task, &a);
  return status;
}

smx_status pool_attsets_backward(const tensor_call *c) {
  attsets_call a = call_of(c);
  int64_t bytes;
  const smx_status status = check_mass(&a);
  if (status != SMX_OK) return status;
  if (!smx_multiply(a.rows + 1, sizeof(sums), &bytes) ||
      !smx_scratch_open(&a.scratch, c->ctx, 0, (size_t)bytes, tasks_of(&a)))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows of scores", c->op->name, (long long)a.rows);
  smx_parallel(c->ctx, tasks_of(&a), backward_task, &a);
  smx_scratch_close(&a.scratch);
  return SMX_OK;
}
