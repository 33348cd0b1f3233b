/* attention/forward.h - some rows of a task against one split of keys: its scores, weights and
 * sums (ops_forward.c), which the forward engine (ops.c) folds. */
#ifndef SMX_ATTENTION_FORWARD_H
#define SMX_ATTENTION_FORWARD_H
#include "engine.h"

#define pack_queries SMX_FN(pack_queries)
#define open_tile SMX_FN(open_tile)
#define score_tile SMX_FN(score_tile)
#define weigh_tile SMX_FN(weigh_tile)
#define sum_tile SMX_FN(sum_tile)
#define short_scratch SMX_FN(short_scratch)
#define forward_short SMX_FN(forward_short)

/* Some rows of the task, in blocks, against one split. */
typedef struct tile {
  int64_t first, rows;
  int count;  /* of blocks */
  int panels; /* of the split, that some block sees, and those before it */
  block blocks[ATTN_TILE / ATTN_BLOCK];
  bool any[ATTN_TILE]; /* whether a row sees a key of the split; then */
  weighing ones[ATTN_TILE];
} tile;

/* Scratch memory of a task. */
typedef struct work {
  attn_task *t;
  const attn_call *c;
  const attn_head *h;
  const weigher *op;
  int64_t width;      /* columns of all channels of o */
  int64_t low, high;  /* rows of keys and values that some row of the task may see */
  ahead next;         /* what is prefetched, where few rows wait for memory */
  bool has_score_mod; /* scores need more than the scale */
  bool few;           /* all keys are in one panel */
  bool alone;         /* a block without others: its keys are packed only where they are very few */
  bool once;          /* one split with one channel: rows are stored as soon as its tile is done */
  attn_row *rows;
  double *sums; /* o of each row, `width` numbers each */
  panels keys, values;
  real *q, *buffer, *z, *second, *o, *top;
  real *keep; /* which weights of a row are not dropped */
  tile *tile;
  uint64_t *visible; /* ATTN_PANELS a row of the tile; made only beside values that are not finite */
  int64_t split;
} work;

/* The queries of the task, as score_tile reads them; once. */
void pack_queries(work *w);

/* `rows` rows of the task from `first` on against the split w->split; then their scores, weights or
 * statistics (stat), and weights times values. */
void open_tile(const work *w, tile *t, int64_t first, int64_t rows);
void score_tile(work *w, tile *t);
void weigh_tile(work *w, tile *t, bool stat);
void sum_tile(work *w, const tile *t);

/* A whole task of few keys and plain softmax (ops_short.c): scratch bytes, and its run. False: it
 * is another task, or a number is not ordinary; then the rows are computed in tiles. For f32:
 * there it pays for its code. */
#if SMX_REAL == 32 && !defined(V_PORTABLE)
#define HAS_SHORT
size_t short_scratch(const attn_call *c);
bool forward_short(const attn_task *t, void *scratch);
#else
static inline size_t short_scratch(const attn_call *c) { return 0; }
static inline bool forward_short(const attn_task *t, void *scratch) { return false; }
#endif

#endif
