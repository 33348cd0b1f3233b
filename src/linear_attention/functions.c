/* linear_attention/functions.c - the operators of src/linear_attention: their functions, by number;
 * and the tokens of a head, staged for walks. */
#include "functions.h"

#include <string.h>

const tensor_functions linear_attention_functions[LINEAR_ATTENTION_COUNT] = {
    [LINEAR_ATTENTION_linear_attention] = {linear_attention_forward, linear_attention_backward,
                                           linear_attention_sizes, true},
    [LINEAR_ATTENTION_taylor_features] = {taylor_forward, taylor_backward, taylor_sizes, true},
    [LINEAR_ATTENTION_cosformer_features] = {cosformer_forward, cosformer_backward, twice_sizes, true},
    [LINEAR_ATTENTION_nala_features] = {nala_forward, nala_backward, twice_sizes, true},
    [LINEAR_ATTENTION_performer_features] = {performer_forward, performer_backward, performer_sizes, true},
    [LINEAR_ATTENTION_gated_slot_attention] = {slots_forward, slots_backward, NULL, true},
    [LINEAR_ATTENTION_mesa_attention] = {mesa_forward, mesa_backward, NULL, true},
    [LINEAR_ATTENTION_galerkin_attention] = {galerkin_forward, galerkin_backward, NULL, true},
    [LINEAR_ATTENTION_fourier_attention] = {fourier_forward, fourier_backward, NULL, true},
};

/* ---- what is asked for ---- */

smx_status linear_attention_sizes(dims *d) {
  const int64_t heads = dims_value(d, "h", 0), groups = dims_value(d, "g", 0), width = dims_value(d, "d", 0),
                decay = dims_value(d, "w", 0), l = dims_value(d, "l", 0), t = dims_value(d, "t", 0);
  const char *name = d->op->name;
  const state_norm norm = (state_norm)dims_param(d, "norm", 0);
  if (groups == 0 ? heads != 0 : heads % groups != 0 || heads == 0)
    return smx_fail(SMX_ERR_SHAPE, "%s: q has %lld heads, which is no multiple of the %lld of k", name,
                    (long long)heads, (long long)groups);
  if (dims_param(d, "causal", 1) != 0 && l != t)
    return smx_fail(SMX_ERR_SHAPE, "%s: causal: q has %lld tokens, k has %lld", name, (long long)l,
                    (long long)t);
  if (decay != DIMS_UNKNOWN && decay != 1 && decay != width)
    return smx_fail(SMX_ERR_SHAPE, "%s: decay has rows of %lld, not of 1 or %lld", name, (long long)decay,
                    (long long)width);
  dims_set(d, "m", 0, width + (norm != NORM_NONE));
  dims_set(d, "n", 0, dims_value(d, "e", 0) + (norm != NORM_NONE));
  return SMX_OK;
}

static const char *norm_name(const state_call *s) {
  for (int k = 0; k < s->c->op->param_count; k++)
    if (!strcmp(s->c->op->params[k].name, "norm")) return s->c->op->params[k].choices[s->norm];
  return "";
}

static smx_status check_parts(const state_call *s) {
  const char *name = s->c->op->name;
  if (s->delta && s->norm != NORM_NONE)
    return smx_fail(SMX_ERR_PARAM, "%s: beta: norm is to be none, not %s", name, norm_name(s));
  if (s->decays && s->norm > NORM_SUM)
    return smx_fail(SMX_ERR_PARAM, "%s: decay: norm is to be none or sum, not %s", name, norm_name(s));
  if (!s->causal && (s->decays || s->delta))
    return smx_fail(SMX_ERR_PARAM, "%s: causal is no: there is no decay and no beta", name);
  return SMX_OK;
}

smx_status state_open(state_call *s, const tensor_call *c) {
  *s = (state_call){.c = c, .groups = tensor_dim(c, "g"), .queries = tensor_dim(c, "l")};
  s->kernels = state_kernels(c->is_f64);
  s->per = s->groups > 0 ? tensor_dim(c, "h") / s->groups : 0;
  s->keys = tensor_dim(c, "t"), s->d = tensor_dim(c, "d"), s->e = tensor_dim(c, "e");
  s->map = (int)tensor_param(c, "map"), s->norm = (state_norm)tensor_param(c, "norm");
  s->causal = tensor_param(c, "causal") != 0;
  s->m = s->d + (s->norm != NORM_NONE), s->n = s->e + (s->norm != NORM_NONE);
  s->wide_d = state_padded(s->d), s->wide_n = state_padded(s->n), s->bytes = c->is_f64 ? 8 : 4;
  s->wide_v = s->wide_n;
  s->delta = c->in.given[IN_BETA] != NULL, s->decays = c->in.given[IN_DECAY] != NULL;
  s->decay_width = s->decays && tensor_dim(c, "w") != 1 ? s->d : 1;
  s->scale = state_scale(tensor_param(c, "scale"), s->d), s->eps = tensor_param(c, "eps");
  return check_parts(s);
}

