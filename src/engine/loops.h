/* engine/loops.h - the basis of every engine: the order in which a row is visited, spans, and the
 * runner of row programs.
 *
 * The order is the contract (docs/numerics.md, section 2). A group is GROUP = 8192 elements, eight
 * pages of 1024. It is visited in steps of 64 elements, and in each step over the eight pages,
 * because eight pages read together come from DRAM 1.6 times as fast as one after another.
 * Element q of a block of 64 belongs to lane q. Nothing here depends on the instruction set. */
#ifndef SMX_ENGINE_LOOPS_H
#define SMX_ENGINE_LOOPS_H
#include "fetch.h"
#include "program.h"
#include "math.h"

#define NOINLINE static __attribute__((noinline, unused))

/* The buffers of one row, as the real type: src[p][i] of a FULL port is element origin + i of the
 * row; *src[p] is the value of a ROW port. */
typedef struct span {
  const real *src[ROW_SRC];
  real *dst[ROW_DST];
  size_t n, origin;
  row_writing stream; /* of dst[0], which is aligned */
  /* the distance in elements at which an output and its gradient are prefetched while that is
   * written; 0 = nothing */
  ptrdiff_t ahead;
} span;

/* The next row of f16 or bf16, 16 bits an element; x: where its first input stands. */
SMI void span_next_half(const half_rows *h, int x, span *s) {
  s->src[x] = (const void *)((const uint16_t *)(const void *)s->src[x] + h->x_step);
  s->dst[0] = (void *)((uint16_t *)(void *)s->dst[0] + h->y_step);
  if (h->dy) s->src[SRC_DY] = (const void *)((const uint16_t *)(const void *)s->src[SRC_DY] + h->dy_step);
}

/* Numbers that the arithmetic of an operator needs, made of its parameters; each operator defines
 * their meaning. */
typedef struct consts {
  real v[16];
} consts;

/* For operators that have none, and for those whose only one is 1. */
SMI consts setup_plain(const row_call *c, const span *s) { return (consts){{0}}; }
SMI consts setup_one(const row_call *c, const span *s) { return (consts){{1}}; }

static inline span span_of(const row_call *c, size_t row) {
  span s = {.n = c->n, .origin = c->origin};
  for (int p = 0; p < ROW_SRC; p++)
    s.src[p] = c->src[p] ? (const real *)c->src[p] + (ptrdiff_t)row * c->src_step[p] : NULL;
  for (int p = 0; p < ROW_DST; p++)
    s.dst[p] = c->dst[p] ? (real *)c->dst[p] + (ptrdiff_t)row * c->dst_step[p] : NULL;
  return s;
}

static inline void span_next(const row_call *c, span *s) {
  for (int p = 0; p < ROW_SRC; p++)
    if (s->src[p]) s->src[p] += c->src_step[p];
  for (int p = 0; p < ROW_DST; p++)
    if (s->dst[p]) s->dst[p] += c->dst_step[p];
}

/* Loads elements i .. i + cnt - 1; lanes from cnt on are 0. cnt is LANES but at the end of a
 * row. */
SMI vreal at(const real *p, size_t i, int cnt) {
  return cnt == LANES ? v_load(p + i) : v_load_n(p + i, cnt, 0);
}
SMI void put(real *p, size_t i, int cnt, vreal x) {
  if (cnt == LANES) v_store(p + i, x);
  else v_store_n(p + i, cnt, x);
}
/* The same for the first output, which streaming stores may write. */
SMI void put_first(const span *s, size_t i, int cnt, vreal x) {
  if (s->stream && cnt == LANES) put_uncached(s->dst[0] + i, x, s->stream);
  else put(s->dst[0], i, cnt, x);
}
SMI int lanes_left(size_t left) { return left < LANES ? (int)left : LANES; }
SMI vmask lanes_below(int cnt) { return v_lt(v_iota(), v_set1((real)cnt)); }

/* The steps of a block are unrolled where that pays: its lanes stay in registers, and no counter is
 * needed (8 % of a softmax with AVX2). With NEON a block takes sixteen of 32 registers, and the
 * steps need them; a counted loop is no slower there, as far as an emulator can tell, and a third
 * of the code. Long steps need all registers with AVX2 too. */
