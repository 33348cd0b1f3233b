/* attention.c - attention for Python: its entry points take a dict of arguments.
 * libsoftmax/_attention.py has their names, defaults and help. */
#include "attention.h"
#include <stddef.h>
#include <string.h>

const char *const attention_array_names[ATTENTION_ARRAYS] = {
    [Q] = "q",
    [K] = "k",
    [V] = "v",
    [R] = "r",
    [U] = "u",
    [X] = "x",
    [W] = "w",
    [O] = "o",
    [LSE] = "lse",
    [WINNERS] = "winners",
    [MASS] = "mass",
    [D_O] = "do",
    [D_LSE] = "dlse",
    [D_Y] = "dy",
    [ROW_WEIGHTS] = "row_weights",
    [MASK] = "mask",
    [BIAS] = "bias",
    [SLOPES] = "slopes",
    [SINKS] = "sinks",
    [ROW] = "row",
    [LENGTHS] = "lengths",
    [STREAMS] = "streams",
    [QUERY_OFFSETS] = "query_offsets",
    [KEY_OFFSETS] = "key_offsets",
    [BLOCK_TABLE] = "block_table",
    [BUDGETS] = "budgets",
    [POSITIONS] = "positions",
    [FREQUENCIES] = "frequencies",
    [CARRY] = "carry",
};

/* ---- settings ---- */

#define NUMBER(name) \
  { #name, offsetof(attention_numbers, name) }
static const struct {
  const char *name;
  size_t at;
} wholes[] =
    {NUMBER(weights),      NUMBER(causal), NUMBER(query_start), NUMBER(window_left), NUMBER(window_right),
     NUMBER(key_start),    NUMBER(seed),   NUMBER(stream),      NUMBER(return_lse),  NUMBER(return_winners),
     NUMBER(return_carry), NUMBER(stage),  NUMBER(keep),        NUMBER(first),       NUMBER(last),
     NUMBER(kernel),       NUMBER(pool),   NUMBER(shared),      NUMBER(size),        NUMBER(symmetric),
     NUMBER(layout),       NUMBER(dims),   NUMBER(start),       NUMBER(cumulative),  NUMBER(dq),
     NUMBER(dk),           NUMBER(dv),     NUMBER(dbias),       NUMBER(dslopes),     NUMBER(dsinks),
     NUMBER(drow),         NUMBER(dr),     NUMBER(du),          NUMBER(dpositions),  NUMBER(dfrequencies)},
  reals[] = {NUMBER(scale), NUMBER(softcap), NUMBER(dropout), NUMBER(ridge), NUMBER(base)};
enum { WHOLES = sizeof wholes / sizeof *wholes, REALS = sizeof reals / sizeof *reals };

/* The arguments of a call by name. A dict would make an object of each of the names that it is
 * asked for, most of which are not there: 3 us a call. */
enum { PLACES = 128 };
typedef struct arguments {
  const char *name[PLACES];
  PyObject *value[PLACES]; /* borrowed */
} arguments;

/* Where a name is, or the free place for it. */
static unsigned slot_of(const arguments *a, const char *name) {
  unsigned at = 0;
  for (const char *c = name; *c; c++) at = at * 31 + (unsigned char)*c;
  while (a->name[at %= PLACES] && strcmp(a->name[at], name)) at++;
  return at;
}

static int take_arguments(arguments *a, PyObject *dict) {
  PyObject *key, *value;
  memset(a, 0, sizeof *a);
  if (PyDict_Size(dict) >= PLACES) return PyErr_BadInternalCall(), -1;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);) {
    const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
    if (!name) return -1;
    const unsigned slot = slot_of(a, name);
    a->name[slot] = name, a->value[slot] = value;
  }
  return 0;
}

/* An argument, borrowed; NULL: not given, or None. */
static PyObject *argument(const arguments *given, const char *name) {
  PyObject *value = given->value[slot_of(given, name)];
  return value == Py_None ? NULL : value;
}

/* The value of an argument is wrong: whatever Python said of it gets the argument's name. */
static int refuse(const attention_settings *s, const char *name, PyObject *value, const char *wanted) {
  PyObject *type = PyErr_ExceptionMatches(PyExc_TypeError) ? PyExc_TypeError : PyExc_ValueError;
  PyErr_Clear();
  PyErr_Format(type, "%s: %s: %R is not %s", s->entry->name, name, value, wanted);
  return -1;
}

