/* api/attention.h - a call of the attention room that has been checked, as its entry points hand it to the driver. */
#ifndef SMX_API_ATTENTION_H
#define SMX_API_ATTENTION_H
#include "attention/attention.h"
#include "base/base.h"
#include "cpu/cpu.h"

/* A tensor that may be absent: data NULL. Offsets and lengths are read through attention_int. */
typedef struct attention_job {
  const char *name; /* of the entry point, for errors */
  smx_context *ctx;
  attn_call call;
  const attention_kernels *kernels;
  int real_bytes;
  int64_t batch, heads, kv_heads, lq, lk; /* lq, lk: the most a sequence has */
  int64_t query_start, key_start, page_size;
  smx_view q, k, v, o, lse, mask, bias, slopes, sinks, lengths, query_offsets, key_offsets, block_table;
} attention_job;

static inline int64_t attention_int(const smx_view *v, int64_t i) {
  const char *at = v->data + i * v->strides[0] * smx_dtype_bytes(v->dtype);
  return v->dtype.bits == 32 ? *(const int32_t *)(const void *)at : *(const int64_t *)(const void *)at;
}

/* How many queries and keys sequence b has. */
static inline int64_t attention_queries(const attention_job *j, int64_t b) {
  return j->query_offsets.data ? attention_int(&j->query_offsets, b + 1) - attention_int(&j->query_offsets, b) : j->lq;
}
static inline int64_t attention_keys(const attention_job *j, int64_t b) {
  if (j->lengths.data) return attention_int(&j->lengths, b);
  return j->key_offsets.data ? attention_int(&j->key_offsets, b + 1) - attention_int(&j->key_offsets, b) : j->lk;
}

/* Checks the options and the tensors of a call into *j. o may be NULL: only q, k, v and the options. */
smx_status attention_check(attention_job *j, const smx_attention_options *options, const smx_tensor *q, const smx_tensor *k,
                           const smx_tensor *v, const smx_tensor *o, const smx_tensor *lse);

smx_status attention_run(attention_job *j);

#endif
