/* driver/dims.h - the shapes of ports whose dimensions have names (SMX_SHAPE_DIMS), as softmax.h
 * describes them at smx_port.dims. */
#ifndef SMX_DRIVER_DIMS_H
#define SMX_DRIVER_DIMS_H
#include "internal.h"

enum { DIMS_NAMES = 24, DIMS_UNKNOWN = -1 };

/* A word of a description. */
typedef enum dims_kind { DIMS_END, DIMS_LEAD, DIMS_NUMBER, DIMS_NAME } dims_kind;
typedef struct dims_word {
  dims_kind kind;
  const char *name; /* not terminated */
  size_t length;
  int64_t number;  /* of DIMS_NUMBER; else what is added to the name: 0 or 1 */
  int32_t repeats; /* dimensions that share the name; 1 unless it is "s*" */
} dims_word;

/* What is known of the names of an operator while a call is checked. */
typedef struct dims {
  const smx_op *op;
  const double *param;
  int32_t spatial; /* of "s*" */
  int32_t lead;    /* dimensions of "...", or DIMS_UNKNOWN */
  int64_t lead_shape[SMX_MAX_DIMS], lead_count;
  bool changed; /* a name has another value than a shape gave it */
  int32_t count;
  struct dims_named {
    const char *name;
    size_t length;
    int32_t number; /* of "s*": which of them */
    int64_t value;
  } named[DIMS_NAMES];
} dims;

void dims_begin(dims *d, const smx_op *op, const double *param);

/* The names of a port get their values from the shape of its tensor, or are compared with it. */
smx_status dims_take(dims *d, const smx_port *port, const char *prefix, const smx_view *v);

/* The shape of a port. False: a name of it is not known yet. */
bool dims_shape(const dims *d, const smx_port *port, int32_t *ndim, int64_t *shape);

/* The value of a name, or DIMS_UNKNOWN; number: of "s*". */
int64_t dims_value(const dims *d, const char *name, int32_t number);
void dims_set(dims *d, const char *name, int32_t number, int64_t value);

/* The value of a parameter; otherwise: the operator has none of that name. */
double dims_param(const dims *d, const char *name, double otherwise);

/* The bar of a port: '<', 'o' for offsets, or 0 for none; *bound: what its whole numbers stay
 * below, or end with. */
char dims_bound(const dims *d, const smx_port *port, int64_t *bound);

#endif
