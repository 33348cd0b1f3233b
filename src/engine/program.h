/* engine/program.h - how an operator runs, as the rest of the library sees it.
 *
 * A kernel runs over rows of one real type (float or double) whose elements are contiguous. It is a
 * row program: a few passes over the row, each reading the row group by group in a fixed order,
 * with a step between passes that turns sums into scalars. rows() runs the passes for rows in
 * memory; the driver (src/driver) runs them for rows that must be converted, are strided or are
 * split among threads:
 *
 *     begin(call, state);
 *     do  for each run of groups: pass(call, state, parts),
 *                             then merge(call, state, parts, count) in index order
 *     while (next(call, state)); */
#ifndef SMX_ENGINE_PROGRAM_H
#define SMX_ENGINE_PROGRAM_H
#include <softmax.h>
#include <stdbool.h>

/* The buffers of a call. Forward: src = inputs, dst = outputs. Backward: src = inputs, then output
 * o at SRC_Y + o and its upstream gradient at SRC_DY + o; dst = gradients of the inputs. Absent
 * ones are NULL. Element i of a row is at p[i - origin] of a FULL or COLUMN port; a ROW or K port
 * points at the row's value or k values, is written by rows() or the last next(), and is not to be
 * written by pass(). They hold the real type, or int64_t where the port has SMX_PORT_INT. */
enum {
  ROW_OUTS = 4,
  SRC_Y = SMX_MAX_PORTS,
  SRC_DY = SRC_Y + ROW_OUTS,
  ROW_SRC = SRC_DY + ROW_OUTS,
  ROW_DST = SMX_MAX_PORTS,
  ROW_GROUP = 8192,
  ROW_STRIP = 16384
};

/* Scratch memory for a strip of rows side by side: 64 lanes of each, and what else is kept of a
 * row. */
static inline size_t row_strip_room(size_t bytes) { return 72 * (bytes + 64); }

/* Elements up to which a row of f16 or bf16 is widened, so that several are computed at a time:
 * where softmax writes weights, and where logarithms of sums are wanted; up to which its terms are
 * kept; and up to which those of two rows are. The terms of longer rows are computed twice. */
enum { ROW_HALF_WIDENED = 256, ROW_HALF_LOG = 1536, ROW_HALF = 196608 };
static inline size_t row_half_place(size_t n) { return (n + 63) / 64 * 64; }
static inline bool row_half_two(size_t n) { return n <= ROW_HALF / 4; }
static inline size_t row_half_scratch(size_t n) {
  return n > ROW_HALF ? 0 : row_half_place(n) * (row_half_two(n) ? 2 : 1);
}

/* The terms of a row are kept if they take at most so many bytes and streaming stores write the
 * output: in the second-level cache, or near it. */
enum { ROW_TERMS = 786432 };

/* The code path of softmax; only speed depends on it. PLAN_STAGED: fused operators run staged, for
 * tests. */
typedef enum row_plan { PLAN_AUTO, PLAN_CACHE, PLAN_SCRATCH, PLAN_STREAM, PLAN_STAGED, PLAN_COUNT } row_plan;

/* How an output is written. WRITE_CACHED: the caches hold it. Others do not fit them:
 * WRITE_PREFETCHED prefetches each line before its store, WRITE_STREAMING uses non-temporal
 * stores. */
typedef enum row_writing { WRITE_CACHED, WRITE_PREFETCHED, WRITE_STREAMING } row_writing;

typedef struct row_call {
  size_t n;    /* length of the row */
  size_t rows; /* for rows() */
  const void *src[ROW_SRC];
  void *dst[ROW_DST];
  /* which of src and dst the whole call has, a bit each; next() gets no FULL ones */
  uint32_t inputs, outputs;
  ptrdiff_t src_step[ROW_SRC], dst_step[ROW_DST]; /* from row to row, in elements of the real type */
  /* pass() covers elements start .. start + count - 1; start is a multiple of ROW_GROUP */
  size_t origin, start, count;
  const double *params;
  double share;       /* the factor of a gradient that is an output: its row's part in the reduced loss */
  double share_other; /* the same of rows of another set, which a mean takes apart */
  smx_on_empty on_empty;
  smx_on_inf on_inf;
  row_plan plan;
  row_writing writing;
  /* memory for the terms of a row, and as many real elements before it; NULL = none */
  void *terms;
  ptrdiff_t terms_step;
  /* memory of the thread, as row_pair asks: row_state.list of a row, and a work area of passes;
   * NULL = none. It is not on the stack, of which a public function takes 16 KB at most. */
  double *list;
  void *work;
  int64_t first_empty; /* with SMX_EMPTY_ERROR: the first row with nothing valid, or -1; set by rows() */
} row_call;

enum {
  ROW_SUMS = 4,
  ROW_STAGES = 6,
  ROW_COEFS = 8,
  ROW_FOUND = 6,
  ROW_LIST = 2048 /* of a list the most */,
  ROW_OWN = 128
};

