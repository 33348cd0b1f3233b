/* driver/tensor_pack.h - the tensors of a call as functions want them that take packed ones. */
#ifndef SMX_DRIVER_TENSOR_PACK_H
#define SMX_DRIVER_TENSOR_PACK_H
#include "cpu/cpu.h"
#include "tensors.h"

/* The groups of a call: their ports, and whether they are written. */
typedef struct pack_group {
  const smx_port *ports;
  int32_t count;
  tensor_ports *tensors;
  bool out, read;
} pack_group;

typedef struct pack {
  tensor_call *c;
  pack_group groups[4];
  const dtype_io *io;
  smx_view caller[2][SMX_MAX_PORTS]; /* of what is written: outputs, gradients */
} pack;

/* Calls a function of f whose tensors are packed, or by channel: copies of the caller's where these
 * are otherwise. *p: what the call keeps meanwhile. */
smx_status tensors_run_packed(pack *p, tensor_call *c, const tensor_functions *f, bool backward);

/* The next index in C order; false after the last. */
static inline bool next_index(const smx_view *v, int64_t *index) {
  for (int32_t d = v->ndim - 1; d >= 0; d--) {
    if (++index[d] < v->shape[d]) return true;
    index[d] = 0;
  }
  return false;
}

#endif
