/* gate/functions_move.c - moe_dispatch and moe_combine: tokens go to the rows of their experts, and
 * come back as sums. Both and their gradients are sums of rows that a list names; a gradient turns
 * the list around, so that every row of a result is written by one task, in index order. */
#include <string.h>

#include "cpu/cpu.h"
#include "functions.h"

enum {
  TASK = 1 << 14,    /* elements of a task */
  FAR_FROM = 1 << 22 /* bytes of tokens that no cache holds until they are read again */
};

enum { X, SOURCE };          /* inputs of moe_dispatch; its output is the rows */
enum { ROWS, SLOT, WEIGHT }; /* inputs of moe_combine; its output is a row for each token */

typedef struct move_call {
  const tensor_call *c;
  const gate_kernels *kernels;
  gate_move move;
  const void *other; /* of products: */
  void *weight;
  int64_t rows_a_task;
} move_call;

static void add_task(void *arg, int64_t task) {
  const move_call *m = arg;
  const int64_t from = task * m->rows_a_task, end = from + m->rows_a_task;
  m->kernels->add(&m->move, from, end < m->move.rows ? end : m->move.rows);
}
static void dot_task(void *arg, int64_t task) {
  const move_call *m = arg;
  const int64_t from = task * m->rows_a_task, end = from + m->rows_a_task;
  m->kernels->dot(&m->move, m->other, m->weight, from, end < m->move.rows ? end : m->move.rows);
}

static void spread_task(void *arg, int64_t task) {
  const move_call *m = arg;
  const int64_t from = task * m->rows_a_task, end = from + m->rows_a_task;
  m->kernels->spread(&m->move, from, end < m->move.rows ? end : m->move.rows);
}

/* Rows of no elements may have no address. */
static void run_rows(move_call *m, int64_t rows, void (*task)(void *arg, int64_t i)) {
  const int64_t width = m->move.width;
  if (width == 0 && m->weight && rows > 0) memset(m->weight, 0, (size_t)rows * (m->c->is_f64 ? 8 : 4));
  if (width == 0) return;
  m->kernels = m->c->is_f64 ? smx_isa_current()->f64.gate : smx_isa_current()->f32.gate;
  m->move.rows = rows, m->rows_a_task = width < TASK ? TASK / width : 1;
  smx_parallel(m->c->ctx, (rows + m->rows_a_task - 1) / m->rows_a_task, task, m);
}

static const int64_t *whole(const tensor_call *c, int port) {
  return (const int64_t *)(const void *)c->in.view[port].data;
}

/* Which items name each of `rows` rows, in index order: start [rows + 1], then item [items]. NULL:
 * no memory. */
static int64_t *lists_of(const tensor_call *c, const int64_t *slot, int64_t items, int64_t rows) {
  int64_t bytes;
  int64_t *start = smx_multiply(rows + 2 + items, (int64_t)sizeof *start, &bytes)
                       ? smx_alloc(c->ctx, (size_t)bytes)
                       : NULL;
  if (!start) return NULL;
  int64_t *item = start + rows + 2, *next = start + 1; /* next_i: where the next item of row i goes */
  memset(start, 0, (size_t)(rows + 2) * sizeof *start);
  for (int64_t p = 0; p < items; p++)
    if (slot[p] >= 0) start[slot[p] + 2]++;
  for (int64_t i = 2; i < rows + 2; i++) start[i] += start[i - 1];
  for (int64_t p = 0; p < items; p++)
    if (slot[p] >= 0) item[next[slot[p]]++] = p;
  return start;
}
static int64_t *turn_around(const tensor_call *c, const int64_t *slot, int64_t items, int64_t rows) {
  int64_t *start = lists_of(c, slot, items, rows);
  if (!start) smx_fail(SMX_ERR_NOMEM, "%s: no memory for lists of %lld rows", c->op->name, (long long)rows);
  return start;
}

/* Token by token: each is read once, and written wherever it goes. False: there is no memory for
 * the lists. */
