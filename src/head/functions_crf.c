/* head/functions_crf.c - the operators of a conditional random field on a chain (Lafferty,
 * McCallum, Pereira 2001): its loss, marginals and best paths, from functions_chain.h. */
#include <string.h>

#include "functions_chain.h"

enum { E, TRANSITIONS, TARGET, START, END }; /* inputs of linear_chain_crf */
enum { LOSS, LOG_Z };                        /* its outputs; */
enum { Y, PAIRS, Y_LOG_Z };                  /* of crf_marginals; */
enum { PATH, SCORE };                        /* of crf_viterbi and crf_k_best */
enum { PARTS = 64 };                         /* sums that gradients of all sequences are made of */

typedef struct crf {
  chain m;
  smx_scratch scratch;
  double *loss, *log_z; /* of each sequence */
  double *sums;         /* of each part */
} crf;

static smx_status open_crf(crf *f, const tensor_call *c, int target, bool gradients, size_t shared,
                           size_t more) {
  f->m = chain_of(c, target, gradients);
  const size_t model = smx_whole_lines(chain_bytes(&f->m)), place = chain_walk_bytes(&f->m) + more + 1;
  if (!smx_scratch_open(&f->scratch, c->ctx, model + shared + 1, place, f->m.sequences))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld tokens of %lld tags", c->op->name,
                    (long long)f->m.tokens, (long long)f->m.k);
  chain_open(&f->m, f->scratch.shared);
  f->loss = (double *)(void *)(f->scratch.shared + model);
  return SMX_OK;
}

/* What a sequence without a path has in place of 0. */
static double nothing(const tensor_call *c) {
  return smx_context_on_empty(c->ctx) == SMX_EMPTY_NAN ? __builtin_nan("") : 0;
}

static const int64_t *tags_of(const chain_walk *w) {
  return (const int64_t *)(void *)w->m->c->in.view[TARGET].data + w->number * w->m->tokens;
}

/* ---- log Z of all sequences, and what it says of sequences without a path ---- */

static void values_task(void *arg, int64_t number) {
  crf *f = arg;
  char *memory = smx_scratch_take(&f->scratch);
  chain_walk w;
  chain_begin(&w, &f->m, number, memory);
  f->log_z[number] = chain_forward(&w);
  if (f->m.target >= 0) {
    head_sum s = w.log_z;
    const head_sum path = f->log_z[number] > -__builtin_inf() ? chain_score(&w, tags_of(&w)) : s;
    head_add(&s, -path.high), head_add(&s, -path.low);
    f->loss[number] = f->log_z[number] == -__builtin_inf() ? nothing(f->m.c) : s.high + s.low;
  }
  smx_scratch_give(&f->scratch, memory);
}

static smx_status find_values(crf *f) {
  const tensor_call *c = f->m.c;
  smx_parallel(c->ctx, f->m.sequences, values_task, f);
  for (int64_t i = 0; i < f->m.sequences && smx_context_on_empty(c->ctx) == SMX_EMPTY_ERROR; i++)
    if (f->log_z[i] == -__builtin_inf())
      return smx_fail(SMX_ERR_EMPTY, "%s: sequence %lld has no path", c->op->name, (long long)i);
  return SMX_OK;
}

smx_status crf_forward(const tensor_call *c) {
  crf f;
  const int64_t sequences = c->dims.lead_count;
  smx_status status = open_crf(&f, c, TARGET, false, 2 * sizeof(double) * (size_t)sequences, 0);
  if (status != SMX_OK) return status;
  f.log_z = f.loss + sequences;
  status = find_values(&f);
  if (status == SMX_OK) {
    if (c->out.given[LOSS]) tensor_store(c, c->out.view + LOSS, 0, sequences, f.loss);
    if (c->out.given[LOG_Z]) tensor_store(c, c->out.view + LOG_Z, 0, sequences, f.log_z);
  }
  smx_scratch_close(&f.scratch);
  return status;
}

/* ---- gradients ---- */

static int64_t parts_of(const crf *f) { return f->m.sequences < PARTS ? f->m.sequences : PARTS; }
static int64_t part_size(const chain *m) { return m->k * (m->panels * HEAD_PANEL + m->wide) + 2 * m->wide; }
static chain_sums sums_at(const chain *m, double *at) {
  chain_sums s = {.products = at};
  s.others = s.products + m->k * m->panels * HEAD_PANEL;
  s.first = s.others + m->k * m->wide, s.last = s.first + m->wide;
  return s;
}

static void gradients_task(void *arg, int64_t part) {
  crf *f = arg;
  const chain *m = &f->m;
  const tensor_call *c = m->c;
  const int64_t parts = parts_of(f), end = m->sequences * (part + 1) / parts;
  char *memory = smx_scratch_take(&f->scratch);
  const chain_sums sums = sums_at(m, f->sums + part * part_size(m));
  memset(sums.products, 0, sizeof(double) * (size_t)part_size(m));
  for (int64_t i = m->sequences * part / parts; i < end; i++) {
    const double loss = tensor_upstream(c, LOSS, i), weight = loss + tensor_upstream(c, LOG_Z, i);
    const int64_t bytes = m->tokens * m->k * (c->is_f64 ? 8 : 4);
    char *de = c->din.given[E] ? c->din.view[E].data + i * bytes : NULL;
    chain_walk w;
    if (de) memset(de, 0, (size_t)bytes);
    chain_begin(&w, m, i, memory);
    chain_forward(&w);
    chain_backward(&w, weight, loss, tags_of(&w), de, &sums);
  }
  smx_scratch_give(&f->scratch, memory);
}

/* The parts in their order. */
static void write_sums(const crf *f, double *sum) {
  const chain *m = &f->m;
  const tensor_call *c = m->c;
  const int64_t kk = m->k * m->k;
  memset(sum, 0, sizeof *sum * (size_t)(kk + 2 * m->k));
  for (int64_t part = 0; part < parts_of(f); part++) {
    const chain_sums s = sums_at(m, f->sums + part * part_size(m));
    chain_transitions(m, &s, sum);
    for (int64_t j = 0; j < m->k; j++) sum[kk + j] += s.first[j], sum[kk + m->k + j] += s.last[j];
  }
  if (c->din.given[TRANSITIONS]) tensor_store(c, c->din.view + TRANSITIONS, 0, kk, sum);
  if (c->din.given[START]) tensor_store(c, c->din.view + START, 0, m->k, sum + kk);
  if (c->din.given[END]) tensor_store(c, c->din.view + END, 0, m->k, sum + kk + m->k);
}

smx_status crf_backward(const tensor_call *c) {
  crf f = {.m = chain_of(c, TARGET, true)};
  const int64_t sums = f.m.k * (f.m.k + 2);
  const size_t shared = sizeof(double) * (size_t)(sums + parts_of(&f) * part_size(&f.m));
  const smx_status status = open_crf(&f, c, TARGET, true, shared, 0);
  if (status != SMX_OK) return status;
  f.sums = f.loss + sums;
  smx_parallel(c->ctx, parts_of(&f), gradients_task, &f);
  write_sums(&f, f.loss);
  smx_scratch_close(&f.scratch);
  return SMX_OK;
}

/* ---- marginals ---- */

static void marginals_task(void *arg, int64_t number) {
  crf *f = arg;
  const chain *m = &f->m;
  const tensor_call *c = m->c;
  const int64_t bytes = m->tokens * m->k * (c->is_f64 ? 8 : 4), kk = m->k * m->k;
  char *memory = smx_scratch_take(&f->scratch), *y = c->out.view[Y].data + number * bytes;
  double *sum = (double *)(void *)(memory + chain_walk_bytes(m)), *pairs = sum + part_size(m);
  chain_sums sums = sums_at(m, sum);
  chain_walk w;
  memset(y, 0, (size_t)bytes), memset(sum, 0, sizeof *sum * (size_t)(part_size(m) + kk));
  chain_begin(&w, m, number, memory);
  f->log_z[number] = chain_forward(&w);
  if (!c->out.given[PAIRS]) sums = (chain_sums){NULL, NULL, NULL, NULL};
  chain_backward(&w, 1, 0, NULL, y, &sums);
  const bool none = f->log_z[number] == -__builtin_inf() && nothing(c) != 0;
  if (c->out.given[PAIRS]) {
    chain_transitions(m, &sums, pairs);
    for (int64_t i = 0; i < kk && none; i++) pairs[i] = nothing(c);
    tensor_store(c, c->out.view + PAIRS, number * kk, kk, pairs);
  }
  for (int64_t t = 0; t < w.count && none; t++) {
    for (int64_t j = 0; j < m->k; j++) w.e[j] = nothing(c);
    smx_reals_store(c->is_f64, w.e, m->k, y + w.at[t] * m->k * (c->is_f64 ? 8 : 4));
  }
  smx_scratch_give(&f->scratch, memory);
}

