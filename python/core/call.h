/* call.h - a call from Python on its way to the library. */
#ifndef SMX_PYTHON_CALL_H
#define SMX_PYTHON_CALL_H
#include "core.h"

typedef struct core_call {
  core_state *state;
  const smx_op *op;
  smx_params params;
  PyObject *value[SLOTS]; /* the arguments, borrowed; NULL: not given, or None */
  PyObject *kind;         /* of the caller's arrays, borrowed: (empty, wrap) of libsoftmax/_arrays.py */
  int used;               /* how many arrays are open */
  core_array arrays[4 * SMX_MAX_PORTS];
} core_call;

/* ---- arguments.c ---- */

/* Reads (index of the operator, {name: slot}, args, kwargs). By position come the inputs, or backward the first upstream gradient. */
int core_take_arguments(core_call *c, PyObject *module, PyObject *const *args, Py_ssize_t count, bool backward);
int core_take_params(core_call *c);

/* ---- results.c ---- */

/* The arrays of results: the caller's own (out=), or new ones of the caller's kind. */
typedef struct core_results {
  PyObject *object[SMX_MAX_PORTS]; /* references; NULL: not wanted */
  bool made[SMX_MAX_PORTS];
  const smx_tensor *tensor[SMX_MAX_PORTS];
} core_results;

const smx_tensor *core_open(core_call *c, PyObject *object, const char *prefix, const char *port, bool write);

/* Remembers how arrays like this one are made. */
int core_take_kind(core_call *c, PyObject *like);

/* Result i: `given`, or a new array of that shape. */
int core_open_result(core_call *c, core_results *r, int32_t i, PyObject *given, const smx_shape *shape, const char *prefix,
                     const char *port);

/* Closes all arrays: to be done before results are handed back. */
void core_close(core_call *c);

/* Result i as the caller's kind of array, a new reference; None if it was not wanted. */
PyObject *core_give(core_call *c, core_results *r, int32_t i);

void core_drop(core_results *r);

#endif
