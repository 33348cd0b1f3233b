/* pool/ref.h - references of src/pool that are in files of their own. */
#ifndef SMX_POOL_REF_H
#define SMX_POOL_REF_H
#include "engine/ref.h"

tensor_ref_fn pool_ref_gem, pool_ref_gnp, pool_ref_smoothed, pool_ref_layer_max, pool_ref_maxout,
    pool_ref_splade, pool_ref_flops, pool_ref_layer_mix, pool_ref_selective, pool_ref_attsets, pool_ref_mil,
    pool_ref_weighted_mean, pool_ref_segments, pool_ref_upsample, pool_ref_gsp, pool_ref_histogram,
    pool_ref_moving, pool_ref_sim, pool_ref_query, pool_ref_ponet, pool_ref_kmeans, pool_ref_kmedoids,
    pool_ref_ward, pool_ref_topk, pool_ref_parse, pool_ref_hebb, pool_ref_bilinear, pool_ref_lowrank,
    pool_ref_prior, pool_ref_moving_mil, pool_ref_triangle;

#endif
