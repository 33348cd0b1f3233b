/* pool/functions_segments.c - segments that bits end: token t is the last of its segment where
 * boundary_t > 1/2. Row 0 of the pooled ones is that of no segment, row s + 1 the mean of
 * segment s; the tokens behind the last bit have none.
 *
 * The gradient of the bits, on request, is that of the authors' masked mean, in which the bits
 * of a segment say where it ends: dy_s / db_v = sum over u > v of the segment of (h_u - y_s) /
 * n_s. */
#include "functions_sets.h"

enum { X, BOUNDARY, NONE }; /* inputs */
enum { Y, COUNT };          /* outputs */

typedef struct segments {
  const tensor_call *c;
  int64_t n, channels, rows; /* tokens of a lead, and rows of the pooled tensor */
} segments;

static segments segments_of(const tensor_call *c) {
  return (segments){c, tensor_dim(c, "n"), tensor_dim(c, "c"), tensor_dim(c, "r")};
}

static bool ends_at(const segments *s, int64_t lead, int64_t t) {
  double b;
  tensor_load(s->c, s->c->in.view + BOUNDARY, lead * s->n + t, 1, &b);
  return b > 0.5;
}

/* Behind the last token of the segment of token t; 0: no bit ends it. */
static int64_t end_of(const segments *s, int64_t lead, int64_t t) {
  while (t < s->n && !ends_at(s, lead, t)) t++;
  return t < s->n ? t + 1 : 0;
}

static int64_t width_at(const segments *s, int64_t at) {
  return s->channels - at < SET_WIDTH ? s->channels - at : SET_WIDTH;
}

static void load_token(const segments *s, int64_t lead, int64_t t, int64_t at, double *x) {
  tensor_load(s->c, s->c->in.view + X, (lead * s->n + t) * s->channels + at, width_at(s, at), x);
}

/* The mean of tokens from..end-1, of the channels from `at` on. */
static void mean_of(const segments *s, int64_t lead, int64_t from, int64_t end, int64_t at, double *y) {
  const double share = pool_share_of(end - from), by = share * (double)(end - from);
  double x[SET_WIDTH];
  for (int64_t j = 0; j < SET_WIDTH; j++) y[j] = 0;
  for (int64_t t = from; t < end; t++) {
    load_token(s, lead, t, at, x);
    for (int64_t j = 0; j < width_at(s, at); j++) y[j] += share * x[j];
  }
  for (int64_t j = 0; j < width_at(s, at); j++) y[j] /= by;
}

/* A row of the pooled tensor: a mean, the row of no segment, or zeros where from = end. */
static void put_row(const segments *s, int64_t lead, int64_t row, int64_t from, int64_t end) {
  const tensor_call *c = s->c;
  for (int64_t at = 0; at < s->channels; at += SET_WIDTH) {
    double y[SET_WIDTH] = {0};
    if (from < end) mean_of(s, lead, from, end, at, y);
    else if (row == 0 && c->in.given[NONE]) tensor_load(c, c->in.view + NONE, at, width_at(s, at), y);
    tensor_store(c, c->out.view + Y, (lead * s->rows + row) * s->channels + at, width_at(s, at), y);
  }
}

static void pool_task(void *arg, int64_t lead) {
  const segments *s = arg;
  int64_t from = 0, row = 1;
  put_row(s, lead, 0, 0, 0);
  for (int64_t end; (end = end_of(s, lead, from)) > 0; from = end, row++)
    if (row < s->rows) put_row(s, lead, row, from, end);
  if (s->c->out.given[COUNT]) ((int64_t *)(void *)s->c->out.view[COUNT].data)[lead] = row - 1;
  for (; row < s->rows; row++) put_row(s, lead, row, 0, 0);
}

/* ---- its gradient ---- */

/* Tokens from..end-1 get their part of row `row`; row 0: they have none. bits: sums of g (h - y)
 * / n of each token. */
static void give_tokens(const segments *s, int64_t lead, int64_t row, int64_t from, int64_t end,
                        double *bits) {
  const tensor_call *c = s->c;
  double g[SET_WIDTH], x[SET_WIDTH], y[SET_WIDTH];
  for (int64_t t = from; t < end && bits; t++) bits[t] = 0;
  for (int64_t at = 0; at < s->channels; at += SET_WIDTH) {
    const int64_t w = width_at(s, at);
    for (int64_t j = 0; j < w; j++) g[j] = 0;
    if (row > 0) tensor_load(c, c->dout.view + Y, (lead * s->rows + row) * s->channels + at, w, g);
    for (int64_t j = 0; j < w; j++) g[j] /= (double)(end - from);
    for (int64_t t = from; t < end && c->din.given[X]; t++)
      tensor_store(c, c->din.view + X, (lead * s->n + t) * s->channels + at, w, g);
    if (!bits || row == 0) continue;
    mean_of(s, lead, from, end, at, y);
    for (int64_t t = from; t < end; t++) {
      load_token(s, lead, t, at, x);
      for (int64_t j = 0; j < w; j++) bits[t] += g[j] * (x[j] - y[j]);
    }
  }
}

