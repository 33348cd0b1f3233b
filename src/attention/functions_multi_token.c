/* attention/functions_multi_token.c - multi_token_attention: weights that look at neighbouring
 * queries, keys and heads. With K * x the convolution of every head's sheet with its own kernel,
 * whose last row is the query itself and whose middle column is the key itself,
 *
 *   s = 0 where hidden,  c = theta * s,  z = mix c, -inf where hidden,  p = softmax(z)
 *   r = after * p, 0 where hidden,  w = after_mix r
 *
 * and the gradients go the same way back, convolutions by turned kernels. */
#include <string.h>

#include "functions_sheets.h"

enum { THETA = SHEET_OWN, HIDDEN, MIX, FOLLOW, FOLLOW_MIX }; /* inputs */

/* Kernels [heads][rows][columns], or a mixture [heads][heads]; NULL: there is none. */
typedef struct weights_of {
  int port;
  int64_t rows, columns;
  double *w, *dw;
} weights_of;

typedef struct multi_token {
  weights_of theta, mix, after, after_mix;
  double *c, *p, *r; /* sheets */
  double *other;     /* a gradient */
  /* What the tasks do. */
  const weights_of *now;
  const double *from;
  double *to, fill;
  bool back;
} multi_token;

/* ---- memory ---- */

static void room_for(sheets *s, carver *c, weights_of *w) {
  if (!s->c->in.given[w->port]) return;
  w->w = carve(c, s->heads, w->rows * w->columns, sizeof(double));
  if (s->backward) w->dw = carve(c, s->heads, w->rows * w->columns, sizeof(double));
}
static void room(sheets *s, carver *c) {
  multi_token *m = s->own;
  const int64_t cells = s->l * s->t, b = sizeof(double);
  room_for(s, c, &m->theta), room_for(s, c, &m->mix), room_for(s, c, &m->after);
  room_for(s, c, &m->after_mix);
  m->c = carve(c, s->most, cells, b), m->p = carve(c, s->most, cells, b);
  m->r = s->c->in.given[FOLLOW] ? carve(c, s->most, cells, b) : m->p;
  if (s->backward) m->other = carve(c, s->most, cells, b);
}
static void load_weights(const sheets *s, const weights_of *w) {
  const int64_t n = s->heads * w->rows * w->columns;
  if (!w->w) return;
  tensor_load(s->c, s->c->in.view + w->port, 0, n, w->w);
  if (w->dw) memset(w->dw, 0, (size_t)n * sizeof *w->dw);
}

/* ---- rows ---- */

static int64_t row_at(const sheets *s, int64_t sheet, int64_t i) { return (sheet * s->l + i) * s->t; }

/* Where element (a, b) of a kernel looks from row i: at row i + *row, and *column columns on. */
static void look(const multi_token *m, int64_t a, int64_t b, int64_t *row, int64_t *column) {
  const int64_t up = a - (m->now->rows - 1), right = b - m->now->columns / 2;
  *row = m->back ? -up : up, *column = m->back ? -right : right;
}

static void convolve_row(sheets *s, int64_t sheet, int64_t i) {
  const multi_token *m = s->own;
  const double *kernel = m->now->w + sheet % s->heads * m->now->rows * m->now->columns;
  double *to = m->to + row_at(s, sheet, i);
  memset(to, 0, (size_t)s->t * sizeof *to);
  for (int64_t a = 0; a < m->now->rows; a++)
    for (int64_t b = 0; b < m->now->columns; b++) {
      int64_t up, right;
      look(m, a, b, &up, &right);
      const int64_t first = right < 0 ? -right : 0, end = right > 0 ? s->t - right : s->t;
      if (i + up < 0 || i + up >= s->l || first >= end) continue;
      add_row(kernel[a * m->now->columns + b], m->from + row_at(s, sheet, i + up) + first + right,
              end - first, to + first);
    }
}

static void mix_row(sheets *s, int64_t sheet, int64_t i) {
  const multi_token *m = s->own;
  const int64_t heads = s->heads, head = sheet % heads, unit = sheet - head;
  double *to = m->to + row_at(s, sheet, i);
  memset(to, 0, (size_t)s->t * sizeof *to);
  for (int64_t g = 0; g < heads; g++)
    add_row(m->now->w[m->back ? g * heads + head : head * heads + g], m->from + row_at(s, unit + g, i), s->t,
            to);
}

static void hide_row(sheets *s, int64_t sheet, int64_t i) {
  const multi_token *m = s->own;
  double *to = m->to + row_at(s, sheet, i);
  for (int64_t j = 0; j < s->t; j++)
    if (sheet_hides(s, sheet, i, j)) to[j] = m->fill;
}

/* ---- gradients of kernels and mixtures: sheets in order ---- */

