/* loss/choice.h - a loss whose parameters say which of two programs it is. */
#ifndef SMX_LOSS_CHOICE_H
#define SMX_LOSS_CHOICE_H
#include "rows.h"

/* The kernels NAME, of two losses: `one` if the condition on the parameters (of the call c) holds,
 * else `other`. */
#define LOSS_CHOICE(name, when, one, other) \
  static const row_kernel *name##_dispatch(const row_call *c) { \
    return when ? &one##_kernel : &other##_kernel; \
  } \
  static const row_kernel *name##_grad_dispatch(const row_call *c) { \
    return when ? &one##_grad_kernel : &other##_grad_kernel; \
  } \
  static const row_kernel name##_kernel = {.engine = &choice_engine, \
                                           .body = &(const row_choice){name##_dispatch, -1}}; \
  static const row_kernel name##_grad_kernel = {.engine = &choice_engine, \
                                                .body = &(const row_choice){name##_grad_dispatch, -1}};

#endif
