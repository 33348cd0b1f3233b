/* engine/program.c - the runner of row programs over rows in memory, and the engines that pass a
 * row on: to an operator's own program, to one of several kernels, to one kernel after another. */
#include "compose.h"

void run_pass(const row_kernel *k, row_call *c, row_state *st) {
  row_part parts[RUN];
  const size_t start = c->start, count = c->count, stride = (size_t)RUN * GROUP,
               runs = c->n ? (c->n - 1) / stride + 1 : 0;
  for (size_t r = 0; r < runs; r++) {
    c->start = (st->reverse ? runs - 1 - r : r) * stride;
    c->count = c->n - c->start < stride ? c->n - c->start : stride;
    row_pass(k, c, st, parts);
    row_merge(k, c, st, parts, (c->count + GROUP - 1) / GROUP);
  }
  c->start = start, c->count = count;
}

bool run_program(const row_kernel *k, row_call *row) {
  row_state st;
  st.list = row->list;
  row->terms = NULL; /* those of other rows, which a pass would take for its own */
  row_begin(k, row, &st);
  do run_pass(k, row, &st);
  while (row_next(k, row, &st));
  return st.empty;
}

row_call row_at(const row_call *c, size_t r) {
  row_call row = *c;
  row.rows = 1;
  for (int p = 0; p < ROW_SRC; p++)
    row.src[p] = c->src[p] ? (const real *)c->src[p] + (ptrdiff_t)r * c->src_step[p] : NULL;
  for (int p = 0; p < ROW_DST; p++)
    row.dst[p] = c->dst[p] ? (real *)c->dst[p] + (ptrdiff_t)r * c->dst_step[p] : NULL;
  return row;
}

static void note_empty(row_call *c, size_t r) {
  if (c->first_empty < 0) c->first_empty = (int64_t)r;
}

void run_row(const row_kernel *k, row_call *c, size_t r) {
  row_call row = row_at(c, r);
  if (run_program(k, &row) && c->on_empty == SMX_EMPTY_ERROR) note_empty(c, r);
}

row_call row_half_at(const row_call *c, size_t r) {
  row_call row = row_at(c, r);
  row.src[0] = (const uint16_t *)c->src[0] + (ptrdiff_t)r * c->src_step[0];
  return row;
}
void run_half_row(const row_kernel *k, row_call *c, size_t r) {
  row_call row = row_half_at(c, r);
  if (run_program(k, &row) && c->on_empty == SMX_EMPTY_ERROR) note_empty(c, r);
}

void run_rows(const row_kernel *k, row_call *c) {
  for (size_t r = 0; r < c->rows; r++) run_row(k, c, r);
}

/* ---- a program of the operator's own ---- */

static void program_begin(const void *body, const row_call *c, row_state *st) {
  ((const row_program *)body)->begin(c, st);
}
static void program_pass(const void *body, const row_call *c, row_state *st, row_part *parts) {
  ((const row_program *)body)->pass(c, st, parts);
}
static void program_merge(const void *body, const row_call *c, row_state *st, const row_part *parts,
                          size_t count) {
  ((const row_program *)body)->merge(c, st, parts, count);
}
static bool program_next(const void *body, const row_call *c, row_state *st) {
  return ((const row_program *)body)->next(c, st);
}
static void program_rows(const row_kernel *k, row_call *c) {
  const row_program *own = k->body;
  if (own->rows) own->rows(c);
  else run_rows(k, c);
}
const row_engine program_engine = {program_begin, program_pass, program_merge, program_next, program_rows};
const row_engine whole_engine = {.rows = program_rows};

/* ---- one kernel or another ---- */

static const row_kernel *chosen(const void *body, const row_call *c) {
  return ((const row_choice *)body)->dispatch(c);
}
static void choice_begin(const void *body, const row_call *c, row_state *st) {
  row_begin(chosen(body, c), c, st);
}
static void choice_pass(const void *body, const row_call *c, row_state *st, row_part *parts) {
  row_pass(chosen(body, c), c, st, parts);
}
static void choice_merge(const void *body, const row_call *c, row_state *st, const row_part *parts,
                         size_t count) {
  row_merge(chosen(body, c), c, st, parts, count);
}
static bool choice_next(const void *body, const row_call *c, row_state *st) {
  return row_next(chosen(body, c), c, st);
}
static void choice_rows(const row_kernel *k, row_call *c) {
  const row_choice *choice = k->body;
  if (choice->port < 0 || !c->src[choice->port]) {
    row_run(choice->dispatch(c), c);
    return;
  }
  for (size_t r = 0; r < c->rows; r++) {
    row_call row = row_at(c, r);
    row_run(choice->dispatch(&row), &row);
    if (row.first_empty >= 0) note_empty(c, r);
  }
}
const row_engine choice_engine = {choice_begin, choice_pass, choice_merge, choice_next, choice_rows};

