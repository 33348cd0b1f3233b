/* pool/pool.h - the table of the operators that pool: many elements become one, over windows,
 * bins, sets, segments, clusters or graphs; of many boxes that overlap the best stay. */
#ifndef SMX_POOL_H
#define SMX_POOL_H
#include <softmax.h>
#include <stdbool.h>

/* ---- the contract with the kernels of one instruction set and real type ----
 *
 * Windows of one form, `rows` times `count` of them: window i of row r begins at cell r row_step +
 * i step, counted in elements from x, and has the cells that are d apart[0] + h apart[1] + w
 * apart[2] behind that, d < cells[0] and so on; its output is number r pitch + i of y. */
typedef struct pool_windows {
  int64_t rows, row_step, pitch, count, step, cells[3], apart[3];
  /* The place of the first cell in the whole window, between cells that of the next ones, and how
   * many cells there are with those of the padding. */
  int64_t place, places[3], whole;
  double divisor, inverse; /* of means; 1 / divisor */
  bool exact;              /* divisor is a power of two */
  bool far;                /* no cache holds cells and outputs */
  /* The same in cells of a plane, for the index of a maximum: that of the first window, from a row
   * and a window to the next, and between cells. */
  int64_t at, row_number, number, between[3];
} pool_windows;

/* Windows of ada_pool side by side: matrices are [places][wide]. there: 1 or 0, NULL where all
 * cells are. w, e: exponents, then weights; the rest has a number for each window. */
typedef struct pool_ada_block {
  int64_t places, wide;
  const double *x, *there;
  double *w, *e, *count, *mean, *top;
} pool_ada_block;

enum {
  POOL_COLUMNS = 64,      /* soft pools have windows of fewer cells as columns, side by side */
  POOL_STEP = 3,          /* of windows that are apart in x: what is more takes longer */
  POOL_FARTHEST = 1 << 24 /* cells from the first of a window to one whose place is asked for */
};

typedef struct pool_kernels {
  /* index, which may be NULL: the first of the largest; -1 of a NaN, and of nothing above -inf */
  void (*largest)(const pool_windows *w, const void *x, void *y, int64_t *index);
  /* The same where count is 1 and cells of a line lie side by side. */
  void (*highest)(const pool_windows *w, const void *x, void *y);
  /* Sums in double: cell after cell; or, of bins, cell i of a line goes to sum i % 8, these are
   * added in pairs, and lines in order. */
  void (*means)(const pool_windows *w, const void *x, void *y);
  void (*bins)(const pool_windows *w, const void *x, void *y);
  /* The cells as a matrix: place k of output y is at k distance + y. */
  void (*gather)(const pool_windows *w, const void *x, int64_t distance, void *matrix);
  /* y = the sum over places of weight times cell, in double, where the cell is not -inf; windows
   * first..end-1 of such matrices. */
  void (*weigh)(const void *cells, const void *weights, int64_t places, int64_t distance, int64_t first,
                int64_t end, void *y);
  /* soft_pool of windows of `places` < POOL_COLUMNS cells. false: some window has no finite largest
   * cell, one beyond the range of engine/exp.h, or a NaN, or this set has no such kernel; then y
   * may hold anything. */
  bool (*soften)(const pool_windows *w, int64_t places, const void *x, void *y);
  /* Of doubles; f32 has none. Exponents, counts, means and the largest; weights w of exponentials,
   * and sums of cells by them. */
  void (*ada_scores)(const pool_ada_block *a);
  void (*ada_weights)(const pool_ada_block *a, double *w, double *sum);
  /* The sums by both of windows of four cells that are all there; keep: the rest of the block too.
   * false: as that of soften. */
  bool (*ada_four)(const pool_ada_block *a, bool keep, double *dice, double *own);
} pool_kernels;

enum {
  POOL_max_pool,
  POOL_avg_pool,
  POOL_soft_pool,
  POOL_lse_pool,
  POOL_mixed_pool,
  POOL_adaptive_max_pool,
  POOL_adaptive_avg_pool,
  POOL_adaptive_soft_pool,
  POOL_nms,
  POOL_soft_nms,
  POOL_gem_pool,
  POOL_gnp_pool,
  POOL_smoothed_max_pool,
  POOL_layer_max_pool,
  POOL_maxout,
  POOL_splade_pool,
  POOL_flops_reg,
  POOL_layer_mix,
  POOL_selective_kernel,
  POOL_attsets_pool,
  POOL_attention_pool_mil,
  POOL_weighted_mean_pool,
  POOL_segment_pool,
  POOL_segment_upsample,
  POOL_gsp_pool,
  POOL_soft_histogram,
  POOL_lp_pool,
  POOL_ada_pool,
  POOL_gated_pool,
  POOL_tree_pool,
  POOL_smoothed_max_update,
  POOL_stochastic_pool,
  POOL_idw_pool,
  POOL_ada_unpool,
  POOL_sim_pool,
  POOL_query_pool,
  POOL_prompt_guided_pool,
  POOL_ponet_mix,
  POOL_token_pool_kmeans,
  POOL_token_pool_kmedoids,
  POOL_token_pool_ward,
  POOL_graph_topk_pool,
  POOL_graph_parse,
  POOL_softhebb,
  POOL_compact_bilinear_pool,
  POOL_lowrank_bilinear,
  POOL_binomial_prior,
  POOL_attention_pool_mil_update,
  POOL_max_unpool,
  POOL_triangle,
  POOL_COUNT
};
extern const smx_op pool_table[POOL_COUNT];

#endif
