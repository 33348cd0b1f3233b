/* prepared.h - a call whose settings are known: only its arrays lack. */
#ifndef SMX_PYTHON_PREPARED_H
#define SMX_PYTHON_PREPARED_H
#include "call.h"
#include "torch.h"

/* The beginning of what a capsule of that name holds. */
#define PREPARED "libsoftmax.prepared"
typedef struct core_prepared {
  PyObject *(*run)(PyObject *module, const struct core_prepared *p, PyObject *const *arrays,
                   core_array *const *opened);
  void (*forget)(struct core_prepared *p);
  int32_t count; /* of its arrays */
} core_prepared;

/* A capsule around what was allocated by PyMem_Calloc, which it frees. NULL with an exception: it
 * is freed then. */
PyObject *core_prepared_capsule(core_prepared *p);

/* Such a call after core_clear(): its arrays, and how they are opened and made. */
void core_take_prepared(core_call *c, const core_prepared *p, uint32_t handed, PyObject *const *arrays,
                        core_array *const *opened);

/* Runs what a capsule holds. opened: the same arrays, or NULL where they are not open. */
PyObject *core_run(PyObject *module, PyObject *prepared, PyObject *const *arrays, core_array *const *opened,
                   Py_ssize_t count);

#endif
