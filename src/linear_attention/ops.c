/* linear_attention/ops.c - walks over tokens with a state (linear_attention.h). Compiled once
 * for an instruction set and real type. */
#include "engine/loops.h"
#include "engine/machine.h"
#include "linear_attention.h"
#include "vec/columns.h"
#include "vec/wide.h"

/* Number `at` of an array that may not be there. */
SMI const real *reals(const void *p, int64_t at) { return p ? (const real *)p + at : NULL; }
SMI real *reals_to(void *p, int64_t at) { return p ? (real *)p + at : NULL; }

/* A token of those from `first` on, as they are walked. */
SMI int64_t token_of(const state_walk *w, int64_t first, int u) {
  return w->backward ? w->tokens - 1 - first - u : first + u;
}

/* What a tile does with the state for each of its tokens; FETCH: meanwhile. */
enum { SHRINK = 1, ADD = 2, READ = 4, FETCH = 8 };

/* TOKENS share what they read and write of a panel of the state: VECTORS of each row, of a pair of
 * registers each with AVX2. Their y and sums stay in registers, and there are as many sums as to
 * have one of them ready in each cycle. */
#if defined(__AVX512F__) && !defined(V_PORTABLE)
enum { TOKENS = 4, VECTORS = 2 };
#elif defined(__AVX2__) && !defined(V_PORTABLE)
enum { TOKENS = 3, VECTORS = 1 };
#else
enum { TOKENS = 4, VECTORS = 1 };
#endif
enum { BOTH = 2 };
#define EACH_OF(u, count) _Pragma("GCC unroll 4") for (int u = 0; u < (count); u++)

/* The vectors from column j on. The state lies at `at`, and is first read at `from`. */
typedef struct panel {
  real *at;
  const real *from;
  int64_t stride, j;
  int vectors;
  const char *ahead; /* is fetched into the caches, ahead_row bytes further on for each row */
  int64_t ahead_row;
} panel;

/* Tokens from `first` on: the first takes step s of `kind`, the others step s_after of
 * `kind_after`. */
typedef struct token_steps {
  const state_step *s, *s_after;
  int64_t first;
} token_steps;

static const real no_decay[1] = {1};

SMI void tile_of(const state_walk *w, const panel *p, const token_steps *steps, int tokens, int vectors,
                 int kind, int kind_after) {
  const real *x[TOKENS], *z[TOKENS], *decay[TOKENS];
  vreal y[TOKENS][VECTORS], out[TOKENS][VECTORS];
  real *to[TOKENS];
  EACH_OF(u, tokens) {
    const state_step *s = u ? steps->s_after : steps->s;
    const int64_t t = token_of(w, steps->first, u);
    x[u] = reals(s->x, t * w->x_step), z[u] = reals(s->z, t * w->x_step);
    decay[u] = w->decay ? reals(w->decay, t * w->decay_token) : no_decay;
    to[u] = reals_to(s->out, t * w->width + p->j);
    EACH_OF(v, vectors) {
      if ((u ? kind_after : kind) & ADD) y[u][v] = v_load(reals(s->y, t * w->width + p->j + v * LANES));
      out[u][v] = v_set1(0);
    }
  }
  const int64_t rows = w->rows, stride = p->stride;
  const int64_t decay_row = w->decay ? w->decay_row : 0;
  const bool behind = w->backward;
  const real *from = p->from;
  const char *ahead = p->ahead;
  real *at = p->at;
  for (int64_t i = 0; i < rows; i++, at += stride, from += stride) {
    vreal state[VECTORS];
    if (kind & FETCH) v_prefetch(ahead), ahead += p->ahead_row;
    EACH_OF(v, vectors)
    state[v] = v_load(from + v * LANES);
    EACH_OF(u, tokens) {
      const int k = u ? kind_after : kind;
      const vreal by = k & SHRINK ? v_set1(decay[u][i * decay_row]) : v_set1(1);
      const vreal xi = k & ADD ? v_set1(x[u][i]) : by, zi = k & READ ? v_set1(z[u][i]) : by;
      EACH_OF(v, vectors) {
        if ((k & SHRINK) && !behind) state[v] = v_mul(state[v], by);
        if (k & ADD) state[v] = v_fma(xi, y[u][v], state[v]);
        if (k & READ) out[u][v] = v_fma(zi, state[v], out[u][v]);
        if ((k & SHRINK) && behind) state[v] = v_mul(state[v], by);
      }
    }
    EACH_OF(v, vectors)
    if ((kind | kind_after) & (ADD | SHRINK)) v_store(at + v * LANES, state[v]);
  }
  EACH_OF(u, tokens)
  EACH_OF(v, vectors)
  if ((u ? kind_after : kind) & READ) v_store(to[u] + v * LANES, out[u][v]);
}

