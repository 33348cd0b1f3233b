/* pool/functions_weighted.c - means of sets by weights that scores or ranks give: y = scale
 * sum_i w_i x_i, w = softmax(score) over the items, or w_i = rank_i / sum of ranks.
 *
 * A group is the channels of x that share their weights: x [leads, n, groups, width]. Its
 * gradients need D_i = sum over the group of g x_i: dscore_i = scale w_i (D_i - sum_k w_k D_k). */
#include "functions_sets.h"

enum { X };            /* an input */
enum { PIECE = 4096 }; /* channels of a task */

typedef struct weighted_call {
  pool_sets s;
  const smx_view *x, *score, *scale; /* score NULL: ranks; scale NULL: 1 */
  int scores, scales;                /* their ports */
  int64_t groups, width, pieces;     /* of each lead; channels of one; tasks of one */
  int64_t score_lead, score_item;    /* numbers of scores from one lead or item to the next */
  bool sigmoid, limit, common;       /* common: all leads have one score */
  double factor;
  smx_scratch scratch;
  double *partial, *mass; /* D of each lead, group, piece and item; sum w D of each set and group */
} weighted_call;

/* What a task does: channels first..first+count-1 of group `group`, of the width. */
typedef struct part {
  pool_set q;
  int64_t group, first, count;
} part;

static part part_of(const weighted_call *w, int64_t task) {
  const int64_t each = w->groups * w->pieces, piece = task % w->pieces;
  part p = {.q = pool_set_at(&w->s, task / each), .group = task % each / w->pieces, .first = piece * PIECE};
  p.count = w->width - p.first < PIECE ? w->width - p.first : PIECE;
  return p;
}

static int64_t score_at(const weighted_call *w, const part *p, int64_t i) {
  return p->q.lead * w->score_lead + i * w->score_item + (w->score_item > 1 ? p->group : 0);
}
static int64_t cell_at(const weighted_call *w, const part *p, int64_t i) {
  return (pool_set_item(&w->s, &p->q, i) * w->groups + p->group) * w->width + p->first;
}
static int64_t out_at(const weighted_call *w, const part *p) {
  return (p->q.number * w->groups + p->group) * w->width + p->first;
}

/* ---- weights of the items first..end-1 of a set; 0 of what is not there ---- */

static void weights_of_ranks(const part *p, double *weight) {
  const double n = (double)p->q.count, all = n * (n + 1) / 2;
  double rank = 0;
  for (int64_t i = 0; i < p->q.end - p->q.first; i++) weight[i] = weight[i] != 0 ? ++rank / all : 0;
}

/* weight: 1 of what is there, else 0. False: there is no mass. */
static bool weights_of_scores(const weighted_call *w, const part *p, double *weight) {
  const int64_t n = p->q.end - p->q.first;
  double top = -__builtin_inf(), sum = 0, z;
  for (int64_t i = 0; i < n; i++) {
    if (weight[i] == 0) continue;
    tensor_load(w->s.c, w->score, score_at(w, p, p->q.first + i), 1, &z);
    if (z > top || z != z) top = z;
  }
  for (int64_t i = 0; i < n; i++) {
    if (weight[i] == 0) continue;
    tensor_load(w->s.c, w->score, score_at(w, p, p->q.first + i), 1, &z);
    const bool shares = w->limit && top == __builtin_inf();
    weight[i] = z == -__builtin_inf() ? 0 : shares ? z == top : w->s.math->exp(z - top);
    sum += weight[i];
  }
  for (int64_t i = 0; i < n; i++) /* NaN for all of a set */
    weight[i] = pool_set_has(&w->s, &p->q, p->q.first + i) ? weight[i] / sum : 0;
  return top != -__builtin_inf();
}

static bool take_weights(const weighted_call *w, const part *p, double *weight) {
  for (int64_t i = p->q.first; i < p->q.end; i++) weight[i - p->q.first] = pool_set_has(&w->s, &p->q, i);
  if (p->q.count == 0) return false;
  if (w->score) return weights_of_scores(w, p, weight);
  return weights_of_ranks(p, weight), true;
}

static double sigmoid_of(const weighted_call *w, double y) {
  return w->sigmoid ? w->s.math->exp(-w->s.math->softplus(-y)) : y;
}

/* y of some channels of the part, without the factor. */
static void fold(const weighted_call *w, const part *p, const double *weight, int64_t at, int64_t n,
                 double *y) {
  double x[SET_WIDTH];
  for (int64_t j = 0; j < n; j++) y[j] = 0;
  for (int64_t i = p->q.first; i < p->q.end; i++) {
    const double by = weight[i - p->q.first];
    if (by == 0) continue;
    tensor_load(w->s.c, w->x, cell_at(w, p, i) + at, n, x);
    for (int64_t j = 0; j < n; j++) y[j] += by * x[j];
  }
}

