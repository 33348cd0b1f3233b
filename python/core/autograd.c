/* autograd.c - the two functions of a torch.autograd.Function whose calls are prepared: the result
 * of a call and what is saved for its gradient, and the gradient. Python (_eager.py of
 * libsoftmax.torch) is asked for whatever is not this common case: gradients of gradients, tensors
 * of transforms. */
#include "prepared.h"

enum { TENSORS = 12 };
#define PLAN "libsoftmax.plan"

typedef struct plan {
  PyObject *forward, *backward; /* prepared; backward NULL: a gradient was formed with the result */
  PyObject *owner;              /* owner.backward(ctx, *upstream) is the long way */
  PyObject *module;
  int32_t tensors, result, inputs, outputs, gradients;
  int32_t input[TENSORS], output[TENSORS]; /* which of them are saved */
  int32_t place[TENSORS];                  /* of the tensor that each gradient is of; -1: of none */
} plan;

static void forget(PyObject *capsule) {
  plan *p = PyCapsule_GetPointer(capsule, PLAN);
  Py_XDECREF(p->forward);
  Py_XDECREF(p->backward);
  Py_XDECREF(p->owner);
  Py_XDECREF(p->module);
  PyMem_Free(p);
}

static int32_t take_numbers(PyObject *tuple, int32_t *numbers) {
  const Py_ssize_t n = PyTuple_Size(tuple);
  for (Py_ssize_t i = 0; i < n && i < TENSORS; i++)
    numbers[i] = (int32_t)PyLong_AsLong(PyTuple_GetItem(tuple, i));
  return n > TENSORS ? (PyErr_BadInternalCall(), 0) : (int32_t)n;
}

/* plan(forward, backward, tensors, result, inputs, outputs, places, owner) */
PyObject *core_plan(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  if (count != 8) return PyErr_BadInternalCall(), NULL;
  plan *p = PyMem_Calloc(1, sizeof *p);
  PyObject *capsule = p ? PyCapsule_New(p, PLAN, forget) : NULL;
  if (!capsule) return PyMem_Free(p), PyErr_NoMemory();
  p->forward = Py_NewRef(args[0]);
  p->backward = args[1] == Py_None ? NULL : Py_NewRef(args[1]);
  p->tensors = (int32_t)PyLong_AsLong(args[2]), p->result = (int32_t)PyLong_AsLong(args[3]);
  p->inputs = take_numbers(args[4], p->input), p->outputs = take_numbers(args[5], p->output);
  p->gradients = take_numbers(args[6], p->place);
  p->owner = Py_NewRef(args[7]), p->module = Py_NewRef(module);
  if (PyErr_Occurred()) Py_CLEAR(capsule);
  return capsule;
}

/* Element i of what a call gave, borrowed: a tuple, or its only result. */
static PyObject *at(PyObject *made, int32_t i) {
  return PyTuple_Check(made) ? PyTuple_GetItem(made, i) : made;
}

/* ---- forward(ctx, plan, *tensors) ---- */

static int save(const core_torch *t, PyObject *ctx, const plan *p, PyObject *const *tensors, PyObject *made) {
  PyObject *all = PyTuple_New(p->inputs + p->outputs);
  if (!all) return -1;
  for (int32_t i = 0; i < p->inputs; i++) PyTuple_SetItem(all, i, Py_NewRef(tensors[p->input[i]]));
  for (int32_t i = 0; i < p->outputs; i++)
    PyTuple_SetItem(all, p->inputs + i, Py_XNewRef(at(made, p->output[i])));
  const int bad = PyErr_Occurred() ? -1 : PyObject_SetAttr(ctx, t->to_save, all);
  Py_DECREF(all);
  return bad;
}

PyObject *core_function_forward(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  const core_torch *t = ((core_state *)PyModule_GetState(module))->torch;
  const plan *p = count >= 2 ? PyCapsule_GetPointer(args[1], PLAN) : NULL;
  if (!p || !t) return PyErr_Occurred() ? NULL : (PyErr_BadInternalCall(), NULL);
  PyObject *made = core_run(module, p->forward, args + 2, NULL, count - 2), *result = NULL;
  if (made && save(t, args[0], p, args + 2, made) == 0) result = Py_XNewRef(at(made, p->result));
  Py_XDECREF(made);
  return result;
}

/* ---- backward(ctx, upstream) ---- */

/* Whether the upstream gradient is 1, and the graph is not kept: then what was saved may be handed
 * out. */
static int may_hand_out(const core_torch *t, const core_array *upstream) {
  const smx_tensor *u = &upstream->tensor;
  if (u->ndim || u->dtype.code != 2 || !t->keep_graph) return 0;
  const char *value = (const char *)u->data + u->byte_offset;
  const bool one = (u->dtype.bits == 32 && *(const float *)(const void *)value == 1) ||
                   (u->dtype.bits == 64 && *(const double *)(const void *)value == 1);
  const int kept = one ? core_torch_ask(t->keep_graph) : 1;
  return kept < 0 ? -1 : !kept;
}

