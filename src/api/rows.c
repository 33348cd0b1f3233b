/* api/rows.c - the driver of the row operators: takes the rows of checked tensors to the kernels.
 *
 * Rows whose ports all hold the real type contiguously go to the kernel where they lie. Others are brought into tiles of a few rows in scratch
 * memory, computed there and stored back. Long rows that cannot lie in a tile, or that several threads share, run the operator's row program
 * group by group. Scratch memory is bounded by constants, whatever the tensor. How work is cut changes no bits. */
#include "job.h"
#include "cpu/fpenv.h"
#include "plan.h"
#include <stdatomic.h>
#include <string.h>

enum {
  TILE = 16384,       /* elements of a tile of short rows */
  TILE_ROWS = 16,     /* rows of a tile when the axis is not contiguous: the elements of a cache line */
  LONG_ROW = 32768,   /* elements from which a row that must be converted runs by groups */
  SPLIT_ROW = 131072, /* elements from which threads share a row */
  TASK = 65536,       /* elements that are worth a task */
  RUN_GROUPS = 32     /* groups of a long row handed out together */
};

static _Atomic int forced_plan;
void smx_plan_set(int plan) { atomic_store(&forced_plan, plan); }
int smx_plan_get(void) { return atomic_load_explicit(&forced_plan, memory_order_relaxed); }

static size_t real_bytes(const job *j) { return j->wide ? 8 : 4; }

/* ---- where rows lie ---- */

/* Joins dimensions of the rows that every port walks as one, and drops those of size 1. */
static bool mergeable(const job_port *p, int32_t d, int64_t size) { return !p->present || p->outer[d] == p->outer[d + 1] * size; }
static void drop_dim(job *j, int32_t d) {
  for (int32_t e = d; e + 1 < j->dims; e++) {
    j->dim[e] = j->dim[e + 1];
    for (int p = 0; p < ROW_SRC; p++) j->src[p].outer[e] = j->src[p].outer[e + 1];
    for (int p = 0; p < ROW_DST; p++) j->dst[p].outer[e] = j->dst[p].outer[e + 1];
  }
  j->dims--;
}
static void merge_dims(job *j) {
  for (int32_t d = j->dims - 1; d >= 0; d--)
    if (j->dim[d] == 1) drop_dim(j, d);
  for (int32_t d = j->dims - 2; d >= 0; d--) {
    bool all = true;
    for (int p = 0; p < ROW_SRC; p++) all &= mergeable(j->src + p, d, j->dim[d + 1]);
    for (int p = 0; p < ROW_DST; p++) all &= mergeable(j->dst + p, d, j->dim[d + 1]);
    if (!all) continue;
    j->dim[d + 1] *= j->dim[d];
    drop_dim(j, d);
  }
  if (j->dims == 0) {
    j->dims = 1;
    j->dim[0] = 1;
    for (int p = 0; p < ROW_SRC; p++) j->src[p].outer[0] = 0;
    for (int p = 0; p < ROW_DST; p++) j->dst[p].outer[0] = 0;
  }
}

/* The rows that follow one another along the last dimension. */
static int64_t run_length(const job *j, int64_t row, int64_t rows) {
  int64_t last = j->dim[j->dims - 1], left = last - row % last;
  return rows < left ? rows : left;
}

static char *row_address(const job *j, const job_port *p, int64_t row) {
  int64_t offset = 0;
  for (int32_t d = j->dims - 1; d >= 0; d--) {
    offset += row % j->dim[d] * p->outer[d];
    row /= j->dim[d];
  }
  return p->data + offset * p->bytes;
}

static int64_t row_step(const job *j, const job_port *p) { return p->outer[j->dims - 1]; }

/* ---- tiles ---- */

/* What one task works with. A piece: elements start .. start + count - 1 of `rows` rows from `row` on. */
typedef struct piece {
  int64_t row, rows, start, count;
} piece;

typedef struct tile {
  char *memory;
  int64_t room; /* elements a port has */
} tile;

static int scratch_ports(const job *j) {
  int ports = 0;
  for (int p = 0; p < ROW_SRC; p++) ports += j->src[p].present && !j->src[p].direct;
  for (int p = 0; p < ROW_DST; p++) ports += j->dst[p].present && !j->dst[p].direct;
  return ports;
}

static bool tile_open(const job *j, tile *t, int64_t room) {
  int ports = scratch_ports(j);
  t->room = (room + 63) / 64 * 64;
  t->memory = NULL;
  return ports == 0 || (t->memory = smx_alloc(j->ctx, (size_t)ports * (size_t)t->room * real_bytes(j))) != NULL;
}