/* The contribution of one group of a row. */
typedef struct row_part {
  union {
    struct {
      /* lane sums, relative to 2^scale_exp; `other` without the row's first largest element */
      double sum, sum2, other, scale_exp;
    };
    double sums[ROW_SUMS]; /* of a loss, in stages of its own */
  };
  double max, low;     /* low: the smallest score that was not flushed */
  double top_l, top_x; /* of the first largest element: low part of its score, and its x */
  int64_t index;       /* of the first element that was looked for, or -1 */
  bool nan;
  bool hit; /* the row's target is here: target_inputs holds the inputs at it */
  double target_inputs[SMX_MAX_PORTS];
} row_part;

/* The sums of a row of scores, for an operator that continues with them. */
typedef struct row_side {
  double shift, scale_exp, tiny, inv, one, top, top_l, log1p, max, sum_without_max;
  int64_t index;
} row_side;

/* What a loss keeps from one stage to the next (loss/rows.h). */
typedef struct row_kept {
  row_side side[2];
  double total[ROW_STAGES][ROW_SUMS], target_inputs[SMX_MAX_PORTS], coef[ROW_COEFS], at_target, fill;
} row_kept;

/* ---- the state of a row program: one struct an engine ---- */

/* exp_program.c. Sums are relative to 2^scale_exp, scores are those of x - shift. */
typedef struct exp_state {
  double scale_exp, shift;
  double max, low;        /* the largest score, and the smallest that was not flushed */
  double sum, other;      /* of the terms; `other` without the first largest element */
  double moment, spread;  /* exp_body.moment and .spread, summed */
  double infinite, valid; /* how many elements are +inf, and how many are above -inf */
  double fill;            /* the value of a pass that writes one value everywhere */
  double top_l, top_x;    /* of the first largest element: low part of its score, and its x */
  int64_t index;          /* and its index, or -1 */
} exp_state;

/* reduce_map.c. */
typedef struct reduce_state {
  double sum, sum2, more, more2; /* of reduce_map_body.sums and .more */
  double max, low, valid;        /* of the minmax pass */
  double post;                   /* the sum that the write loop makes */
  double fill;                   /* the value of a pass that writes one value everywhere */
  double found[ROW_FOUND];       /* what an engine around this one leaves for its constants */
  int64_t index;                 /* that `sums` looks for, or -1 */
} reduce_state;

/* The search for a number in a bracket, on a list of elements or by passes over the row:
 * threshold.c and budget_sparsemax, which run the passes of reduce_map.c before and after it. */
typedef struct search_state {
  double at, low, high; /* the point of the next sums, and the bracket */
  int steps;
  double sum, slope; /* at that point */
  double smallest;   /* element of the row */
  /* threshold.c: whether elements are counted from the edge, and what is known while it is found */
  bool edged;
  double top, bound, tried, edge, whole, weight;
  uint64_t count; /* of the list; more than it holds: passes over the row */
} search_state;

/* radix_select.c. */
typedef struct select_state {
  uint64_t key, want; /* the known digits of the key; how many elements are still to be found */
  int unknown;        /* bits of the key */
  /* loss/teacher_topk.h selects by mass: the largest element, the mass above the known digits, and
   * the most that is selected */
  double top, above, most;
} select_state;

/* logcumsumexp.c. */
typedef struct cumulative_state {
  double max, sum;      /* so far; backward: sum of the upstream gradients */
  double next;          /* y of the element after the next block */
  bool valid, infinite; /* whether an element is above -inf, and whether one is +inf */
  double fill;
} cumulative_state;

/* The state of a row: what every engine has, what one stage leaves to the next, and the state of
 * the engine that is running. */
typedef struct row_state {
  int mode;    /* which pass; private to the engine */
  bool writes; /* this pass writes dst */
  /* this pass takes the runs of groups from last to first; a serial one the groups and elements
   * too */
  bool reverse;
  bool serial;    /* runs of this pass follow one another: it carries state from run to run */
  bool empty;     /* nothing valid in the row */
  bool nan;       /* a NaN was seen */
  int stage;      /* of an operator that runs one engine after another */
  double note[4]; /* what the first kernel of a compose engine leaves to the second */
  struct row_cutoff {
    double value;  /* the smallest that is kept */
    int64_t limit; /* elements equal to it are kept up to this index */
  } cutoff;        /* what a selection leaves */
  union {
    row_kept kept;
    double own[ROW_OWN]; /* of an operator with a program of its own: ROW_OWN_STATE */
  };
  union {
    exp_state exp;
    struct {
      reduce_state reduce;
      search_state search;
    };
    select_state select;
    cumulative_state cumulative;
  };
  /* numbers that an engine or an operator with a program of its own collects, as many as row_pair
   * says, of whoever made the state; NULL: none */
  union {
    double *list;
    uint64_t *histogram;
  };
} row_state;

/* Storage types as the conversions number them; only the first four can be stored to. A mask is
 * loaded as 0 (keep) or -inf (drop). */
typedef enum row_store {
  STORE_F16,
  STORE_BF16,
  STORE_F32,
  STORE_F64,
  STORE_MASK,
  STORE_I32,
  STORE_I64
} row_store;

