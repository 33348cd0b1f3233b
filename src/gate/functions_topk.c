/* gate/functions_topk.c - gate_topk: which k experts take each token, and with what weights.
 *
 * softmax of src/row makes the scores, of all experts or of the chosen ones, for a chunk of tokens
 * at a time; sigmoids are made by the kernel that chooses. A task chooses for some tokens of the
 * chunk. So NaN, infinities, instruction sets and threads are those of the rows, and a token's bits
 * do not depend on the others. */
#include "cpu/cpu.h"
#include "functions.h"
#include "functions_lines.h"
#include "functions_rows.h"

enum {
  CHUNK = 1 << 17, /* scores of a chunk, which stay in the second-level cache of one thread */
  SHARED = 8       /* chunks that several threads share are so many times as large */
};
enum { LOGITS, BIAS };     /* inputs */
enum { WEIGHT, INDEX };    /* outputs */
enum { SOFTMAX, SIGMOID }; /* the parameter `score` */
enum { AUTO, BEST, TWO };  /* the parameter `group` */

typedef struct route {
  const tensor_call *c;
  gate_choice choice;
  const gate_lines *lines;
  const gate_kernels *kernels;
  smx_context *purse; /* of the rows */
  smx_scratch scratch;
  int64_t bytes, tokens, most, first, count; /* of a real; a chunk of most, or count, from first */
  bool sigmoid, shared, scored; /* shared: weights of a token sum to scale; scored: not logits choose */
  double scale, divisor;
  const char *logits;          /* of the chunk, over the temperature */
  char *scaled, *score, *part; /* [most, experts] each; [most, k] */
} route;

/* Whether weights are a softmax of the chosen, and whether they are one of all. */
static bool of_chosen(const route *r) { return r->shared && !r->sigmoid; }
static bool of_all(const route *r) { return !r->shared && !r->sigmoid; }

/* ---- rows ---- */

/* softmax of the rows of the chunk, n long. */
static smx_status softmax_rows(const route *r, const char *x, int64_t n, char *y) {
  int64_t shape[] = {r->count, n};
  const smx_dtype type = r->c->is_f64 ? SMX_F64 : SMX_F32;
  const smx_tensor in = smx_tensor_of(x, type, 2, shape, NULL), out = smx_tensor_of(y, type, 2, shape, NULL);
  return softmax_along(r->purse, -1, &in, &out);
}

static const char *row_of(const route *r, const char *matrix, int64_t i, int64_t n) {
  return matrix + i * n * r->bytes;
}

static void each_task(route *r, void (*task)(void *arg, int64_t i)) {
  smx_parallel(r->c->ctx, gate_tasks(r->count), task, r);
}

static void scale_task(void *arg, int64_t task) {
  const route *r = arg;
  const int64_t n = r->choice.experts, from = task * GATE_TASK;
  const char *x = r->c->in.view[LOGITS].data + (r->first + from) * n * r->bytes;
  r->lines->scale(x, 1 / r->divisor, (gate_task_end(task, r->count) - from) * n,
                  r->scaled + from * n * r->bytes);
}

static void take_logits(route *r) {
  r->logits = r->c->in.view[LOGITS].data + r->first * r->choice.experts * r->bytes;
  if (r->divisor == 1) return;
  each_task(r, scale_task);
  r->logits = r->scaled;
}

/* ---- the choice ---- */

static int64_t *index_of(const route *r, int64_t i) {
  return (int64_t *)(void *)r->c->out.view[INDEX].data + (r->first + i) * r->choice.k;
}

/* What becomes rows of weights: scores, or logits of which scores are made, of the tokens of a task
 * from `from` on. Of a token without experts: anything but -inf. */