#define TILES(name, kind) \
  NOINLINE void name(const state_walk *w, const panel *p, const token_steps *steps, int tokens) { \
    if (p->vectors == 1 && tokens == 1) tile_of(w, p, steps, 1, 1, kind, kind); \
    else if (p->vectors == 1) tile_of(w, p, steps, TOKENS, 1, kind, kind); \
    else if (tokens == 1) tile_of(w, p, steps, 1, VECTORS, kind, kind); \
    else tile_of(w, p, steps, TOKENS, VECTORS, kind, kind); \
  }
TILES(add_read, ADD | READ)
TILES(add_read_shrink, ADD | READ | SHRINK)
TILES(add_read_fetch, ADD | READ | FETCH)
TILES(add_read_shrink_fetch, ADD | READ | SHRINK | FETCH)
TILES(add, ADD)
TILES(add_shrink, ADD | SHRINK)
TILES(read, READ)
TILES(read_shrink, READ | SHRINK)

/* The second step of a token and the first one of the next. */
NOINLINE void second_first(const state_walk *w, const panel *p, const token_steps *steps) {
  if (p->vectors == 1) tile_of(w, p, steps, BOTH, 1, ADD | READ, READ | SHRINK);
  else tile_of(w, p, steps, BOTH, VECTORS, ADD | READ, READ | SHRINK);
}

typedef void tile_fn(const state_walk *w, const panel *p, const token_steps *steps, int tokens);

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

static void clean(void *x, int64_t n, bool tiny) {
  for (int64_t i = 0; i < n; i += LANES) {
    const int cnt = lanes_left((size_t)(n - i));
    const vreal is = at(x, (size_t)i, cnt);
    put(x, (size_t)i, cnt, tiny ? v_clean(is) : v_select(v_eq(is, is), is, v_set1(r_nan())));
  }
}

/* ---- any step ---- */

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

/* The y of the second step, in columns j..end - 1. */
NOINLINE void follow_rule(const state_walk *w, int64_t t, int64_t j, int64_t end) {
  const vreal beta = v_set1(*reals(w->beta, t));
  for (j += t * w->width, end += t * w->width; j < end; j += LANES) {
    const vreal out = v_load(reals(w->step[0].out, j));
    const vreal delta =
        w->rule == STATE_DELTA ? v_sub(v_load(reals(w->value, j)), out) : v_sub(v_set1(0), out);
    v_store(reals_to(w->step[1].y, j), v_mul(beta, delta));
  }
}

NOINLINE void any_step(const state_walk *w, int64_t t, int number) {
  for (int64_t j = 0; j < w->width; j += LANES) step_of(w, t, number, j);
}

/* ---- panels ---- */

SMI int vectors_at(const state_walk *w, int64_t j) { return j + VECTORS * LANES <= w->width ? VECTORS : 1; }

static panel panel_of(const state_walk *w, int64_t j) {
  real *state = (real *)w->state + j;
  const real *from = w->from ? (const real *)w->from + j : state;
  const int64_t stride = w->stride ? w->stride : w->width;
  return (panel){state, from, stride, j, vectors_at(w, j), NULL, 0};
}

/* Token by token, where a step is none of the tiles. */
NOINLINE void walk_plainly(const state_walk *w, tile_fn *const *tile) {
  for (int64_t first = 0; first < w->tokens; first++) {
    const int64_t t = token_of(w, first, 0);
    for (int number = 0; number <= w->two; number++) {
      const token_steps steps = {w->step + number, NULL, first};
      if (!tile[number]) any_step(w, t, number);
      for (int64_t j = 0; tile[number] && j < w->width; j += vectors_at(w, j) * LANES) {
        const panel p = panel_of(w, j);
        tile[number](w, &p, &steps, 1);
      }
      if (number == 0 && w->rule != STATE_GIVEN) follow_rule(w, t, 0, w->width);
    }
  }
}

enum { LINE = 64 };

