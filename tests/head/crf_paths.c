/* crf_paths.c - proves crf_k_best: against all paths one by one, crf_viterbi and the reference;
 * ties, the same bits every way, hidden tokens, places without a path, and what is refused. */
#include <stdlib.h>
#include <string.h>

#include "engine/ref.h"
#include "status.h"
#include "tensors.h"
#include "util.h"

extern tensor_ref_fn *const head_refs[];
enum { REF_K_BEST = 5 }; /* in the order of the table */
enum { E, A, START, END, MASK, INPUTS };

typedef struct field {
  int64_t b, l, k, count, size[INPUTS];
  double *x[INPUTS - 1], *score;
  uint8_t *mask;
  int64_t *path;
} field;

static field make(int64_t b, int64_t l, int64_t k, int64_t count) {
  field f = {.b = b, .l = l, .k = k, .count = count, .size = {b * l * k, k * k, k, k, b * l}};
  for (int i = 0; i < MASK; i++) f.x[i] = calloc((size_t)f.size[i] + 1, sizeof(double));
  f.mask = malloc((size_t)f.size[MASK] + 1), memset(f.mask, 1, (size_t)f.size[MASK]);
  f.score = calloc((size_t)(b * count), 8), f.path = calloc((size_t)(b * count * l) + 1, 8);
  return f;
}
static void drop(field *f) {
  for (int i = 0; i < MASK; i++) free(f->x[i]);
  free(f->mask), free(f->score), free(f->path);
}
static void fill(field *f, rng *r, int absent) {
  for (int i = 0; i < MASK; i++)
    for (int64_t n = 0; n < f->size[i]; n++)
      f->x[i][n] = absent && rng_below(r, absent) == 0 ? -INFINITY : 2 * rng_normal(r);
}

static smx_status found(field *f, smx_context *ctx, const char *name, int64_t *path, double *score) {
  const smx_op *op = smx_op_find(name);
  const bool many = op->param_count > 0;
  const smx_tensor in[] = {tensor(f->x[E], SMX_F64, 3, (int64_t[]){f->b, f->l, f->k}),
                           tensor(f->x[A], SMX_F64, 2, (int64_t[]){f->k, f->k}),
                           tensor(f->x[START], SMX_F64, 1, &f->k), tensor(f->x[END], SMX_F64, 1, &f->k),
                           tensor(f->mask, SMX_U8, 2, (int64_t[]){f->b, f->l})};
  int64_t shape[2][3] = {{f->b, f->l}, {f->b, f->count, f->l}};
  const smx_tensor out[] = {tensor(path, SMX_I64, many ? 3 : 2, shape[many]),
                            tensor(score, SMX_F64, many ? 2 : 1, shape[many])};
  const smx_tensor *ins[] = {in, in + 1, in + 2, in + 3, in + 4}, *outs[] = {out, out + 1};
  smx_params p;
  good(smx_params_init(op, &p));
  if (many) p.value[0] = (double)f->count;
  return smx_forward(op, ctx, &p, INPUTS, ins, 2, outs);
}
static void run(field *f, smx_context *ctx) { good(found(f, ctx, "crf_k_best", f->path, f->score)); }

