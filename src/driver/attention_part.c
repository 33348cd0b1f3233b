/* driver/attention_part.c - a part of a checked call as a call of its own: some rows of one query
 * head of one sequence, for functions that store scores as matrices, some rows at a time. */
#include "attention.h"

static void slice(smx_view *v, int32_t axis, int64_t first, int64_t count) {
  if (!v->data || axis >= v->ndim) return;
  v->data += first * v->strides[axis] * smx_dtype_bytes(v->dtype);
  v->shape[axis] = count;
}

void attention_part(const attention_job *j, int64_t b, int64_t head, int64_t first, int64_t rows,
                    attention_job *p) {
  *p = *j;
  const bool paged = j->block_table.data != NULL;
  const int64_t kv = head / (j->heads / j->kv_heads), lq = attention_queries(j, b), lk = attention_keys(j, b);
  const int64_t q_row = j->query_offsets.data ? attention_int(&j->query_offsets, b) : 0,
                qb = j->query_offsets.data ? 0 : b;
  const int64_t k_row = j->key_offsets.data ? attention_int(&j->key_offsets, b) : 0,
                kb = j->key_offsets.data ? 0 : b;
  smx_view *queries[] = {&p->q, &p->o, &p->lse, &p->d_o, &p->d_lse, &p->dq, &p->r, &p->dr},
           *keys[] = {&p->k, &p->v, &p->dk, &p->dv};
  smx_view *pairs[] = {&p->mask, &p->bias}, *heads[] = {&p->slopes, &p->sinks, &p->u};
  for (int i = 0; i < 8; i++)
    slice(queries[i], 0, qb, 1), slice(queries[i], 1, head, 1), slice(queries[i], 2, q_row + first, rows);
  for (int i = 0; i < 4; i++) {
    slice(keys[i], 1, kv, 1);
    if (!paged) slice(keys[i], 0, kb, 1), slice(keys[i], 2, k_row, lk);
  }
  for (int i = 0; i < 2; i++)
    slice(pairs[i], 0, b, 1), slice(pairs[i], 1, head, 1), slice(pairs[i], 2, first, rows),
        slice(pairs[i], 3, 0, lk);
  for (int i = 0; i < 3; i++) slice(heads[i], 0, b, 1), slice(heads[i], 1, head, 1);
  p->query_start = (j->query_start == SMX_ATTENTION_END ? j->key_start + lk - lq : j->query_start) + first;
  p->stream = attention_stream(j, b, head), p->streams.data = NULL;
  p->batch = p->heads = p->kv_heads = 1;
  p->lq = rows, p->lk = lk;
  p->query_offsets.data = p->key_offsets.data = NULL;
  if (paged) slice(&p->lengths, 0, b, 1), slice(&p->block_table, 0, b, 1);
  else p->lengths.data = NULL;
}
