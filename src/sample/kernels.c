/* sample/kernels.c - the kernels of the room, in the order of list.h. */
#include "engine/program.h"
#include "vec/vec.h"
#include "sample.h"

#define SAMPLE_OP(name) extern const row_pair SMX_FN(op_##name);
#include "list.h"
#undef SAMPLE_OP

const row_pair *const SMX_FN(sample_kernels)[SAMPLE_COUNT] = {
#define SAMPLE_OP(name) &SMX_FN(op_##name),
#include "list.h"
#undef SAMPLE_OP
};