static void gather_parts(const route *r, int64_t from, int64_t count, const bool *good) {
  const int64_t n = r->choice.experts, k = r->choice.k, *index = index_of(r, from);
  const bool scores = r->scored && !of_chosen(r) && !r->sigmoid;
  double absent[GATE_TASK];
  for (int64_t i = 0; i < count; i++)
    absent[i] = !good[i] ? __builtin_nan("") : scores || index[i * k] < 0 ? 0 : -__builtin_inf();
  const gate_gathering g = {count, n, k, index, absent};
  char *part = r->part + from * k * r->bytes;
  r->lines->gather(&g, row_of(r, scores ? r->score : r->logits, from, n), part);
  if (r->sigmoid) r->kernels->sigmoid(part, count * k, part);
}

static void choose_task(void *arg, int64_t task) {
  route *r = arg;
  const int64_t n = r->choice.experts, from = task * GATE_TASK, count = gate_task_end(task, r->count) - from;
  const void *bias = r->c->in.given[BIAS] ? r->c->in.view[BIAS].data : NULL;
  const char *score = r->scored && !r->sigmoid ? row_of(r, r->score, from, n) : NULL;
  bool good[GATE_TASK];
  void *work = smx_scratch_take(&r->scratch);
  r->kernels->choose(&r->choice, row_of(r, r->logits, from, n), score, bias, count, work, index_of(r, from),
                     good);
  gather_parts(r, from, count, good);
  smx_scratch_give(&r->scratch, work);
}

/* ---- weights ---- */

static double sum_of(const double *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i];
  return sum;
}

/* What a sum of sigmoids is divided by: they may all be 0. */
static double whole_of(const route *r, const double *w) {
  return r->shared && r->sigmoid ? sum_of(w, r->choice.k) + GATE_LEAST_SUM : 1;
}

static void weigh_task(void *arg, int64_t task) {
  route *r = arg;
  const int64_t k = r->choice.k, from = task * GATE_TASK, count = gate_task_end(task, r->count) - from;
  const double empty = smx_context_on_empty(r->c->ctx) == SMX_EMPTY_NAN ? __builtin_nan("") : 0;
  const gate_weighing w = {count, k, r->shared && r->sigmoid, r->scale, empty};
  char *to = r->c->out.view[WEIGHT].data + (r->first + from) * k * r->bytes;
  r->lines->weigh(&w, row_of(r, r->part, from, k), index_of(r, from), to);
  smx_reals_clean(r->c->is_f64, to, count * k);
}

static smx_status run_forward(route *r) {
  smx_status status = SMX_OK;
  take_logits(r);
  if (r->scored && !r->sigmoid) status = softmax_rows(r, r->logits, r->choice.experts, r->score);
  if (status != SMX_OK) return status;
  each_task(r, choose_task);
  if (of_chosen(r)) status = softmax_rows(r, r->part, r->choice.k, r->part);
  if (status == SMX_OK) each_task(r, weigh_task);
  return status;
}

/* ---- the gradient ---- */

/* With u the scores of the chosen, g = scale dw over what the weights are divided by, A = sum g u:
 * of a softmax dz = u (g - A), over the chosen or over all; of a sigmoid dz = u (1 - u) (g - B),
 * B = A / sum u where weights are shared. To g. */
static void chosen_gradient(const route *r, const double *u, double *g) {
  const int64_t k = r->choice.k;
  double whole = whole_of(r, u), dot = 0;
  for (int64_t j = 0; j < k; j++) g[j] *= r->scale / whole, dot += g[j] * u[j];
  const double less = r->sigmoid ? (r->shared ? dot / whole : 0) : dot;
  for (int64_t j = 0; j < k; j++)
    g[j] = r->sigmoid ? u[j] * (1 - u[j]) * (g[j] - less) : r->shared ? u[j] * (g[j] - less) : u[j] * g[j];
}

/* Where an index of the caller's says, if it says anything. */
static bool is_expert(const route *r, int64_t index) { return index >= 0 && index < r->choice.experts; }