/* Copies a square of TILE_ROWS x TILE_ROWS reals, or part of it, turned over. */
static void turn(const job *j, const char *from, int64_t from_pitch, char *to, int64_t to_pitch, int64_t rows, int64_t columns) {
  if (j->wide) {
    const double *a = (const double *)(const void *)from;
    double *b = (double *)(void *)to;
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < columns; c++) b[r * to_pitch + c] = a[c * from_pitch + r];
  } else {
    const float *a = (const float *)(const void *)from;
    float *b = (float *)(void *)to;
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < columns; c++) b[r * to_pitch + c] = a[c * from_pitch + r];
  }
}

/* A piece whose rows are adjacent in memory: whole cache lines are converted, and turned over in a buffer. */
static void move_columns(const job *j, const job_port *p, const piece *at, char *scratch, bool store) {
  double buffer[TILE_ROWS * TILE_ROWS];
  char *square = (char *)buffer, *base = row_address(j, p, at->row) + at->start * p->axis * p->bytes;
  const int64_t real = (int64_t)real_bytes(j);
  for (int64_t i = 0; i < at->count; i += TILE_ROWS) {
    int64_t n = at->count - i < TILE_ROWS ? at->count - i : TILE_ROWS;
    if (store) turn(j, scratch + i * real, at->count, square, TILE_ROWS, n, at->rows);
    for (int64_t c = 0; c < n; c++) {
      char *line = base + (i + c) * p->axis * p->bytes;
      if (store) j->moves->store(p->store, square + c * TILE_ROWS * real, (size_t)at->rows, line, 1);
      else j->moves->load(p->store, line, 1, (size_t)at->rows, square + c * TILE_ROWS * real);
    }
    if (!store) turn(j, square, TILE_ROWS, scratch + i * real, at->count, at->rows, n);
  }
}

/* Loads or stores the piece of a FULL port, a stretch of the axis at a time, so that lines with elements of several rows stay in L1. */
static void move_piece(const job *j, const job_port *p, const piece *at, char *scratch, bool store) {
  int64_t step = row_step(j, p), stretch = p->axis == 1 ? at->count : 64;
  if (p->axis != 1 && step == 1 && at->rows > 1 && at->rows <= TILE_ROWS) {
    move_columns(j, p, at, scratch, store);
    return;
  }
  bool packed = p->axis == 1 && step == at->count && at->count == j->n;
  char *base = row_address(j, p, at->row) + at->start * p->axis * p->bytes;
  int64_t rows = packed ? 1 : at->rows, count = packed ? at->rows * at->count : at->count;
  if (packed) stretch = count;
  for (int64_t i = 0; i < count; i += stretch) {
    int64_t n = count - i < stretch ? count - i : stretch;
    for (int64_t r = 0; r < rows; r++) {
      char *here = base + (r * step + i * p->axis) * p->bytes, *there = scratch + (size_t)(r * count + i) * real_bytes(j);
      if (store) j->moves->store(p->store, there, (size_t)n, here, p->axis);
      else j->moves->load(p->store, here, p->axis, (size_t)n, there);
    }
  }
}

/* The call for a piece: direct ports in place, the others in the tile, loaded. */
static row_call open_call(const job *j, const tile *t, const piece *at) {
  row_call c = j->call;
  char *scratch = t->memory;
  c.n = (size_t)j->n, c.rows = (size_t)at->rows;
  c.origin = c.start = (size_t)at->start, c.count = (size_t)at->count;
  for (int p = 0; p < ROW_SRC; p++) {
    const job_port *q = j->src + p;
    if (!q->present) continue;
    char *here = row_address(j, q, at->row);
    if (q->direct) {
      c.src[p] = here + (q->full ? at->start * q->bytes : 0);
      c.src_step[p] = row_step(j, q);
      continue;
    }
    c.src[p] = scratch;
    c.src_step[p] = q->full ? at->count : 1;
    if (q->full) move_piece(j, q, at, scratch, false);
    else j->moves->load(q->store, here, row_step(j, q), (size_t)at->rows, scratch);
    scratch += (size_t)t->room * real_bytes(j);
  }
  for (int p = 0; p < ROW_DST; p++) {
    const job_port *q = j->dst + p;
    if (!q->present) continue;
    if (q->direct) {
      c.dst[p] = row_address(j, q, at->row) + (q->full ? at->start * q->bytes : 0);
      c.dst_step[p] = row_step(j, q);
      continue;
    }
    c.dst[p] = scratch;
    c.dst_step[p] = q->full ? at->count : 1;
    scratch += (size_t)t->room * real_bytes(j);
  }
  return c;
}

/* Stores what a call left in the tile: FULL ports, ROW ports, or both. */
static void close_call(const job *j, const row_call *c, const piece *at, bool full, bool row) {
  for (int p = 0; p < ROW_DST; p++) {
    const job_port *q = j->dst + p;
    if (!q->present || q->direct || !q->data) continue;
    if (q->full && full) move_piece(j, q, at, c->dst[p], true);
    if (!q->full && row) j->moves->store(q->store, c->dst[p], (size_t)at->rows, row_address(j, q, at->row), row_step(j, q));
  }
}