#if SMX_REAL == 32 && defined(__AVX512F__) && !defined(V_PORTABLE)
#define UNROLL_BLOCK _Pragma("GCC unroll 4")
#define UNROLL_LONG UNROLL_BLOCK
#elif SMX_REAL == 32 && defined(__AVX2__) && !defined(V_PORTABLE)
#define UNROLL_BLOCK _Pragma("GCC unroll 4")
#define UNROLL_LONG _Pragma("GCC unroll 1")
#else
#define UNROLL_BLOCK _Pragma("GCC unroll 1")
#define UNROLL_LONG UNROLL_BLOCK
#endif

/* Rows of a page have no longer step than a softmax: written out, rows of 129 to 256 of f64 take a
 * sixth less time. */
#if SMX_REAL == 64 && defined(__AVX512F__) && !defined(V_PORTABLE)
#define UNROLL_PAGE _Pragma("GCC unroll 8")
#else
#define UNROLL_PAGE UNROLL_BLOCK
#endif

/* Visits elements base .. base + n - 1, n <= GROUP, in the order of the contract: STEP(u, i, cnt)
 * sees vector u of a block, elements i .. i + cnt - 1, which belong to lanes u * LANES and on. A
 * macro, because only a loop around local variables keeps them in registers. */
#define FOR_EACH_VECTOR_UNROLLED(unroll, base, n, STEP) \
  for (size_t step_ = 0, at_ = 0; step_ < PAGE && step_ < (n); \
       at_ = at_ + PAGE < (n) ? at_ + PAGE : (step_ += BLOCK)) \
  FOR_EACH_VECTOR_OF_BLOCK(unroll, (base) + at_, (n)-at_, STEP)
#define FOR_EACH_VECTOR_OF_BLOCK(unroll, first, left, STEP) \
  { \
    const size_t left_ = (left), from_ = (first); \
    if (left_ >= BLOCK) { \
      unroll for (int u_ = 0; u_ < VPB; u_++) STEP(u_, from_ + (size_t)u_ * LANES, LANES); \
    } else { \
      unroll for (int u_ = 0; u_ < VPB; u_++) if ((int)left_ > u_ * LANES) \
          STEP(u_, from_ + (size_t)u_ * LANES, lanes_left(left_ - (size_t)u_ * LANES)); \
    } \
  }
#define FOR_EACH_VECTOR(base, n, STEP) FOR_EACH_VECTOR_UNROLLED(UNROLL_BLOCK, base, n, STEP)
#define FOR_EACH_VECTOR_LONG(base, n, STEP) FOR_EACH_VECTOR_UNROLLED(UNROLL_LONG, base, n, STEP)

/* The same elements in the order of their indices, where the order does not matter: eight pages
 * read and eight written compete for the same sets of the first-level cache, and visiting them
 * together takes 1.5 times as long in cache and 1.8 times from memory (Zen 5, gradient
 * of softmax). */
#define FOR_EACH_VECTOR_STRAIGHT_UNROLLED(unroll, base, n, STEP) \
  for (size_t at_ = 0; at_ < (n); at_ += BLOCK) FOR_EACH_VECTOR_OF_BLOCK(unroll, (base) + at_, (n)-at_, STEP)
#define FOR_EACH_VECTOR_STRAIGHT(base, n, STEP) FOR_EACH_VECTOR_STRAIGHT_UNROLLED(UNROLL_BLOCK, base, n, STEP)
#define FOR_EACH_VECTOR_STRAIGHT_LONG(base, n, STEP) \
  FOR_EACH_VECTOR_STRAIGHT_UNROLLED(UNROLL_LONG, base, n, STEP)
/* Where only one array is read, two pages together: one core reads them faster than one page, on
 * Xeons by a quarter. */
#define FOR_EACH_VECTOR_OF_PAIR(base, n, STEP) \
  for (size_t page_ = 0; page_ < (n); page_ += 2 * PAGE) \
  FOR_EACH_VECTOR_UNROLLED(UNROLL_BLOCK, (base) + page_, (n)-page_ < 2 * PAGE ? (n)-page_ : 2 * PAGE, STEP)