/* ---- another call ---- */

static void adapter_begin(const void *body, const row_call *c, row_state *st) {
  const row_adapter *a = body;
  double settings[ROW_SETTINGS];
  const row_call own = a->call(c, settings);
  row_begin(a->inner, &own, st);
}
static void adapter_pass(const void *body, const row_call *c, row_state *st, row_part *parts) {
  const row_adapter *a = body;
  double settings[ROW_SETTINGS];
  const row_call own = a->call(c, settings);
  row_pass(a->inner, &own, st, parts);
}
static void adapter_merge(const void *body, const row_call *c, row_state *st, const row_part *parts,
                          size_t count) {
  row_merge(((const row_adapter *)body)->inner, c, st, parts, count);
}
static bool adapter_next(const void *body, const row_call *c, row_state *st) {
  const row_adapter *a = body;
  double settings[ROW_SETTINGS];
  const row_call own = a->call(c, settings);
  return row_next(a->inner, &own, st);
}
static void adapter_rows(const row_kernel *k, row_call *c) {
  const row_adapter *a = k->body;
  double settings[ROW_SETTINGS];
  for (size_t r = 0; a->by_row && r < c->rows; r++) {
    const row_call row = row_at(c, r);
    row_call own = a->call(&row, settings);
    row_run(a->inner, &own);
    if (own.first_empty >= 0) note_empty(c, r);
  }
  if (a->by_row) return;
  row_call own = a->call(c, settings);
  row_run(a->inner, &own);
  c->first_empty = own.first_empty;
}
const row_engine adapter_engine = {adapter_begin, adapter_pass, adapter_merge, adapter_next, adapter_rows};

/* ---- one after another (compose.h) ---- */

/* The call that the first kernel gets: its only output is the note, and policies do not apply to
 * it. */
static row_call compose_first(const row_call *c, double *note) {
  row_call one = *c;
  memset(one.dst, 0, sizeof one.dst);
  one.dst[0] = note;
  one.dst_step[0] = 0;
  one.writing = WRITE_CACHED;
  one.on_empty = SMX_EMPTY_ZERO;
  return one;
}
static row_call compose_then(const row_call *c, const double *note) {
  row_call one = *c;
  one.src[NOTE] = note;
  one.src_step[NOTE] = 0;
  return one;
}
static row_call compose_call(const row_call *c, row_state *st) {
  return st->stage == 0 ? compose_first(c, st->note) : compose_then(c, st->note);
}
static const row_kernel *compose_kernel(const compose *k, const row_state *st) {
  return st->stage == 0 ? k->first : k->then;
}

static void compose_begin(const void *body, const row_call *c, row_state *st) {
  const compose *k = body;
  st->stage = 0;
  memset(st->note, 0, sizeof st->note);
  const row_call one = compose_call(c, st);
  row_begin(k->first, &one, st);
}
static void compose_pass(const void *body, const row_call *c, row_state *st, row_part *parts) {
  const row_call one = compose_call(c, st);
  row_pass(compose_kernel(body, st), &one, st, parts);
}
static void compose_merge(const void *body, const row_call *c, row_state *st, const row_part *parts,
                          size_t count) {
  const row_call one = compose_call(c, st);
  row_merge(compose_kernel(body, st), &one, st, parts, count);
}
static bool compose_next(const void *body, const row_call *c, row_state *st) {
  const compose *k = body;
  row_call one = compose_call(c, st);
  if (st->stage == 1) return row_next(k->then, &one, st);
  if (row_next(k->first, &one, st)) return true;
  st->stage = 1;
  one = compose_call(c, st);
  row_begin(k->then, &one, st);
  return true;
}
static void compose_rows(const row_kernel *kernel, row_call *c) {
  const compose *k = kernel->body;
  if (k->rows) {
    k->rows(kernel, c);
    return;
  }
  for (size_t r = 0; r < c->rows; r++) {
    double note[4] = {0};
    const row_call row = row_at(c, r);
    row_call first = compose_first(&row, note), then = compose_then(&row, note);
    row_run(k->first, &first);
    row_run(k->then, &then);
    if (then.first_empty >= 0) note_empty(c, r);
  }
}
const row_engine compose_engine = {compose_begin, compose_pass, compose_merge, compose_next, compose_rows};

static void minmax_row(const span *s, const consts *k, const reduce_map_row *r, double post) {
  s->dst[0][MINMAX_VALID] = (real)r->valid;
  s->dst[0][MINMAX_MAX] = r->max;
  s->dst[0][MINMAX_LOW] = r->low;
}
static const reduce_map_body minmax_body = {
    .setup = setup_plain, .row = minmax_row, .max = true, .gradient = true, .bounded = true};
const row_kernel minmax_kernel = {.engine = &reduce_map_engine, .body = &minmax_body};
