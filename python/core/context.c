/* context.c - threads and policies: one context of the library for each pair of policies, made when
 * first needed. A call holds a reference to its context, so that threads() can replace them while
 * other threads are in a call. */
#include "core.h"
#include <string.h>

static const char *const empty_words[] = {"zero", "nan", "error", NULL}; /* smx_on_empty */
static const char *const inf_words[] = {"nan", "limit", NULL};           /* smx_on_inf */

/* The number of a word, 0 for none given; -1 with an exception. */
static int choose(const char *op, const char *name, PyObject *word, const char *const *words) {
  if (!word) return 0;
  for (int i = 0; words[i] && PyUnicode_Check(word); i++)
    if (PyUnicode_CompareWithASCIIString(word, words[i]) == 0) return i;
  PyErr_Format(PyUnicode_Check(word) ? PyExc_ValueError : PyExc_TypeError,
               "%s: %s: %R is not '%s', '%s'%s%s%s", op, name, word, words[0], words[1],
               words[2] ? " or '" : "", words[2] ? words[2] : "", words[2] ? "'" : "");
  return -1;
}

static void free_context(PyObject *capsule) { smx_context_destroy(PyCapsule_GetPointer(capsule, NULL)); }

static PyObject *make_context(int32_t threads, int empty, int inf) {
  smx_context_options options = {
      .size = sizeof options, .threads = threads, .on_empty = (smx_on_empty)empty, .on_inf = (smx_on_inf)inf};
  smx_context *ctx;
  smx_status status = smx_context_create(&options, &ctx);
  if (status != SMX_OK) return core_raise(status);
  PyObject *capsule = PyCapsule_New(ctx, NULL, free_context);
  if (!capsule) smx_context_destroy(ctx);
  return capsule;
}

int core_context(core_state *state, const char *op, PyObject *on_empty, PyObject *on_inf, PyObject **keeper,
                 smx_context **ctx) {
  int empty = choose(op, "on_empty", on_empty, empty_words),
      inf = empty < 0 ? -1 : choose(op, "on_inf", on_inf, inf_words);
  *keeper = NULL;
  *ctx = NULL;
  if (inf < 0) return -1;
  if (state->threads == 1 && !empty && !inf) return 0; /* what no context means */
  PyObject **slot = &state->contexts[2 * empty + inf];
  if (!*slot) *slot = make_context(state->threads, empty, inf);
  if (!*slot) return -1;
  *keeper = Py_NewRef(*slot);
  *ctx = PyCapsule_GetPointer(*slot, NULL);
  return 0;
}

PyObject *core_threads(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  core_state *state = PyModule_GetState(module);
  if (count < 1 || args[0] == Py_None) return PyLong_FromLong(state->threads);
  PyObject *number = PyNumber_Index(args[0]);
  int overflow = 0;
  long threads = number ? PyLong_AsLongAndOverflow(number, &overflow) : -1;
  Py_XDECREF(number);
  if (PyErr_Occurred()) return NULL;
  if (overflow || threads == 0 || threads < -1 || threads > INT32_MAX)
    return PyErr_Format(PyExc_ValueError, "threads: %S is neither a number of threads nor -1", args[0]);
  PyObject *context = make_context((int32_t)threads, 0, 0);
  if (!context) return NULL;
  state->threads = smx_context_threads(PyCapsule_GetPointer(context, NULL));
  for (int i = 0; i < POLICIES; i++) Py_CLEAR(state->contexts[i]);
  state->contexts[0] = context;
  return PyLong_FromLong(state->threads);
}