/* Elements of an output before the first whole line, and behind the last. */
SMI size_t before_line(const real *y) { return (64 - (uintptr_t)y % 64) % 64 / sizeof(real); }
SMI size_t behind_line(const real *y) { return (uintptr_t)y % 64 / sizeof(real); }

/* For operators that are not fused (exp.h), whose unrolled code would multiply the size of the
 * library: u is known at run time only. Kernels of AVX-512 of f32 have two copies of STEP, whole
 * vectors in one: with cnt known at run time, short steps take a third longer. Others have one.
 * There STEP always sees u = 0, and NEXT_LANES moves the vectors of an array of sums on by one
 * after each: stores and loads of sums at u would take half of the time. NEXT_LANES_OF moves the
 * elements `at` of an array of arrays. */
#if defined(__AVX512F__) && SMX_REAL == 32 && !defined(V_PORTABLE)
#define COMPACT_LANES(u) 0
#define NEXT_LANES_OF(a, at) \
  { \
    const vreal first_ = (a)[0] at; \
    UNROLL_BLOCK for (int next_ = 1; next_ < VPB; next_++)(a)[next_ - 1] at = (a)[next_] at; \
    (a)[VPB - 1] at = first_; \
  }
#define WHOLE_LANES true
#else
#define COMPACT_LANES(u) (u)
#define NEXT_LANES_OF(a, at) \
  {}
#define WHOLE_LANES false
#endif
#define NEXT_LANES(a) NEXT_LANES_OF(a, )
/* Vectors of n elements in the order of their indices: STEP(j, cnt) sees elements j on. */
#define FOR_EACH_LANES(n, STEP) \
  { \
    size_t j_ = 0; \
    if (WHOLE_LANES) _Pragma("GCC unroll 1") for (; j_ + LANES <= (n); j_ += LANES) STEP(j_, LANES); \
    _Pragma("GCC unroll 1") for (; j_ < (n); j_ += LANES) STEP(j_, lanes_left((n)-j_)); \
  }
#define FOR_EACH_VECTOR_COMPACT(base, n, STEP, TURN) \
  for (size_t step_ = 0, at_ = 0; step_ < PAGE && step_ < (n); \
       at_ = at_ + PAGE < (n) ? at_ + PAGE : (step_ += BLOCK)) { \
    const size_t left_ = (n)-at_, from_ = (base) + at_; \
    if (WHOLE_LANES && left_ >= BLOCK) { \
      _Pragma("GCC unroll 1") for (int u_ = 0; u_ < VPB; u_++) { \
        STEP(COMPACT_LANES(u_), from_ + (size_t)u_ * LANES, LANES); \
        TURN \
      } \
    } else { \
      _Pragma("GCC unroll 1") for (int u_ = 0; u_ < VPB; u_++) { \
        if ((size_t)u_ * LANES < left_) \
          STEP(COMPACT_LANES(u_), from_ + (size_t)u_ * LANES, lanes_left(left_ - (size_t)u_ * LANES)); \
        TURN \
      } \
    } \
  }

SMI size_t group_size(size_t g, size_t n) { return n - g < GROUP ? n - g : GROUP; }

/* The first i of 0..n-1 for which hit(ctx, i, cnt) is true in some lane, or n. */
typedef vmask hit_fn(const void *ctx, size_t i, int cnt);
SMI size_t find_first(size_t n, hit_fn *hit, const void *ctx) {
  size_t i = 0;
  for (; i + BLOCK <= n; i += BLOCK) { /* one branch a block */
    vmask any = hit(ctx, i, LANES);
    UNROLL_BLOCK for (int u = 1; u < VPB; u++) any = m_or(any, hit(ctx, i + (size_t)u * LANES, LANES));
    if (m_any(any)) break;
  }
  for (; i < n; i += LANES) {
    int cnt = lanes_left(n - i);
    vmask m = m_and(hit(ctx, i, cnt), lanes_below(cnt));
    if (!m_any(m)) continue;
    return i + (size_t)v_hmin(v_select(m, v_iota(), v_set1(LANES)));
  }
  return n;
}

/* Writes one value over a whole output. */
SMI void fill(real *y, size_t n, real value) {
  for (size_t i = 0; i < n; i++) y[i] = value;
}

