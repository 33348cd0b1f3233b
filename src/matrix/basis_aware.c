/* matrix/basis_aware.c - basis-aware acceptance: which tokens are possible for certain. Its program
 * is in basis_program.c. */
#include "basis_program.h"
#include "functions.h"
#include <float.h>

typedef struct acceptance {
  const tensor_call *c;
  int64_t rows, n, tokens;
  size_t m;
  const void *x;
  const int64_t *token;
  int64_t *accepted;
  double eta, *a;
  bool finite; /* the basis */
  smx_scratch scratch;
} acceptance;

static double number_at(const acceptance *j, const void *from, int64_t i) {
  return j->c->is_f64 ? ((const double *)from)[i] : (double)((const float *)from)[i];
}

/* Each column over its largest number, so that tolerances mean the same for all. */
static void scale_basis(acceptance *j) {
  const void *basis = j->c->in.view[1].data;
  const int64_t c = (int64_t)j->m - 1;
  j->finite = true;
  for (int64_t k = 0; k < c; k++) {
    double most = 0;
    for (int64_t i = 0; i < j->n; i++) {
      const double at = number_at(j, basis, i * c + k), size = at < 0 ? -at : at;
      j->finite &= size <= DBL_MAX;
      if (size > most) most = size;
    }
    for (int64_t i = 0; i < j->n; i++)
      j->a[i * (c + 1) + k + 1] = most > 0 ? number_at(j, basis, i * c + k) / most : 0;
  }
  for (int64_t i = 0; i < j->n; i++) j->a[i * (c + 1)] = 1;
}

static size_t program_bytes(size_t n, size_t m) {
  return (3 * n + m * m + 3 * m) * sizeof(double) + n * sizeof(basis_crossing) + n;
}
/* A program in the memory of a task; p: its first n numbers. */
static basis_program program_in(const acceptance *j, double *p) {
  const size_t n = (size_t)j->n, m = j->m;
  basis_program g = {.n = n, .m = m, .a = j->a, .p = p, .r = p + n, .v = p + 2 * n, .edge = p + 3 * n};
  g.slack = 1 / (1 - j->eta > 1e-10 ? 1 - j->eta : 1e-10) - 1;
  g.pull = g.edge + m * m, g.error = g.pull + m;
  g.holds = (int64_t *)(void *)(g.error + m);
  g.heap = (basis_crossing *)(void *)(g.holds + m);
  g.side = (signed char *)(g.heap + n);
  return g;
}

/* The probabilities of a row; false: they are none. */
static bool take_row(const acceptance *j, int64_t row, double *p) {
  bool valid = true;
  for (int64_t i = 0; i < j->n; i++) {
    p[i] = number_at(j, j->x, row * j->n + i);
    valid &= p[i] >= 0 && p[i] <= DBL_MAX;
  }
  return valid;
}
static bool is_token(const acceptance *j, int64_t token) { return token >= 0 && token < j->n; }

static void accept_task(void *arg, int64_t which) {
  acceptance *j = arg;
  const int64_t token = j->token[which];
  double *p = smx_scratch_take(&j->scratch);
  basis_program g = program_in(j, p);
  bool accepted = is_token(j, token) && take_row(j, which / j->tokens, p) && p[token] > 0 && j->finite;
  if (accepted && !(p[token] >= j->eta)) {
    g.token = (size_t)token;
    accepted = basis_proves(&g);
  }
  j->accepted[which] = accepted;
  smx_scratch_give(&j->scratch, p);
}

/* The first token that is accepted, else the likeliest of all; -1: there are no probabilities. */
static int64_t goes_out(const acceptance *j, int64_t row) {
  int64_t best = -1;
  double most = 0;
  for (int64_t i = 0; i < j->n && j->finite; i++) {
    const double p = number_at(j, j->x, row * j->n + i);
    if (!(p >= 0 && p <= DBL_MAX)) return -1;
    if (p > most) most = p, best = i;
  }
  for (int64_t k = 0; k < j->tokens; k++)
    if (j->accepted[row * j->tokens + k]) return j->token[row * j->tokens + k];
  return best;
}

smx_status matrix_basis_aware_accept(const tensor_call *c) {
  acceptance j = {.c = c, .n = tensor_dim(c, "n"), .tokens = tensor_dim(c, "k"), .eta = c->param[0]};
  const int64_t columns = tensor_dim(c, "c");
  int64_t area, square;
  if (!smx_multiply(j.n, columns + 1, &area) || !smx_multiply(columns + 1, columns + 1, &square) ||
      area > INT64_MAX / 64 || square > INT64_MAX / 64)
    return smx_fail(SMX_ERR_SHAPE, "basis_aware_accept: basis: %lld columns are too many",
                    (long long)columns);
  j.m = (size_t)columns + 1;
  j.x = c->in.view[0].data, j.token = (const int64_t *)(void *)c->in.view[2].data;
  j.accepted = (int64_t *)(void *)c->out.view[0].data;
  j.rows = c->dims.lead_count;
  const int64_t all = j.rows * j.tokens;
  if (!smx_scratch_open(&j.scratch, c->ctx, (size_t)area * sizeof *j.a, program_bytes((size_t)j.n, j.m), all))
    return smx_fail(SMX_ERR_NOMEM, "basis_aware_accept: no memory for a basis of %lld x %lld", (long long)j.n,
                    (long long)columns);
  j.a = (double *)(void *)j.scratch.shared;
  scale_basis(&j);
  smx_parallel(c->ctx, all, accept_task, &j);
  for (int64_t row = 0; c->out.given[1] && row < j.rows; row++)
    ((int64_t *)(void *)c->out.view[1].data)[row] = goes_out(&j, row);
  smx_scratch_close(&j.scratch);
  return SMX_OK;
}
