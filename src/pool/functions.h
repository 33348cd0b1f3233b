/* pool/functions.h - the functions of the operators of src/pool. */
#ifndef SMX_POOL_FUNCTIONS_H
#define SMX_POOL_FUNCTIONS_H
#include "functions_window.h"
#include "pool.h"

/* Maximum, mean and their mixture. */
smx_status pool_reduce(const tensor_call *c);
smx_status pool_reduce_backward(const tensor_call *c);
bool pool_reduce_by_channel(const tensor_call *c);

/* An operator on rows that has an output a row, over the cells of each window. */
smx_status pool_soft(const tensor_call *c);
smx_status pool_soft_backward(const tensor_call *c);
smx_status pool_lse(const tensor_call *c);
smx_status pool_lse_backward(const tensor_call *c);
bool pool_rows_by_channel(const tensor_call *c);

/* Boxes that overlap. */
smx_status pool_nms(const tensor_call *c);
smx_status pool_soft_nms(const tensor_call *c);

/* Sets, channel by channel (functions_sets.h). */
smx_status pool_set_sizes(dims *d);
smx_status pool_power_mean(const tensor_call *c);
smx_status pool_power_mean_backward(const tensor_call *c);
smx_status pool_moving(const tensor_call *c);
smx_status pool_moving_backward(const tensor_call *c);
smx_status pool_moving_mil(const tensor_call *c);
smx_status pool_moving_mil_backward(const tensor_call *c);
smx_status pool_largest(const tensor_call *c);
smx_status pool_largest_backward(const tensor_call *c);
smx_status pool_maxout_sizes(dims *d);
smx_status pool_maxout(const tensor_call *c);
smx_status pool_maxout_backward(const tensor_call *c);
smx_status pool_flops(const tensor_call *c);
smx_status pool_flops_backward(const tensor_call *c);
smx_status pool_weighted(const tensor_call *c);
smx_status pool_weighted_backward(const tensor_call *c);
smx_status pool_attsets(const tensor_call *c);
smx_status pool_attsets_backward(const tensor_call *c);
smx_status pool_segments_sizes(dims *d);
smx_status pool_segments(const tensor_call *c);
smx_status pool_segments_backward(const tensor_call *c);
smx_status pool_upsample(const tensor_call *c);
smx_status pool_upsample_backward(const tensor_call *c);
smx_status pool_prior(const tensor_call *c);
smx_status pool_prior_backward(const tensor_call *c);
smx_status pool_budget(const tensor_call *c);
smx_status pool_budget_backward(const tensor_call *c);
smx_status pool_histogram(const tensor_call *c);
smx_status pool_histogram_backward(const tensor_call *c);

/* Norms. */
smx_status pool_norm(const tensor_call *c);
smx_status pool_norm_backward(const tensor_call *c);

/* Windows weighted by scores of their cells. */
smx_status pool_guided(const tensor_call *c);
smx_status pool_guided_backward(const tensor_call *c);

/* One query. */
smx_status pool_query_sizes(dims *d);
smx_status pool_query(const tensor_call *c);
smx_status pool_query_backward(const tensor_call *c);
smx_status pool_ponet(const tensor_call *c);
smx_status pool_ponet_backward(const tensor_call *c);

/* A formula of the cells of a window. */
smx_status pool_cells_sizes(dims *d);
smx_status pool_cells(const tensor_call *c);
smx_status pool_cells_backward(const tensor_call *c);
smx_status pool_ada(const tensor_call *c);
bool pool_ada_by_channel(const tensor_call *c);
smx_status pool_ada_backward(const tensor_call *c);
smx_status pool_unpool(const tensor_call *c);
smx_status pool_unpool_backward(const tensor_call *c);

/* What max_pool took goes back. */
smx_status pool_max_unpool(const tensor_call *c);
smx_status pool_max_unpool_backward(const tensor_call *c);

/* Tokens that clusters replace (functions_cluster.h). */
smx_status pool_kmeans_sizes(dims *d);
smx_status pool_kmeans(const tensor_call *c);
smx_status pool_kmeans_backward(const tensor_call *c);
smx_status pool_kmedoids(const tensor_call *c);
smx_status pool_kmedoids_backward(const tensor_call *c);
smx_status pool_ward_sizes(dims *d);
smx_status pool_ward(const tensor_call *c);
smx_status pool_ward_backward(const tensor_call *c);

/* Graphs, as lists of edges. */
smx_status pool_topk_sizes(dims *d);
smx_status pool_topk(const tensor_call *c);
smx_status pool_topk_backward(const tensor_call *c);
smx_status pool_parse(const tensor_call *c);
smx_status pool_parse_backward(const tensor_call *c);

/* Neurons that compete. */
smx_status pool_hebb(const tensor_call *c);
smx_status pool_triangle(const tensor_call *c);
smx_status pool_triangle_backward(const tensor_call *c);

/* Products of two vectors. */
smx_status pool_bilinear_sizes(dims *d);
smx_status pool_bilinear(const tensor_call *c);
smx_status pool_bilinear_backward(const tensor_call *c);
smx_status pool_lowrank(const tensor_call *c);
smx_status pool_lowrank_backward(const tensor_call *c);

#endif