/* What stands behind each token of its segment. */
static void sum_behind(int64_t from, int64_t end, double *bits) {
  double sum = 0;
  for (int64_t t = end; t-- > from;) {
    const double own = bits[t];
    bits[t] = sum, sum += own;
  }
}

typedef struct pool_gradient {
  segments s;
  double *bits; /* of all tokens, or NULL */
} pool_gradient;

static void pool_backward_task(void *arg, int64_t lead) {
  const pool_gradient *b = arg;
  const segments *s = &b->s;
  double *bits = b->bits ? b->bits + lead * s->n : NULL;
  int64_t from = 0, row = 1;
  for (int64_t end; (end = end_of(s, lead, from)) > 0; from = end, row++) {
    give_tokens(s, lead, row < s->rows ? row : 0, from, end, bits);
    if (bits) sum_behind(from, end, bits);
  }
  give_tokens(s, lead, 0, from, s->n, bits);
  if (bits) tensor_store(s->c, s->c->din.view + BOUNDARY, lead * s->n, s->n, bits);
}

/* The row of no segment: leads in their order. */
static void give_none(const segments *s) {
  const tensor_call *c = s->c;
  double g[SET_WIDTH], sum[SET_WIDTH];
  for (int64_t at = 0; at < s->channels; at += SET_WIDTH) {
    for (int64_t j = 0; j < SET_WIDTH; j++) sum[j] = 0;
    for (int64_t lead = 0; lead < c->dims.lead_count; lead++) {
      tensor_load(c, c->dout.view + Y, lead * s->rows * s->channels + at, width_at(s, at), g);
      for (int64_t j = 0; j < width_at(s, at); j++) sum[j] += g[j];
    }
    tensor_store(c, c->din.view + NONE, at, width_at(s, at), sum);
  }
}

static void no_bits_task(void *arg, int64_t at) {
  const segments *s = arg;
  const double zero = 0;
  tensor_store(s->c, s->c->din.view + BOUNDARY, at, 1, &zero);
}

smx_status pool_segments_sizes(dims *d) {
  const int64_t most = (int64_t)dims_param(d, "segments", 0);
  dims_set(d, "r", 0, (most > 0 ? most : dims_value(d, "n", 0)) + 1);
  return SMX_OK;
}
smx_status pool_segments(const tensor_call *c) {
  segments s = segments_of(c);
  smx_parallel(c->ctx, c->dims.lead_count, pool_task, &s);
  return SMX_OK;
}
smx_status pool_segments_backward(const tensor_call *c) {
  pool_gradient b = {.s = segments_of(c)};
  const int64_t tokens = c->dims.lead_count * b.s.n;
  const bool bits = c->din.given[BOUNDARY] && tensor_param(c, "gradient") != 0;
  if (bits && !(b.bits = pool_reserve(c, tokens))) return SMX_ERR_NOMEM;
  smx_parallel(c->ctx, c->dims.lead_count, pool_backward_task, &b);
  if (bits) smx_free(c->ctx, b.bits);
  else if (c->din.given[BOUNDARY]) smx_parallel(c->ctx, tokens, no_bits_task, &b.s);
  if (c->din.given[NONE]) give_none(&b.s);
  return SMX_OK;
}

/* ---- segment_upsample: a token takes the row of the last segment that has ended ---- */

static void upsample_task(void *arg, int64_t lead) {
  const segments *s = arg;
  const tensor_call *c = s->c;
  int64_t row = 0;
  for (int64_t t = 0; t < s->n; t++) {
    row += ends_at(s, lead, t);
    for (int64_t at = 0; at < s->channels; at += SET_WIDTH) {
      double y[SET_WIDTH] = {0};
      if (row < s->rows)
        tensor_load(c, c->in.view + X, (lead * s->rows + row) * s->channels + at, width_at(s, at), y);
      tensor_store(c, c->out.view + Y, (lead * s->n + t) * s->channels + at, width_at(s, at), y);
    }
  }
}

static void upsample_backward_task(void *arg, int64_t lead) {
  const segments *s = arg;
  const tensor_call *c = s->c;
  int64_t t = 0, passed = 0;
  for (int64_t row = 0, end; row < s->rows; row++, t = end) {
    for (end = t; end < s->n && passed + ends_at(s, lead, end) <= row; end++) passed += ends_at(s, lead, end);
    for (int64_t at = 0; at < s->channels; at += SET_WIDTH) {
      double sum[SET_WIDTH] = {0}, g[SET_WIDTH];
      for (int64_t u = t; u < end; u++) {
        tensor_load(c, c->dout.view + Y, (lead * s->n + u) * s->channels + at, width_at(s, at), g);
        for (int64_t j = 0; j < width_at(s, at); j++) sum[j] += g[j];
      }
      tensor_store(c, c->din.view + X, (lead * s->rows + row) * s->channels + at, width_at(s, at), sum);
    }
  }
}

smx_status pool_upsample(const tensor_call *c) {
  segments s = segments_of(c);
  smx_parallel(c->ctx, c->dims.lead_count, upsample_task, &s);
  return SMX_OK;
}
smx_status pool_upsample_backward(const tensor_call *c) {
  segments s = segments_of(c);
  if (c->din.given[X]) smx_parallel(c->ctx, c->dims.lead_count, upsample_backward_task, &s);
  return SMX_OK;
}
