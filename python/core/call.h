/* call.h - a call from Python on its way to the library. */
#ifndef SMX_PYTHON_CALL_H
#define SMX_PYTHON_CALL_H
#include "core.h"

/* Which axes of x rows run along, and what becomes of them (axes.c). */
typedef struct core_axes {
  bool several, keep;          /* any number of axes but one by its number; keepdims */
  int32_t ndim;                /* of x */
  int64_t shape[SMX_MAX_DIMS]; /* of x */
  bool row[SMX_MAX_DIMS];
} core_axes;

/* A tensor that is made for a call (copy.c). */
typedef struct core_scratch {
  smx_tensor tensor;
  int64_t shape[SMX_MAX_DIMS + 1], strides[SMX_MAX_DIMS + 1];
  char *memory;           /* NULL: a view of another tensor */
  const smx_tensor *back; /* where its elements go once the library has run, or NULL */
  struct core_scratch *before;
} core_scratch;

typedef struct core_call {
  core_state *state;
  /* What plain tensors of PyTorch are opened and made by, without a question; those that cannot be
   * opened so, for their dimensions or their layout, go the long way without their gradient. NULL:
   * every array is asked what it is. */
  const struct core_torch *torch;
  uint32_t handed;      /* bit i: output i is handed out; of others that are needed the memory is scratch */
  int32_t opened_count; /* arrays of the caller that are open already, and stay so */
  PyObject *const *given;
  core_array *const *opened;
  const smx_op *op;
  smx_params params;
  PyObject *value[SLOTS]; /* the arguments, borrowed; NULL: not given, or None */
  PyObject *unmasked;     /* (x, mask) of a masked array, or NULL */
  PyObject *kind;         /* of the caller's arrays, borrowed: (empty, wrap) of libsoftmax/_arrays.py */
  bool by_channel;        /* the layout of results: dimension 1 comes last in memory */
  int used;               /* how many arrays are open */
  core_array arrays[4 * SMX_MAX_PORTS + 1];
  core_axes axes;
  core_scratch *scratch;
} core_call;

/* ---- arguments.c ---- */

/* Reads (index of the operator, {name: slot}, slots of what may come by position, args, kwargs). */
int core_take_arguments(core_call *c, PyObject *module, PyObject *const *args, Py_ssize_t count);
int core_take_params(core_call *c);
int core_take_named(core_call *c, PyObject *slots, PyObject *kwargs); /* the last of the above alone */

/* A call without arguments, and the same without parameters. */
int core_begin(core_call *c, PyObject *module, PyObject *index);
void core_clear(core_call *c, PyObject *module, const smx_op *op);

/* ---- call.c ---- */

/* Says that an array is missing; -1. */
int core_missing(const core_call *c, const char *prefix, const char *port);

/* What a row is compared with: classes, masses of classes and a teacher's logits, the last two by
 * their name. They are given for each row, and never broadcast. */
bool core_is_target(const smx_port *port);

/* What has the shape of x in a gradient: x itself, or where it is not needed the first upstream
 * gradient. */
const smx_tensor *core_like_x(const smx_op *op, const smx_tensor *const *in, const smx_tensor *const *dout);

/* The call once its arguments and parameters are taken, or (good is false) only its end. */
PyObject *core_finish_forward(core_call *c, bool good);
PyObject *core_finish_backward(core_call *c, bool good);

/* ---- copy.c ---- */

smx_tensor *core_make_scratch(core_call *c, int32_t ndim, const int64_t *shape,
                              smx_dtype dtype); /* in C order */
smx_tensor *core_make_view(core_call *c, const smx_tensor *t, int32_t ndim, const int64_t *shape,
                           const int64_t *strides);
void core_write_back(core_call *c, const smx_tensor *to); /* of what was made last */
void core_copy_back(const core_call *c);
void core_free_scratch(core_call *c);

/* n may be 0, and then `from` NULL. */
static inline void core_copy_dims(int64_t *to, const int64_t *from, int32_t n) {
  for (int32_t d = 0; d < n; d++) to[d] = from[d];
}

void core_strides(const smx_tensor *t, int64_t *strides);
void core_copy(const smx_tensor *from, const smx_tensor *to); /* of the same shape */
bool core_is_packed(const smx_tensor *t);                     /* in C order, without gaps */
bool core_convertible(smx_dtype from, smx_dtype to);
const smx_tensor *core_convert(core_call *c, const smx_tensor *t, smx_dtype dtype); /* a copy of that dtype */
void core_hide(const smx_tensor *x, const smx_tensor *keep);                        /* -inf where keep is 0 */

/* ---- axes.c ---- */

int core_take_axes(core_call *c, const smx_tensor *x); /* x may be NULL */

/* t as the library is to see it: rows along one axis. A result (write) may be written in memory of
 * the call, for core_copy_back. NULL with an exception, or for NULL. core_arrange_row is for what
 * the forward call gives: without the dimensions that keepdims left. */
const smx_tensor *core_arrange(core_call *c, const smx_tensor *t, smx_shape_rule rule, core_label label,
                               bool write);
const smx_tensor *core_arrange_row(core_call *c, const smx_tensor *t, smx_shape_rule rule, core_label label,
                                   bool write);

/* From the library's shape to the caller's. */
void core_result_shape(const core_call *c, smx_shape_rule rule, smx_shape *shape);

/* Targets do not broadcast. */
int core_check_exact(core_call *c, const smx_port *port, const smx_tensor *t);

/* A copy of x with -inf where `where`, which broadcasts to x, is 0. */
const smx_tensor *core_where(core_call *c, const smx_tensor *x, const smx_tensor *where);

/* ---- results.c ---- */

/* The arrays of results: the caller's own (out=), or new ones of the caller's kind. */
typedef struct core_results {
  PyObject *object[SMX_MAX_PORTS]; /* references; NULL: not wanted */
  bool made[SMX_MAX_PORTS];
  const smx_tensor *tensor[SMX_MAX_PORTS];
} core_results;

const smx_tensor *core_open(core_call *c, PyObject *object, const char *prefix, const char *port, bool write);

/* What is read for a port: integers become what it takes. */
const smx_tensor *core_open_port(core_call *c, int slot, const char *prefix, const smx_port *port);

/* Remembers how arrays like this one are made. */
int core_take_kind(core_call *c, PyObject *like);

/* Result i: `given`, or a new array of that shape. */
int core_open_result(core_call *c, core_results *r, int32_t i, PyObject *given, const smx_shape *shape,
                     const char *prefix, const char *port);

/* A hint for memory that is written for the first time. */
void core_expect_large_pages(const smx_tensor *t);

/* Closes all arrays: to be done before results are handed back. */
void core_close(core_call *c);

/* The n results as the caller's kind of arrays, a new reference: a tuple with None for those that
 * were not wanted, or one by itself, the only one that there is (single) or that is handed out. */
PyObject *core_give_all(core_call *c, core_results *r, int32_t n, bool single);

void core_drop(core_results *r);

#endif
