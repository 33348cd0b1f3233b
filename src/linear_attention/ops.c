/* linear_attention/ops.c - walks over tokens with a state (linear_attention.h). Compiled once
 * for an instruction set and real type. */
#include "engine/loops.h"
#include "linear_attention.h"

/* Number `at` of an array that may not be there. */
SMI const real *reals(const void *p, int64_t at) { return p ? (const real *)p + at : NULL; }
SMI real *reals_to(void *p, int64_t at) { return p ? (real *)p + at : NULL; }

/* A token of those from `first` on, as they are walked. */
SMI int64_t token_of(const state_walk *w, int64_t first, int u) {
  return w->backward ? w->tokens - 1 - first - u : first + u;
}

/* Two tokens share what they read and write of the state, of one vector with AVX2 and NEON, of two
 * with AVX-512: so there are four sums at work, each of which waits for itself four cycles. Three
 * tokens do not fit AVX2's registers (12 % slower). A token alone takes two vectors. */
enum { TOKENS = 2, VECTORS = 2 };
#if defined(__AVX512F__) && !defined(V_PORTABLE)
enum { SHARED = 2 };
#else
enum { SHARED = 1 };
#endif
#define EACH_OF(u, count) _Pragma("GCC unroll 2") for (int u = 0; u < (count); u++)

/* What a step does for tokens from `first` on with the vectors of every row from j on. */
SMI void tile_of(const state_walk *w, const state_step *s, int64_t first, int64_t j, int tokens, int vectors,
                 bool adds, bool reads, bool shrinks) {
  const real *x[TOKENS], *z[TOKENS], *decay[TOKENS];
  vreal y[TOKENS][VECTORS], out[TOKENS][VECTORS];
  EACH_OF(u, tokens) {
    const int64_t t = token_of(w, first, u);
    x[u] = reals(s->x, t * w->x_step), z[u] = reals(s->z, t * w->x_step);
    decay[u] = reals(w->decay, t * w->decay_token);
    EACH_OF(v, vectors) {
      if (adds) y[u][v] = v_load(reals(s->y, t * w->width + j + v * LANES));
      out[u][v] = v_set1(0);
    }
  }
  const int64_t rows = w->rows, width = w->width, decay_row = w->decay_row;
  const bool before = shrinks && !w->backward, behind = shrinks && w->backward;
  real *at = (real *)w->state + j;
  for (int64_t i = 0; i < rows; i++, at += width) {
    vreal state[VECTORS];
    EACH_OF(v, vectors)
    state[v] = v_load(at + v * LANES);
    EACH_OF(u, tokens) {
      const vreal by = shrinks ? v_set1(decay[u][i * decay_row]) : v_set1(1);
      const vreal xi = adds ? v_set1(x[u][i]) : by, zi = reads ? v_set1(z[u][i]) : by;
      EACH_OF(v, vectors) {
        if (before) state[v] = v_mul(state[v], by);
        if (adds) state[v] = v_fma(xi, y[u][v], state[v]);
        if (reads) out[u][v] = v_fma(zi, state[v], out[u][v]);
        if (behind) state[v] = v_mul(state[v], by);
      }
    }
    EACH_OF(v, vectors)
    if (adds || shrinks) v_store(at + v * LANES, state[v]);
  }
  EACH_OF(u, tokens)
  EACH_OF(v, vectors)
  if (reads) v_store(reals_to(s->out, token_of(w, first, u) * w->width + j + v * LANES), out[u][v]);
}

#define TILES(name, adds, reads, shrinks) \
  NOINLINE void name(const state_walk *w, const state_step *s, int64_t first, int tokens) { \
    int64_t j = 0; \
    if (tokens == TOKENS) { \
      for (; j + SHARED * LANES <= w->width; j += SHARED * LANES) \
        tile_of(w, s, first, j, TOKENS, SHARED, adds, reads, shrinks); \
      if (SHARED > 1 && j < w->width) tile_of(w, s, first, j, TOKENS, 1, adds, reads, shrinks); \
      return; \
    } \
    for (; j + VECTORS * LANES <= w->width; j += VECTORS * LANES) \
      tile_of(w, s, first, j, 1, VECTORS, adds, reads, shrinks); \
    if (j < w->width) tile_of(w, s, first, j, 1, 1, adds, reads, shrinks); \
  }
TILES(add_read, true, true, false)
TILES(add_read_shrink, true, true, true)
TILES(add, true, false, false)
TILES(add_shrink, true, false, true)
TILES(read, false, true, false)
TILES(read_shrink, false, true, true)

typedef void tile_fn(const state_walk *w, const state_step *s, int64_t first, int tokens);

/* NULL: a step that is not one of these. The state shrinks in the first step, or in the last one
 * backward. */
SMI tile_fn *tile_for(const state_walk *w, int number) {
  static tile_fn *const tiles[2][2][2] = {{{NULL, NULL}, {read, read_shrink}},
                                          {{add, add_shrink}, {add_read, add_read_shrink}}};
  const state_step *s = w->step + number;
  const bool shrinks = w->decay && number == (w->backward ? w->two : 0);
  if (w->before || (shrinks && w->lanes)) return NULL;
  return tiles[s->x != NULL][s->z != NULL][shrinks];
}

