/* every.c - proves of every public function, and of every operator through smx_forward and
 * smx_backward, that
 *   names    it is a case here: one of the public headers that is not is refused;
 *   modes    the caller's rounding, flush-to-zero and traps change no byte, and stay as they were;
 *   memory   whichever allocation fails, the status is SMX_ERR_NOMEM and no output is touched;
 *   stack    it takes at most 16 KB of stack, and runs on a thread of 64;
 *   cancel   a thread that is cancelled finishes its call first, and its context can be freed. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu/cpu.h"
#include "every.h"
#include "unit.h"

enum { NAMES = 128, FAULTS_SHOWN = 400 };
static int faults;

static void fault(const stage *s, const every_case *c, const char *what) {
  if (faults++ < FAULTS_SHOWN)
    printf("%s: %s %s, %s, %lld x %lld, variant %d, %s: %s\n", s->function ? s->function : "", c->name,
           s->op ? s->op->name : "",
           s->t.code == 4    ? "bf16"
           : s->t.bits == 16 ? "f16"
           : s->t.bits == 32 ? "f32"
                             : "f64",
           (long long)s->rows, (long long)s->n, s->variant, smx_isa_name(), what);
}

/* ---- every case there is ---- */

typedef void visit_fn(stage *s, const every_case *c);
typedef struct extent {
  int64_t rows, n;
} extent;
static const extent small[] = {{5, 19}}, large[] = {{5, 19}, {30, 3000}, {2, 40000}};

#ifndef LARGE_STEP
#define LARGE_STEP 2 /* large rows in f32 and f16; under a sanitizer in f32 alone */
#endif
static void visit_dtypes(stage *s, const every_case *c, visit_fn *visit) {
  const int step = c->kind == CASE_OPERATOR && s->n > 1000 ? LARGE_STEP : 1;
  for (int t = 0; t < (c->kind == CASE_ONCE ? 1 : FLOAT_DTYPES); t += step) {
    s->t = float_dtypes[t];
    s->function = NULL;
    visit(s, c);
  }
}
/* Large rows with every optional input alone: making them is what takes the time. */
static void visit_operators(stage *s, const every_case *c, visit_fn *visit) {
  for (size_t i = 0; i < row_op_count(); i++)
    for (s->variant = s->n > 1000; s->variant < 2; s->variant++) {
      s->op = smx_op_at(i);
      visit_dtypes(s, c, visit);
    }
  s->op = NULL, s->variant = 0;
}

static void for_every(stage *s, visit_fn *visit, const extent *extents, size_t count) {
  const every_case *tables[] = {every_calls, every_attention};
  const size_t sizes[] = {every_calls_count, every_attention_count};
  for (int t = 0; t < 2; t++)
    for (size_t i = 0; i < sizes[t]; i++)
      for (size_t e = 0; e < (tables[t][i].kind < CASE_ROWS ? 1 : count); e++) {
        s->rows = extents[e].rows, s->n = extents[e].n;
        if (tables[t][i].kind == CASE_OPERATOR) visit_operators(s, tables[t] + i, visit);
        else visit_dtypes(s, tables[t] + i, visit);
      }
}

static unsigned char *memory(void) {
  unsigned char *p = malloc(STAGE_BYTES);
  if (!p) abort();
  return p;
}
static void prove(const char *what, smx_context *ctx, const proof *p, visit_fn *visit, const extent *extents,
                  size_t count) {
  stage s = {.ctx = ctx, .proof = p, .in = memory(), .out = memory()};
  faults = 0;
  for_every(&s, visit, extents, count);
  free(s.in), free(s.out);
  if (faults) fail_msg("%s: %d faults", what, faults);
}

static void nothing(stage *s) {}
static const proof no_proof = {nothing, nothing};

/* Runs a case and says whether it called anything. */
static bool run(stage *s, const every_case *c) {
  stage_open(s);
  s->function = NULL;
  c->run(s);
  return s->function != NULL;
}