static tile_fn *fetching(tile_fn *tile) {
  return tile == add_read ? add_read_fetch : tile == add_read_shrink ? add_read_shrink_fetch : NULL;
}

/* What a panel has of the arrays that are read next; its tiles take them in turns. */
typedef struct later {
  const char *at[AHEAD];
  int64_t bytes[AHEAD], row[AHEAD]; /* of a tile; 0: none, or not line by line */
  int count, turn;
} later;

static later later_of(const state_walk *w, const panel *p) {
  const int64_t wide = VECTORS * LANES, panels = (w->width + wide - 1) / wide, own = p->j / wide;
  later l = {.count = own < AHEAD && w->rows ? (int)((AHEAD - own + panels - 1) / panels) : 0};
  for (int i = 0; i < l.count; i++) {
    const state_ahead *a = w->ahead + own + i * panels;
    if (!a->rows) continue;
    l.at[i] = a->rows, l.bytes[i] = TOKENS * l.count * a->bytes;
    l.row[i] = l.bytes[i] <= w->rows * LINE ? l.bytes[i] / w->rows : 0;
  }
  return l;
}

/* A line at a time, between the sums of a tile; at once, where there are more lines than rows. */
SMI void fetch_later(later *l, panel *p) {
  const int i = l->turn;
  const char *at = l->at[i] ? l->at[i] : (const char *)p->at;
  for (int64_t x = 0; x < l->bytes[i] && !l->row[i]; x += LINE) v_prefetch_far(at + x);
  p->ahead = at, p->ahead_row = l->row[i];
  l->at[i] = at + l->bytes[i];
  l->turn = i + 1 < l->count ? i + 1 : 0;
}

/* What some tokens read becomes what outputs hold, while it is in the first-level cache. */
NOINLINE void finish(const state_walk *w, const panel *p, int64_t first, int tokens) {
  for (int u = 0; u < tokens; u++) {
    const int64_t t = token_of(w, first, u);
    real *out = reals_to(w->step->out, t * w->width + p->j);
    for (int v = 0; v < p->vectors; v++, out += LANES)
      v_store(out, v_clean(w->over ? v_narrow(v_wide_mul(v_widen_at(out), w->over[t])) : v_load(out)));
  }
}

static void walk_tokens(const state_walk *w, tile_fn *tile, panel *p) {
  later l = w->ahead->rows && fetching(tile) ? later_of(w, p) : (later){.count = 0};
  tile_fn *const by = l.count ? fetching(tile) : tile;
  token_steps steps = {w->step, w->step, 0};
  for (int tokens; steps.first < w->tokens; steps.first += tokens) {
    tokens = steps.first + TOKENS <= w->tokens ? TOKENS : 1;
    if (l.count) fetch_later(&l, p);
    by(w, p, &steps, tokens);
    if (w->cleans) finish(w, p, steps.first, tokens);
    p->from = p->at;
  }
}

/* Two steps a token, and what the rule makes in between. With the delta rule the second step of a
 * token goes with the first of the next. */
static void walk_steps(const state_walk *w, tile_fn *const *tile, const panel *p) {
  const bool joined = w->rule == STATE_DELTA && !w->backward && tile[1] == add_read;
  const int64_t end = p->j + p->vectors * LANES;
  for (int64_t first = 0; first < w->tokens; first++) {
    const token_steps one = {w->step, NULL, first}, two = {w->step + 1, w->step, first};
    if (!joined || first == 0) tile[0](w, p, &one, 1);
    if (w->rule != STATE_GIVEN) follow_rule(w, token_of(w, first, 0), p->j, end);
    if (joined && first + 1 < w->tokens) second_first(w, p, &two);
    else tile[1](w, p, &two, 1);
  }
}

static void walk_panel(const state_walk *w, tile_fn *const *tile, int64_t j) {
  panel p = panel_of(w, j);
  if (w->two) walk_steps(w, tile, &p);
  else walk_tokens(w, tile[0], &p);
}

/* ---- one token ----
 *
 * A state that is read once and written once is walked as it lies in memory: a row at a time, with
 * y and out in the first-level cache. */

SMI void put_state(real *to, vreal x, bool streams) {
  x = v_select(v_eq(x, x), x, v_set1(r_nan()));
  if (streams) v_stream(to, x);
  else v_store(to, x);
}

