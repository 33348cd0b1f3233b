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

/* The part of a walk that is `count` tokens from `first` on; bytes: of a real. */
static inline state_walk walk_part(state_walk w, int64_t first, int64_t count, int64_t bytes) {
  const int64_t x = first * w.x_step * bytes, y = first * w.width * bytes;
  w.tokens = count;
  for (int i = 0; i < 2; i++) {
    state_step *p = w.step + i;
    if (p->x) p->x = (const char *)p->x + x;
    if (p->y) p->y = (char *)p->y + y;
    if (p->z) p->z = (const char *)p->z + x;
    if (p->out) p->out = (char *)p->out + y;
  }
  if (w.decay) w.decay = (const char *)w.decay + first * w.decay_token * bytes;
  if (w.product) w.product = (char *)w.product + y;
  return w;
}

static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
