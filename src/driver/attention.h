/* driver/attention.h - a checked call of attention, as its entry points hand it to the driver. */
#ifndef SMX_DRIVER_ATTENTION_H
#define SMX_DRIVER_ATTENTION_H
#include "attention/attention.h"
#include "base/base.h"
#include "cpu/cpu.h"

/* A tensor that may be absent: data NULL. Offsets and lengths are read through attention_int. */
typedef struct attention_job {
  const char *name;            /* of the entry point, for errors */
  const char *q_name, *k_name; /* of what has the shape of q and of k; NULL: these */
  smx_context *ctx;
  attn_call call;
  const attention_kernels *kernels;
  int real_bytes;
  int64_t batch, heads, kv_heads, lq, lk; /* lq, lk: the most a sequence has */
  int64_t query_start, key_start, page_size;
  smx_view q, k, v, o, lse, mask, bias, slopes, sinks, lengths, query_offsets, key_offsets, block_table,
      streams;
  uint64_t stream; /* of sequence 0, head 0; without streams the others follow */
  smx_view d_o, d_lse, dq, dk, dv;
  smx_view r, dr;   /* like q: what second scores are made with */
  smx_view u;       /* [B, Hq, d], of additive scores */
  smx_view states;  /* where contributions of splits go instead of o */
  smx_view given;   /* weights instead of q and k */
  smx_view scores;  /* where scores or weights go instead of o, gradients of scores instead of dq */
  smx_view winners; /* of the tropical engine, i32 */
  smx_view d_sink;  /* of rows, f64 */
  bool weights, tropical;
  bool split; /* k and v are a part of the keys */
} attention_job;

static inline int64_t attention_int(const smx_view *v, int64_t i) {
  const int64_t bytes = smx_dtype_bytes(v->dtype);
  return smx_whole_at(v->data + i * v->strides[0] * bytes, bytes);
}

/* How many queries and keys sequence b has, and how many keys there is room for: beyond the last
 * gradients are 0. */
static inline int64_t attention_queries(const attention_job *j, int64_t b) {
  return j->query_offsets.data ? attention_int(&j->query_offsets, b + 1) - attention_int(&j->query_offsets, b)
                               : j->lq;
}
static inline int64_t attention_room(const attention_job *j, int64_t b) {
  return j->key_offsets.data ? attention_int(&j->key_offsets, b + 1) - attention_int(&j->key_offsets, b)
                             : j->lk;
}
static inline int64_t attention_keys(const attention_job *j, int64_t b) {
  return j->lengths.data ? attention_int(&j->lengths, b) : attention_room(j, b);
}

/* The stream of random numbers of a head. */
static inline uint64_t attention_stream(const attention_job *j, int64_t b, int64_t head) {
  return (j->streams.data ? (uint64_t)attention_int(&j->streams, b) : j->stream + (uint64_t)(b * j->heads)) +
         (uint64_t)head;
}

/* Names a zeroed job. False, with SMX_ERR_NOMEM as the last error, if j is NULL. */
bool attention_open(attention_job *j, const char *name, smx_context *ctx);

/* Checks the options and inputs of a call and fills *j. */
smx_status attention_check(attention_job *j, const smx_attention_options *options, const smx_tensor *q,
                           const smx_tensor *k, const smx_tensor *v);

/* Checks the options alone. */
smx_status attention_check_options(attention_job *j, const smx_attention_options *options);

typedef enum attention_elements { FLOATS, MASKS, WHOLES, PAGES, NUMBERS } attention_elements;

/* Checks a tensor of ndim dimensions; entries of shape below 0 are free. */
smx_status attention_tensor(const attention_job *j, const char *port, const smx_tensor *t,
                            attention_elements kind, int32_t ndim, const int64_t *shape, smx_view *v);
smx_status attention_broadcast(const attention_job *j, const char *port, const smx_tensor *t,
                               attention_elements kind, int32_t ndim, const int64_t *shape, smx_view *v);

/* Checks a float tensor that is written: no two elements share an address, and it overlaps no other
 * tensor of the job. */
smx_status attention_output(const attention_job *j, const char *port, const smx_tensor *t, int32_t ndim,
                            const int64_t *shape, smx_view *v);
smx_status attention_apart(const attention_job *j, const char *port, const smx_view *out);

/* Checks d_o, which every gradient reads: as o. A paged cache is refused. */
smx_status attention_check_d_o(attention_job *j, const smx_tensor *d_o);
/* Checks the gradients of q, k and v; NULL: not wanted. */
smx_status attention_check_gradients(attention_job *j, const smx_tensor *dq, const smx_tensor *dk,
                                     const smx_tensor *dv);

/* The rows from `row` on of head `head` in v, a tensor [batch, heads, rows, columns], [batch,
 * heads, rows] or [batch, heads]. */
attn_rows attention_rows_of(const smx_view *v, int64_t batch, int64_t head, int64_t row);

/* Sequence b and key/value head kv of the job. */
attn_head attention_head(const attention_job *j, int64_t b, int64_t kv);

/* Key i of a head; in a paged cache, where its page has it. */
static inline const char *attention_key(const attn_head *h, int64_t i) {
  if (!h->table) return h->k.data + i * h->k.step;
  const int64_t page = *(const int32_t *)(const void *)(h->table + i / h->page_size * h->table_step);
  return h->k.data + page * h->k_page + i % h->page_size * h->k.step;
}

/* Runs an attention kernel on a task, with one of the places of scratch memory. */
typedef void attention_kernel(attn_task *t, void *scratch);
void attention_task(smx_scratch *s, attn_task *t, attention_kernel *kernel);

/* The multiples of ATTN_SPLIT below key_start + lk. */
static inline int64_t attention_splits(const attention_job *j, int64_t lk) {
  return (j->key_start + lk + ATTN_SPLIT - 1) / ATTN_SPLIT;
}
static inline int64_t attention_state_reals(int64_t e) { return ATTN_STATE_HEAD + (e + 63) / 64 * 64 * 2; }

smx_status attention_run(attention_job *j);

/* Whether a tensor that is written has elements. Without any there may be any number of
 * sequences. */
bool attention_writes(const attention_job *j);
bool attention_writes_any(const smx_view *const *outputs, size_t count); /* data NULL: absent */

/* What of the options hides keys. */
smx_attention_options attention_hiding(const smx_attention_options *options);

/* As attention_check, for a backward call; then the rounds of tasks that compute the gradients. */
smx_status attention_check_gradient(attention_job *j, const smx_attention_options *options,
                                    const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                                    const smx_tensor *o, const smx_tensor *lse, const smx_tensor *d_o,
                                    const smx_tensor *d_lse);
smx_status attention_run_gradients(const attention_job *j);

/* Rows first .. first + rows - 1 of query head `head` of sequence b as a call of its own, with all
 * the keys of the sequence. */
void attention_part(const attention_job *j, int64_t b, int64_t head, int64_t first, int64_t rows,
                    attention_job *part);

/* n sums rounded to the arithmetic type and stored. sums and buffer have room for 64 more. */
void attention_store(const attention_job *j, char *to, int64_t stride, smx_dtype dtype, const double *sums,
                     int64_t n, void *buffer);

#endif