/* ---- many rows ---- */

typedef struct crew {
  const job *j;
  int64_t rows_a_task;
  _Atomic int64_t empty;
  _Atomic bool no_memory;
} crew;

static void note_empty(crew *w, int64_t row) {
  int64_t old = atomic_load(&w->empty);
  while ((old < 0 || row < old) && !atomic_compare_exchange_weak(&w->empty, &old, row)) {}
}

/* Rows are taken through the kernel as runs of the last dimension, as many at once as the tile has room for. An empty row under
 * SMX_EMPTY_ERROR must keep its output, so it is not stored back: such rows go one by one. */
static void rows_task(void *arg, int64_t task) {
  crew *w = arg;
  const job *j = w->j;
  tile t;
  smx_fpenv env = smx_fpenv_enter();
  bool columns = false, scratched = scratch_ports(j) > 0;
  for (int p = 0; p < ROW_SRC; p++) columns |= j->src[p].present && j->src[p].full && j->src[p].axis != 1;
  for (int p = 0; p < ROW_DST; p++) columns |= j->dst[p].present && j->dst[p].full && j->dst[p].axis != 1;
  int64_t fit = j->n ? TILE / j->n : TILE;
  if (columns) fit = TILE_ROWS;
  if (fit < 1 || j->call.on_empty == SMX_EMPTY_ERROR) fit = 1;
  if (!scratched && j->call.on_empty != SMX_EMPTY_ERROR) fit = w->rows_a_task;
  int64_t row = task * w->rows_a_task, end = row + w->rows_a_task < j->rows ? row + w->rows_a_task : j->rows;
  if (fit > end - row) fit = end - row;
  if (tile_open(j, &t, fit * (j->n ? j->n : 1))) {
    while (row < end) {
      piece at = {row, run_length(j, row, end - row < fit ? end - row : fit), 0, j->n};
      row_call c = open_call(j, &t, &at);
      c.first_empty = -1;
      j->kernel->rows(&c);
      if (c.first_empty >= 0) note_empty(w, row + c.first_empty);
      else close_call(j, &c, &at, true, true);
      row += at.rows;
    }
    smx_free(j->ctx, t.memory);
  } else {
    atomic_store(&w->no_memory, true);
  }
  smx_fpenv_leave(env);
}

/* ---- long rows: the row program by runs of groups ---- */

typedef struct long_row {
  const job *j;
  row_state *st;
  row_part *parts;
  int64_t row, run; /* run: elements handed out together */
  _Atomic bool no_memory;
} long_row;

static void long_task(void *arg, int64_t task) {
  long_row *w = arg;
  const job *j = w->j;
  int64_t from = task * w->run, end = from + w->run < j->n ? from + w->run : j->n;
  bool scratched = scratch_ports(j) > 0;
  int64_t size = scratched ? ROW_GROUP : w->run, pieces = (end - from + size - 1) / size;
  tile t;
  smx_fpenv env = smx_fpenv_enter();
  if (tile_open(j, &t, ROW_GROUP)) {
    for (int64_t i = 0; i < pieces; i++) {
      int64_t start = from + (w->st->reverse ? pieces - 1 - i : i) * size;
      piece at = {w->row, 1, start, end - start < size ? end - start : size};
      row_call c = open_call(j, &t, &at);
      j->kernel->pass(&c, w->st, w->parts + start / ROW_GROUP);
      if (w->st->writes) close_call(j, &c, &at, true, false);
    }
    smx_free(j->ctx, t.memory);
  } else {
    atomic_store(&w->no_memory, true);
  }
  smx_fpenv_leave(env);
}

/* ROW ports of one row live here while its program runs. */
typedef struct row_values {
  double src[ROW_SRC], dst[ROW_DST];
} row_values;

static row_call value_call(const job *j, int64_t row, row_values *v) {
  row_call c = j->call;
  c.n = (size_t)j->n, c.rows = 1;
  for (int p = 0; p < ROW_SRC; p++) {
    if (!j->src[p].present || j->src[p].full) continue;
    j->moves->load(j->src[p].store, row_address(j, j->src + p, row), 1, 1, v->src + p);
    c.src[p] = v->src + p;
  }
  for (int p = 0; p < ROW_DST; p++)
    if (j->dst[p].present && !j->dst[p].full) c.dst[p] = v->dst + p;
  return c;
}

