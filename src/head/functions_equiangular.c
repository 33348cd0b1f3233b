/* head/functions_equiangular.c - equiangular_basis: directions of classes that are as far apart as
 * can be (Equiangular Basis Vectors, Shen et al. 2023). With n vectors in d dimensions,
 *
 *   n <= d        orthonormal rows (random ones)
 *   n = d + 1     the corners of a regular simplex, all cosines -1 / (n - 1)
 *   otherwise     descent on sum of relu(|cos_ij| - delta)^2 over all pairs, where delta rises
 *                 from near Welch's bound, sqrt((n - d) / (d (n - 1))), towards the largest |cos|
 *
 * A step takes e_i - rate sum_j r_ij e_j, r_ij = sign(cos_ij) relu(|cos_ij| - delta), to unit
 * length. Cosines of some rows at a time, and what they add up, are two linear layers; rows are
 * tasks. The vectors whose largest cosine was least are kept. */
#include <string.h>

#include "driver/carve.h"
#include "functions_tree.h"

enum { BASIS, LARGEST, WELCH }; /* outputs */
enum { BLOCK = 512, STREAM_BITS = 41 };
#define FIRST_SHARE 0.3 /* of the way from the bound to the largest cosine, where delta begins */
#define LAST_SHARE 0.95
#define RATE 0.5
#define SLACK 1e-4 /* of bounds: the paper's */
#define CROWD 4.0  /* vectors of a dimension, from where steps are shorter */

typedef struct basis {
  const tensor_call *c;
  int64_t n, d, bytes;
  double welch, delta, rate;
  double *rows; /* [n, d] in double: drawn */
  char *e, *next, *best;
  char *cosines, *push; /* of a block: [BLOCK, n], [BLOCK, d] */
  double *most;         /* the largest cosine of each row of the block */
  int64_t first;        /* of the block */
  smx_scratch scratch;
} basis;

/* ---- rows by chance ---- */

/* Sums of four random numbers of 16 bits, about 0: near enough to normal. */
static void draw(basis *b) {
  const uint64_t seed = (uint64_t)tensor_param(b->c, "seed");
  uint64_t words[2] = {0};
  for (int64_t i = 0; i < b->n * b->d; i++) {
    if (i % 2 == 0)
      head_math()->draw(seed, (uint64_t)1 << STREAM_BITS, SCORE_DRAW_ROWS, (uint64_t)i / 2, words);
    double sum = -131070;
    for (int k = 0; k < 64; k += 16) sum += (double)(words[i % 2] >> k & 0xffff);
    b->rows[i] = sum;
  }
}

/* A row of length 0 becomes (1, 0, 0...). */
static void to_unit(double *x, int64_t d) {
  const double length = __builtin_sqrt(tree_dot(x, x, d));
  for (int64_t i = 0; i < d; i++) x[i] = length > 0 ? x[i] / length : i == 0;
}

/* Gram and Schmidt, twice, since the first time rounding leaves some. */
static void make_orthonormal(const basis *b, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    double *const own = b->rows + i * b->d;
    to_unit(own, b->d);
    for (int64_t k = 0; k < 2 * i; k++) {
      const double *const other = b->rows + k % i * b->d;
      tree_add(own, -tree_dot(own, other, b->d), other, b->d);
    }
    to_unit(own, b->d);
  }
}

/* n corners of m = n - 1 orthonormal rows u: sqrt(1 + 1 / m) u_i - (sqrt(m + 1) + 1) / m^(3/2) sum
 * u, and sum u / sqrt(m). */
static void make_simplex(const basis *b) {
  const int64_t m = b->n - 1;
  const double root = __builtin_sqrt((double)m), own = __builtin_sqrt(1 + 1 / (double)m),
               of_sum = (__builtin_sqrt((double)m + 1) + 1) / ((double)m * root);
  double *const last = b->rows + m * b->d;
  make_orthonormal(b, m);
  memset(last, 0, sizeof *last * (size_t)b->d);
  for (int64_t i = 0; i < m; i++) tree_add(last, 1, b->rows + i * b->d, b->d);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < b->d; j++) b->rows[i * b->d + j] = own * b->rows[i * b->d + j] - of_sum * last[j];
  for (int64_t i = 0; i < b->n; i++) to_unit(b->rows + i * b->d, b->d);
}