static int take_numbers(attention_settings *s, const arguments *given) {
  for (int i = 0; i < WHOLES; i++) {
    PyObject *value = argument(given, wholes[i].name), *whole = value ? PyNumber_Index(value) : NULL;
    const int64_t number = whole ? PyLong_AsLongLong(whole) : 0;
    Py_XDECREF(whole);
    if (PyErr_Occurred()) return refuse(s, wholes[i].name, value, "a whole number of 64 bits");
    if (value) memcpy((char *)&s->n + wholes[i].at, &number, sizeof number);
  }
  for (int i = 0; i < REALS; i++) {
    PyObject *value = argument(given, reals[i].name);
    const double number = value ? PyFloat_AsDouble(value) : 0;
    if (PyErr_Occurred()) return refuse(s, reals[i].name, value, "a number");
    if (value) memcpy((char *)&s->n + reals[i].at, &number, sizeof number);
  }
  return 0;
}

/* Of weights: a tuple of numbers. */
static int take_params(attention_settings *s, const arguments *given) {
  PyObject *params = argument(given, "params");
  for (Py_ssize_t i = 0;
       params && PyTuple_Check(params) && i < SMX_ATTENTION_PARAMS && i < PyTuple_Size(params); i++) {
    s->param[i] = PyFloat_AsDouble(PyTuple_GetItem(params, i));
    if (s->param[i] == -1 && PyErr_Occurred()) return -1;
  }
  return 0;
}

/* The operator on rows that makes the weights, with its parameters. */
static int take_operator(attention_settings *s, const arguments *given) {
  PyObject *name = argument(given, "operator"), *params = argument(given, "params"), *key, *value;
  const char *text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  if (!name) return take_params(s, given);
  s->op = text ? smx_op_find(text) : NULL;
  if (!s->op) return PyErr_Occurred() ? -1 : (core_raise(SMX_ERR_NO_OP), -1);
  smx_params_init(s->op, &s->op_params);
  for (Py_ssize_t at = 0; params && PyDict_Check(params) && PyDict_Next(params, &at, &key, &value);) {
    const char *param = PyUnicode_AsUTF8AndSize(key, NULL),
               *word = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, NULL) : NULL;
    const double number = word ? 0 : PyFloat_AsDouble(value);
    if (PyErr_Occurred()) return -1;
    const smx_status status = word ? smx_params_parse(s->op, &s->op_params, param, word)
                                   : smx_params_set(s->op, &s->op_params, param, number);
    if (status != SMX_OK) return core_raise(status), -1;
  }
  return 0;
}

static int take_kernels(attention_settings *s, const arguments *given) {
  PyObject *tuple = argument(given, "kernels");
  s->kernel_count = tuple ? (size_t)PyTuple_Size(tuple) : 0;
  if (PyErr_Occurred()) return -1;
  if (s->kernel_count > ATTENTION_KERNELS)
    return PyErr_Format(PyExc_ValueError, "%s: kernels: more than %d of them", s->entry->name,
                        ATTENTION_KERNELS),
           -1;
  for (size_t i = 0; i < s->kernel_count; i++) {
    s->kernels[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, (Py_ssize_t)i));
    if (s->kernels[i] == -1 && PyErr_Occurred())
      return refuse(s, "kernels", tuple, "whole numbers of 64 bits");
  }
  return 0;
}

static int take_settings(attention_settings *s, const attention_entry *entry, const arguments *given) {
  memset(s, 0, sizeof *s);
  s->entry = entry;
  s->n.query_start = SMX_ATTENTION_END, s->n.window_left = s->n.window_right = -1, s->n.symmetric = 1;
  s->on_empty = argument(given, "on_empty"), s->on_inf = argument(given, "on_inf");
  return take_numbers(s, given) < 0 || take_operator(s, given) < 0 || take_kernels(s, given) < 0 ? -1 : 0;
}

/* ---- a call ---- */

static void begin(attention_call *a, PyObject *module, const attention_settings *s) {
  a->s = s;
  a->op = (smx_op){.name = s->entry->name};
  core_clear(&a->c, module, &a->op);
  memset(a->object, 0, sizeof a->object);
  memset(a->given, 0, sizeof a->given);
  memset(a->array, 0, sizeof a->array);
  memset(&a->results, 0, sizeof a->results);
  a->out = a->states = NULL;
}

static int open_arrays(attention_call *a) {
  for (int i = 0; i < ATTENTION_ARRAYS; i++) {
    const char *name = attention_array_names[i];
    if (a->object[i]) a->given[i] = core_open(&a->c, a->object[i], "", name, false);
    if (a->object[i] && !a->given[i]) return -1;
    if (!a->object[i] && a->s->entry->required >> i & 1) return core_missing(&a->c, "", name);
  }
  return attention_lay_out(a);
}