static bool spread_tokens(const tensor_call *c, int64_t tokens, int64_t rows, int64_t width) {
  const int64_t bytes = width * (c->is_f64 ? 8 : 4), *source = whole(c, SOURCE);
  char *to = c->out.view[0].data;
  move_call m = {.c = c};
  int64_t *start = lists_of(c, source, rows, tokens);
  if (!start) return false;
  m.move = (gate_move){
      .from = c->in.view[X].data, .to = to, .width = width, .start = start, .item = start + tokens + 2};
  run_rows(&m, tokens, spread_task);
  for (int64_t p = 0; p < rows; p++)
    if (source[p] < 0) memset(to + p * bytes, 0, (size_t)bytes);
  smx_free(c->ctx, start);
  return true;
}

smx_status gate_dispatch(const tensor_call *c) {
  const int64_t tokens = tensor_dim(c, "t"), rows = tensor_dim(c, "rows"), width = tensor_dim(c, "d");
  const bool far = tokens < rows && tokens > 0 && width > FAR_FROM / (c->is_f64 ? 8 : 4) / tokens;
  if (far && spread_tokens(c, tokens, rows, width)) return SMX_OK;
  move_call m = {.c = c};
  m.move = (gate_move){.from = c->in.view[X].data,
                       .to = c->out.view[0].data,
                       .width = width,
                       .per = 1,
                       .slot = whole(c, SOURCE)};
  run_rows(&m, rows, add_task);
  return SMX_OK;
}

smx_status gate_dispatch_backward(const tensor_call *c) {
  const int64_t tokens = tensor_dim(c, "t"), rows = tensor_dim(c, "rows");
  move_call m = {.c = c};
  if (!c->din.given[X]) return SMX_OK;
  int64_t *start = turn_around(c, whole(c, SOURCE), rows, tokens);
  if (!start) return SMX_ERR_NOMEM;
  m.move = (gate_move){.from = c->dout.view[0].data,
                       .to = c->din.view[X].data,
                       .width = tensor_dim(c, "d"),
                       .start = start,
                       .item = start + tokens + 2,
                       .share = 1};
  run_rows(&m, tokens, add_task);
  smx_free(c->ctx, start);
  return SMX_OK;
}

static const void *weights_of(const tensor_call *c) {
  return c->in.given[WEIGHT] ? c->in.view[WEIGHT].data : NULL;
}

smx_status gate_combine(const tensor_call *c) {
  move_call m = {.c = c};
  m.move = (gate_move){.from = c->in.view[ROWS].data,
                       .to = c->out.view[0].data,
                       .width = tensor_dim(c, "d"),
                       .per = tensor_dim(c, "k"),
                       .slot = whole(c, SLOT),
                       .weight = weights_of(c)};
  run_rows(&m, tensor_dim(c, "t"), add_task);
  return SMX_OK;
}

smx_status gate_combine_backward(const tensor_call *c) {
  const int64_t k = tensor_dim(c, "k"), pairs = tensor_dim(c, "t") * k, rows = tensor_dim(c, "rows");
  move_call m = {.c = c, .other = c->in.view[ROWS].data};
  const gate_move from = {.from = c->dout.view[0].data, .width = tensor_dim(c, "d"), .share = k};
  int64_t *start = NULL;
  if (c->din.given[ROWS]) {
    start = turn_around(c, whole(c, SLOT), pairs, rows);
    if (!start) return SMX_ERR_NOMEM;
    m.move = from, m.move.to = c->din.view[ROWS].data, m.move.weight = weights_of(c);
    m.move.start = start, m.move.item = start + rows + 2;
    run_rows(&m, rows, add_task);
  }
  if (c->din.given[WEIGHT]) {
    m.move = from, m.move.slot = whole(c, SLOT), m.weight = c->din.view[WEIGHT].data;
    run_rows(&m, pairs, dot_task);
  }
  smx_free(c->ctx, start);
  return SMX_OK;
}