/* The results of a plain run; false when there is no call. */
typedef struct kept {
  unsigned char *bytes;
  size_t count;
} kept;
static bool plain_run(stage *s, const every_case *c, kept *k) {
  const proof *p = s->proof;
  s->proof = &no_proof;
  const bool called = run(s, c);
  s->proof = p;
  if (!called) return false;
  if (s->status != SMX_OK) {
    fault(s, c, smx_last_error());
    return false;
  }
  *k = (kept){malloc(s->out_used + 1), s->out_used};
  if (!k->bytes) abort();
  memcpy(k->bytes, s->out, s->out_used);
  return true;
}
static bool same_bytes(const stage *s, const kept *k) {
  return s->out_used == k->count && !memcmp(s->out, k->bytes, k->count);
}

static smx_context *context(smx_context_options o) {
  smx_context *ctx = NULL;
  o.size = sizeof o;
  assert_int_equal(smx_context_create(&o, &ctx), SMX_OK);
  return ctx;
}

/* ---- names ---- */

static const char *called[NAMES];
static int called_count;
static void note_name(stage *s, const every_case *c) {
  if (!run(s, c)) return;
  for (int i = 0; i < called_count; i++)
    if (!strcmp(called[i], s->function)) return;
  if (called_count < NAMES) called[called_count++] = s->function;
}

/* The name in front of the first parenthesis of a declaration. */
static bool declared(const char *line, char *name, size_t size) {
  const char *end = strchr(line, '(');
  if (strncmp(line, "SMX_API ", 8) || !end) return false;
  const char *from = end;
  while (from > line && (isalnum((unsigned char)from[-1]) || from[-1] == '_')) from--;
  snprintf(name, size, "%.*s", (int)(end - from), from);
  return true;
}

static const char *const headers[] = {
    SMX_SOURCE_DIR "/include/softmax.h", SMX_SOURCE_DIR "/include/softmax/attention.h",
    SMX_SOURCE_DIR "/include/softmax/sampling.h", SMX_SOURCE_DIR "/include/softmax/matrix.h"};

static void names(void **state) {
  char line[512], name[128];
  int missing = 0, found = 0;
  prove("names", NULL, &no_proof, note_name, small, 1);
  for (size_t part = 0; part < sizeof headers / sizeof *headers; part++) {
    FILE *f = fopen(headers[part], "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
      if (!declared(line, name, sizeof name)) continue;
      int i = 0;
      while (i < called_count && strcmp(called[i], name)) i++;
      found++;
      if (i < called_count) continue;
      missing++;
      printf("%s is no case of every_calls.c or every_attention.c\n", name);
    }
    fclose(f);
  }
  assert_true(found > 50);
  assert_int_equal(missing, 0);
}

/* ---- modes ---- */

#if defined(__x86_64__)
#include <immintrin.h>
typedef struct control {
  unsigned sse;
  fenv_t rest;
} control;
static control read_control(void) {
  control c = {.sse = _mm_getcsr() & ~0x3fu};
  fegetenv(&c.rest);
  return c;
}
static void write_control(const control *c) {
  fesetenv(&c->rest);
  _mm_setcsr(c->sse);
}
static bool same_control(const control *a, const control *b) { return a->sse == b->sse; }
enum { FLUSH = 0x8000, ZERO_INPUTS = 0x40 };
static void flush(int bits) { _mm_setcsr(_mm_getcsr() | (unsigned)bits); }
#elif defined(__aarch64__)
typedef struct control {
  uint64_t fpcr;
} control;
static control read_control(void) {
  control c;
  __asm__ volatile("mrs %0, fpcr" : "=r"(c.fpcr));
  return c;
}
static void write_control(const control *c) { __asm__ volatile("msr fpcr, %0" : : "r"(c->fpcr)); }
static bool same_control(const control *a, const control *b) { return a->fpcr == b->fpcr; }
enum { FLUSH = 1 << 24, ZERO_INPUTS = 1 << 19 };
static void flush(int bits) {
  control c = read_control();
  c.fpcr |= (uint64_t)bits;
  write_control(&c);
}
#else
typedef struct control {
  int round;
} control;
static control read_control(void) { return (control){fegetround()}; }
static void write_control(const control *c) { fesetround(c->round); }
static bool same_control(const control *a, const control *b) { return a->round == b->round; }
enum { FLUSH, ZERO_INPUTS };
static void flush(int bits) {}
#endif

