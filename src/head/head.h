/* head/head.h - the contract between the heads and the kernels of one instruction set and real
 * type: products of matrices, a tile at a time.
 *
 *     c_rx = sum_k a_rk b_kx
 *
 * A sum is made of chains: HEAD_CHAIN terms that start at a multiple of HEAD_CHAIN, added by FMA in
 * index order from 0. Chains are added in order. So neither the height of a tile, nor what lies
 * beside it, nor the width of a vector changes a result; a loop of fma() is the specification. */
#ifndef SMX_HEAD_H
#define SMX_HEAD_H
#include <softmax.h>
#include <stdbool.h>

/* The operators of the family `head`. */
enum {
  HEAD_linear_cross_entropy,
  HEAD_linear_cross_entropy_gradient,
  HEAD_linear_chain_crf,
  HEAD_crf_marginals,
  HEAD_crf_viterbi,
  HEAD_crf_k_best,
  HEAD_hierarchical_softmax,
  HEAD_hierarchical_log_softmax,
  HEAD_huffman_tree,
  HEAD_soft_decision_tree,
  HEAD_cosine_margin,
  HEAD_knn_lm,
  HEAD_partial_fc,
  HEAD_sample_classes,
  HEAD_sampled_softmax,
  HEAD_nce_loss,
  HEAD_soft_token_expectation,
  HEAD_vq_logits_head,
  HEAD_surface_fusion,
  HEAD_product_key_memory,
  HEAD_augment_and_reduce,
  HEAD_fourier_head,
  HEAD_factored_spherical_state,
  HEAD_factored_spherical_weights,
  HEAD_factored_spherical_head,
  HEAD_factored_spherical_step,
  HEAD_adaptive_softmax,
  HEAD_adaptive_log_softmax,
  HEAD_equiangular_basis,
  HEAD_mixture_of_softmaxes,
  HEAD_COUNT
};
extern const smx_op head_table[HEAD_COUNT];

enum {
  HEAD_CHAIN = 64,
  HEAD_PANEL = 64 /* columns of a tile */
};

/* Rows of HEAD_PANEL reals that are read after this product, and so prefetched in its last rows; at
 * NULL: none. */
typedef struct head_fetch {
  const char *at;
  int64_t step, rows; /* bytes from row to row */
} head_fetch;

/* One chain of each element of a tile of rows x columns. Steps are in elements. */
typedef struct head_product {
  int64_t rows, columns, depth; /* columns <= HEAD_PANEL; depth <= HEAD_CHAIN, the terms of the chain */
  const void *a;
  int64_t a_row, a_depth;
  const void *b; /* [depth][HEAD_PANEL], aligned: a packed tile */
  void *c;
  int64_t c_row;
  bool first, last; /* whether the chain is the first, which c is set to, or the last of its sum */
  double factor;    /* of the whole sum */
  head_fetch fetch;
} head_product;

/* A piece of a matrix as a packed tile, filled up with zeros: rows become rows of the tile, or its
 * columns where it is turned. At most HEAD_PANEL of both. */
typedef struct head_tile {
  const char *data; /* the first element */
  int64_t row;      /* bytes from row to row */
  ptrdiff_t column; /* elements from column to column */
  int store;        /* row_store */
  int64_t rows, columns;
  bool turned;
  void *tile, *room; /* HEAD_TILE elements each, aligned */
} head_tile;
enum { HEAD_TILE = HEAD_CHAIN * HEAD_PANEL };

/* One step of a chain: w = p e^(e + most - peak), where peak is the largest e + most, or NaN where
 * one is. */
typedef struct head_step {
  const double *p, *e, *most;
  double *w;
  int64_t n;
  double peak, p_least, w_least, w_most; /* results */
} head_step;

/* Sums and maxima over the paths of a chain, in double (functions_chain.h). */
typedef struct head_chain {
  void (*step)(head_step *s);
  /* q = g / p where p is at least `least`, else 0. True: some g that is not 0 was left out. */
  bool (*divide)(const double *g, const double *p, int64_t n, double least, double *q);
  /* best_j = the largest v_i + t_ij, and the first i that has it; rows of t are `row` apart. */
  void (*best)(const double *v, int64_t rows, const double *t, int64_t row, int64_t n, double *best,
               double *from);
} head_chain;

typedef struct head_kernels {
  void (*pack)(const head_tile *t);
  void (*product)(const head_product *p);
  /* n scores: z = scale z + bias, then cap tanh(z / cap); bias NULL: none, cap 0: none */
  void (*finish)(void *z, int64_t n, double scale, const void *bias, double cap);
  /* gradients of what a cap made: dz = dz (1 - (z / cap)^2) */
  void (*uncap)(void *dz, const void *z, int64_t n, double cap);
  /* n sums over `rows` rows, one chain of additions of each */
  void (*sum_rows)(const void *x, int64_t row, int64_t rows, int64_t n, void *sum, bool first, bool last);
  /* n results from sums in double */
  void (*round)(const double *sum, double factor, int64_t n, void *out);
  const head_chain *chain; /* NULL where reals are f32 */
} head_kernels;

#if defined SMX_FN && SMX_REAL == 64
extern const head_chain SMX_FN(head_chain);
#endif

#endif
