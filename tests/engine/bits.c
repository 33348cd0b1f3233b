/* bits.c - proves the first promise: the bits of a result do not depend on the instruction set, the
 * number of threads, the place of a row in its batch, working in place, alignment or strides. Every
 * operator, forward and backward, is compared with the portable instruction set (long rows: with
 * the first) on one row, one thread and contiguous memory; buffers lie against guard pages. By
 * default the factors are covered pairwise by an orthogonal array of 25 runs (run_pairs says where
 * fewer); SMX_TEST_FULL=1 runs their full product. An argument names one group: short, middle or
 * long rows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "problem.h"
#include "unit.h"

enum { ISA, THREADS, SHIFT, ALIAS, PLACE, LAYOUT, FACTORS };
static const int32_t thread_counts[] = {1, 2, 7};
static smx_context *contexts[COUNT_OF(thread_counts)];
static int levels[FACTORS] = {0, COUNT_OF(thread_counts), 3, ALIASES, PLACES, LAYOUTS};
static const char *isas[5]; /* smx_isa_at asks the processor each time */
static long runs, failures;

enum { BASE_ROWS = 3 };

/* By default every set takes three of its five runs on rows of more than 4000, and on the longest
 * one, with two threads. The portable set, which may have its fused multiply-add in software and is
 * what the rest is compared with, takes one, whose levels change with length and operator, and of
 * the longest none. */
enum { LONG = 8193, LONGEST = 60000 };
static bool full_product(void) { return getenv("SMX_TEST_FULL") != NULL; }

/* The base rows, and what each gives alone. */
typedef struct expectation {
  problem base, alone[BASE_ROWS];
  smx_dtype dtype;
  int variant, portable_turn;
} expectation;

static int run_both(problem *p, const config *how) {
  int status = problem_run(p, how, FORWARD);
  return status || !(p->op->flags & SMX_OP_BACKWARD) ? status : problem_run(p, how, BACKWARD);
}

static void expect(expectation *e, const smx_op *op, int64_t n, int variant, smx_dtype t, int first_kind) {
  kind kinds[BASE_ROWS];
  for (int i = 0; i < BASE_ROWS; i++) kinds[i] = (kind)((first_kind + i) % KINDS);
  e->dtype = t;
  e->variant = variant;
  e->portable_turn = (int)(n + first_kind) % 5;
  problem_make(&e->base, op, BASE_ROWS, n, variant, (uint64_t)n * 1000 + (uint64_t)variant, kinds, BASE_ROWS);
  for (int k = 0; k < op->param_count; k++) /* a mean is about all rows */
    if (!strcmp(op->params[k].name, "reduction")) e->base.params.value[k] = 0;
  config how = {NULL, t, t, LAYOUT_C, PLACE_END, APART};
  assert_int_equal(smx_isa_set(n > LONG && !full_product() ? isas[0] : "portable"), 0);
  for (int i = 0; i < BASE_ROWS; i++) {
    problem_rows(&e->alone[i], &e->base, 1, i);
    int status = run_both(&e->alone[i], &how);
    if (status)
      fail_msg("%s: n %d variant %d alone: status %d: %s", op->name, (int)n, variant, status,
               smx_last_error());
  }
}

static void forget(expectation *e) {
  problem_free(&e->base);
  for (int i = 0; i < BASE_ROWS; i++) problem_free(&e->alone[i]);
}

static void complain(const expectation *e, const int *level, const char *what, const char *port, int64_t row,
                     int64_t element) {
  static const char *const aliases[] = {"apart", "in place", "in the saved output"}, *const places[] = {
                                                                                         "end", "start",
                                                                                         "odd"};
  static const char *const layouts[] = {"C", "row gap", "middle axis", "step", "reversed"};
  if (failures++ >= 20) return;
  const char *type = "?";
  for (int i = 0; i < FLOAT_DTYPES; i++)
    if (!memcmp(&float_dtypes[i], &e->dtype, sizeof e->dtype)) type = float_dtype_names[i];
  printf("%s %s %s: n %d variant %d %s | %s, %d threads, shift %d, %s, %s, %s | row %d element %d\n",
         e->base.op->name, what, port, (int)e->base.n, e->variant, type, isas[level[ISA]],
         (int)thread_counts[level[THREADS]], level[SHIFT], aliases[level[ALIAS]], places[level[PLACE]],
         layouts[level[LAYOUT]], (int)row, (int)element);
}

static void compare_port(const expectation *e, const problem *p, const int *level, direction d, int i) {
  const smx_port *port = d == FORWARD ? &p->op->outputs[i] : &p->op->inputs[i];
  if (port->shape == SMX_SHAPE_SCALAR) return; /* about all rows: loss/loss.c */
  size_t size = dtype_size(port_dtype(port, e->dtype)), row = (size_t)port_length(p, port) * size;
  const unsigned char *got = d == FORWARD ? p->out[i] : p->din[i];
  for (int64_t r = 0; got && r < p->rows; r++) {
    const problem *alone = &e->alone[(r + level[SHIFT]) % BASE_ROWS];
    const unsigned char *want = d == FORWARD ? alone->out[i] : alone->din[i], *mine = got + (size_t)r * row;
    size_t byte = 0;
    while (byte < row && memcmp(mine, want, row) && mine[byte] == want[byte]) byte++;
    if (memcmp(mine, want, row)) {
      complain(e, level, d == FORWARD ? "forward" : "backward", port->name, r, (int64_t)(byte / size));
      return;
    }
  }
}