/* The storage type of a dtype that the library takes. */
static inline row_store row_store_of(smx_dtype t) {
  if (t.code == 4) return STORE_BF16;
  if (t.code == 2) return t.bits == 16 ? STORE_F16 : t.bits == 32 ? STORE_F32 : STORE_F64;
  return t.bits == 8 ? STORE_MASK : t.bits == 32 ? STORE_I32 : STORE_I64;
}

/* Contiguous rows of n elements of f16 or bf16 that are computed without a converted copy. In a
 * gradient x holds the weights. */
typedef struct half_rows {
  row_store type;
  size_t rows, n;
  const void *x, *dy;
  void *y;
  ptrdiff_t x_step, dy_step, y_step;
  row_writing writing;
  void *scratch; /* row_half_scratch(n) reals, aligned to 64 bytes */
} half_rows;

/* The arithmetic of an operator, and the engine that runs it. */
typedef struct row_kernel row_kernel;

/* Runs the row programs of one kind. body: the description of an operator of that kind. */
typedef struct row_engine {
  void (*begin)(const void *body, const row_call *c, row_state *st);
  /* writes to st only when st->serial */
  void (*pass)(const void *body, const row_call *c, row_state *st, row_part *parts);
  void (*merge)(const void *body, const row_call *c, row_state *st, const row_part *parts, size_t count);
  bool (*next)(const void *body, const row_call *c, row_state *st);
  void (*rows)(const row_kernel *kernel, row_call *c); /* all rows of a call in memory */
} row_engine;

/* Ways of a kernel with rows that others find converted or side by side; NULL: there is none. */
typedef struct row_forms {
  int64_t widened; /* elements up to which rows of f16 and bf16 are widened although there is a way */
  int64_t whole;   /* elements up to which two or three threads do not share a row */
  /* Rows that lie side by side, at most ROW_STRIP bytes of them: element i of row r is
   * x[i * pitch + r]. scratch: row_strip_room(bytes of them, in whole vectors), aligned. False,
   * with nothing written, when a row needs a rule. */
  bool (*columns)(const row_call *c, size_t count, const void *x, ptrdiff_t x_pitch, void *y,
                  ptrdiff_t y_pitch, void *scratch);
  /* Returns how many rows are done: those before the first that needs a rule, of which nothing is
   * written. */
  size_t (*half)(const half_rows *h);
  /* The kernels that take rows of f16, and of bf16, as input 0 as they are, whose step is in such
   * elements. */
  const row_kernel *from_half[2];
  bool (*half_takes)(const row_call *c); /* whether these two ways are for a call; NULL: for any */
} row_forms;

struct row_kernel {
  const row_engine *engine; /* an engine without a pass needs whole rows, and scratch memory */
  const void *body;
  const row_forms *forms; /* NULL = none */
};

/* An operator: its kernels, and what memory they need beside the rows: numbers of row_state.list,
 * and bytes of row_call.work, aligned to 64. */
typedef struct row_pair {
  const row_kernel *forward, *backward; /* backward NULL: there is no gradient */
  size_t list, work;
} row_pair;

static inline bool row_has_program(const row_kernel *k) { return k->engine->pass != NULL; }
static inline void row_begin(const row_kernel *k, const row_call *c, row_state *st) {
  k->engine->begin(k->body, c, st);
}
static inline void row_pass(const row_kernel *k, const row_call *c, row_state *st, row_part *parts) {
  k->engine->pass(k->body, c, st, parts);
}
static inline void row_merge(const row_kernel *k, const row_call *c, row_state *st, const row_part *parts,
                             size_t count) {
  k->engine->merge(k->body, c, st, parts, count);
}
static inline bool row_next(const row_kernel *k, const row_call *c, row_state *st) {
  return k->engine->next(k->body, c, st);
}
static inline void row_run(const row_kernel *k, row_call *c) { k->engine->rows(k, c); }

/* n elements `stride` apart to or from contiguous ones of the real type. softmax: contiguous rows
 * that fit registers or caches, with default parameters and policies; false if they do not. */
typedef struct dtype_io {
  void (*load)(row_store type, const void *src, ptrdiff_t stride, size_t n, void *dst);
  void (*store)(row_store type, const void *src, size_t n, void *dst, ptrdiff_t stride);
  bool (*softmax)(size_t rows, size_t n, const void *x, void *y, row_writing writing);
} dtype_io;

/* One row of smx_sample; x and scratch hold n elements of the real type each, room 8 (n + 1) bytes,
 * work a sampler_work (sample/sampler.h). */
enum { SAMPLER_WORK_F32 = 72 << 10, SAMPLER_WORK_F64 = 92 << 10 };
typedef struct sampler_row {
  size_t n;
  const void *x;
  void *scratch[3], *room, *work;
  const smx_step *steps;
  size_t step_count;
  smx_draw draw;
  uint64_t seed, stream;
  size_t draws;
  int64_t index, *indices; /* the last draw, or -1; and all draws */
  double log;              /* of its probability among the elements that were left */
  void *logs;              /* of all draws, of the real type; or NULL */
  void *processed;         /* the scores that are drawn from; or NULL */
  smx_row_status status;
  /* a guess that only speed depends on: the mass is not in a few elements. Set by each row for the
   * next. */
  bool spread;
} sampler_row;

#endif
