/* threads.c - proves that many threads may call at once, with one context or none; that a child
 * after fork works; that the caller's own threads are used when given; and that the caller's
 * floating-point environment neither matters nor changes. */
#define _GNU_SOURCE
#include <fenv.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "problem.h"
#include "unit.h"

enum { ROWS = 40, N = 5000, CALLERS = 6, CALLS = 20 };
static float x[ROWS * N], want[ROWS * N];

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }
#endif

static int prepare(void **state) {
  rng r = {5};
  for (int i = 0; i < ROWS * N; i++) x[i] = (float)(5 * rng_normal(&r));
  return smx_softmax_f32(ROWS, N, x, want);
}

static smx_context *context(smx_context_options o) {
  smx_context *ctx = NULL;
  o.size = sizeof o;
  assert_int_equal(smx_context_create(&o, &ctx), SMX_OK);
  return ctx;
}

/* Whether a call with this context gives the expected bits. */
static int same(smx_context *ctx) {
  float *y = malloc(sizeof want);
  int good =
      y && smx_softmax_strided_f32(ctx, ROWS, N, x, N, y, N) == SMX_OK && !memcmp(y, want, sizeof want);
  free(y);
  return good;
}

static void *caller(void *ctx) {
  for (int i = 0; i < CALLS; i++)
    if (!same(ctx)) return "different";
  char message[256];
  snprintf(message, sizeof message, "softmax: y"); /* each thread has its own last error */
  smx_softmax_f32(1, 3, x, NULL);
  return strstr(smx_last_error(), "y") ? NULL : "message lost";
}

static void call_from_many_threads(smx_context *shared) {
  pthread_t threads[CALLERS];
  for (int i = 0; i < CALLERS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, caller, i % 3 ? shared : NULL), 0);
  for (int i = 0; i < CALLERS; i++) {
    void *wrong;
    pthread_join(threads[i], &wrong);
    if (wrong) fail_msg("caller %d: %s", i, (char *)wrong);
  }
}

static void many_callers(void **state) {
  for (int32_t threads = 1; threads <= 7; threads += 3) {
    smx_context *shared = context((smx_context_options){.threads = threads});
    call_from_many_threads(shared);
    smx_context_destroy(shared);
  }
}

static void contexts_come_and_go(void **state) {
  for (int i = 0; i < 50; i++) {
    smx_context *ctx = context((smx_context_options){.threads = 1 + i % 5});
    if (i % 10 == 0) assert_true(same(ctx));
    smx_context_destroy(ctx);
  }
}

static void a_child_goes_on(void **state) {
  smx_context *ctx = context((smx_context_options){.threads = 3});
  assert_true(same(ctx));
  for (int i = 0; i < 3; i++) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      alarm(60); /* a child that hangs ends with a signal */
      int good = same(ctx) && same(ctx);
      smx_context_destroy(ctx);
      _exit(good ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(same(ctx));
  }
  smx_context_destroy(ctx);
}

/* ---- a row that threads share ---- */

static void run_both(problem *p, smx_context *ctx) {
  const config how = {ctx, SMX_F32, SMX_F32, LAYOUT_C, PLACE_END, APART};
  int status = problem_run(p, &how, FORWARD);
  if (!status && p->op->flags & SMX_OP_BACKWARD) status = problem_run(p, &how, BACKWARD);
  if (status) fail_msg("%s n %d: status %d: %s", p->op->name, (int)p->n, status, smx_last_error());
}

static void expect_equal(const problem *p, const smx_port *port, const void *one, const void *many) {
  if (one && memcmp(one, many, (size_t)port_count(p, port) * dtype_size(port_dtype(port, SMX_F32))))
    fail_msg("%s n %d: %s depends on the threads", p->op->name, (int)p->n, port->name);
}

static void expect_alike(const problem *a, const problem *b) {
  const smx_op *op = a->op;
  for (int32_t i = 0; i < op->output_count; i++) expect_equal(a, op->outputs + i, a->out[i], b->out[i]);
  for (int32_t i = 0; i < op->input_count; i++) expect_equal(a, op->inputs + i, a->din[i], b->din[i]);
}

/* Every operator on rows that lie where kernels can use them, which takes no scratch memory: of one
 * run of groups, and of two. */
static void long_rows_are_shared(void **state) {
  static const int64_t lengths[] = {131072, 262145};
  static const kind any[] = {KIND_NORMAL};
  smx_context *ctx = context((smx_context_options){.threads = 3});
  const smx_op *op;
  for (size_t i = 0; (op = smx_op_at(i)); i++)
    for (size_t l = 0; l < COUNT_OF(lengths) && i < row_op_count(); l++) {
      problem alone, shared;
      problem_make(&alone, op, 1, lengths[l], 0, i, any, 1);
      problem_round(&alone, SMX_F32);
      problem_rows(&shared, &alone, 1, 0);
      run_both(&alone, NULL), run_both(&shared, ctx);
      expect_alike(&alone, &shared);
      problem_free(&alone), problem_free(&shared);
    }
  smx_context_destroy(ctx);
}

