/* mpi/attention.h - attention whose keys lie on the ranks of a communicator. attention.c has the
 * public functions and what the ranks agree on, attention_states.c a forward pass of which states
 * travel, attention_heads.c any pass, of which the keys of whole heads do. */
#ifndef SMX_MPI_ATTENTION_H
#define SMX_MPI_ATTENTION_H
#include "views.h"

enum { SPLIT = 1024 /* keys of a state */ };

/* The tensors of a call. */
enum { Q, K, V, O, LSE, D_O, D_LSE, DQ, DK, DV, MASK, BIAS, SLOPES, SINKS, TENSORS };

/* What each is: its axes, of which the second is of heads (a group of query heads for each key
 * head), and the axis of the keys, or -1. */
typedef struct tensor_facts {
  const char *name;
  int32_t ndim, keys;
  bool of_key_heads, broadcasts;
} tensor_facts;
extern const tensor_facts mpi_tensor_facts[TENSORS];

typedef struct attention {
  mpi_call *c;
  smx_attention_options options;
  bool backward;
  int64_t batch, heads, key_heads, lq, d, e;
  view tensor[TENSORS];
  bool cut[TENSORS]; /* its keys lie on the ranks */
} attention;

/* `count` of an axis, from `first` on; all where the tensor broadcasts over it. */
void mpi_attention_part(view *part, int t, const view *v, int32_t axis, int64_t first, int64_t count);
/* The options with these tensors, in the place of those of the call. */
smx_attention_options mpi_attention_options(const attention *a, view *tensors);

smx_status mpi_attention_by_states(attention *a);
smx_status mpi_attention_by_heads(attention *a);

#endif
