/* partial.c - proves partial_fc: against its reference, for any number of shards and threads; what
 * is kept; what is refused. */
#include <stdlib.h>
#include <string.h>

#include "guard.h"
#include "head/ref.h"
#include "problem.h"
#include "status.h"
#include "tensors.h"

typedef struct sample {
  int64_t n, classes, keep, shards, seed, *target, *kept, *moved;
} sample;

static smx_status run(const sample *s, smx_context *ctx) {
  const smx_op *const op = smx_op_find("partial_fc");
  int64_t n[1] = {s->n}, m[1] = {s->keep * s->shards};
  const smx_tensor t[] = {tensor(s->target, SMX_I64, 1, n), tensor(s->kept, SMX_I64, 1, m),
                          tensor(s->moved, SMX_I64, 1, n)},
                   *const in[] = {t}, *const out[] = {t + 1, t + 2};
  smx_params p;
  good(smx_params_init(op, &p));
  good(smx_params_set(op, &p, "classes", (double)s->classes));
  good(smx_params_set(op, &p, "keep", (double)s->keep));
  good(smx_params_set(op, &p, "shards", (double)s->shards));
  good(smx_params_set(op, &p, "seed", (double)s->seed));
  return smx_forward(op, ctx, &p, 1, in, 2, out);
}

static sample make(int64_t n, int64_t classes, int64_t keep, int64_t shards, int64_t seed) {
  sample s = {n, classes, keep, shards, seed, NULL, NULL, NULL};
  s.target = calloc((size_t)n + 1, sizeof *s.target), s.moved = calloc((size_t)n + 1, sizeof *s.moved);
  s.kept = calloc((size_t)(keep * shards) + 1, sizeof *s.kept);
  rng r = {(uint64_t)seed};
  for (int64_t i = 0; i < n; i++) s.target[i] = i % 5 == 4 ? -100 : rng_below(&r, classes);
  return s;
}
static void release(sample *s) { free(s->target), free(s->kept), free(s->moved); }

static void as_the_reference(const sample *s) {
  double *const in = calloc((size_t)s->n + 1, sizeof *in), *const moved =
                                                               calloc((size_t)s->n + 1, sizeof *in);
  double *const kept = calloc((size_t)(s->keep * s->shards), sizeof *in);
  const double q[] = {(double)s->classes, (double)s->keep, (double)s->shards, (double)s->seed, -100};
  const int64_t shape[8] = {s->n};
  const double *const ins[] = {in};
  double *const outs[] = {kept, moved};
  const tensor_ref_call c = {ins, outs, q, {shape}, {NULL}};
  for (int64_t i = 0; i < s->n; i++) in[i] = (double)s->target[i];
  ref_partial_fc(&c);
  for (int64_t i = 0; i < s->keep * s->shards; i++) assert_int_equal(s->kept[i], (int64_t)kept[i]);
  for (int64_t i = 0; i < s->n; i++) assert_int_equal(s->moved[i], (int64_t)moved[i]);
  free(in), free(moved), free(kept);
}

static void references(void **state) {
  static const int64_t cases[][4] = {{0, 1, 1, 1},      {3, 10, 10, 1},   {20, 700, 70, 3},
                                     {50, 999, 140, 7}, {9, 1500, 12, 2}, {40, 64, 8, 8}};
  for (int i = 0; i < (int)COUNT_OF(cases); i++) {
    sample s = make(cases[i][0], cases[i][1], cases[i][2], cases[i][3], i);
    good(run(&s, NULL));
    as_the_reference(&s);
    release(&s);
  }
}

static int by_number(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

/* Every class where all are kept; any threads; another seed is another sample. */
static void samples(void **state) {
  const smx_context_options options = {.size = sizeof options, .threads = 5};
  smx_context *ctx;
  good(smx_context_create(&options, &ctx));
  sample all = make(10, 60, 20, 3, 1), s = make(1000, 300000, 4000, 7, 2), t = make(1000, 300000, 4000, 7, 2);
  good(run(&all, NULL));
  for (int64_t i = 0; i < 60; i++) assert_int_equal(all.kept[i], i);
  for (int64_t i = 0; i < 10; i++) assert_int_equal(all.moved[i], all.target[i]);
  good(run(&s, NULL)), good(run(&t, ctx));
  assert_memory_equal(s.kept, t.kept, 28000 * sizeof *s.kept);
  assert_memory_equal(s.moved, t.moved, 1000 * sizeof *s.moved);
  for (int64_t i = 1; i < 28000; i++) assert_true(s.kept[i] > s.kept[i - 1]);
  for (int64_t i = 0; i < 1000; i++)
    if (s.target[i] != -100) assert_int_equal(s.kept[s.moved[i]], s.target[i]);
  t.seed = 3, good(run(&t, NULL));
  int64_t same = 0;
  for (int64_t i = 0; i < 28000; i++)
    same += bsearch(s.kept + i, t.kept, 28000, sizeof *t.kept, by_number) != NULL;
  assert_in_range(same, 28000 * 0.09, 28000 * 0.16); /* 9.3 % by chance, and the classes of rows */
  smx_context_destroy(ctx);
  release(&all), release(&s), release(&t);
}

static void refusals(void **state) {
  sample s = make(4, 10, 2, 2, 0);
  for (int i = 0; i < 4; i++) s.target[i] = i;
  refused(run(&s, NULL), SMX_ERR_PARAM, "keep is 2, but a shard has more classes of targets");
  s.target[2] = s.target[3] = 10;
  refused(run(&s, NULL), SMX_ERR_TARGET, "10");
  s.target[2] = s.target[3] = 9, s.keep = 6;
  refused(run(&s, NULL), SMX_ERR_PARAM, "keep is 6, more than the 5 classes of a shard");
  release(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(references), cmocka_unit_test(samples),
                                     cmocka_unit_test(refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
