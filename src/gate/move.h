/* gate/move.h - rows as sums of other rows, which a list names. */
#ifndef SMX_GATE_MOVE_H
#define SMX_GATE_MOVE_H
#include <stddef.h>
#include <stdint.h>

/* Row i of `to`, of `rows`, is the sum of its items in their order: of item_q with start_i <= q <
 * start_(i+1), or without a list of the numbers i per..(i + 1) per - 1. Item p is row slot_p of
 * `from`, none for -1, or row p / share without slots; times weight_p, if there are weights. */
typedef struct gate_move {
  const void *from;
  void *to;
  int64_t rows, width;
  const int64_t *start, *item;
  int64_t per, share;
  const int64_t *slot;
  const void *weight;
} gate_move;

#endif