/* Sequences without a path are found before anything is written. */
static smx_status refuse_empty(crf *f) {
  return smx_context_on_empty(f->m.c->ctx) == SMX_EMPTY_ERROR ? find_values(f) : SMX_OK;
}

smx_status crf_marginals(const tensor_call *c) {
  crf f = {.m = chain_of(c, -1, true)};
  const int64_t sequences = c->dims.lead_count;
  smx_status status = open_crf(&f, c, -1, true, sizeof(double) * (size_t)sequences,
                               sizeof(double) * (size_t)(part_size(&f.m) + f.m.k * f.m.k));
  if (status != SMX_OK) return status;
  f.log_z = f.loss;
  status = refuse_empty(&f);
  if (status == SMX_OK) {
    smx_parallel(c->ctx, sequences, marginals_task, &f);
    if (c->out.given[Y_LOG_Z]) tensor_store(c, c->out.view + Y_LOG_Z, 0, sequences, f.log_z);
  }
  smx_scratch_close(&f.scratch);
  return status;
}

/* ---- best paths ---- */

static void best_task(void *arg, int64_t number) {
  crf *f = arg;
  const chain *m = &f->m;
  char *memory = smx_scratch_take(&f->scratch);
  chain_walk w;
  chain_begin(&w, m, number, memory);
  int32_t *from = (int32_t *)(void *)(memory + chain_walk_bytes(m));
  int64_t *path = (int64_t *)(void *)m->c->out.view[PATH].data + number * m->tokens;
  tensor_put(m->c, SCORE, number, chain_best(&w, from, path));
  smx_scratch_give(&f->scratch, memory);
}

smx_status crf_viterbi(const tensor_call *c) {
  crf f = {.m = chain_of(c, -1, false)};
  const int64_t sequences = c->dims.lead_count;
  const size_t steps = sizeof(int32_t) * (size_t)(f.m.tokens * f.m.k);
  smx_status status = open_crf(&f, c, -1, false, sizeof(double) * (size_t)sequences, steps);
  if (status != SMX_OK) return status;
  f.log_z = f.loss;
  status = refuse_empty(&f);
  if (status == SMX_OK) smx_parallel(c->ctx, sequences, best_task, &f);
  smx_scratch_close(&f.scratch);
  return status;
}

/* ---- several of them ---- */

smx_status crf_k_best_sizes(dims *d) {
  dims_set(d, "p", 0, (int64_t)dims_param(d, "count", 1));
  return SMX_OK;
}

static void paths_task(void *arg, int64_t number) {
  crf *f = arg;
  const chain *m = &f->m;
  const int64_t count = tensor_dim(m->c, "p");
  char *memory = smx_scratch_take(&f->scratch);
  chain_walk w;
  chain_begin(&w, m, number, memory);
  double *score = (double *)(void *)(memory + chain_walk_bytes(m));
  int64_t *path = (int64_t *)(void *)m->c->out.view[PATH].data + number * count * m->tokens;
  chain_paths(&w, count, (char *)(score + count), path, score);
  tensor_store(m->c, m->c->out.view + SCORE, number * count, count, score);
  smx_scratch_give(&f->scratch, memory);
}

smx_status crf_k_best(const tensor_call *c) {
  crf f = {.m = chain_of(c, -1, false)};
  const int64_t sequences = c->dims.lead_count, count = tensor_dim(c, "p");
  const double bytes = chain_paths_bytes(&f.m, count) + 8 * (double)count;
  if (bytes > 0x1p47)
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld paths of %lld tokens of %lld tags", c->op->name,
                    (long long)count, (long long)f.m.tokens, (long long)f.m.k);
  smx_status status = open_crf(&f, c, -1, false, sizeof(double) * (size_t)sequences, (size_t)bytes);
  if (status != SMX_OK) return status;
  f.log_z = f.loss;
  status = refuse_empty(&f);
  if (status == SMX_OK) smx_parallel(c->ctx, sequences, paths_task, &f);
  smx_scratch_close(&f.scratch);
  return status;
}