static void gradient_row(const route *r, int64_t i, double *work) {
  const int64_t n = r->choice.experts, k = r->choice.k, *index = index_of(r, i);
  double *dx = work, *u = work + n, *g = u + k, dot = 0;
  const bool all = of_all(r);
  if (all) smx_reals_load(r->c->is_f64, row_of(r, r->score, i, n), n, dx);
  smx_reals_load(r->c->is_f64, row_of(r, r->part, i, k), k, u);
  tensor_load(r->c, r->c->dout.view + WEIGHT, (r->first + i) * k, k, g);
  for (int64_t j = 0; j < k; j++) u[j] = is_expert(r, index[j]) ? u[j] : 0;
  chosen_gradient(r, u, g);
  for (int64_t j = 0; j < k; j++) dot += is_expert(r, index[j]) ? g[j] : 0;
  for (int64_t j = 0; j < n; j++) dx[j] = all && is_expert(r, index[0]) ? -dot * dx[j] : 0;
  for (int64_t j = 0; j < k; j++)
    if (is_expert(r, index[j])) dx[index[j]] += g[j];
  for (int64_t j = 0; j < n; j++) dx[j] /= r->divisor;
  tensor_store(r->c, r->c->din.view + LOGITS, (r->first + i) * n, n, dx);
}

static void part_task(void *arg, int64_t task) {
  route *r = arg;
  const int64_t n = r->choice.experts, k = r->choice.k, from = task * GATE_TASK,
                count = gate_task_end(task, r->count) - from;
  const bool all = of_all(r);
  int64_t *there = smx_scratch_take(&r->scratch);
  char *part = r->part + from * k * r->bytes;
  for (int64_t i = 0; i < count; i++) {
    const int64_t *index = index_of(r, from + i);
    for (int64_t j = 0; j < k; j++) there[j] = is_expert(r, index[j]) ? index[j] : -1;
    const double absent = all || there[0] < 0 ? 0 : -__builtin_inf();
    const gate_gathering g = {1, n, k, there, &absent};
    r->lines->gather(&g, row_of(r, all ? r->score : r->logits, from + i, n), part + i * k * r->bytes);
  }
  if (r->sigmoid) r->kernels->sigmoid(part, count * k, part);
  smx_scratch_give(&r->scratch, there);
}
static void gradient_task(void *arg, int64_t task) {
  route *r = arg;
  double *work = smx_scratch_take(&r->scratch);
  for (int64_t i = task * GATE_TASK; i < gate_task_end(task, r->count); i++) gradient_row(r, i, work);
  smx_scratch_give(&r->scratch, work);
}

static smx_status run_backward(route *r) {
  const bool all = of_all(r);
  smx_status status = SMX_OK;
  take_logits(r);
  if (all) status = softmax_rows(r, r->logits, r->choice.experts, r->score);
  if (status != SMX_OK) return status;
  each_task(r, part_task);
  if (of_chosen(r)) status = softmax_rows(r, r->part, r->choice.k, r->part);
  if (status == SMX_OK) each_task(r, gradient_task);
  return status;
}

/* ---- calls ---- */

static smx_status no_memory(const tensor_call *c) {
  return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld tokens", c->op->name, (long long)c->dims.lead_count);
}

/* The memory of a chunk, of all rows' calls and of a task. */
static smx_status reserve(route *r) {
  const gate_choice *g = &r->choice;
  const int64_t rest = r->tokens % r->most;
  const size_t task = gate_choice_bytes(g) + (size_t)(g->experts + 2 * g->k) * sizeof(double);
  const bool scores = r->scored && !r->sigmoid;
  const int64_t wide = scores + (r->divisor != 1); /* matrices of all experts */
  int64_t part, bytes;
  if (!smx_multiply(r->most * r->bytes, wide * g->experts + g->k, &bytes) || bytes > INT64_MAX / 2)
    return no_memory(r->c);
  part = r->most * g->experts * r->bytes;
  if (!smx_scratch_open(&r->scratch, r->c->ctx, (size_t)bytes, task, gate_tasks(r->most)))
    return no_memory(r->c);
  r->score = r->scratch.shared, r->scaled = r->score + scores * part, r->part = r->score + wide * part;
  r->purse = smx_purse_open(r->c->ctx);
  for (int last = 0; r->purse && last < 2; last++) {
    r->count = last ? rest : r->most;
    if (r->count && scores) softmax_rows(r, r->score, g->experts, r->score);
    if (r->count && of_chosen(r)) softmax_rows(r, r->part, g->k, r->part);
  }
  if (r->purse && smx_purse_fill(r->purse)) return SMX_OK;
  return no_memory(r->c);
}