/* ---- tokens ---- */

static int64_t wide_decay(const state_call *s) { return s->decay_width == 1 ? 1 : s->wide_d; }

/* So many ones are next to each other: of all tokens, or all elements of a decay. */
static int64_t ones_of(const state_call *s, int64_t tokens) {
  return tokens > s->decay_width ? tokens : s->decay_width;
}

int64_t state_tokens_size(const state_call *s, int64_t tokens, bool slopes) {
  const int64_t of_d = slopes ? 4 : 2;
  return state_padded(tokens * (of_d * s->wide_d + s->wide_n + 2 + wide_decay(s)) + ones_of(s, tokens)) +
         8 * 16;
}

static char *piece(const state_call *s, char **next, int64_t count) {
  char *here = *next;
  *next += state_padded(count) * s->bytes;
  return here;
}

state_tokens state_tokens_at(const state_call *s, int64_t tokens, bool slopes, char *memory) {
  state_tokens t = {0};
  memset(memory, 0, (size_t)(state_tokens_size(s, tokens, slopes) * s->bytes));
  t.k = piece(s, &memory, tokens * s->wide_d), t.q = piece(s, &memory, tokens * s->wide_d);
  if (slopes)
    t.k_slope = piece(s, &memory, tokens * s->wide_d), t.q_slope = piece(s, &memory, tokens * s->wide_d);
  t.v = piece(s, &memory, tokens * s->wide_n);
  t.kept = piece(s, &memory, tokens), t.one = piece(s, &memory, ones_of(s, tokens));
  if (s->delta) t.beta = piece(s, &memory, tokens);
  if (s->decays) t.decay = piece(s, &memory, tokens * wide_decay(s));
  const double one = 1;
  for (int64_t i = 0; i < ones_of(s, tokens); i++)
    smx_reals_store(s->c->is_f64, &one, 1, state_at(s, t.one, i, 1));
  return t;
}

/* Rows of `width` reals side by side, to rows of `wide`. */
static void copy_rows(const state_call *s, const char *from, int64_t rows, int64_t width, int64_t wide,
                      char *to) {
  const int64_t at_once = width == wide ? rows : 1;
  for (int64_t i = 0; i < rows; i += at_once)
    memcpy(to + i * wide * s->bytes, from + i * width * s->bytes, (size_t)(at_once * width * s->bytes));
}
static void map_rows(const state_call *s, int map, double scale, const char *from, int64_t rows,
                     int64_t width, int64_t wide, char *to, char *slope) {
  const int64_t at_once = width == wide ? rows : 1;
  if (map == STATE_IDENTITY && scale == 1 && !slope) {
    copy_rows(s, from, rows, width, wide, to);
    return;
  }
  for (int64_t i = 0; i < rows; i += at_once)
    s->kernels->map(map, scale, from + i * width * s->bytes, at_once * width, state_at(s, to, i, wide),
                    state_at(s, slope, i, wide));
}

/* A token that the mask hides: token `i` of those staged. */
static void hide(const state_call *s, int64_t i, const state_tokens *t) {
  const size_t real = (size_t)s->bytes;
  memset(state_at(s, t->k, i, s->wide_d), 0, (size_t)s->d * real);
  memset(state_at(s, t->v, i, s->wide_v), 0, (size_t)(s->n < s->wide_v ? s->n : s->wide_v) * real);
  memset(state_at(s, t->kept, i, 1), 0, real);
  if (t->k_slope) memset(state_at(s, t->k_slope, i, s->wide_d), 0, (size_t)s->d * real);
  if (t->beta) memset(state_at(s, t->beta, i, 1), 0, real);
  if (t->decay) memcpy(state_at(s, t->decay, i, wide_decay(s)), t->one, (size_t)s->decay_width * real);
}

/* Whether rows of keys can be walked where the caller has them, in every chunk of a call. */
static bool is_there(const state_call *s, int64_t width, int64_t wide) {
  return width == wide && !s->c->in.given[IN_MASK];
}