static void make_first(basis *b, bool simplex) {
  draw(b);
  if (simplex && b->n > 1) make_simplex(b);
  else if (b->n <= b->d) make_orthonormal(b, b->n);
  for (int64_t i = 0; i < b->n; i++) to_unit(b->rows + i * b->d, b->d);
  smx_reals_store(b->c->is_f64, b->rows, b->n * b->d, b->e);
}

/* ---- steps ---- */

/* to [m, n] = a [m, k] b^T, b [n, k], or turned [k, n]. */
static smx_status product(const basis *s, int64_t m, int64_t n, int64_t k, const char *a, const char *b,
                          bool turned, char *to) {
  const smx_dtype real = s->c->is_f64 ? SMX_F64 : SMX_F32;
  int64_t of_a[] = {m, k}, of_b[] = {n, k}, of_to[] = {m, n}, down[] = {1, n};
  const smx_tensor h = smx_tensor_of(a, real, 2, of_a, NULL),
                   w = smx_tensor_of(b, real, 2, of_b, turned ? down : NULL),
                   z = smx_tensor_of(to, real, 2, of_to, NULL);
  const smx_linear linear = {.size = sizeof linear, .h = &h, .w = &w};
  return smx_linear_logits(s->c->ctx, &linear, &z);
}

/* Task: the cosines of a row of the block become r, and the largest of them is found. */
static void relu_task(void *arg, int64_t row) {
  basis *const b = arg;
  char *const at = b->cosines + row * b->n * b->bytes;
  double x[64], most = 0;
  for (int64_t j = 0; j < b->n; j += 64) {
    const int64_t count = b->n - j < 64 ? b->n - j : 64, own = b->first + row - j;
    smx_reals_load(b->c->is_f64, at + j * b->bytes, count, x);
    if (own >= 0 && own < count) x[own] = 0;
    for (int64_t e = 0; e < count; e++) {
      const double size = __builtin_fabs(x[e]), more = size > b->delta ? size - b->delta : 0;
      most = size > most ? size : most, x[e] = x[e] < 0 ? -more : more;
    }
    smx_reals_store(b->c->is_f64, x, count, at + j * b->bytes);
  }
  b->most[row] = most;
}
/* Task: a row of the block and where it is pushed. */
static void push_task(void *arg, int64_t row) {
  basis *const b = arg;
  double *const x = smx_scratch_take(&b->scratch), *const push = x + b->d;
  const int64_t at = (b->first + row) * b->d * b->bytes;
  smx_reals_load(b->c->is_f64, b->e + at, b->d, x);
  smx_reals_load(b->c->is_f64, b->push + row * b->d * b->bytes, b->d, push);
  tree_add(x, -b->rate, push, b->d), to_unit(x, b->d);
  smx_reals_store(b->c->is_f64, x, b->d, b->next + at);
  smx_scratch_give(&b->scratch, x);
}

/* One step, unless it is the last; *most: the largest cosine before it. */
static smx_status step(basis *b, bool last, double *most) {
  smx_status status = SMX_OK;
  *most = 0;
  for (b->first = 0; b->first < b->n && status == SMX_OK; b->first += BLOCK) {
    const int64_t rows = b->n - b->first < BLOCK ? b->n - b->first : BLOCK;
    status = product(b, rows, b->n, b->d, b->e + b->first * b->d * b->bytes, b->e, false, b->cosines);
    if (status != SMX_OK) break;
    smx_parallel(b->c->ctx, rows, relu_task, b);
    for (int64_t i = 0; i < rows; i++) *most = b->most[i] > *most ? b->most[i] : *most;
    if (last) continue;
    status = product(b, rows, b->d, b->n, b->cosines, b->e, true, b->push);
    if (status == SMX_OK) smx_parallel(b->c->ctx, rows, push_task, b);
  }
  return status;
}

/* Steps until the bound is reached; *least: the largest cosine of the best vectors. */
static smx_status descend(basis *b, int64_t steps, double bound, double *least) {
  double most = 1;
  smx_status status = SMX_OK;
  *least = 2;
  for (int64_t k = 0; k <= steps && status == SMX_OK && *least > bound; k++) {
    const double share = steps ? (double)k / (double)steps : 0;
    b->delta = b->welch + (FIRST_SHARE + (LAST_SHARE - FIRST_SHARE) * share) * (most - b->welch);
    status = step(b, k == steps, &most);
    if (status == SMX_OK && most < *least)
      *least = most, memcpy(b->best, b->e, (size_t)(b->n * b->d * b->bytes));
    char *const swap = b->e;
    if (k < steps) b->e = b->next, b->next = swap;
  }
  return status;
}