static void kernel_task(void *arg, int64_t number) {
  sheets *s = arg;
  const multi_token *m = s->own;
  const int64_t rows = m->now->rows, columns = m->now->columns, head = number / (rows * columns);
  int64_t up, right;
  look(m, number / columns % rows, number % columns, &up, &right);
  const int64_t first = right < 0 ? -right : 0, end = right > 0 ? s->t - right : s->t;
  for (int64_t sheet = head; sheet < s->count; sheet += s->heads) {
    double sum = 0;
    for (int64_t i = up < 0 ? -up : 0; i < s->l; i++) {
      const double *g = m->to + row_at(s, sheet, i), *x = m->from + row_at(s, sheet, i + up);
      for (int64_t j = first; j < end; j++) sum += g[j] * x[j + right];
    }
    m->now->dw[number] += sum;
  }
}
static void mixture_task(void *arg, int64_t number) {
  sheets *s = arg;
  const multi_token *m = s->own;
  const int64_t cells = s->l * s->t, head = number / s->heads, other = number % s->heads;
  for (int64_t unit = 0; unit < s->count; unit += s->heads) {
    const double *g = m->to + row_at(s, unit + head, 0), *x = m->from + row_at(s, unit + other, 0);
    double sum = 0;
    for (int64_t at = 0; at < cells; at++) sum += g[at] * x[at];
    m->now->dw[number] += sum;
  }
}

/* ---- steps ---- */

static bool mixes(const weights_of *now) { return now->port == MIX || now->port == FOLLOW_MIX; }

/* to = what `now` makes of from; back: the other way. Without weights they are the same sheets. */
static void apply(sheets *s, const weights_of *now, const double *from, double *to, bool back) {
  multi_token *m = s->own;
  m->now = now, m->from = from, m->to = to, m->back = back;
  if (now->w) sheets_each_row(s, s->l, mixes(now) ? mix_row : convolve_row);
  else if (to != from) memcpy(to, from, (size_t)(s->count * s->l * s->t) * sizeof *to);
}
static void hide(sheets *s, double *to, double fill) {
  multi_token *m = s->own;
  m->to = to, m->fill = fill;
  if (s->mask || s->causal) sheets_each_row(s, s->l, hide_row);
}
/* dw of `now`, which made what has the gradient g of x. */
static void learn(sheets *s, const weights_of *now, double *g, const double *x) {
  multi_token *m = s->own;
  m->now = now, m->from = x, m->to = g, m->back = false;
  if (now->dw)
    smx_parallel(s->c->ctx, s->heads * now->rows * now->columns, mixes(now) ? mixture_task : kernel_task, s);
}

static void before(sheets *s) {
  multi_token *m = s->own;
  if (s->first == 0) {
    load_weights(s, &m->theta), load_weights(s, &m->mix), load_weights(s, &m->after);
    load_weights(s, &m->after_mix);
  }
  hide(s, s->s, 0);
  apply(s, &m->theta, s->s, m->c, false);
  apply(s, &m->mix, m->c, m->p, false);
  hide(s, m->p, -__builtin_inf());
}
static smx_status call(sheets *s, bool back) {
  multi_token *m = s->own;
  int64_t shape[3];
  const smx_tensor p = sheets_tensor(s, m->p, shape), g = sheets_tensor(s, m->to, shape);
  return back ? softmax_backward_along(s->c->ctx, -1, &p, &g, &g) : softmax_along(s->c->ctx, -1, &p, &p);
}
static void after(sheets *s) {
  multi_token *m = s->own;
  apply(s, &m->after, m->p, m->r, false);
  if (m->after.w) hide(s, m->r, 0);
  apply(s, &m->after_mix, m->r, s->w, false);
}

/* The gradient goes to and fro between g and other; `to` says where it is. */
static void go_through(sheets *s, const weights_of *now, double *g, const double *x) {
  const multi_token *m = s->own;
  learn(s, now, g, x);
  if (now->w) apply(s, now, g, g == s->g ? m->other : s->g, true);
}
static void back_before(sheets *s) {
  multi_token *m = s->own;
  m->to = s->g;
  go_through(s, &m->after_mix, s->g, m->r);
  hide(s, m->to, 0);
  go_through(s, &m->after, m->to, m->p);
}
static void back_after(sheets *s) {
  multi_token *m = s->own;
  go_through(s, &m->mix, m->to, m->c);
  double *const dc = m->to;
  learn(s, &m->theta, dc, s->s);
  apply(s, &m->theta, dc, s->ds, true);
  hide(s, s->ds, 0);
}

static void end(sheets *s) {
  const multi_token *m = s->own;
  const weights_of *all[] = {&m->theta, &m->mix, &m->after, &m->after_mix};
  for (int i = 0; i < 4; i++) {
    const int64_t n = s->heads * all[i]->rows * all[i]->columns;
    if (!s->c->din.given[all[i]->port] || n == 0) continue;
    if (s->all == 0 || s->l == 0 || s->t == 0) memset(all[i]->dw, 0, (size_t)n * sizeof(double));
    tensor_store(s->c, s->c->din.view + all[i]->port, 0, n, all[i]->dw);
  }
}

static const sheet_rule multi_token_rule = {HIDDEN, call, before, after, back_before, back_after, room, end};

static smx_status run(const tensor_call *c, bool backward) {
  const int64_t h = tensor_dim(c, "h"), m = dims_value(&c->dims, "m", 0), n = dims_value(&c->dims, "n", 0);
  multi_token own = {.theta = {THETA, tensor_dim(c, "a"), tensor_dim(c, "b")},
                     .mix = {MIX, 1, h},
                     .after = {FOLLOW, m, n},
                     .after_mix = {FOLLOW_MIX, 1, h}};
  return sheets_run(c, &multi_token_rule, &own, backward);
}
smx_status multi_token_attention_forward(const tensor_call *c) { return run(c, false); }
smx_status multi_token_attention_backward(const tensor_call *c) { return run(c, true); }
