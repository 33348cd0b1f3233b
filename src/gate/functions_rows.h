/* gate/functions_rows.h - tokens by chunks, with an operator on rows for each chunk. */
#ifndef SMX_GATE_FUNCTIONS_ROWS_H
#define SMX_GATE_FUNCTIONS_ROWS_H
#include "driver/operator.h"
#include "driver/tensor_reals.h"

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

/* Tokens of a task, and where those of a task end. */
enum { GATE_TASK = 64 };
static inline int64_t gate_task_end(int64_t task, int64_t tokens) {
  return (task + 1) * GATE_TASK < tokens ? (task + 1) * GATE_TASK : tokens;
}
static inline int64_t gate_tasks(int64_t tokens) { return (tokens + GATE_TASK - 1) / GATE_TASK; }

#endif