/* None for each argument of forward, but for the gradients that `made` has. */
static PyObject *spread(const plan *p, PyObject *made) {
  PyObject *all = PyTuple_New(1 + p->tensors);
  for (int32_t i = 0; all && i <= p->tensors; i++) PyTuple_SetItem(all, i, Py_NewRef(Py_None));
  for (int32_t i = 0; all && i < p->gradients; i++) {
    PyObject *one = p->place[i] < 0 ? NULL : at(made, i);
    if (p->place[i] < 0) continue;
    if (!one || PyTuple_SetItem(all, 1 + p->place[i], Py_NewRef(one)) < 0) Py_CLEAR(all);
  }
  return all;
}

/* The gradients by the calls that are prepared; None where they are not for this. */
static PyObject *gradients(PyObject *module, const core_torch *t, const plan *p, PyObject *ctx,
                           PyObject *upstream) {
  core_array opened;
  PyObject *given[1 + 2 * TENSORS] = {upstream}, *made = NULL;
  const int recorded = core_torch_records(t);
  if (recorded) return recorded < 0 ? NULL : Py_NewRef(Py_None);
  if (!core_is_plain(t, upstream) || !t->view || !core_array_view(&opened, t->view, upstream))
    return Py_NewRef(Py_None);
  const int negated = core_torch_negated(t, upstream);
  if (negated) return negated < 0 ? NULL : Py_NewRef(Py_None);
  const int ready = p->backward ? 1 : may_hand_out(t, &opened);
  if (ready <= 0) return ready < 0 ? NULL : Py_NewRef(Py_None);
  PyObject *saved = PyObject_GetAttr(ctx, t->saved_tensors);
  const Py_ssize_t n = saved ? PyTuple_Size(saved) : -1;
  if (n >= 0 && n == p->inputs + p->outputs) {
    for (Py_ssize_t i = 0; i < n; i++) given[1 + i] = PyTuple_GetItem(saved, i);
    made = p->backward ? core_run(module, p->backward, given, NULL, 1 + n) : Py_NewRef(given[n]);
  } else if (n >= 0) PyErr_BadInternalCall();
  PyObject *all = made ? spread(p, made) : NULL;
  Py_XDECREF(made);
  Py_XDECREF(saved);
  return all;
}

/* What Python is asked for: owner.backward(ctx, *upstream). */
static PyObject *ask_owner(const plan *p, PyObject *ctx, PyObject *const *upstream, Py_ssize_t count) {
  PyObject *all = PyTuple_New(1 + count), *method = all ? PyObject_GetAttrString(p->owner, "backward") : NULL;
  if (all) PyTuple_SetItem(all, 0, Py_NewRef(ctx));
  for (Py_ssize_t i = 0; all && i < count; i++) PyTuple_SetItem(all, 1 + i, Py_NewRef(upstream[i]));
  PyObject *answer = method ? PyObject_Call(method, all, NULL) : NULL;
  Py_XDECREF(method);
  Py_XDECREF(all);
  return answer;
}

/* As a method of ctx, which PyTorch calls where a class has it as apply(). */
static PyObject *backward(PyObject *ctx, PyObject *const *upstream, Py_ssize_t count) {
  PyObject *capsule = PyObject_GetAttrString(ctx, "plan"), *answer = NULL;
  const plan *p = capsule ? PyCapsule_GetPointer(capsule, PLAN) : NULL;
  const core_torch *t = p ? ((core_state *)PyModule_GetState(p->module))->torch : NULL;
  if (p) answer = count == 1 ? gradients(p->module, t, p, ctx, upstream[0]) : Py_NewRef(Py_None);
  if (answer == Py_None) {
    Py_DECREF(answer);
    answer = ask_owner(p, ctx, upstream, count);
  }
  Py_XDECREF(capsule);
  return answer;
}

PyObject *core_function_backward(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  return count ? backward(args[0], args + 1, count - 1) : (PyErr_BadInternalCall(), NULL);
}

static PyMethodDef apply = {"apply", (PyCFunction)(void (*)(void))backward, METH_FASTCALL,
                            "apply(*upstream): the gradients."};

/* PyTorch's own apply() looks for the function's backward() each time. */
PyObject *core_hasten(PyObject *module, PyObject *type) {
  PyObject *method = PyType_Check(type) ? PyDescr_NewMethod((PyTypeObject *)type, &apply) : NULL;
  const int bad = method ? PyObject_SetAttrString(type, "apply", method) : -1;
  Py_XDECREF(method);
  if (bad && !PyErr_Occurred()) PyErr_BadInternalCall();
  return bad ? NULL : Py_NewRef(Py_None);
}