SMI void one_token_of(const state_walk *w, bool streams) {
  const state_step *s = w->step;
  const real *from = w->from ? w->from : w->state, *x = s->x, *y = s->y, *z = s->z, *decay = w->decay;
  real *to = w->state, *out = s->out;
  for (int64_t i = 0; i < w->rows; i++, from += w->width, to += w->width) {
    const vreal by = v_set1(decay ? decay[i * w->decay_row] : 1), xi = v_set1(x[i]), zi = v_set1(z[i]);
    for (int64_t j = 0; j < w->width; j += LANES) {
      const vreal state = v_fma(xi, v_load(y + j), v_mul(v_load(from + j), by));
      v_store(out + j, v_fma(zi, state, i ? v_load(out + j) : v_set1(0)));
      put_state(to + j, state, streams);
    }
  }
}

static void one_token(const state_walk *w) {
  const bool lines = w->width * sizeof(real) % 64 == 0 && (uintptr_t)w->state % 64 == 0;
  if (!lines || writing_for(w->result) != WRITE_STREAMING) {
    one_token_of(w, false);
    return;
  }
  one_token_of(w, true);
  v_stream_end();
}

static void walk(const state_walk *w) {
  if (w->result && w->rows > 0) {
    one_token(w);
    if (w->cleans) clean(w->step->out, w->width, true);
    return;
  }
  tile_fn *const tile[] = {tile_for(w, 0), w->two ? tile_for(w, 1) : NULL};
  if (!tile[0] || (w->two && !tile[1])) {
    walk_plainly(w, tile);
    return;
  }
  for (int64_t j = 0; j < w->width; j += vectors_at(w, j) * LANES) walk_panel(w, tile, j);
}

/* ---- sums ---- */

enum { ROWS = 64 }; /* of the state, side by side, at most: their sums wait together */

/* The column after each of some tokens, in rows of ROWS. */
SMI void add_keys(const state_sums *c, int64_t i, int64_t rows, int64_t first, int tokens, real *column,
                  real *after) {
  for (int64_t r = 0; r < rows; r += LANES) {
    const real *k = reals(c->k, first * c->x_step + i + r);
    vreal state = v_load(column + r);
    for (int t = 0; t < tokens; t++, k += c->x_step) {
      state = v_add(v_load(k), state);
      v_store(after + t * ROWS + r, state);
    }
    for (int t = tokens; t < LANES && tokens > 1; t++) v_store(after + t * ROWS + r, state);
    v_store(column + r, state);
  }
}

/* What the queries of some tokens, `step` apart, read of these rows. Steps of 0: of one token. */
SMI vreal read_rows(const real *after, int64_t after_step, const real *q, int64_t step, int64_t rows,
                    vreal out) {
  for (int64_t x = 0; x < rows; x += REAL_STEP) {
    vreal s[REAL_STEP], z[REAL_STEP];
    v_columns((const char *)(after + x), after_step * (int64_t)sizeof(real), s);
    v_columns((const char *)(q + x), step * (int64_t)sizeof(real), z);
    _Pragma("GCC unroll 4") for (int y = 0; y < REAL_STEP; y++) out = v_fma(z[y], s[y], out);
  }
  return out;
}

SMI void add_tokens(const state_sums *c, int64_t i, int64_t rows, int64_t first, int tokens, real *column) {
  real after[LANES * ROWS], few[LANES * ROWS], *out = reals_to(c->out, first);
  const real *q = reals(c->q, first * c->x_step + i);
  const vreal before = i ? at(out, 0, tokens) : v_set1(0);
  const bool one = tokens == 1, all = tokens == LANES;
  add_keys(c, i, rows, first, tokens, column, after);
  for (int t = 0; t < LANES && !one && !all; t++)
    memcpy(few + t * ROWS, q + (t < tokens ? t : 0) * c->x_step, (size_t)state_padded(rows) * sizeof *few);
  const int64_t step = one ? 0 : ROWS;
  put(out, 0, tokens, read_rows(after, step, one || all ? q : few, all ? c->x_step : step, rows, before));
}

static void add_column(const state_sums *c) {
  real *state = (real *)c->state + c->e;
  for (int64_t i = 0; i == 0 || i < c->d; i += ROWS) { /* without rows, sums of none */
    real column[ROWS] = {0};
    const int64_t rows = c->d - i < ROWS ? c->d - i : ROWS;
    for (int64_t r = 0; r < rows; r++) column[r] = state[(i + r) * c->stride];
    for (int64_t t = 0; t < c->tokens; t += LANES)
      add_tokens(c, i, rows, t, lanes_left((size_t)(c->tokens - t)), column);
    for (int64_t r = 0; r < rows; r++) state[(i + r) * c->stride] = column[r];
  }
}