void state_stage_keys(const state_call *s, int64_t item, int64_t head, int64_t first, int64_t count,
                      state_tokens *t) {
  const smx_view *in = s->c->in.view;
  const char *mask = s->c->in.given[IN_MASK] ? in[IN_MASK].data + item * s->keys + first : NULL;
  const int64_t g = s->groups, width = s->decay_width;
  if (is_there(s, s->d, s->wide_d) && s->map == STATE_IDENTITY && !t->k_slope)
    t->k = state_rows(s, in + IN_K, item, g, head, s->keys, first, s->d);
  else
    map_rows(s, s->map, 1, state_rows(s, in + IN_K, item, g, head, s->keys, first, s->d), count, s->d,
             s->wide_d, t->k, t->k_slope);
  if (is_there(s, s->e, s->wide_v)) t->v = state_rows(s, in + IN_V, item, g, head, s->keys, first, s->e);
  else
    copy_rows(s, state_rows(s, in + IN_V, item, g, head, s->keys, first, s->e), count, s->e, s->wide_v, t->v);
  copy_rows(s, t->one, count, 1, 1, t->kept);
  if (t->beta)
    copy_rows(s, state_rows(s, in + IN_BETA, item, g, head, s->keys, first, 1), count, 1, 1, t->beta);
  if (t->decay)
    map_rows(s, STATE_EXP, 1, state_rows(s, in + IN_DECAY, item, g, head, s->keys, first, width), count,
             width, wide_decay(s), t->decay, NULL);
  for (int64_t i = 0; i < count && s->n > s->e && s->n <= s->wide_v; i++)
    memcpy(state_at(s, t->v, i, s->wide_v) + s->e * s->bytes, t->one, (size_t)s->bytes);
  for (int64_t i = 0; mask && i < count; i++)
    if (!mask[i]) hide(s, i, t);
}

void state_stage_queries(const state_call *s, int64_t item, int64_t head, int64_t first, int64_t count,
                         const state_tokens *t) {
  const smx_view *q = s->c->in.view + IN_Q;
  map_rows(s, s->map, s->scale, state_rows(s, q, item, s->groups * s->per, head, s->queries, first, s->d),
           count, s->d, s->wide_d, t->q, t->q_slope);
}

/* ---- states ---- */

void state_load(const state_call *s, int64_t item, int64_t head, const char *from, char *state) {
  const int64_t first = (item * s->groups + head) * s->m;
  if (!from || s->n != s->wide_n) memset(state, 0, (size_t)(s->m * s->wide_n * s->bytes));
  if (from) copy_rows(s, from + first * s->n * s->bytes, s->m, s->n, s->wide_n, state);
}

void state_store(const state_call *s, int64_t item, int64_t head, const char *state, char *to) {
  const int64_t first = (item * s->groups + head) * s->m;
  for (int64_t i = 0; i < s->m && s->n != s->wide_n; i++)
    memcpy(to + (first + i) * s->n * s->bytes, state + i * s->wide_n * s->bytes, (size_t)(s->n * s->bytes));
  s->kernels->clean(to + first * s->n * s->bytes, s->m * s->n, false);
}

/* ---- norms: out = (sum w v, sum w), all = (sum v, count) ---- */

static double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t j = 0; j < n; j++) sum += a[j] * b[j];
  return sum;
}

/* y = by out + mean all, with z = sum share and share = 1 / count */
typedef struct norm_parts {
  double by, mean, share, z, r; /* r = 1 / (z + eps) */
} norm_parts;

static norm_parts parts_of(const state_call *s, const state_made *made) {
  norm_parts p = {.by = 1};
  if (s->norm == NORM_NONE) return p;
  const double sum = made->out[s->e];
  if (s->norm == NORM_SUM) return p.by = state_inverse(sum + s->eps), p;
  p.by = p.share = state_inverse(made->all[s->e]), p.z = sum * p.share;
  if (s->norm == NORM_MALA)
    p.r = state_inverse(p.z + s->eps), p.by = (1 + p.r) * p.share, p.mean = -p.z * p.share;
  if (s->norm == NORM_INLINE) p.mean = (1 - p.z) * p.share;
  return p;
}

void state_norm_of(const state_call *s, const state_made *made, double *y) {
  const norm_parts p = parts_of(s, made);
  for (int64_t j = 0; j < s->e; j++) y[j] = p.by * made->out[j];
  for (int64_t j = 0; j < s->e && s->norm >= NORM_MALA; j++) y[j] += p.mean * made->all[j];
}

void state_norm_back(const state_call *s, state_made *made) {
  const norm_parts p = parts_of(s, made);
  for (int64_t j = 0; j < s->e; j++) made->dout[j] = p.by * made->dy[j], made->dall[j] = p.mean * made->dy[j];
  if (s->norm == NORM_NONE) return;
  const double out = dot(made->dy, made->out, s->e), all = dot(made->dy, made->all, s->e);
  double dz = 0, dshare = out; /* dshare: without what goes by z */
  if (s->norm == NORM_MALA) dz = -(out * p.r * p.r + all) * p.share, dshare = (1 + p.r) * out - p.z * all;
  if (s->norm == NORM_INLINE) dz = -all * p.share, dshare = out + (1 - p.z) * all;
  dshare += dz * made->out[s->e];
  made->dout[s->e] = s->norm == NORM_SUM ? -out * p.by * p.by : dz * p.share;
  made->dall[s->e] = -dshare * p.share * p.share; /* share is 0 with NORM_SUM */
}
