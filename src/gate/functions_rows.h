/* gate/functions_rows.h - tokens by chunks, with an operator on rows for each chunk. */
#ifndef SMX_GATE_FUNCTIONS_ROWS_H
#define SMX_GATE_FUNCTIONS_ROWS_H
#include "driver/operator.h"
#include "driver/tensors.h"

/* x: the first input, [tokens, experts]. A chunk is its tokens from `first`, `count` of them. */
typedef struct gate_rows {
  const tensor_call *c;
  smx_context *purse;
  int64_t experts, tokens, most, first, count, bytes; /* bytes of a real */
  char *p, *lse;                                      /* of the chunk: softmax, logsumexp */
  double *own;                                        /* what the caller asked for */
} gate_rows;

/* Reserves the memory of all chunks, and `own` doubles of 0. */
smx_status gate_rows_open(gate_rows *r, const tensor_call *c, int64_t tokens, int64_t experts, int64_t own);
void gate_rows_close(gate_rows *r);

/* Calls f for every chunk, after its softmax, and where that is asked for logsumexp, are there. */
smx_status gate_rows_each(gate_rows *r, bool lse, void (*f)(gate_rows *r, void *arg), void *arg);

/* SMX_EMPTY_ERROR: a token without experts has to be found before anything is written. */
smx_status gate_check_empty(const tensor_call *c, int64_t tokens, int64_t experts);

#endif
