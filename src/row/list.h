/* row/list.h - the row operators, by name, for every file that needs one entry an operator; the
 * only X-macro of the directory.
 *
 * ROW_FUSED(name, case): score, exponential and sum are one loop for it (engine/exp_loops.h),
 * because of that case of the benchmark. All other operators are staged (engine/exp_stage.c).
 *
 * ROW_OP(name): every kernel set has kernels of its own for it. ROW_OP_F32(name): AVX-512 has those
 * of f32, and takes those of AVX2 for f64. ROW_OP_AVX2(name): AVX-512 takes both from AVX2. All
 * operators of one file have the same tier; CMakeLists.txt lists the files, and docs/design.md has
 * the figures behind the choice. */
#ifndef ROW_FUSED
#define ROW_FUSED(name, bench)
#endif
#ifndef ROW_OP_F32
#define ROW_OP_F32(name) ROW_OP(name)
#define ROW_OP_AVX2(name) ROW_OP(name)
#endif
ROW_OP(softmax)
ROW_OP(log_softmax)
ROW_OP(softmin)
ROW_OP(hardmax)
ROW_OP(logsumexp)
ROW_OP(logmeanexp)
ROW_OP(mellowmax)
ROW_OP(masked_softmax)
ROW_OP(scaled_masked_softmax)
ROW_OP(segment_softmax)
ROW_OP(logcumsumexp)
ROW_OP(softcap)
ROW_OP(boltzmann_operator)
ROW_OP(sparse_softmax)
ROW_OP_F32(softpick)
ROW_OP_F32(taylor_softmax)
ROW_OP_F32(spherical_softmax)
ROW_OP_F32(power_softmax)
ROW_OP_F32(stablemax)
ROW_OP_F32(softplus_l1)
ROW_OP_F32(reweight)
ROW_OP_F32(sparsemax)
ROW_OP_F32(entmax15)
ROW_OP_F32(entmax)
ROW_OP_F32(normmax)
ROW_OP(softmax_topk)
ROW_OP_F32(softmax_n)
ROW_OP_F32(sink_softmax)
ROW_OP_F32(ssmax)
ROW_OP_F32(sdm_activation)
ROW_OP_F32(adaptive_temperature_softmax)
ROW_OP_F32(clipped_softmax)
ROW_OP_F32(context_aware_scaling)
ROW_OP_F32(sigmoid_attention)
ROW_OP_F32(normalized_attention)
ROW_OP_F32(relu_layernorm_weights)
ROW_OP_F32(unnormalized_attention)
ROW_OP_F32(sink_metrics)
ROW_OP(softmax_collapse_rate)
ROW_OP(budget_sparsemax)
ROW_OP(batch_topk)
ROW_OP_F32(sa_softmax)
ROW_OP_F32(attention_capacity_metrics)
ROW_OP_F32(soft_threshold_ste)
ROW_OP_F32(perp_grad)
ROW_OP_F32(noisy_softmax)
ROW_OP_AVX2(prob_to_possibility)

ROW_FUSED(softmax, "softmax/f32/4096x1024")
ROW_FUSED(log_softmax, "log_softmax/f32/4096x1024")
ROW_FUSED(logsumexp, "logsumexp/f32/4096x1024")
ROW_FUSED(masked_softmax, "masked_softmax/f32/4096x1024")
ROW_FUSED(softmax_topk, "softmax_topk/f32/64x151936")
#undef ROW_FUSED
#undef ROW_OP_F32
#undef ROW_OP_AVX2
