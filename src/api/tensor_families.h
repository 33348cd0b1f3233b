/* api/tensor_families.h - the functions of each family of operators on tensors, in the order of its
 * table (src/FAMILY/functions.c). */
#ifndef SMX_API_TENSOR_FAMILIES_H
#define SMX_API_TENSOR_FAMILIES_H
#include "driver/tensors.h"

extern const tensor_functions matrix_functions[], pool_functions[], head_functions[], gate_functions[],
    score_functions[], fit_functions[], linear_attention_functions[], pairwise_functions[],
    attention_functions[];

#endif