/* ---- row programs over rows in memory (program.c) ---- */

enum { RUN = 8 }; /* groups in a run: their parts are on the stack */

/* run_pass: one pass over one row; run_program: all passes, true when the row is empty; row_at:
 * row r of a call as a call of its own; run_row: row r through its program; run_rows: all rows. */
#define run_pass SMX_FN(run_pass)
#define run_program SMX_FN(run_program)
#define row_at SMX_FN(row_at)
#define run_row SMX_FN(run_row)
#define run_rows SMX_FN(run_rows)
#define row_half_at SMX_FN(row_half_at)
#define run_half_row SMX_FN(run_half_row)
void run_pass(const row_kernel *k, row_call *row, row_state *st);
bool run_program(const row_kernel *k, row_call *row);
row_call row_at(const row_call *c, size_t r);
void run_row(const row_kernel *k, row_call *c, size_t r);
/* The same where input 0 is of f16 or bf16, its step in such elements (row_forms.from_half). */
row_call row_half_at(const row_call *c, size_t r);
void run_half_row(const row_kernel *k, row_call *c, size_t r);
void run_rows(const row_kernel *k, row_call *c); /* for row_engine.rows, where there is no faster path */

/* An operator with a row program of its own. rows NULL: run_rows. Without a pass, it has rows only:
 * it needs whole rows. */
typedef struct row_program {
  void (*begin)(const row_call *c, row_state *st);
  void (*pass)(const row_call *c, row_state *st, row_part *parts);
  void (*merge)(const row_call *c, row_state *st, const row_part *parts, size_t count);
  bool (*next)(const row_call *c, row_state *st);
  void (*rows)(row_call *c);
} row_program;
/* NAME(st): the struct in which a program of an operator's own keeps what it needs from pass to
 * pass. Its begin() sets it. */
#define ROW_OWN_STATE(type, name) \
  SMI type *name(const row_state *st) { \
    _Static_assert(sizeof(type) <= sizeof st->own, "row_state.own has no room for it"); \
    return (type *)(void *)(uintptr_t)st->own; \
  }
#define program_engine SMX_FN(program_engine)
#define whole_engine SMX_FN(whole_engine)
extern const row_engine program_engine, whole_engine;
#define PROGRAM(name) \
  { \
    .engine = &program_engine, .body = &(const row_program) { \
      name##_begin, name##_pass, name##_merge, name##_next, NULL \
    } \
  }
#define PROGRAM_WITH_ROWS(name) \
  { \
    .engine = &program_engine, .body = &(const row_program) { \
      name##_begin, name##_pass, name##_merge, name##_next, name##_rows \
    } \
  }
#define WHOLE_ROWS(rows_) \
  { \
    .engine = &whole_engine, .body = &(const row_program) { .rows = rows_ } \
  }

/* An operator that is one kernel or another, as its parameters say; port: the input whose value may
 * be a row's own, or -1. */
typedef struct row_choice {
  const row_kernel *(*dispatch)(const row_call *c);
  int port;
} row_choice;
#define choice_engine SMX_FN(choice_engine)
extern const row_engine choice_engine;

/* A kernel that gets another call than the operator: with parameters of its own, or with another
 * row as its first input. */
enum { ROW_SETTINGS = 8 };
typedef struct row_adapter {
  const row_kernel *inner;
  row_call (*call)(const row_call *c, double *settings);
  bool by_row; /* the call differs from row to row */
} row_adapter;
#define adapter_engine SMX_FN(adapter_engine)
extern const row_engine adapter_engine;

#define OPERATOR(name, forward, backward) OPERATOR_WITH(name, forward, backward, 0, 0)
#define FORWARD_OPERATOR(name, forward) FORWARD_OPERATOR_WITH(name, forward, 0, 0)
/* With so many numbers of row_state.list, and bytes of row_call.work. */
#define OPERATOR_WITH(name, forward, backward, list, work) \
  const row_pair SMX_FN(op_##name) = {&forward##_kernel, &backward##_kernel, list, work};
#define FORWARD_OPERATOR_WITH(name, forward, list, work) \
  const row_pair SMX_FN(op_##name) = {&forward##_kernel, NULL, list, work};

#endif
