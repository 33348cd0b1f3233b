/* row/row.h - the table of the row operators. */
#ifndef SMX_ROW_H
#define SMX_ROW_H
#include <softmax.h>

enum {
#define ROW_OP(name) ROW_##name,
#include "list.h"
#undef ROW_OP
  ROW_COUNT
};
extern const smx_op row_table[ROW_COUNT];

#endif
