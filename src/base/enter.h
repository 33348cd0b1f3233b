/* base/enter.h - the entry and exit of a public function. It switches to the default floating-point
 * environment, and back however the function returns. Where the call could wait or run code of the
 * caller's, it also holds back the cancellation of the thread until the call is done. */
#ifndef SMX_BASE_ENTER_H
#define SMX_BASE_ENTER_H
#include "base.h"
#include "fpenv.h"

typedef struct smx_entry {
  smx_fpenv env;
  int cancel;
} smx_entry;

static inline smx_entry smx_enter(const smx_context *ctx) {
  return (smx_entry){smx_fpenv_enter(), ctx && smx_context_waits(ctx) ? smx_cancel_off() : SMX_CANCEL_KEPT};
}
static inline void smx_leave(const smx_entry *e) {
  smx_fpenv_leave(e->env);
  if (e->cancel != SMX_CANCEL_KEPT) smx_cancel_back(e->cancel);
}

/* The first line of every public function that does more than look something up. */
#define SMX_ENTER(ctx) __attribute__((cleanup(smx_leave), unused)) const smx_entry entry_ = smx_enter(ctx)

#endif
