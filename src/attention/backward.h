/* attention/backward.h - what the two walks of the backward engine share: ops_backward.c, rows
 * against splits of keys, and ops_backward_keys.c, keys against blocks of rows. */
#ifndef SMX_ATTENTION_BACKWARD_H
#define SMX_ATTENTION_BACKWARD_H
#include "dropout.h"
#include "engine.h"

#define carve_grads SMX_FN(carve_grads)
#define grade SMX_FN(grade)
#define store_sums SMX_FN(store_sums)
#define score_grad SMX_FN(score_grad)
#define mark_mixed SMX_FN(mark_mixed)
#define grad_keys SMX_FN(grad_keys)
#define grad_all SMX_FN(grad_all)
#define grad_all_scratch SMX_FN(grad_all_scratch)
#define open_queries SMX_FN(open_queries)
#define measure_rows SMX_FN(measure_rows)
#define open_rows SMX_FN(open_rows)
#define key_tile SMX_FN(key_tile)
#define walk_rows SMX_FN(walk_rows)
#define store_keys SMX_FN(store_keys)

enum {
  ROWS = 256, /* of a block of rows */
  ROW_PANELS = ROWS / ATTN_PANEL
};

/* What a block of rows of one query head consists of. */
typedef struct row_block {
  int64_t g, first, rows;
  real stat[ATTN_STATS][ROWS];
} row_block;

/* Scores of a block of rows with all keys, <do, v> without what dropout drops, and the derivative
 * of the cap, [split][ROWS][PITCH] each: what `measure` has made of products, for the second walk.
 * z NULL: they are not held. */
typedef struct held_pairs {
  real *z, *dp, *bend;
} held_pairs;

typedef struct work {
  attn_task *t;
  const attn_call *c;
  const attn_head *h;
  const weigher *op;
  panels a, b; /* keys and values; in the second walk queries and gradients of o */
  panels keys; /* of the tile, where the second walk has the gradients of queries too */
  attn_row *rows;
  double *sums, *sums_b;
  real *stats;      /* of a row, LANES times each */
  double *measured; /* ATTN_MEASURES a row */
  real *q, *g; /* packed rows of the task: queries and gradients of o; in the second walk keys and values */
  real *z, *dp, *bend, *o, *o_b, *buffer;
  real *keep;       /* which weights of a row, or of a key, are not dropped */
  row_block *block; /* of the second walk */
  double *dq_sums;  /* gradients of all queries of the head: over the splits before, */
  real *dq;         /* and over this one */
  uint64_t *visible;
  held_pairs held;
  int walk;           /* of measure; -1: gradients */
  bool together;      /* the second walk has the gradients of queries too; */
  bool finite;        /* the keys of its tile are numbers that a weight of 0 makes 0 */
  bool has_score_mod; /* scores need more than the scale */
} work;

/* Rows of dq: whole panels of each query head. */
static inline int64_t dq_rows(const attn_head *h) { return h->groups * round_up(h->lq, ATTN_PANEL); }

static inline bool needs_dress(const attn_call *c, const attn_head *h) {
  return c->softcap > 0 || h->mask.data || h->bias.data || h->slopes.data;
}
static inline real *stats_of(const attn_head *h, int64_t i, int64_t g) {
  return (real *)(void *)cell(&h->stats, i, g);
}

/* Divides scratch memory into arrays; with NULL it only counts bytes. together: the head whose dq
 * the second walk computes too, or NULL. Its keys are loaded even if it has no queries. */
size_t carve_grads(work *w, char *base, const attn_call *c, int64_t rows, const attn_head *together);

/* Weights and gradients of scores, then, for those of queries and keys, of products: dp times the
 * derivative of the cap and the scale of the row. pairs: those of the block of scores from its
 * start. */
void grade(const work *w, int64_t tile_row, const block *b, const real *const stats[], drop_pairs pairs);

/* <do, v> of a block with a panel */
void score_grad(const work *w, const block *b, int64_t tile_row, int p, const real *packed);
void mark_mixed(work *w, block *b, int64_t tile_row, int p, bool with_b);
void store_sums(work *w, const double *sums, int64_t columns, const attn_rows *m, int64_t i, int64_t g);

/* The rows of a head from row t->first on, `apart` rows from each to the next, in scratch for
 * `room` rows, t->rows or more. Where packed keys stay for other rows, it is the same for all. */
void open_queries(work *w, attn_task *t, int64_t room, int64_t apart, void *scratch);
/* The sums over the pairs of these rows, and what settles from them. */
void measure_rows(work *w);

/* ---- the second walk ---- */

/* Rows of query head g from row `first` on, at most ROWS. */
void open_rows(work *w, int64_t g, int64_t first);
/* The keys of the task against these rows. */
void key_tile(work *w);
/* The keys of the task against all rows of the head. */
void walk_rows(work *w);
void store_keys(work *w);

/* Whether the pairs are with scores that were just computed. */
static inline bool pairs_are_new(const work *w) { return !w->held.z || w->walk == 0; }

static const real no_scale[ATTN_BLOCK] = {1, 1, 1, 1, 1, 1};

void grad_keys(attn_task *t, void *scratch);
void grad_all(attn_task *t, void *scratch);
size_t grad_all_scratch(const attn_call *c, const attn_head *h);

#endif