static void release(route *r) {
  if (r->purse) smx_purse_close(r->purse);
  smx_scratch_close(&r->scratch);
}

static route route_of(const tensor_call *c) {
  const int64_t experts = tensor_dim(c, "e"), top = (int64_t)tensor_param(c, "top_groups");
  route r = {
      .c = c, .lines = gate_lines_of + c->is_f64, .bytes = c->is_f64 ? 8 : 4, .tokens = c->dims.lead_count};
  r.choice = (gate_choice){experts, tensor_dim(c, "k"), (int64_t)tensor_param(c, "groups"), top, false};
  if (top == 0) r.choice.groups = 1;
  const double group = tensor_param(c, "group");
  r.choice.two = r.choice.groups > 1 && (group == TWO || (group == AUTO && c->in.given[BIAS]));
  r.sigmoid = tensor_param(c, "score") == SIGMOID;
  r.shared = tensor_param(c, "renormalise") != 0;
  r.scored = c->in.given[BIAS] || r.choice.two || of_all(&r);
  r.scale = tensor_param(c, "scale"), r.divisor = tensor_param(c, "temperature");
  const int64_t chunk = smx_context_threads(c->ctx) > 1 ? SHARED * CHUNK : CHUNK;
  r.most = experts < chunk ? chunk / experts : 1;
  if (r.most > r.tokens) r.most = r.tokens;
  r.kernels = c->is_f64 ? smx_isa_current()->f64.gate : smx_isa_current()->f32.gate;
  r.choice.sigmoid = r.sigmoid && r.scored;
  return r;
}

static smx_status run(const tensor_call *c, smx_status (*chunk)(route *r)) {
  route r = route_of(c);
  if (r.tokens == 0) return SMX_OK;
  smx_status status = tensor_check_empty(c, r.tokens, r.choice.experts, "token", "experts");
  if (status != SMX_OK) return status;
  status = reserve(&r);
  for (r.first = 0; r.first < r.tokens && status == SMX_OK; r.first += r.count) {
    r.count = r.tokens - r.first < r.most ? r.tokens - r.first : r.most;
    status = chunk(&r);
  }
  release(&r);
  return status;
}

smx_status gate_topk(const tensor_call *c) { return run(c, run_forward); }
smx_status gate_topk_backward(const tensor_call *c) {
  return c->din.given[LOGITS] ? run(c, run_backward) : SMX_OK;
}

smx_status gate_topk_sizes(dims *d) {
  const int64_t experts = dims_value(d, "e", 0), k = (int64_t)dims_param(d, "k", 1);
  const int64_t groups = (int64_t)dims_param(d, "groups", 1), top = (int64_t)dims_param(d, "top_groups", 0);
  const char *name = d->op->name;
  const smx_status status = gate_k_sizes(d);
  if (status != SMX_OK) return status;
  if (experts % groups != 0)
    return smx_fail(SMX_ERR_PARAM, "%s: groups is %lld, which does not divide %lld experts", name,
                    (long long)groups, (long long)experts);
  if (top > groups)
    return smx_fail(SMX_ERR_PARAM, "%s: top_groups is %lld, but groups is %lld", name, (long long)top,
                    (long long)groups);
  if (top > 0 && k > top * (experts / groups))
    return smx_fail(SMX_ERR_PARAM, "%s: k is %lld, but %lld groups have %lld experts", name, (long long)k,
                    (long long)top, (long long)(top * (experts / groups)));
  return SMX_OK;
}
