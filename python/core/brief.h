/* brief.h - prepared calls of operators on few elements of plain tensors of PyTorch. */
#ifndef SMX_PYTHON_BRIEF_H
#define SMX_PYTHON_BRIEF_H
#include "prepared.h"

/* What such a call is. The arrays are those of `slot` (see SLOT_IN), in that order. */
typedef struct core_brief {
  bool possible, backward;
  const smx_op *op;
  smx_params params;
  int32_t count, slot[SLOTS];
  uint32_t made, handed; /* bit i: output i is there; it is handed out */
} core_brief;

/* Settles what of a prepared call is asked of it again and again. value: its settings; backward:
 * the gradient of x alone is wanted. */
void core_brief_settle(core_brief *b, PyObject *const *value);

/* The outputs, or the gradient. NULL without an exception: it is not for this. */
PyObject *core_brief_run(const core_state *state, const core_brief *b, PyObject *const *arrays,
                         core_array *const *opened);

#endif