static int64_t batch_rows(int64_t n) { return n <= 128 ? 20 : n <= 8193 ? 4 : 3; }

static void run_one(const expectation *e, const int *level) {
  problem p;
  problem_rows(&p, &e->base, batch_rows(e->base.n), level[SHIFT]);
  config how = {contexts[level[THREADS]], e->dtype, e->dtype, level[LAYOUT], level[PLACE], level[ALIAS]};
  smx_isa_set(isas[level[ISA]]);
  int status = run_both(&p, &how);
  runs++;
  if (status)
    complain(e, level,
             status == WROTE_OUTSIDE   ? "wrote outside"
             : status == INPUT_CHANGED ? "changed an input"
                                       : smx_last_error(),
             "", 0, 0);
  for (int i = 0; !status && i < p.op->output_count; i++) compare_port(e, &p, level, FORWARD, i);
  for (int i = 0; !status && i < p.op->input_count; i++) compare_port(e, &p, level, BACKWARD, i);
  problem_free(&p);
}

static bool too_slow(const expectation *e, const char *isa, int turn) {
  const int64_t n = e->base.n;
  if (levels[ISA] > 1 && !strcmp(isa, "portable")) return n > LONGEST || turn != e->portable_turn;
  return n > LONGEST ? turn != 1 : n > 4000 && turn > 2;
}

/* Columns a, b, a + b, a + 2b, a + 3b, a + 4b modulo 5 of (a, b): every two columns hold every pair
 * of levels. */
static void run_pairs(const expectation *e) {
  for (int a = 0; a < 5; a++)
    for (int b = 0; b < 5; b++) {
      if (too_slow(e, isas[a % levels[ISA]], b)) continue;
      int level[FACTORS];
      for (int f = 0; f < FACTORS; f++)
        level[f] = (f == ISA ? a : f == THREADS ? b : a + (f - 1) * b) % 5 % levels[f];
      run_one(e, level);
    }
}

static void run_product(const expectation *e) {
  int level[FACTORS] = {0}, f = 0;
  while (f < FACTORS) {
    run_one(e, level);
    for (f = 0; f < FACTORS && ++level[f] == levels[f]; f++) level[f] = 0;
  }
}

/* Turns through variants, types and kinds with the length and the operator. */
static void check(const smx_op *op, int64_t n, int turn) {
  static const int types[] = {0, 1, 0, 2, 0, 3};
  expectation e;
  const int variants = variants_of(op);
  expect(&e, op, n, turn % variants, float_dtypes[types[turn / variants % 6]], turn);
  if (full_product()) run_product(&e);
  else run_pairs(&e);
  forget(&e);
}

static int open_contexts(void **state) {
  levels[ISA] = smx_isa_count();
  if (levels[ISA] < 1 || levels[ISA] > (int)COUNT_OF(isas)) return -1;
  printf("instruction sets:");
  for (int i = 0; i < levels[ISA]; i++) printf(" %s", isas[i] = smx_isa_at(i));
  printf("\n");
  for (size_t i = 0; i < COUNT_OF(thread_counts); i++) {
    smx_context_options options = {.size = sizeof options, .threads = thread_counts[i]};
    if (smx_context_create(&options, &contexts[i])) return -1;
  }
  return 0;
}

static int close_contexts(void **state) {
  for (size_t i = 0; i < COUNT_OF(thread_counts); i++) smx_context_destroy(contexts[i]);
  return 0;
}

static void over_lengths(int64_t from, int64_t to, int turns) {
  long before = failures;
  for (size_t o = 0; o < row_op_count(); o++)
    for (int64_t n = from; n <= to; n++)
      for (int turn = 0; turn < turns; turn++) check(smx_op_at(o), n, (int)n * 5 + (int)o * 7 + turn);
  printf("n %d..%d: %ld runs so far, %ld differences\n", (int)from, (int)to, runs, failures);
  assert_int_equal(failures - before, 0);
}

static void rows_of_up_to_67(void **state) { over_lengths(1, 67, 1); }

static void rows_around_powers_of_two(void **state) {
  over_lengths(127, 129, 3);
  over_lengths(255, 257, 1);
  over_lengths(1023, 1025, 3);
  over_lengths(4095, 4097, 1);
  over_lengths(8191, 8193, 1);
}

static void long_rows(void **state) {
  over_lengths(50257, 50257, 1);
  over_lengths(151936, 151936, 1);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      {"short", rows_of_up_to_67, NULL, NULL, NULL},
      {"middle", rows_around_powers_of_two, NULL, NULL, NULL},
      {"long", long_rows, NULL, NULL, NULL},
  };
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