static smx_status long_row_run(const job *j, int64_t row, row_state *st, row_part *parts, int64_t *empty) {
  row_values values;
  row_call scalars = value_call(j, row, &values);
  long_row w = {.j = j, .st = st, .parts = parts, .row = row, .run = (int64_t)RUN_GROUPS * ROW_GROUP};
  int64_t groups = (j->n + ROW_GROUP - 1) / ROW_GROUP, tasks = (j->n + w.run - 1) / w.run;
  j->kernel->begin(&scalars, st);
  do {
    if (st->serial)
      for (int64_t i = 0; i < tasks; i++) long_task(&w, st->reverse ? tasks - 1 - i : i);
    else smx_parallel(j->ctx, tasks, long_task, &w);
    if (atomic_load(&w.no_memory)) return SMX_ERR_NOMEM;
    j->kernel->fold(&scalars, st, parts, (size_t)groups);
  } while (j->kernel->next(&scalars, st));
  if (st->empty && j->call.on_empty == SMX_EMPTY_ERROR) {
    if (*empty < 0) *empty = row;
    return SMX_OK;
  }
  for (int p = 0; p < ROW_DST; p++)
    if (scalars.dst[p] && j->dst[p].data) j->moves->store(j->dst[p].store, scalars.dst[p], 1, row_address(j, j->dst + p, row), 1);
  return SMX_OK;
}

static smx_status long_rows(job *j, int64_t *empty) {
  int64_t groups = (j->n + ROW_GROUP - 1) / ROW_GROUP;
  row_state *st = smx_alloc(j->ctx, sizeof *st);
  row_part *parts = smx_alloc(j->ctx, (size_t)groups * sizeof *parts);
  smx_status status = st && parts ? SMX_OK : SMX_ERR_NOMEM;
  for (int64_t row = 0; row < j->rows && status == SMX_OK; row++) {
    smx_fpenv env = smx_fpenv_enter();
    status = long_row_run(j, row, st, parts, empty);
    smx_fpenv_leave(env);
  }
  smx_free(j->ctx, parts);
  smx_free(j->ctx, st);
  return status;
}

/* ---- which way ---- */

static void choose_stores(job *j) {
  const job_port *y = j->dst, *x = j->src;
  int64_t bytes = j->rows * j->n * (int64_t)real_bytes(j);
  j->call.bypass = y->present && y->full && y->direct && bytes > SMX_BYPASS && !(x->present && x->data == y->data);
  j->call.plan = (row_plan)smx_plan_get();
  if (j->call.plan == PLAN_CACHE) j->call.bypass = false;
}

static smx_status even_rows(job *j, int64_t *empty) {
  int32_t threads = smx_context_threads(j->ctx);
  merge_dims(j);
  choose_stores(j);
  bool shared = threads > 1 && j->n >= SPLIT_ROW && j->rows < 4 * (int64_t)threads;
  if (j->n > 0 && (shared || (scratch_ports(j) > 0 && j->n > LONG_ROW))) return long_rows(j, empty);
  crew w = {.j = j, .empty = -1, .rows_a_task = j->rows};
  if (threads > 1) w.rows_a_task = j->n < TASK ? (TASK + j->n) / (j->n + 1) : 1;
  int64_t tasks = (j->rows + w.rows_a_task - 1) / w.rows_a_task;
  smx_parallel(j->ctx, tasks, rows_task, &w);
  if (*empty < 0) *empty = w.empty;
  return atomic_load(&w.no_memory) ? SMX_ERR_NOMEM : SMX_OK;
}

/* Segments of one row of the tensor: each is a row of its own length. */
static int64_t offset_at(const job_port *p, int64_t i) {
  const char *at = p->data + i * p->axis * p->bytes;
  if (p->store == STORE_I32) return *(const int32_t *)(const void *)at;
  return *(const int64_t *)(const void *)at;
}

static void advance(job_port *p, int64_t by) {
  if (p->present && p->full && p->data) p->data += by * p->axis * p->bytes;
}

static smx_status segment_rows(job *j, int64_t *empty) {
  smx_status status = SMX_OK;
  for (int64_t s = 0; s < j->segments && status == SMX_OK; s++) {
    job one = *j;
    int64_t first = offset_at(j->offsets, s);
    one.offsets = NULL;
    one.n = offset_at(j->offsets, s + 1) - first;
    if (one.n == 0) continue;
    for (int p = 0; p < ROW_SRC; p++) advance(one.src + p, first);
    for (int p = 0; p < ROW_DST; p++) advance(one.dst + p, first);
    int64_t row = -1;
    status = even_rows(&one, &row);
    if (row >= 0 && *empty < 0) *empty = row, j->segment = s;
  }
  return status;
}

smx_status job_run(job *j, int64_t *empty) {
  *empty = -1;
  if (j->rows == 0) return SMX_OK;
  smx_status status = j->offsets ? segment_rows(j, empty) : even_rows(j, empty);
  if (status == SMX_OK && *empty >= 0) status = SMX_ERR_EMPTY;
  return status;
}