static void fill_options(attention_call *a) {
  const attention_settings *s = a->s;
  smx_attention_options *o = &a->options;
  smx_attention_init(o);
  o->weights = (smx_attention_weights)s->n.weights;
  memcpy(o->param, s->param, sizeof o->param);
  o->scale = s->n.scale, o->softcap = s->n.softcap, o->dropout = s->n.dropout;
  o->causal = s->n.causal != 0;
  o->query_start = s->n.query_start, o->key_start = s->n.key_start;
  o->window_left = s->n.window_left, o->window_right = s->n.window_right;
  o->seed = (uint64_t)s->n.seed, o->stream = (uint64_t)s->n.stream;
  o->mask = a->array[MASK], o->bias = a->array[BIAS], o->slopes = a->array[SLOPES],
  o->sinks = a->array[SINKS];
  o->lengths = a->array[LENGTHS], o->streams = a->array[STREAMS], o->block_table = a->array[BLOCK_TABLE];
  o->query_offsets = a->array[QUERY_OFFSETS], o->key_offsets = a->array[KEY_OFFSETS];
}

/* Runs what has begun and got its objects; a tuple of all results, or the `handed` one. */
static PyObject *finish(attention_call *a) {
  const attention_settings *s = a->s;
  PyObject *keeper = NULL;
  bool good = core_context(a->c.state, a->op.name, s->on_empty, s->on_inf, &keeper, &a->ctx) == 0 &&
              open_arrays(a) == 0;
  if (good) fill_options(a);
  good = good && s->entry->run(a) == 0;
  if (good) core_copy_back(&a->c);
  Py_XDECREF(keeper);
  core_close(&a->c);
  PyObject *answer = good ? core_give_all(&a->c, &a->results, ATTENTION_RESULTS, false) : NULL;
  core_drop(&a->results);
  return answer;
}

static const attention_entry *find_entry(PyObject *name) {
  const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  for (size_t i = 0; text && i < attention_entry_count; i++)
    if (!strcmp(text, attention_entries[i].name)) return attention_entries + i;
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "libsoftmax._core: takes (entry point, arguments)");
  return NULL;
}

/* attention(entry point, arguments): a tuple of seven results, None for what there is not. */
PyObject *core_attention(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  const attention_entry *entry = count == 2 && PyDict_Check(args[1]) ? find_entry(args[0]) : NULL;
  attention_settings s;
  attention_call a;
  arguments given;
  if (!entry) return PyErr_Occurred() ? NULL : (PyErr_BadInternalCall(), NULL);
  if (take_arguments(&given, args[1]) < 0 || take_settings(&s, entry, &given) < 0) return NULL;
  begin(&a, module, &s);
  for (int i = 0; i < ATTENTION_ARRAYS; i++) a.object[i] = argument(&given, attention_array_names[i]);
  a.out = argument(&given, "out"), a.states = argument(&given, "states");
  return finish(&a);
}

/* ---- prepared calls ---- */

typedef struct prepared {
  core_prepared base;
  attention_settings settings;
  PyObject *given; /* kept: the settings borrow from it */
  int32_t place[ATTENTION_ARRAYS];
  uint32_t handed; /* see core_call */
} prepared;

static PyObject *run(PyObject *module, const core_prepared *base, PyObject *const *arrays,
                     core_array *const *opened) {
  const prepared *p = (const prepared *)base;
  attention_call a;
  begin(&a, module, &p->settings);
  core_take_prepared(&a.c, base, p->handed, arrays, opened);
  for (int32_t i = 0; i < base->count; i++) a.object[p->place[i]] = arrays[i];
  return finish(&a);
}

static void forget(core_prepared *base) { Py_XDECREF(((prepared *)base)->given); }

static int take_places(prepared *p, PyObject *names) {
  const Py_ssize_t n = PyTuple_Size(names);
  for (Py_ssize_t k = 0; k < n && k < ATTENTION_ARRAYS; k++) {
    int i = 0;
    while (i < ATTENTION_ARRAYS &&
           PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, k), attention_array_names[i]) != 0)
      i++;
    if (i == ATTENTION_ARRAYS) return PyErr_BadInternalCall(), -1;
    p->place[p->base.count++] = i;
  }
  return 0;
}

/* prepare_attention(entry point, arguments but arrays, names of the arrays, handed) */
PyObject *core_prepare_attention(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  if (count != 4 || !PyDict_Check(args[1]) || !PyTuple_Check(args[2]) || !PyLong_Check(args[3]))
    return PyErr_BadInternalCall(), NULL;
  const attention_entry *entry = find_entry(args[0]);
  prepared *p = entry ? PyMem_Calloc(1, sizeof *p) : NULL;
  arguments given;
  if (!p) return entry ? PyErr_NoMemory() : NULL;
  p->base.run = run, p->base.forget = forget;
  p->given = PyDict_Copy(args[1]);
  p->handed = (uint32_t)PyLong_AsLong(args[3]);
  PyObject *capsule = core_prepared_capsule(&p->base);
  if (capsule && (!p->given || take_places(p, args[2]) < 0 || take_arguments(&given, p->given) < 0 ||
                  take_settings(&p->settings, entry, &given) < 0))
    Py_CLEAR(capsule);
  return capsule;
}
