/* plans.c - proves that the algorithms of softmax (three passes in cache, scratch per batch, two
 * passes streaming) are plans of one operator and give one result: every plan against the automatic
 * choice, bit for bit, over sizes, types and rows made to tell them apart. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "driver/plan.h"
#include "cpu/cpu.h"
#include "problem.h"
#include "unit.h"

enum { PLANS = PLAN_COUNT }; /* 0 is the automatic choice */
static const char *const operators[] = {"softmax",
                                        "softmin",
                                        "log_softmax",
                                        "masked_softmax",
                                        "scaled_masked_softmax",
                                        "logsumexp",
                                        "cross_entropy",
                                        "knowledge_distillation",
                                        "z_loss"};
static const int64_t lengths[] = {1,   16,  17,  64,  100,  130,  150,  170,  180,  200,   220,  230,
                                  250, 256, 257, 300, 1000, 1025, 8191, 8192, 8193, 16384, 50257};

/* Rows on which a plan that is not exact shows. */
static double rising(int64_t i, int64_t n, rng *r) {
  return -300 + 600 * (double)i / (double)n + rng_uniform(r);
}
static double falling(int64_t i, int64_t n, rng *r) { return rising(n - i, n, r); }
static double drop(int64_t i, int64_t n, rng *r) { return (i < n / 3 ? 4000 : 0) + 5 * rng_normal(r); }
static double jump(int64_t i, int64_t n, rng *r) { return (i > n - 3 ? 4000 : 0) + 5 * rng_normal(r); }
static double holes(int64_t i, int64_t n, rng *r) { return rng_below(r, 3) ? 5 * rng_normal(r) : -INFINITY; }
static double late(int64_t i, int64_t n, rng *r) { return i < n - 1 ? -INFINITY : rng_normal(r); }
static double vanishing(int64_t i, int64_t n, rng *r) { return i == n / 2 ? 0 : -86 - 44 * rng_uniform(r); }
static double far(int64_t i, int64_t n, rng *r) { return 1e6 + 20 * rng_normal(r); }
static double edge_of_far(int64_t i, int64_t n, rng *r) {
  return i == n - 1 ? 524289 : 524280 + 8 * rng_uniform(r);
}
static double far_below(int64_t i, int64_t n, rng *r) { return -3e30 * (1 + rng_uniform(r)); }
static double both_ends(int64_t i, int64_t n, rng *r) { return (i % 2 ? 1 : -1) * 3e38 * rng_uniform(r); }
static double equal(int64_t i, int64_t n, rng *r) { return 7; }
static double poisoned(int64_t i, int64_t n, rng *r) { return i == n - 1 ? NAN : rng_normal(r); }
static double infinite(int64_t i, int64_t n, rng *r) { return i == n / 2 ? INFINITY : rng_normal(r); }
static double plain(int64_t i, int64_t n, rng *r) { return 5 * rng_normal(r); }

static double (*const shapes[])(int64_t, int64_t, rng *) = {
    rising,      falling,   drop,      jump,  holes,    late,     vanishing, far,
    edge_of_far, far_below, both_ends, equal, poisoned, infinite, plain};
enum { SHAPES = COUNT_OF(shapes) };

static void fill(problem *p, const smx_op *op, int64_t n, int copies, smx_dtype t) {
  static const kind any[] = {KIND_NORMAL};
  rng r = {(uint64_t)n};
  problem_make(p, op, SHAPES * copies, n, 0, (uint64_t)n, any, 1);
  for (int64_t row = 0; row < SHAPES * copies; row++)
    for (int64_t i = 0; i < n; i++) p->in[0][row * n + i] = shapes[row % SHAPES](i, n, &r);
  problem_round(p, t);
}

/* The same for every instruction set: kept until another is asked for. */
static problem *filled(const smx_op *op, int64_t n, int copies, int type) {
  static problem p;
  static int of_type;
  if (p.op != op || p.n != n || p.rows != SHAPES * copies || of_type != type) {
    problem_free(&p);
    fill(&p, op, n, copies, float_dtypes[of_type = type]);
  }
  return &p;
}

/* In an output; *at: where. */
static int first_difference(const problem *a, const problem *b, smx_dtype t, int64_t *at) {
  for (int o = 0; o < a->op->output_count; o++) {
    const smx_port *port = &a->op->outputs[o];
    size_t size = dtype_size(port_dtype(port, t));
    for (*at = 0; *at < port_count(a, port); ++*at)
      if (memcmp(a->out[o] + (size_t)*at * size, b->out[o] + (size_t)*at * size, size)) return o;
  }
  return -1;
}