SMI vreal shrunk(const state_walk *w, vreal state, int64_t t, int64_t i, int64_t j) {
  const real *decay = reals(w->decay, t * w->decay_token);
  return v_mul(state, w->lanes ? v_load(decay + j) : v_set1(decay[i * w->decay_row]));
}

/* Step `number` of token t on vector j of every row. */
SMI void step_of(const state_walk *w, int64_t t, int number, int64_t j) {
  const state_step *s = w->step + number;
  const bool first = number == 0, last = number == w->two, compares = last && w->product;
  const real *x = reals(s->x, t * w->x_step), *z = reals(s->z, t * w->x_step);
  const vreal y = s->x ? v_load(reals(s->y, t * w->width + j)) : v_set1(0);
  real *before = reals_to(w->before, t * w->rows * w->width + j);
  vreal out = v_set1(0), product = v_set1(0);
  for (int64_t i = 0; i < w->rows; i++) {
    real *at = reals_to(w->state, i * w->width + j);
    vreal state = v_load(at);
    if (first && before && !w->product) v_store(before + i * w->width, state);
    if (first && w->decay && !w->backward) state = shrunk(w, state, t, i, j);
    if (s->x) state = v_fma(v_set1(x[i]), y, state);
    if (s->z) out = v_fma(v_set1(z[i]), state, out);
    if (compares) product = v_fma(state, v_load(before + i * w->width), product);
    if (last && w->decay && w->backward) state = shrunk(w, state, t, i, j);
    v_store(at, state);
  }
  if (s->z) v_store(reals_to(s->out, t * w->width + j), out);
  if (compares) v_store(reals_to(w->product, t * w->width + j), product);
}

NOINLINE void follow_rule(const state_walk *w, int64_t t) {
  const vreal beta = v_set1(*reals(w->beta, t));
  for (int64_t j = t * w->width; j < (t + 1) * w->width; j += LANES) {
    const vreal out = v_load(reals(w->step[0].out, j));
    const vreal delta =
        w->rule == STATE_DELTA ? v_sub(v_load(reals(w->value, j)), out) : v_sub(v_set1(0), out);
    v_store(reals_to(w->step[1].y, j), v_mul(beta, delta));
  }
}

NOINLINE void any_step(const state_walk *w, int64_t t, int number) {
  for (int64_t j = 0; j < w->width; j += LANES) step_of(w, t, number, j);
}

static void walk(const state_walk *w) {
  tile_fn *const tile[] = {tile_for(w, 0), w->two ? tile_for(w, 1) : NULL};
  int64_t first = 0;
  for (; !w->two && tile[0] && first + TOKENS <= w->tokens; first += TOKENS)
    tile[0](w, w->step, first, TOKENS);
  for (; first < w->tokens; first++)
    for (int number = 0; number <= w->two; number++) {
      if (tile[number]) tile[number](w, w->step + number, first, 1);
      else any_step(w, token_of(w, first, 0), number);
      if (number == 0 && w->rule != STATE_GIVEN) follow_rule(w, token_of(w, first, 0));
    }
}

typedef struct mapped {
  vreal y, slope;
} mapped;

SMI mapped mapped_of(int map, vreal x) {
  const vreal zero = v_set1(0), one = v_set1(1);
  const vmask positive = v_lt(zero, x);
  if (map == STATE_RELU) return (mapped){v_select(v_lt(x, zero), zero, x), v_select(positive, one, zero)};
  if (map == STATE_SQUARE) {
    const vreal r = v_select(v_lt(x, zero), zero, x);
    return (mapped){v_mul(r, r), v_add(r, r)};
  }
  if (map == STATE_EXP || map == STATE_ELU1) {
    const vreal e = v_exp(x);
    if (map == STATE_EXP) return (mapped){e, e};
    return (mapped){v_select(positive, v_add(x, one), e), v_select(positive, one, e)};
  }
  if (map == STATE_SILU) { /* x s, s + x s (1 - s); 0 at -inf, where x s would be NaN */
    const vreal s = v_sigmoid(x), rest = v_sigmoid(v_sub(zero, x));
    const vreal y = v_select(v_eq(s, zero), zero, v_mul(x, s));
    return (mapped){y, v_select(v_eq(rest, zero), one, v_fma(y, rest, s))};
  }
  return (mapped){x, one};
}

static void map_all(int map, double scale, const void *x, int64_t n, void *y, void *slope) {
  const vreal by = v_set1((real)scale);
  for (int64_t i = 0; i < n; i += LANES) {
    const int cnt = lanes_left((size_t)(n - i));
    const mapped m = mapped_of(map, at(x, (size_t)i, cnt));
    put(y, (size_t)i, cnt, v_mul(by, m.y));
    if (slope) put(slope, (size_t)i, cnt, v_mul(by, m.slope));
  }
}

const linear_attention_kernels SMX_FN(linear_attention_kernels) = {walk, map_all, SMX_FN(state_sin_cos),
                                                                   SMX_FN(state_normal)};
