/* sample/sample.h - the tables of the sampling operators and steps. */
#ifndef SMX_SAMPLE_H
#define SMX_SAMPLE_H
#include <softmax.h>

enum {
#define SAMPLE_OP(name) SAMPLE_##name,
#include "list.h"
#undef SAMPLE_OP
  SAMPLE_COUNT
};
extern const smx_op sample_table[SAMPLE_COUNT];

/* The facts about each kind of step of smx_sample, by its number. */
extern const smx_step_info step_table[SMX_STEP_KINDS];

#endif
