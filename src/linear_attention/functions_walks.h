/* linear_attention/functions_walks.h - walks of the kernel over staged tokens. */
#ifndef SMX_LINEAR_ATTENTION_FUNCTIONS_WALKS_H
#define SMX_LINEAR_ATTENTION_FUNCTIONS_WALKS_H
#include "functions.h"

static inline state_walk walk_of(char *state, int64_t rows, int64_t width, int64_t x_step, int64_t tokens) {
  return (state_walk){.state = state, .rows = rows, .width = width, .x_step = x_step, .tokens = tokens};
}

/* The decay of the tokens; turned: of a state whose columns are the d elements of keys. */
static inline void walk_shrinks(const state_call *s, state_walk *w, const state_tokens *t, bool turned) {
  const bool each = s->decay_width != 1;
  w->decay = t->decay;
  w->decay_token = each ? s->wide_d : 1;
  w->decay_row = each && !turned, w->lanes = each && turned;
}

#endif
