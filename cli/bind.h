/* bind.h - puts files and values of the command line to the ports and parameters of an operator. */
#ifndef CLI_BIND_H
#define CLI_BIND_H

#include "io/io.h"
#include "options.h"

/* One array for one port. */
typedef struct input {
  const char *path; /* NULL = not given */
  io_array array;
  /* what the operator is given; differs from the array's type where that does not fit the port */
  const dtype *want;
  unsigned char *scratch; /* a block of it, where it cannot be passed as it lies */
} input;

typedef struct binding {
  const smx_op *op;
  smx_params params;
  input in[SMX_MAX_PORTS], dout[SMX_MAX_PORTS];
} binding;

/* Must be freed, after a fault too. first: the first of the files that is an input. */
int bind_inputs(binding *b, const smx_op *op, const options *o, int first);
void bind_free(binding *b);

/* Reads the file of one port: raw and text inputs as the port needs them, else as the options say,
 * else, for text, in the precision of x (NULL = this is x). Must be freed with input_free, after a
 * fault too. */
int input_read(input *in, const smx_port *port, const options *o, const dtype *x);
void input_free(input *in);

/* The number of a parameter, or of an output, of that name; -1: there is none. */
int32_t find_param(const smx_op *op, const char *name);
int32_t find_output(const smx_op *op, const char *name);

/* The status of a library call on these inputs: a fault that names the file of the argument. */
int bind_fault(const binding *b, smx_status status);

/* "entmax:alpha=1.5,...": an operator with parameters. before: what faults begin with. */
int bind_operator(const char *before, const char *text, const smx_op **op, smx_params *params);

/* A tensor over the whole array, as the operator is given it; data stays NULL. Its shape lies in
 * the array. */
smx_tensor bind_tensor(input *in);

#endif
