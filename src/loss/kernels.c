/* loss/kernels.c - the kernels of the room, in the order of list.h. */
#include "engine/program.h"
#include "vec/vec.h"
#include "loss.h"

#define LOSS_OP(name) extern const row_pair SMX_FN(op_##name);
#include "list.h"
#undef LOSS_OP

const row_pair *const SMX_FN(loss_kernels)[LOSS_COUNT] = {
#define LOSS_OP(name) &SMX_FN(op_##name),
#include "list.h"
#undef LOSS_OP
};