/* ---- the call ---- */

static void divide(basis *b, carver *m) {
  const int64_t rows = b->n < BLOCK ? b->n : BLOCK;
  b->rows = carve(m, b->n, b->d, sizeof *b->rows);
  b->e = carve(m, b->n, b->d, b->bytes), b->next = carve(m, b->n, b->d, b->bytes);
  b->best = carve(m, b->n, b->d, b->bytes);
  b->cosines = carve(m, rows, b->n, b->bytes), b->push = carve(m, rows, b->d, b->bytes);
  b->most = carve(m, rows, 1, sizeof *b->most);
}

static double welch_bound(int64_t n, int64_t d) {
  return n <= d ? 0 : __builtin_sqrt((double)(n - d) / ((double)d * (double)(n - 1)));
}

static smx_status check_basis(const basis *b, bool simplex, double bound) {
  const char *const name = b->c->op->name;
  if (b->n > 0 && b->d == 0) return smx_fail(SMX_ERR_SHAPE, "%s: w has no columns", name);
  if (simplex && b->n > b->d + 1)
    return smx_fail(SMX_ERR_PARAM, "%s: form is simplex, but w has %lld rows, more than %lld columns + 1",
                    name, (long long)b->n, (long long)b->d);
  const double can = simplex && b->n > 1 ? 1 / (double)(b->n - 1) : b->welch;
  if (bound > 0 && bound + SLACK < can)
    return smx_fail(SMX_ERR_PARAM,
                    "%s: bound is %.9g, below %.9g, the least for %lld vectors in %lld dimensions", name,
                    bound, can, (long long)b->n, (long long)b->d);
  return SMX_OK;
}

static void put(const basis *b, double largest) {
  const tensor_call *const c = b->c;
  memcpy(c->out.view[BASIS].data, b->best, (size_t)(b->n * b->d * b->bytes));
  tensor_put(c, LARGEST, 0, largest), tensor_put(c, WELCH, 0, b->welch);
}

static smx_status make(basis *b, bool simplex, double bound) {
  const double crowd = (double)b->n / (CROWD * (double)b->d);
  const int64_t steps = (int64_t)tensor_param(b->c, "steps");
  double largest = simplex && b->n > 1 ? 1 / (double)(b->n - 1) : 0;
  smx_status status = SMX_OK;
  b->rate = RATE / (crowd > 1 ? crowd : 1);
  make_first(b, simplex);
  if (b->n > b->d + 1) status = descend(b, steps, bound, &largest);
  else memcpy(b->best, b->e, (size_t)(b->n * b->d * b->bytes));
  if (status != SMX_OK) return status;
  if (bound > 0 && largest > bound + SLACK)
    return smx_fail(SMX_ERR_PARAM, "%s: bound is %.9g, but after %lld steps the largest cosine is %.9g",
                    b->c->op->name, bound, (long long)steps, largest);
  put(b, largest);
  return SMX_OK;
}

smx_status equiangular_basis(const tensor_call *c) {
  basis b = {.c = c, .n = tensor_dim(c, "n"), .d = tensor_dim(c, "d"), .bytes = c->is_f64 ? 8 : 4};
  const bool simplex = tensor_param(c, "form") != 0;
  const double bound = tensor_param(c, "bound");
  carver m = {.fits = true};
  b.welch = b.n > 1 && b.d > 0 ? welch_bound(b.n, b.d) : 0;
  smx_status status = check_basis(&b, simplex, bound);
  if (status != SMX_OK) return status;
  divide(&b, &m);
  const bool fits = m.fits && smx_scratch_open(&b.scratch, c->ctx, (size_t)m.at + 1,
                                               sizeof(double) * (size_t)(2 * b.d + 1), b.n);
  if (!fits)
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld x %lld", c->op->name, (long long)b.n,
                    (long long)b.d);
  m = (carver){.base = b.scratch.shared, .fits = true};
  divide(&b, &m);
  if (b.n > 0) status = make(&b, simplex || b.n == b.d + 1, bound);
  else put(&b, 0);
  smx_scratch_close(&b.scratch);
  return status;
}
