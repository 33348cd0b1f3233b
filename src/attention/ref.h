/* attention/ref.h - what the reference of attention is: one query head of one sequence, straight
 * from the formulas. Used by tests only. */
#ifndef SMX_ATTENTION_REF_H
#define SMX_ATTENTION_REF_H
#include "attention.h"
#include "engine/ref.h"

typedef struct attention_ref {
  int64_t lq, lk, d, e;
  const double *q, *k, *v;            /* row after row */
  const double *bias;                 /* [lq][lk] or NULL */
  const unsigned char *mask;          /* [lq][lk] or NULL */
  double scale, softcap, slope, sink; /* slope 0, sink -inf: none */
  int causal;
  int64_t offset, left, right; /* row i stands at key i + offset */
  smx_attention_weights weights;
  const double *param;
  const double *keep; /* [lq][lk], what weights are multiplied by after all else: dropout; or NULL */
  double *o, *lse;    /* [lq][e], [lq] */
  double *size;       /* [lq][e]: sum of |w v|, what an error of o is to be compared with */
} attention_ref;

void attention_ref_run(const attention_ref *c);

/* ref_sampled.c */
tensor_ref_fn lsh_codes_ref, magicpig_attention_ref, kde_attention_ref, nystrom_attention_ref,
    additive_scores_ref, entmax_attention_ref, nap_attention_ref, shaped_attention_ref;

#endif