static void forward_task(void *arg, int64_t task) {
  weighted_call *w = arg;
  const part p = part_of(w, task);
  double *weight = smx_scratch_take(&w->scratch), y[SET_WIDTH];
  const bool any = take_weights(w, &p, weight);
  for (int64_t at = 0; at < p.count; at += SET_WIDTH) {
    const int64_t n = p.count - at < SET_WIDTH ? p.count - at : SET_WIDTH;
    fold(w, &p, weight, at, n, y);
    for (int64_t j = 0; j < n; j++) y[j] = any ? sigmoid_of(w, w->factor * y[j]) : pool_empty_value(w->s.c);
    tensor_store(w->s.c, w->s.c->out.view, out_at(w, &p) + at, n, y);
  }
  smx_scratch_give(&w->scratch, weight);
}

/* ---- gradients ---- */

/* D of the items of a part: sets of a lead have different ones. */
static double *dots_of(const weighted_call *w, const part *p) {
  const int64_t piece = (p->q.lead * w->groups + p->group) * w->pieces + p->first / PIECE;
  return w->partial + piece * w->s.n + p->q.first;
}

/* The upstream gradient of sum w x, and the part of D that these channels give. */
static void backward_channels(const weighted_call *w, const part *p, const double *weight, int64_t at,
                              int64_t n, double *dot) {
  const tensor_call *c = w->s.c;
  double g[SET_WIDTH], x[SET_WIDTH], y[SET_WIDTH], dx[SET_WIDTH];
  tensor_load(c, c->dout.view, out_at(w, p) + at, n, g);
  if (w->sigmoid) fold(w, p, weight, at, n, y);
  for (int64_t j = 0; j < n && w->sigmoid; j++) {
    const double s = sigmoid_of(w, w->factor * y[j]);
    g[j] *= s * sigmoid_of(w, -w->factor * y[j]);
  }
  for (int64_t i = p->q.first; i < p->q.end; i++) {
    const double by = weight[i - p->q.first];
    double sum = 0;
    for (int64_t j = 0; j < n; j++) dx[j] = by == 0 ? 0 : w->factor * by * g[j];
    if (by != 0) tensor_load(c, w->x, cell_at(w, p, i) + at, n, x);
    for (int64_t j = 0; j < n && by != 0; j++) sum += g[j] * x[j];
    dot[i - p->q.first] += sum;
    if (c->din.given[X]) tensor_store(c, c->din.view + X, cell_at(w, p, i) + at, n, dx);
  }
}

static void backward_task(void *arg, int64_t task) {
  weighted_call *w = arg;
  const part p = part_of(w, task);
  double *weight = smx_scratch_take(&w->scratch), *dot = dots_of(w, &p);
  const bool any = take_weights(w, &p, weight);
  for (int64_t i = 0; i < p.q.end - p.q.first; i++) dot[i] = 0, weight[i] = any ? weight[i] : 0;
  for (int64_t at = 0; at < p.count; at += SET_WIDTH)
    backward_channels(w, &p, weight, at, p.count - at < SET_WIDTH ? p.count - at : SET_WIDTH, dot);
  smx_scratch_give(&w->scratch, weight);
}

/* D becomes dscore of a group of a set; behind it stands sum w D. */
static void finish_task(void *arg, int64_t task) {
  weighted_call *w = arg;
  const part p = part_of(w, task * w->pieces);
  double *weight = smx_scratch_take(&w->scratch), *dot = dots_of(w, &p), mass = 0;
  const int64_t n = p.q.end - p.q.first;
  const bool any = take_weights(w, &p, weight);
  for (int64_t piece = 1; piece < w->pieces; piece++)
    for (int64_t i = 0; i < n; i++) dot[i] += dot[piece * w->s.n + i];
  for (int64_t i = 0; i < n; i++) mass += any && weight[i] != 0 ? weight[i] * dot[i] : 0;
  for (int64_t i = 0; i < n; i++) {
    dot[i] = any && weight[i] != 0 ? w->factor * weight[i] * (dot[i] - mass) : 0;
    if (w->score && !w->common && w->s.c->din.given[w->scores])
      tensor_store(w->s.c, w->s.c->din.view + w->scores, score_at(w, &p, p.q.first + i), 1, dot + i);
  }
  w->mass[task] = mass;
  smx_scratch_give(&w->scratch, weight);
}