/* Without a context plan 0 is the call that the others are compared with. */
static void one_result(const smx_op *op, int64_t n, int type, smx_context *ctx) {
  config how = {NULL, float_dtypes[type], float_dtypes[type], LAYOUT_C, PLACE_END, APART};
  problem *automatic = filled(op, n, 1, type), planned;
  problem_rows(&planned, automatic, automatic->rows, 0);
  smx_plan_set(0);
  assert_int_equal(problem_run(automatic, &how, FORWARD), SMX_OK);
  how.ctx = ctx;
  for (int plan = !ctx; plan < PLANS; plan++) {
    smx_plan_set(plan);
    int64_t at = 0;
    int status = problem_run(&planned, &how, FORWARD),
        o = status ? 0 : first_difference(automatic, &planned, float_dtypes[type], &at);
    smx_plan_set(0);
    if (status || o >= 0)
      fail_msg("%s %s n %d: plan %d differs in element %d of %s (status %d, %s)", op->name,
               float_dtype_names[type], (int)n, plan, (int)at, op->outputs[o].name, status, smx_isa_name());
  }
  problem_free(&planned);
}

/* Takes the set of that number. Slow: portable, whose fused multiply-add may be software. */
static bool slow_set(int isa) {
  assert_int_equal(smx_isa_set(smx_isa_at(isa)), 0);
  return !strcmp(smx_isa_name(), "portable");
}

/* All types, those above 10000 in f32; what is slow takes f32 and rows of at most one group and a
 * bit. */
static void over_everything(int sets, smx_context *ctx) {
  for (size_t o = 0; o < COUNT_OF(operators); o++)
    for (size_t l = 0; l < COUNT_OF(lengths); l++)
      for (int type = 0; type < (lengths[l] > 10000 ? 1 : FLOAT_DTYPES); type++)
        for (int isa = 0; isa < sets; isa++)
          if (!slow_set(isa) || (lengths[l] <= 8193 && type == 0))
            one_result(smx_op_find(operators[o]), lengths[l], type, ctx);
}

static void every_plan_gives_one_result(void **state) { over_everything(smx_isa_count(), NULL); }

/* Operators with loops of their own, run as all the others are: every output and gradient has the
 * same bytes. list.h names them. */
static const char *const fused[] = {
#define ROW_OP(name)
#define ROW_FUSED(name, bench) #name,
#include "row/list.h"
#undef ROW_OP
#define LOSS_OP(name)
#define LOSS_FUSED(name, bench) #name,
#include "loss/list.h"
#undef LOSS_OP
};

static void run_planned(problem *p, const config *how, int plan) {
  smx_plan_set(plan);
  int status = problem_run(p, how, FORWARD);
  if (!status && p->op->flags & SMX_OP_BACKWARD) status = problem_run(p, how, BACKWARD);
  smx_plan_set(0);
  if (status)
    fail_msg("%s n %d: plan %d: status %d (%s)", p->op->name, (int)p->n, plan, status, smx_isa_name());
}

static void staged_alike(const smx_op *op, int64_t n, int type) {
  config how = {NULL, float_dtypes[type], float_dtypes[type], LAYOUT_C, PLACE_END, APART};
  problem *own = filled(op, n, 1, type), staged;
  problem_rows(&staged, own, own->rows, 0);
  run_planned(own, &how, 0);
  run_planned(&staged, &how, PLAN_STAGED);
  int64_t at = 0;
  const int o = first_difference(own, &staged, float_dtypes[type], &at);
  const size_t bytes = (size_t)(own->rows * n) * dtype_size(float_dtypes[type]);
  if (o >= 0 || (op->flags & SMX_OP_BACKWARD && memcmp(own->din[0], staged.din[0], bytes)))
    fail_msg("%s %s n %d: staged, %s differs in element %d (%s)", op->name, float_dtype_names[type], (int)n,
             o < 0 ? "the gradient" : op->outputs[o].name, (int)at, smx_isa_name());
  problem_free(&staged);
}

static void fused_and_staged(void **state) {
  for (size_t o = 0; o < COUNT_OF(fused); o++)
    for (size_t l = 0; l < COUNT_OF(lengths); l++)
      for (int type = 0; type < FLOAT_DTYPES; type++)
        for (int isa = 0; isa < smx_isa_count(); isa++)
          if (!slow_set(isa) || lengths[l] <= 8193) staged_alike(smx_op_find(fused[o]), lengths[l], type);
}