static double score_of(const field *f, const int64_t *tag) {
  double s = 0;
  for (int64_t t = 0; t < f->l; t++)
    s += f->x[E][t * f->k + tag[t]] + (t ? f->x[A][tag[t - 1] * f->k + tag[t]] : f->x[START][tag[0]]);
  return s + f->x[END][tag[f->l - 1]];
}
static int falling(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

/* Their scores in order, of different paths; there are no more than there are. */
static void all_paths(void **state) {
  enum { PATHS = 243 };
  rng r = {3};
  for (int round = 0; round < 20; round++) {
    field f = make(1, 5, 3, round % 3 ? 250 : 7);
    double all[PATHS];
    fill(&f, &r, round % 2 ? 6 : 0);
    for (int64_t p = 0; p < PATHS; p++)
      all[p] = score_of(&f, (int64_t[]){p % 3, p / 3 % 3, p / 9 % 3, p / 27 % 3, p / 81});
    qsort(all, PATHS, sizeof *all, falling);
    run(&f, NULL);
    for (int64_t p = 0; p < f.count; p++) {
      const double want = p < PATHS ? all[p] : -INFINITY;
      const int64_t *path = f.path + p * 5;
      if (want == -INFINITY) {
        assert_true(f.score[p] == want);
        for (int t = 0; t < 5; t++) assert_int_equal(path[t], -1);
        continue;
      }
      assert_true(fabs(f.score[p] - want) < 1e-13 && fabs(score_of(&f, path) - want) < 1e-13);
      for (int64_t q = 0; q < p; q++) assert_memory_not_equal(path, f.path + q * 5, 40);
    }
    drop(&f);
  }
}

/* The first is Viterbi's, of equal ones too; the lists are those of the reference. */
static void first_and_reference(void **state) {
  rng r = {5};
  for (int round = 0; round < 40; round++) {
    field f = make(3, 1 + rng_below(&r, 9), 1 + rng_below(&r, 7), 1 + rng_below(&r, 6));
    const int64_t tokens = f.b * f.l, paths = f.b * f.count;
    fill(&f, &r, round % 4 == 1 ? 8 : 0);
    for (int64_t t = 0; t < tokens; t++) f.mask[t] = rng_below(&r, 5) != 0;
    for (int i = 0; i < MASK && round % 4 == 2; i++)
      for (int64_t n = 0; n < f.size[i]; n++) f.x[i][n] = rng_below(&r, 2);
    double *score = calloc((size_t)paths, 8), *path = calloc((size_t)(paths * f.l), 8),
           *mask = calloc((size_t)tokens, 8);
    int64_t *best = calloc((size_t)tokens, 8);
    for (int64_t t = 0; t < tokens; t++) mask[t] = f.mask[t];
    run(&f, NULL);
    good(found(&f, NULL, "crf_viterbi", best, score));
    for (int64_t s = 0; s < f.b; s++) {
      assert_memory_equal(score + s, f.score + s * f.count, 8);
      assert_memory_equal(best + s * f.l, f.path + s * f.count * f.l, (size_t)f.l * 8);
    }
    const int64_t e[] = {f.b, f.l, f.k}, kk[] = {f.k, f.k}, bl[] = {f.b, f.l};
    tensor_ref_call c = {.in = (const double *[]){f.x[E], f.x[A], f.x[START], f.x[END], mask},
                         .out = (double *[]){path, score},
                         .q = (double[]){(double)f.count}};
    const int64_t *shapes[] = {e, kk, kk, kk, bl};
    int64_t shape[INPUTS][8] = {{0}};
    for (int i = 0; i < INPUTS; i++) {
      memcpy(shape[i], shapes[i], (size_t)(i == E ? 3 : i == A || i == MASK ? 2 : 1) * 8);
      c.in_shape[i] = shape[i];
    }
    head_refs[REF_K_BEST](&c);
    for (int64_t p = 0; p < paths; p++) {
      assert_true(f.score[p] == score[p] || fabs(f.score[p] - score[p]) < 1e-13);
      for (int64_t t = 0; t < f.l; t++) assert_int_equal(f.path[p * f.l + t], (int64_t)path[p * f.l + t]);
    }
    free(score), free(path), free(mask), free(best);
    drop(&f);
  }
}

static void every_way(void **state) {
  rng r = {11};
  field f = make(70, 9, 11, 6), g = make(70, 9, 11, 6);
  fill(&f, &r, 12);
  for (int i = 0; i < MASK; i++) memcpy(g.x[i], f.x[i], (size_t)f.size[i] * 8);
  run(&f, NULL);
  for (way w = {0}; next_way(&w);) {
    memset(g.score, 0xff, 70 * 6 * 8), memset(g.path, 0xff, 70 * 6 * 9 * 8);
    run(&g, w.ctx);
    assert_memory_equal(f.score, g.score, 70 * 6 * 8);
    assert_memory_equal(f.path, g.path, 70 * 6 * 9 * 8);
  }
  drop(&f), drop(&g);
}

static void nothing_and_nonsense(void **state) {
  rng r = {13};
  field f = make(1, 4, 3, 3);
  memset(f.mask, 0, 4);
  run(&f, NULL);
  assert_true(f.score[0] == 0 && f.score[1] == -INFINITY && f.path[0] == -1);
  memset(f.mask, 1, 4);
  static const double bad[] = {NAN, INFINITY};
  for (int i = 0; i < MASK; i++)
    for (int b = 0; b < 2; b++) {
      fill(&f, &r, 0);
      f.x[i][f.size[i] - 1] = bad[b];
      run(&f, NULL);
      for (int p = 0; p < 3; p++) assert_true(isnan(f.score[p]) && f.path[p * 4] == -1);
    }
  smx_context_options options = {.size = sizeof options, .on_empty = SMX_EMPTY_ERROR};
  smx_context *ctx = NULL;
  good(smx_context_create(&options, &ctx));
  fill(&f, &r, 0);
  for (int j = 0; j < 3; j++) f.x[END][j] = -INFINITY;
  refused(found(&f, ctx, "crf_k_best", f.path, f.score), SMX_ERR_EMPTY, "sequence 0 has no path");
  smx_context_destroy(ctx);
  run(&f, NULL);
  for (int p = 0; p < 3; p++) assert_true(f.score[p] == -INFINITY && f.path[p * 4] == -1);
  f.count = 0;
  refused(found(&f, NULL, "crf_k_best", f.path, f.score), SMX_ERR_PARAM, "count: 0 is out of range");
  drop(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_paths), cmocka_unit_test(first_and_reference),
                                     cmocka_unit_test(every_way), cmocka_unit_test(nothing_and_nonsense)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