static const struct mode {
  const char *name;
  int round, flush;
  bool traps;
} modes[] = {
    {"downward", FE_DOWNWARD, 0, false},
    {"upward", FE_UPWARD, 0, false},
    {"toward zero", FE_TOWARDZERO, 0, false},
    {"flushed", FE_TONEAREST, FLUSH, false},
    {"zeros", FE_TONEAREST, ZERO_INPUTS, false},
    {"all of it", FE_UPWARD, FLUSH | ZERO_INPUTS, false},
    {"traps", FE_TONEAREST, 0, true},
};
static const struct mode *mode;
static control mine, theirs;
static bool changed;
static sigjmp_buf trapped;
static pthread_t caller;

static void enter_mode(stage *s) {
  mine = read_control();
  fesetround(mode->round);
  flush(mode->flush);
  feclearexcept(FE_ALL_EXCEPT);
  if (mode->traps) feenableexcept(FE_ALL_EXCEPT);
  theirs = read_control();
}
static void leave_mode(stage *s) {
  const control now = read_control();
  changed = !same_control(&now, &theirs);
  write_control(&mine);
}
static void on_trap(int signal_) {
  if (!pthread_equal(pthread_self(), caller)) _exit(99); /* a worker */
  write_control(&mine);
  siglongjmp(trapped, 1);
}

static void try_modes(stage *s, const every_case *c) {
  kept k;
  char what[64];
  if (!plain_run(s, c, &k)) return;
  for (size_t i = 0; i < COUNT_OF(modes); i++) {
    mode = modes + i;
    if (sigsetjmp(trapped, 1)) {
      snprintf(what, sizeof what, "SIGFPE");
    } else {
      run(s, c);
      snprintf(what, sizeof what, "%s: %s", mode->name,
               s->status ? "another status"
               : changed ? "not restored"
                         : "other bytes");
      if (s->status == SMX_OK && !changed && same_bytes(s, &k)) continue;
    }
    fault(s, c, what);
  }
  free(k.bytes);
}

static void modes_with(smx_context *ctx, int isas) {
  const proof p = {enter_mode, leave_mode};
  caller = pthread_self();
  struct sigaction on = {.sa_handler = on_trap}, before;
  sigaction(SIGFPE, &on, &before);
  for (int i = 0; i < isas; i++) {
    smx_isa_set(smx_isa_at(i));
    prove("modes", ctx, &p, try_modes, small, 1);
  }
  smx_isa_set(smx_isa_at(0));
  sigaction(SIGFPE, &before, NULL);
}
static void modes_alone(void **state) { modes_with(NULL, smx_isa_count()); }
static void modes_of_workers(void **state) {
  smx_context *ctx = context((smx_context_options){.threads = 3});
  modes_with(ctx, 1);
  smx_context_destroy(ctx);
}

/* Numbers in error lines are made by libc, which may round as yet another control word says. */
static void modes_of_error_lines(void **state) {
  static const double wrong[] = {0.9, -0.9, 1e30 / 3, -1e300, 2e307 / 3, 1.0000005};
  stage s = {0};
  int lines = 0, others = 0;
  for (size_t i = 0; i < smx_op_count() * COUNT_OF(wrong); i++) {
    const smx_op *op = smx_op_at(i / COUNT_OF(wrong));
    smx_params p;
    char plain[512];
    for (int32_t k = 0; k < op->param_count; k++) {
      smx_params_init(op, &p);
      if (smx_params_set(op, &p, op->params[k].name, wrong[i % COUNT_OF(wrong)]) == SMX_OK) continue;
      snprintf(plain, sizeof plain, "%s", smx_last_error());
      for (size_t m = 0; m < COUNT_OF(modes); m++) {
        mode = modes + m;
        enter_mode(&s);
        smx_params_set(op, &p, op->params[k].name, wrong[i % COUNT_OF(wrong)]);
        leave_mode(&s);
        lines++;
        if (!strcmp(plain, smx_last_error()) && !changed) continue;
        if (others++ < 5) printf("%s: '%s', not '%s'\n", mode->name, smx_last_error(), plain);
      }
    }
  }
  assert_true(lines > 1000);
  assert_int_equal(others, 0);
}

/* ---- memory ---- */

static _Atomic int64_t asked, refuse; /* the number of the allocation that fails, from 0; -1: none */
static _Atomic int64_t live;
static bool counting;

static bool refused(void) { return counting && asked++ == refuse; }