/* ---- the caller's threads ---- */

typedef struct job {
  void (*task)(void *arg, int64_t i);
  void *arg;
  int64_t first, count;
} job;

static void *work(void *p) {
  job *j = p;
  for (int64_t i = j->first + j->count - 1; i >= j->first; i--) j->task(j->arg, i);
  return NULL;
}

/* Two threads, each from its end. */
static void two_threads(void *user, int64_t count, void (*task)(void *arg, int64_t i), void *arg) {
  job jobs[2] = {{task, arg, 0, count / 2}, {task, arg, count / 2, count - count / 2}};
  pthread_t other;
  int64_t *total = user;
  *total += count;
  if (pthread_create(&other, NULL, work, &jobs[0])) abort();
  work(&jobs[1]);
  pthread_join(other, NULL);
}

static void the_callers_threads(void **state) {
  int64_t tasks = 0;
  smx_context *ctx =
      context((smx_context_options){.threads = 2, .parallel_for = two_threads, .parallel_user = &tasks});
  assert_true(same(ctx));
  assert_true(tasks > 1);
  smx_context_destroy(ctx);
}

/* ---- memory ---- */

typedef struct ledger {
  pthread_mutex_t lock;
  long live, total;
} ledger;

static void *lend(void *user, size_t bytes, size_t alignment) {
  ledger *l = user;
  void *p = NULL;
  if (alignment < sizeof(void *)) alignment = sizeof(void *);
  pthread_mutex_lock(&l->lock);
  l->live++, l->total++;
  pthread_mutex_unlock(&l->lock);
  return posix_memalign(&p, alignment, bytes) ? NULL : p;
}

static void take_back(void *user, void *p) {
  ledger *l = user;
  pthread_mutex_lock(&l->lock);
  l->live -= p != NULL;
  pthread_mutex_unlock(&l->lock);
  free(p);
}

/* Contiguous f32 rows take one block a call, which describes it, and what a context takes it gives
 * back. */
static void the_callers_memory(void **state) {
  ledger l = {.lock = PTHREAD_MUTEX_INITIALIZER};
  smx_context *ctx =
      context((smx_context_options){.threads = 2, .alloc = lend, .release = take_back, .alloc_user = &l});
  assert_true(l.total > 0);
  assert_true(same(ctx));
  long before = l.total;
  for (int i = 0; i < 5; i++) assert_true(same(ctx));
  assert_in_range(l.total, before, before + 5);
  smx_context_destroy(ctx);
  assert_int_equal(l.live, 0);
}

/* ---- the floating-point environment ---- */

#if defined(__x86_64__)
#include <immintrin.h>
typedef unsigned int control;
static control read_control(void) { return _mm_getcsr(); }
static void write_control(control c) { _mm_setcsr(c); }
enum { HOSTILE = 0x1f80 | 0x8040 | 0x4000 }; /* flush to zero, denormals are zero, round up */
#elif defined(__aarch64__)
typedef uint64_t control;
static control read_control(void) {
  control c;
  __asm__ volatile("mrs %0, fpcr" : "=r"(c));
  return c;
}
static void write_control(control c) { __asm__ volatile("msr fpcr, %0" : : "r"(c)); }
enum { HOSTILE = 1 << 24 | 1 << 22 }; /* flush to zero, round up */
#else
typedef int control;
static control read_control(void) { return fegetround(); }
static void write_control(control c) { fesetround(c); }
enum { HOSTILE = FE_UPWARD };
#endif

static void environment(void **state) {
  smx_context *contexts[] = {NULL, context((smx_context_options){.threads = 3})};
  control mine = read_control();
  for (size_t i = 0; i < COUNT_OF(contexts); i++) {
    write_control(HOSTILE);
    int good = same(contexts[i]);
    smx_softmax_f32(1, 3, x, NULL); /* an error must restore it too */
    control after = read_control();
    write_control(mine);
    assert_int_equal(after & ~(control)0x3f, HOSTILE); /* without the sticky flags of x86 */
    assert_true(good);
  }
  smx_context_destroy(contexts[1]);
}

/* An argument is a pattern of tests; without one the minute of long rows is left out. */
int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(many_callers),         cmocka_unit_test(contexts_come_and_go),
      cmocka_unit_test(a_child_goes_on),      cmocka_unit_test(the_callers_threads),
      cmocka_unit_test(the_callers_memory),   cmocka_unit_test(environment),
      cmocka_unit_test(long_rows_are_shared),
  };
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  else cmocka_set_skip_filter("long_rows*");
  return cmocka_run_group_tests(tests, prepare, NULL);
}