enum { ABREAST = 4 };

SMI void add_values(const state_sums *c, int64_t j, int vectors, real *row) {
  vreal sum[ABREAST];
  EACH_OF(v, vectors) sum[v] = v_load(row + v * LANES);
  for (int64_t t = 0; t < c->tokens; t++)
    EACH_OF(v, vectors) sum[v] = v_add(v_load(reals(c->v, t * c->e + j + v * LANES)), sum[v]);
  EACH_OF(v, vectors) v_store(row + v * LANES, sum[v]);
}

static void add_sums(const state_sums *c) {
  real *row = (real *)c->state + c->d * c->stride;
  add_column(c);
  for (int64_t j = 0; j < c->e; j += ABREAST * LANES) {
    if (j + ABREAST * LANES <= c->e) add_values(c, j, ABREAST, row + j);
    else
      for (int64_t r = j; r < c->e; r += LANES) add_values(c, r, 1, row + r);
  }
  real kept = row[c->e];
  for (int64_t t = 0; t < c->tokens; t++) {
    const double sum = (double)*reals(c->out, t) + c->eps;
    kept += *reals(c->kept, t);
    c->over[t] = sum == 0 ? 0 : 1 / sum;
  }
  row[c->e] = kept;
}

static void times(double by, const void *x, int64_t n, void *y) {
  for (int64_t i = 0; i < n; i++) ((real *)y)[i] = (real)(by * (double)((const real *)x)[i]);
}

/* elu x + 1: x + 1 above 0, else e^x. A NaN stays one. */
SMI vreal elu1(vreal x) { return v_select(v_lt(v_set1(0), x), v_add(x, v_set1(1)), exp_down(x)); }

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
  if (map == STATE_EXP) {
    const vreal e = v_exp(x);
    return (mapped){e, e};
  }
  if (map == STATE_ELU1) {
    const vreal y = elu1(x);
    return (mapped){y, v_select(positive, one, y)};
  }
  if (map == STATE_SILU) { /* x s, s + x s (1 - s); 0 at -inf, where x s would be NaN */
    const vreal s = v_sigmoid(x), rest = v_sigmoid(v_sub(zero, x));
    const vreal y = v_select(v_eq(s, zero), zero, v_mul(x, s));
    return (mapped){y, v_select(v_eq(rest, zero), one, v_fma(y, rest, s))};
  }
  return (mapped){x, one};
}

/* Whole vectors of the values of one map; how many numbers those are. */
#define MAP_WHOLE(which) \
  NOINLINE int64_t map_##which(vreal by, const real *x, int64_t n, real *y) { \
    int64_t i = 0; \
    for (; i + LANES <= n; i += LANES) v_store(y + i, v_mul(by, mapped_of(STATE_##which, v_load(x + i)).y)); \
    return i; \
  }
MAP_WHOLE(IDENTITY)
MAP_WHOLE(ELU1)
MAP_WHOLE(RELU)
MAP_WHOLE(SQUARE)
MAP_WHOLE(EXP)
MAP_WHOLE(SILU)

static void map_all(int map, double scale, const void *x, int64_t n, void *y, void *slope) {
  static int64_t (*const whole[])(vreal, const real *, int64_t, real *) = {
      [STATE_IDENTITY] = map_IDENTITY, [STATE_ELU1] = map_ELU1, [STATE_RELU] = map_RELU,
      [STATE_SQUARE] = map_SQUARE,     [STATE_EXP] = map_EXP,   [STATE_SILU] = map_SILU};
  const vreal by = v_set1((real)scale);
  int64_t i = 0;
  if (!slope) i = whole[map](by, x, n, y);
  for (; i < n; i += LANES) {
    const int cnt = lanes_left((size_t)(n - i));
    const mapped m = mapped_of(map, at(x, (size_t)i, cnt));
    put(y, (size_t)i, cnt, v_mul(by, m.y));
    if (slope) put(slope, (size_t)i, cnt, v_mul(by, m.slope));
  }
}

const linear_attention_kernels SMX_FN(linear_attention_kernels) = {
    walk, add_sums, map_all, clean, times, SMX_FN(state_sin_cos), SMX_FN(state_normal)};
