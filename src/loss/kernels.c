/* loss/kernels.c - the kernels of the family, in the order of list.h. */
#include "engine/program.h"
#include "engine/tier.h"
#include "loss.h"

#define LOSS_OP(name) extern const row_pair SMX_FN(op_##name);
#define LOSS_OP_F32(name) extern const row_pair SMX_FN_F32(op_##name);
#define LOSS_OP_AVX2(name) extern const row_pair SMX_FN_AVX2(op_##name);
#include "list.h"
#undef LOSS_OP

const row_pair *const SMX_FN(loss_kernels)[LOSS_COUNT] = {
#define LOSS_OP(name) &SMX_FN(op_##name),
#define LOSS_OP_F32(name) &SMX_FN_F32(op_##name),
#define LOSS_OP_AVX2(name) &SMX_FN_AVX2(op_##name),
#include "list.h"
#undef LOSS_OP
};