/* Of scores that all leads share, and of the scale: sums over the groups in their order. */
static void sum_shared(const weighted_call *w, int64_t tasks) {
  const tensor_call *c = w->s.c;
  double sum = 0;
  for (int64_t i = 0; w->common && c->din.given[w->scores] && i < w->s.n; i++) {
    double ds = 0;
    for (int64_t t = 0; t < tasks; t++) ds += w->partial[t * w->pieces * w->s.n + i];
    tensor_store(c, c->din.view + w->scores, i, 1, &ds);
  }
  for (int64_t t = 0; t < tasks; t++) sum += w->mass[t];
  if (w->scale && c->din.given[w->scales]) tensor_store(c, c->din.view + w->scales, 0, 1, &sum);
}

/* ---- calls ---- */

static weighted_call call_of(const tensor_call *c) {
  const smx_op *op = c->op;
  weighted_call w = {.s = pool_sets_of(c), .groups = 1, .factor = 1};
  w.scores = pool_input(op, "score"), w.scales = pool_input(op, "scale"), w.x = c->in.view;
  if (w.scores >= 0) w.score = c->in.view + w.scores;
  if (w.scales >= 0 && c->in.given[w.scales]) w.scale = c->in.view + w.scales;
  if (w.scale) tensor_load(c, w.scale, 0, 1, &w.factor);
  w.common = op == pool_table + POOL_layer_mix;
  w.width = w.s.channels, w.score_item = 1, w.score_lead = w.common ? 0 : w.s.n;
  if (op == pool_table + POOL_selective_kernel) w.groups = w.s.channels, w.width = tensor_dim(c, "k");
  if (w.groups != 1) w.score_item = w.groups, w.score_lead = w.s.n * w.groups;
  w.pieces = w.width > PIECE ? (w.width + PIECE - 1) / PIECE : 1;
  w.sigmoid = dims_param(&c->dims, "activation", 0) != 0;
  w.limit = smx_context_on_inf(c->ctx) == SMX_INF_LIMIT;
  return w;
}

static int64_t tasks_of(const weighted_call *w) { return w->s.leads * w->s.sets * w->groups; }

/* Sets without mass have to be found before anything is written. */
static smx_status check_mass(weighted_call *w) {
  if (smx_context_on_empty(w->s.c->ctx) != SMX_EMPTY_ERROR) return SMX_OK;
  double *weight = smx_scratch_take(&w->scratch);
  smx_status status = SMX_OK;
  for (int64_t task = 0; task < tasks_of(w) && status == SMX_OK; task++) {
    const part p = part_of(w, task * w->pieces);
    if (!take_weights(w, &p, weight))
      status =
          smx_fail(SMX_ERR_EMPTY, "%s: set %lld has nothing in it", w->s.c->op->name, (long long)p.q.number);
  }
  smx_scratch_give(&w->scratch, weight);
  return status;
}

static smx_status open_call(weighted_call *w, const tensor_call *c) {
  int64_t bytes;
  *w = call_of(c);
  if (!smx_multiply(w->s.n + 1, 8, &bytes) ||
      !smx_scratch_open(&w->scratch, c->ctx, 0, (size_t)bytes, tasks_of(w) * w->pieces + 1))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld weights", c->op->name, (long long)w->s.n);
  const smx_status status = check_mass(w);
  if (status != SMX_OK) smx_scratch_close(&w->scratch);
  return status;
}

smx_status pool_weighted(const tensor_call *c) {
  weighted_call w;
  const smx_status status = open_call(&w, c);
  if (status != SMX_OK) return status;
  smx_parallel(c->ctx, tasks_of(&w) * w.pieces, forward_task, &w);
  smx_scratch_close(&w.scratch);
  return SMX_OK;
}

smx_status pool_weighted_backward(const tensor_call *c) {
  weighted_call w;
  smx_status status = open_call(&w, c);
  if (status != SMX_OK) return status;
  const int64_t tasks = tasks_of(&w), parts = tasks * w.pieces,
                pieces = parts / (w.s.sets > 0 ? w.s.sets : 1);
  w.partial = pieces <= INT64_MAX / 16 / (w.s.n + 1) ? pool_reserve(c, pieces * w.s.n + tasks) : NULL;
  if (w.partial) {
    w.mass = w.partial + pieces * w.s.n;
    smx_parallel(c->ctx, parts, backward_task, &w);
    smx_parallel(c->ctx, tasks, finish_task, &w);
    sum_shared(&w, tasks);
    smx_free(c->ctx, w.partial);
  } else status = smx_fail(SMX_ERR_NOMEM, "%s: no memory for gradients", c->op->name);
  smx_scratch_close(&w.scratch);
  return status;
}