static void also_with_threads(void **state) {
  smx_context_options options = {.size = sizeof options, .threads = 3};
  smx_context *ctx = NULL;
  assert_int_equal(smx_context_create(&options, &ctx), SMX_OK);
  over_everything(1, ctx);
  smx_context_destroy(ctx);
}

/* The output of 15 such rows passes the caches, and their terms fit the room that a call has for
 * those of a row. */
static void rows_whose_terms_are_kept(void **state) {
  static const struct {
    int64_t n;
    int bits;
  } sizes[] = {{140001, 32}, {70001, 64}};
  for (size_t o = 0; o < COUNT_OF(operators); o++)
    for (int type = 0; type < FLOAT_DTYPES; type++)
      for (size_t s = 0; s < COUNT_OF(sizes); s++)
        for (int isa = 0; float_dtypes[type].bits == sizes[s].bits && isa < smx_isa_count(); isa++)
          if (!slow_set(isa)) one_result(smx_op_find(operators[o]), sizes[s].n, type, NULL);
}

/* Forward and backward, with outputs written in this way. */
static void run_written(problem *p, const config *how, int writing) {
  smx_writing_set(writing);
  int status = problem_run(p, how, FORWARD);
  if (!status) status = problem_run(p, how, BACKWARD);
  smx_writing_set(-1);
  if (status)
    fail_msg("%s n %d: writing %d: status %d (%s)", p->op->name, (int)p->n, writing, status, smx_isa_name());
}

static void written_alike(const smx_op *op, int64_t n, int copies, int type, int where) {
  config how = {NULL, float_dtypes[type], float_dtypes[type], LAYOUT_C, where, APART};
  problem *near = filled(op, n, copies, type), other;
  problem_rows(&other, near, near->rows, 0);
  run_written(near, &how, WRITE_CACHED);
  for (int writing = WRITE_PREFETCHED; writing <= WRITE_STREAMING; writing++) {
    int64_t at = 0;
    run_written(&other, &how, writing);
    const int o = first_difference(near, &other, float_dtypes[type], &at);
    if (o >= 0 ||
        memcmp(near->din[0], other.din[0], (size_t)(near->rows * n) * dtype_size(float_dtypes[type])))
      fail_msg("%s %s n %d: writing %d differs in %s, element %d (%s)", op->name, float_dtype_names[type],
               (int)n, writing, o < 0 ? "the gradient" : op->outputs[o].name, (int)at, smx_isa_name());
  }
  problem_free(&other);
}

/* Through the caches or past them, as calls with much output do: a row's output is written while
 * the next is summed, from two places that take turns, with odd rows in between, at the end of a
 * page and off any boundary. Some plans are for calls of many rows only. */
static void however_outputs_are_written(void **state) {
  static const char *const some[] = {"softmax", "softmin", "log_softmax", "scaled_masked_softmax",
                                     "cross_entropy"};
  static const int64_t sizes[] = {17, 100, 192, 256, 300, 1000, 1024, 1100, 2100, 5001, 8192, 20001, 60000};
  static const struct {
    int64_t n;
    int copies, type;
  } many[] = {{192, 100, 0}, {1000, 19, 0}, {5001, 4, 0}, {20001, 8, 0}, {2100, 9, 1}};
  for (size_t o = 0; o < COUNT_OF(some); o++) {
    const smx_op *op = smx_op_find(some[o]);
    for (size_t s = 0; s < COUNT_OF(sizes); s++)
      for (int type = 0; type < FLOAT_DTYPES; type++)
        for (int isa = 0; isa < smx_isa_count(); isa++)
          if (!slow_set(isa)) written_alike(op, sizes[s], 1, type, s % 2 ? PLACE_END : PLACE_ODD);
    for (size_t s = 0; s < COUNT_OF(many); s++)
      for (int isa = 0; isa < smx_isa_count(); isa++)
        if (!slow_set(isa)) written_alike(op, many[s].n, many[s].copies, many[s].type, PLACE_END);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_plan_gives_one_result),
                                     cmocka_unit_test(fused_and_staged), cmocka_unit_test(also_with_threads),
                                     cmocka_unit_test(rows_whose_terms_are_kept),
                                     cmocka_unit_test(however_outputs_are_written)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
