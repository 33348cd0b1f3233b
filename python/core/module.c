/* module.c - libsoftmax._core: the operator table and the verbs of the library for Python. What
 * users call is made from these in Python. */
#include "torch.h"
#include <softmax/split.h>

#define FAST(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
    {"forward", FAST(core_forward), METH_FASTCALL,
     "forward(operator, slots, order, args, kwargs): the outputs of an operator."},
    {"backward", FAST(core_backward), METH_FASTCALL,
     "backward(operator, slots, order, args, kwargs): gradients of its inputs."},
    {"prepare", FAST(core_prepare), METH_FASTCALL,
     "prepare(backward, operator, slots, order, kwargs, handed): what run() takes; bit i of handed: "
     "output i is handed out."},
    {"run", FAST(core_run_prepared), METH_FASTCALL, "run(prepared, *tensors): outputs, or gradients."},
    {"open_torch", core_open_torch, METH_O, "open_torch({...}): tells what PyTorch is (torch.c)."},
    {"forms", core_forms, METH_NOARGS, "forms(): a function for calls of known forms (forms.c)."},
    {"learn", FAST(core_learn), METH_FASTCALL,
     "learn(forms, args, names, places, prepared, function, subject): one more form."},
    {"plan", FAST(core_plan), METH_FASTCALL,
     "plan(forward, backward, tensors, result, inputs, outputs, places, owner): of function_forward()."},
    {"function_forward", FAST(core_function_forward), METH_FASTCALL,
     "function_forward(ctx, plan, *tensors): forward of a torch.autograd.Function."},
    {"function_backward", FAST(core_function_backward), METH_FASTCALL,
     "function_backward(ctx, *upstream): backward of a torch.autograd.Function."},
    {"hasten", core_hasten, METH_O, "hasten(type of a ctx): its apply() is function_backward()."},
    {"infer", FAST(core_infer), METH_FASTCALL,
     "infer(operator, slots, order, args, kwargs): [(shape, dtype)] of its outputs; no data is read."},
    {"shapes", FAST(core_shapes), METH_FASTCALL,
     "shapes(operator, slots, settings, inputs): the same of the (shape, dtype) of inputs alone."},
    {"xla", core_xla, METH_NOARGS, "xla(): what jax.ffi.register_ffi_target() takes."},
    {"attention", FAST(core_attention), METH_FASTCALL,
     "attention(entry point, arguments): a tuple of six results."},
    {"prepare_attention", FAST(core_prepare_attention), METH_FASTCALL,
     "prepare_attention(entry point, arguments but arrays, names of arrays, handed): what run() takes."},
    {"sample", core_sample, METH_O, "sample(arguments): (index, log, status)."},
    {"split", FAST(core_split), METH_FASTCALL,
     "split(backward, operator, slots, settings, in, out, dout, din, part): a call on one process of "
     "several."},
    {"split_shard", FAST(core_split_shard), METH_FASTCALL,
     "split_shard(n, ranks, rank): (first, count) of an even share of n columns."},
    {"split_plan", core_split_plan, METH_O,
     "split_plan([0, ..., n]): the columns that each rank sums, for those that it holds."},
    {"threads", FAST(core_threads), METH_FASTCALL,
     "threads(n): sets the number of threads of all calls, and tells it."},
    {"operators", core_operators, METH_NOARGS, "operators(): the operator table."},
    {"attention_kinds", core_attention_kinds, METH_NOARGS,
     "attention_kinds(): the table of kinds of attention weights."},
    {"sampling_steps", core_sampling_steps, METH_NOARGS,
     "sampling_steps(): the table of kinds of steps of sampling."},
    {NULL, NULL, 0, NULL},
};

static const struct {
  const char *name;
  long value;
} numbers[] = {
    {"SLOT_IN", SLOT_IN},
    {"SLOT_OUT", SLOT_OUT},
    {"SLOT_DOUT", SLOT_DOUT},
    {"SLOT_PARAM", SLOT_PARAM},
    {"SLOT_AXIS", SLOT_AXIS},
    {"SLOT_RESULT", SLOT_RESULT},
    {"SLOT_KEEPDIMS", SLOT_KEEPDIMS},
    {"SLOT_WHERE", SLOT_WHERE},
    {"SLOT_ON_EMPTY", SLOT_ON_EMPTY},
    {"SLOT_ON_INF", SLOT_ON_INF},
    {"SLOT_WANTED", SLOT_WANTED},
    {"SPLIT_GROUP", SMX_SPLIT_GROUP},
    {"SPLIT_DONE", SMX_SPLIT_DONE},
    {"SPLIT_RELAY", SMX_SPLIT_RELAY},
    {"SPLIT_RELAY_BACK", SMX_SPLIT_RELAY_BACK},
    {"SPLIT_SCATTER", SMX_SPLIT_SCATTER},
    {"SPLIT_STATES", SMX_SPLIT_STATES},
};

static int execute(PyObject *module) {
  core_state *state = PyModule_GetState(module);
  state->threads = 1;
  state->kinds = PyDict_New();
  state->adopters = PyDict_New();
  state->versioned = Py_BuildValue("{s:(ii)}", "max_version", DLPACK_MAJOR, 0);
  state->storage = PyType_FromModuleAndSpec(module, &core_storage_spec, NULL);
  state->split = PyType_FromModuleAndSpec(module, &core_split_spec, NULL);
  if (!state->kinds || !state->adopters || !state->versioned || !state->storage || !state->split) return -1;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (PyModule_AddIntConstant(module, numbers[i].name, numbers[i].value) < 0) return -1;
  if (PyModule_AddStringConstant(module, "version", smx_version()) < 0 ||
      PyModule_AddStringConstant(module, "isa", smx_isa_name()) < 0)
    return -1;
  return PyModule_AddObjectRef(module, "Storage", state->storage);
}

static int traverse(PyObject *module, visitproc visit, void *arg) {
  core_state *state = PyModule_GetState(module);
  if (!state) return 0;
  Py_VISIT(state->storage);
  Py_VISIT(state->split);
  Py_VISIT(state->kinds);
  Py_VISIT(state->adopters);
  Py_VISIT(state->versioned);
  return 0;
}

static int clear(PyObject *module) {
  core_state *state = PyModule_GetState(module);
  if (!state) return 0;
  Py_CLEAR(state->storage);
  Py_CLEAR(state->split);
  Py_CLEAR(state->kinds);
  Py_CLEAR(state->adopters);
  Py_CLEAR(state->versioned);
  for (int i = 0; i < POLICIES; i++) Py_CLEAR(state->contexts[i]);
  return 0;
}

static void destroy(void *module) { clear(module); }

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)execute}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "libsoftmax._core",
    .m_doc = "The operator table and the verbs of libsoftmax.",
    .m_size = sizeof(core_state),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
    .m_free = destroy,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }
