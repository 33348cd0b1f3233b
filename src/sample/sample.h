/* sample/sample.h - what the room of sampling shows: its table. */
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

#endif