/* The library allocates by these; the linker sends its calls here. */
int __real_posix_memalign(void **to, size_t alignment, size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_malloc(size_t bytes);
int __wrap_posix_memalign(void **to, size_t alignment, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_malloc(size_t bytes);
int __wrap_posix_memalign(void **to, size_t alignment, size_t bytes) {
  return refused() ? ENOMEM : __real_posix_memalign(to, alignment, bytes);
}
void *__wrap_calloc(size_t count, size_t bytes) { return refused() ? NULL : __real_calloc(count, bytes); }
void *__wrap_malloc(size_t bytes) { return refused() ? NULL : __real_malloc(bytes); }

static void *lend(void *user, size_t bytes, size_t alignment) {
  void *p = NULL;
  if (posix_memalign(&p, alignment, bytes ? bytes : 1)) return NULL;
  live++;
  return p;
}
static void take_back(void *user, void *p) {
  live--;
  free(p);
}

static void count_from_here(stage *s) {
  asked = 0;
  counting = true;
}
static void count_no_more(stage *s) { counting = false; }

static void refuse_each(stage *s, const every_case *c) {
  kept before;
  const int64_t held = live;
  refuse = -1;
  if (!plain_run(s, c, &before)) return;
  free(before.bytes);
  for (int64_t at = 0; at < 40; at++) {
    /* outputs that a call before has filled are part of what must stay: the case without its last
     * call */
    refuse = at;
    run(s, c);
    if (asked <= at) break;
    if (s->status != SMX_ERR_NOMEM)
      fault(s, c, s->status == SMX_OK ? "SMX_OK without memory" : smx_last_error());
    else if (s->own && memcmp(s->own, s->out, s->out_used)) fault(s, c, "written, then SMX_ERR_NOMEM");
    if (live != held) fault(s, c, "memory kept");
  }
}

/* Outputs as they are before the call, beside what it makes of them. */
static void keep_outputs(stage *s) {
  memcpy(s->own, s->out, s->out_used);
  count_from_here(s);
}
static void memory_with(smx_context *ctx) {
  const proof p = {keep_outputs, count_no_more};
  stage s = {.ctx = ctx, .proof = &p, .in = memory(), .out = memory(), .own = memory()};
  faults = 0;
  for_every(&s, refuse_each, large, COUNT_OF(large));
  free(s.in), free(s.out), free(s.own);
  if (faults) fail_msg("memory: %d faults", faults);
}
static void memory_alone(void **state) { memory_with(NULL); }
static void memory_of_contexts(void **state) {
  smx_context *ctx = context((smx_context_options){.threads = 3, .alloc = lend, .release = take_back});
  memory_with(ctx);
  smx_context_destroy(ctx);
}

/* ---- stack ---- */

/* ALIGNED: what the same call takes more where the caller's stack does not end at a cache line, to
 * which frames of vectors are aligned. */
enum { STACK_MOST = 16 << 10, ALIGNED = 63, PAINT = 256 << 10, PAINT_WITH = 0x5c, SMALL_STACK = 64 << 10 };
static uintptr_t stack_low, stack_top;
static size_t deepest;

static __attribute__((noinline)) void paint(void) {
  volatile unsigned char area[PAINT];
  for (size_t i = 0; i < sizeof area; i++) area[i] = PAINT_WITH;
  stack_low = (uintptr_t)area;
}
static void paint_stack(stage *s) {
  paint();
  stack_top = (uintptr_t)__builtin_frame_address(0);
}
static __attribute__((noinline)) void measure_stack(stage *s) {
  const volatile unsigned char *low = (const volatile unsigned char *)stack_low;
  size_t clean = 0;
  while (clean < PAINT && low[clean] == PAINT_WITH) clean++;
  deepest = stack_top - (stack_low + clean);
}

static void try_stack(stage *s, const every_case *c) {
  char what[64];
  deepest = 0;
  run(s, c); /* what the linker resolves */
  if (!run(s, c)) return;
  if (getenv("SMX_TEST_STACKS"))
    printf("%zu %s %s %s %s\n", deepest, smx_isa_name(), s->function, c->name, s->op ? s->op->name : "");
  if (deepest <= STACK_MOST + ALIGNED) return;
  snprintf(what, sizeof what, "%zu bytes of stack", deepest);
  fault(s, c, what);
}

typedef struct visiting {
  stage *s;
  const every_case *c;
} visiting;
static void *run_there(void *arg) {
  visiting *v = arg;
  run(v->s, v->c);
  return NULL;
}
static void on_a_small_stack(stage *s, const every_case *c) {
  visiting v = {s, c};
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, SMALL_STACK);
  assert_int_equal(pthread_create(&thread, &attributes, run_there, &v), 0);
  pthread_join(thread, NULL);
  pthread_attr_destroy(&attributes);
  if (s->function && s->status != SMX_OK) fault(s, c, smx_last_error());
}

static void stacks_with(smx_context *ctx, int isas) {
  const proof p = {paint_stack, measure_stack};
  for (int i = 0; i < isas; i++) {
    smx_isa_set(smx_isa_at(i)); /* long rows take minutes with portable kernels */
    prove("stack", ctx, &p, try_stack, large, strcmp(smx_isa_at(i), "portable") ? COUNT_OF(large) : 1);
  }
  smx_isa_set(smx_isa_at(0));
  prove("a thread of 64 KB", ctx, &no_proof, on_a_small_stack, large, COUNT_OF(large));
}
static void stack_alone(void **state) { stacks_with(NULL, smx_isa_count()); }
static void stack_of_callers(void **state) {
  smx_context *ctx = context((smx_context_options){.threads = 3});
  stacks_with(ctx, 1);
  smx_context_destroy(ctx);
}

/* ---- cancel ---- */

static bool returned;
static void cancel_me(stage *s) { pthread_cancel(pthread_self()); }
static void came_back(stage *s) { returned = true; }
static void *run_cancelled(void *arg) {
  visiting *v = arg;
  run(v->s, v->c);
  pthread_testcancel();
  return NULL;
}

/* Allocators and loops of the caller's may be places where a thread is cancelled. */
static void *lend_slowly(void *user, size_t bytes, size_t alignment) {
  pthread_testcancel();
  return lend(user, bytes, alignment);
}
static void loop_slowly(void *user, int64_t count, void (*task)(void *arg, int64_t i), void *arg) {
  for (int64_t i = 0; i < count; i++) {
    pthread_testcancel();
    task(arg, i);
  }
}

static const smx_context_options cancel_options[] = {
    {.threads = 3},
    {.threads = 1, .alloc = lend_slowly, .release = take_back},
    {.threads = 2, .parallel_for = loop_slowly},
};
static const smx_context_options *cancelled_with;

/* Under a sanitizer, where all of it takes minutes, each call meets one of the contexts. */
#ifndef CANCEL_STEP
#define CANCEL_STEP 1
#endif
static size_t cancel_visits;

static void try_cancel(stage *s, const every_case *c) {
  if ((cancel_visits++ + (size_t)(cancelled_with - cancel_options)) % CANCEL_STEP) return;
  const proof p = {cancel_me, came_back};
  kept k;
  visiting v = {s, c};
  pthread_t thread;
  void *end;
  if (!plain_run(s, c, &k)) return;
  s->proof = &p;
  s->ctx = context(*cancelled_with);
  returned = false;
  alarm(120); /* a call that hangs ends with a signal */
  assert_int_equal(pthread_create(&thread, NULL, run_cancelled, &v), 0);
  pthread_join(thread, &end);
  alarm(0);
  s->proof = &no_proof;
  if (!returned) fault(s, c, "cancelled inside");
  else if (end != PTHREAD_CANCELED) fault(s, c, "no longer cancelled");
  else if (!same_bytes(s, &k)) fault(s, c, "other bytes");
  if (returned) smx_context_destroy(s->ctx);
  s->ctx = NULL;
  free(k.bytes);
}
static void cancel(void **state) {
  static const extent one[] = {{30, 3000}};
  for (size_t i = 0; i < COUNT_OF(cancel_options); i++) {
    cancelled_with = cancel_options + i, cancel_visits = 0;
    prove("cancel", NULL, &no_proof, try_cancel, one, 1);
  }
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names),
      cmocka_unit_test(modes_alone),
      cmocka_unit_test(modes_of_workers),
      cmocka_unit_test(modes_of_error_lines),
      cmocka_unit_test(memory_alone),
      cmocka_unit_test(memory_of_contexts),
      cmocka_unit_test(stack_alone),
      cmocka_unit_test(stack_of_callers),
      cmocka_unit_test(cancel),
  };
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
