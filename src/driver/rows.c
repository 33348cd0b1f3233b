/* driver/rows.c - the driver of the row operators: takes the rows of checked tensors to the
 * kernels.
 *
 * Rows whose ports all hold the real type contiguously go to the kernel in place. Other rows are
 * converted, a few at a time, into tiles of scratch memory, computed there and stored back. A long
 * row that does not fit a tile, or that several threads share, runs as a row program, group by
 * group. Scratch memory is bounded by constants, whatever the tensor, except for kernels without a
 * row program, which need a whole row in one piece (job.h). No choice here changes a bit. */
#include "job.h"
#include "long_row.h"
#include "plan.h"
#include <stdatomic.h>
#include <string.h>

enum {
  TILE = 8192, /* elements of a tile of short rows */
  /* elements of such a tile across the axis, which then has fewer rows, but whole cache lines */
  TILE_WIDE = 262144,
  LONG_ROW = 32768,    /* elements from which a row that must be converted runs by groups */
  SPLIT_ROW = 131072,  /* elements from which threads share a row */
  TASK = 65536,        /* elements that are worth a task */
  TASKS_A_THREAD = 16, /* of many rows */
  TASK_ROWS = 8,       /* as a share of all rows, a task has so many or more */
  STRIP_SHORT = 2048   /* elements up to which rows side by side are taken in narrow strips */
};

/* The ports that are present, one after another. */
typedef struct port_list {
  int count;
  job_port *at[ROW_SRC + ROW_DST];
} port_list;
static port_list ports_of(job *j) {
  port_list l = {.count = 0};
  for (int p = 0; p < ROW_SRC; p++)
    if (j->src[p].present) l.at[l.count++] = j->src + p;
  for (int p = 0; p < ROW_DST; p++)
    if (j->dst[p].present) l.at[l.count++] = j->dst + p;
  return l;
}

static void run_tasks(const job *j, int64_t count, void (*task)(void *arg, int64_t i), void *arg) {
  for (int64_t i = 0; j->plain && i < count; i++) task(arg, i);
  if (!j->plain) smx_parallel(j->ctx, count, task, arg);
}

/* ---- where rows lie ---- */

/* Joins dimensions of the rows that every port walks as one, and drops those of size 1. */
static void drop_dim(job *j, const port_list *ports, int32_t d) {
  for (int32_t e = d; e + 1 < j->dims; e++) {
    j->dim[e] = j->dim[e + 1];
    for (int p = 0; p < ports->count; p++) ports->at[p]->outer[e] = ports->at[p]->outer[e + 1];
  }
  j->dims--;
}
static bool mergeable(const port_list *ports, int32_t d, int64_t size) {
  for (int p = 0; p < ports->count; p++)
    if (ports->at[p]->outer[d] != ports->at[p]->outer[d + 1] * size) return false;
  return true;
}
static void merge_dims(job *j) {
  const port_list ports = ports_of(j);
  for (int32_t d = j->dims - 1; d >= 0; d--)
    if (j->dim[d] == 1) drop_dim(j, &ports, d);
  for (int32_t d = j->dims - 2; d >= 0; d--) {
    if (!mergeable(&ports, d, j->dim[d + 1])) continue;
    j->dim[d + 1] *= j->dim[d];
    drop_dim(j, &ports, d);
  }
  if (j->dims == 0) {
    j->dims = 1;
    j->dim[0] = 1;
    for (int p = 0; p < ports.count; p++) ports.at[p]->outer[0] = 0;
  }
}

/* The rows that follow one another along the last dimension. */
static int64_t run_length(const job *j, int64_t row, int64_t rows) {
  int64_t last = j->dim[j->dims - 1], left = last - row % last;
  return rows < left ? rows : left;
}

/* ---- many rows ---- */

/* The output whose size decides how outputs are written. */
static int first_full(const job *j) {
  int p = 0;
  while (p + 1 < ROW_DST && !(j->dst[p].present && j->dst[p].full)) p++;
  return p;
}

typedef struct parallel_job {
  const job *j;
  int64_t rows_a_task;
  smx_scratch *scratch; /* or, in a part of a task, the task's */
  char *own;
  _Atomic int64_t empty;
} parallel_job;

static char *take_place(const parallel_job *w) { return w->own ? w->own : smx_scratch_take(w->scratch); }
static void give_place(const parallel_job *w, const char *place) {
  if (!w->own) smx_scratch_give(w->scratch, place);
}

/* How many rows of `rows` a tile has. An empty row under SMX_EMPTY_ERROR must keep its output, so
 * it is not stored back: such rows go one by one. */
static int64_t tile_rows(const job *j, int64_t rows) {
  const int64_t length = scratch_length(j);
  bool columns = false;
  for (int p = 0; p < ROW_SRC; p++) columns |= j->src[p].present && j->src[p].full && j->src[p].axis != 1;
  for (int p = 0; p < ROW_DST; p++) columns |= j->dst[p].present && j->dst[p].full && j->dst[p].axis != 1;
  int64_t fit = length ? TILE / length : TILE;
  if (columns) fit = TILE_ROWS * j->n <= TILE_WIDE ? TILE_ROWS : TILE_ROWS / 2;
  if (fit < 1 || j->call.on_empty == SMX_EMPTY_ERROR) fit = 1;
  if (!length && j->call.on_empty != SMX_EMPTY_ERROR) fit = rows;
  return fit < rows ? fit : rows;
}

/* Rows go through the kernel as runs of the last dimension, as many at once as the tile has room
 * for. */
static void rows_task(void *arg, int64_t task) {
  parallel_job *w = arg;
  const job *j = w->j;
  int64_t row = task * w->rows_a_task, end = row + w->rows_a_task < j->rows ? row + w->rows_a_task : j->rows;
  const int64_t fit = tile_rows(j, end - row);
  char *const place = take_place(w);
  row_call c;
  const tile t = {smx_job_lend(j, place, &c), tile_room(fit * scratch_length(j))};
  while (row < end) {
    piece at = {row, run_length(j, row, end - row < fit ? end - row : fit), 0, j->n};
    open_call(j, &t, &at, NULL, &c);
    smx_job_lend(j, place, &c);
    c.first_empty = -1;
    smx_keep_terms(&c, first_full(j), real_bytes(j));
    row_run(j->kernel, &c);
    if (c.first_empty >= 0) smx_keep_least(&w->empty, row + c.first_empty);
    else close_call(j, &c, &at, true);
    row += at.rows;
  }
  give_place(w, place);
}

/* ---- long rows: the row program by runs of groups ---- */

typedef struct long_row {
  const parallel_job *w;
  const job *j;
  row_state *st;
  row_part *parts;
  const row_call *values; /* the ports that are not FULL */
  int64_t row, run;       /* run: elements handed out together */
} long_row;

static void long_task(void *arg, int64_t task) {
  long_row *w = arg;
  const int64_t from = task * w->run, end = from + w->run < w->j->n ? from + w->run : w->j->n;
  char *const place = take_place(w->w);
  long_row_pass(w->j, place, w->values, w->st, &(piece){w->row, 1, from, end - from},
                w->parts + from / ROW_GROUP);
  give_place(w->w, place);
}

/* The program of a long row: what kernels ask for, state, parts and cells, one after another. */
static int64_t groups_of(const job *j) { return long_row_groups(j->n); }
static size_t long_bytes(const job *j) {
  const size_t cells = (size_t)(long_row_cells(j) + 1) * sizeof(double);
  return smx_job_own(j) + smx_whole_lines(sizeof(row_state)) +
         smx_whole_lines((size_t)groups_of(j) * sizeof(row_part)) + smx_whole_lines(cells);
}

static void long_row_run(const parallel_job *owner, char *memory, int64_t row, int64_t *empty) {
  const job *j = owner->j;
  char *const behind = memory + smx_job_own(j);
  row_state *st = (row_state *)(void *)behind;
  row_part *parts = (row_part *)(void *)(behind + smx_whole_lines(sizeof *st));
  double *cells = (double *)(void *)((char *)parts + smx_whole_lines((size_t)groups_of(j) * sizeof *parts));
  row_call values = long_row_open(j, row, cells);
  smx_job_lend(j, memory, &values);
  st->list = values.list;
  long_row w = {.w = owner,
                .j = j,
                .st = st,
                .parts = parts,
                .values = &values,
                .row = row,
                .run = (int64_t)RUN_GROUPS * ROW_GROUP};
  int64_t tasks = (j->n + w.run - 1) / w.run;
  row_begin(j->kernel, &values, st);
  do {
    if (st->serial)
      for (int64_t i = 0; i < tasks; i++) long_task(&w, st->reverse ? tasks - 1 - i : i);
    else run_tasks(j, tasks, long_task, &w);
    row_merge(j->kernel, &values, st, parts, (size_t)groups_of(j));
  } while (row_next(j->kernel, &values, st));
  if (!st->empty || j->call.on_empty != SMX_EMPTY_ERROR) long_row_close(j, row, &values);
  else if (*empty < 0) *empty = row;
}

static void long_rows(const parallel_job *w, char *memory, int64_t *empty) {
  for (int64_t row = 0; row < w->j->rows; row++) long_row_run(w, memory, row, empty);
}

void job_stores(job *j, bool strips, bool half) {
  const job_port *y = j->dst + first_full(j);
  const bool written = y->present && y->full && (y->direct || strips || half);
  /* an absent port has no elements */
  const size_t bytes = written ? (size_t)j->rows * (size_t)j->n * (size_t)y->bytes : 0;
  bool kept = !written;
  for (int p = 0; p < ROW_SRC; p++) kept |= j->src[p].present && j->src[p].data == y->data;
  const bool reads_two = j->src[SRC_Y].present && j->src[SRC_Y].full && j->src[SRC_DY].full;
  j->call.writing = smx_writing_for(kept, reads_two ? gradient_bytes(bytes) : bytes);
  j->call.plan = (row_plan)smx_plan_get();
}

/* ---- rows that the kernel takes as they are ---- */

static bool alone(const job *j) { /* x among the inputs */
  for (int p = 1; p < ROW_SRC; p++)
    if (j->src[p].present) return false;
  return true;
}

/* Whether the kernel can take rows where they lie side by side in memory: x and y alone, of the
 * real type, the axis across. */
static bool side_by_side(const job *j) {
  const job_port *x = j->src, *y = j->dst;
  if (!alone(j) || !j->kernel->forms || !j->kernel->forms->columns) return false;
  if (j->plain || j->n < 2 || j->rows < 64 / (int64_t)real_bytes(j)) return false;
  return x->same && y->same && x->axis != 1 && y->axis != 1 && row_step(j, x) == 1 && row_step(j, y) == 1;
}

static void part_rows(job *j, char *own, int64_t *empty);

/* Rows that may lie in no tile run by groups. */
static bool by_groups(const job *j) {
  return j->n > 0 && row_has_program(j->kernel) && scratch_length(j) > LONG_ROW;
}

/* The scratch memory of `rows` rows if the kernel cannot take them as they are. */
static size_t rows_bytes(const job *j, int64_t rows) {
  if (!scratched(j)) return smx_job_own(j);
  if (by_groups(j)) return long_row_place(j);
  return smx_job_own(j) + (size_t)tile_bytes(j, tile_room(tile_rows(j, rows) * scratch_length(j)));
}
static size_t part_bytes(const job *j, int64_t rows) {
  return smx_whole_lines(sizeof(job)) + rows_bytes(j, rows) + (by_groups(j) ? long_bytes(j) : 0);
}

/* Runs rows row .. row + count - 1 in strips, on this thread. */
static void by_tiles(parallel_job *w, int64_t row, int64_t count, char *memory) {
  job *part = (job *)(void *)memory;
  int64_t empty = -1;
  *part = *w->j;
  part->plain = true;
  const port_list ports = ports_of(part);
  for (int p = 0; p < ports.count; p++)
    ports.at[p]->data = row_address(w->j, ports.at[p], row), ports.at[p]->outer[0] = 1;
  part->rows = part->dim[0] = count;
  part->dims = 1;
  part_rows(part, memory + smx_whole_lines(sizeof *part), &empty);
  if (empty >= 0) smx_keep_least(&w->empty, row + empty);
}

/* Bytes of rows in a strip. A wider strip uses more of every memory page that is touched; but short
 * rows of a strip should fit the second-level cache, and every thread should have a strip. */
static int64_t strip_bytes(const job *j) {
  const int64_t most = j->n <= STRIP_SHORT ? ROW_STRIP / 8 : ROW_STRIP,
                vectors = (j->rows * (int64_t)real_bytes(j) + 63) / 64;
  const int64_t share = (vectors + smx_context_threads(j->ctx) - 1) / smx_context_threads(j->ctx) * 64;
  return share < most ? share : most;
}

static size_t strip_room(const job *j) { return smx_whole_lines(row_strip_room((size_t)strip_bytes(j))); }

static void strips_task(void *arg, int64_t task) {
  parallel_job *w = arg;
  const job *j = w->j;
  const int64_t lanes = 64 / (int64_t)real_bytes(j), widest = strip_bytes(j) / (int64_t)real_bytes(j);
  int64_t row = task * w->rows_a_task, end = row + w->rows_a_task < j->rows ? row + w->rows_a_task : j->rows;
  row_call c = j->call;
  c.n = (size_t)j->n;
  char *scratch = take_place(w);
  for (int64_t narrow = 0, most = widest, count; row < end; row += count) {
    const int64_t run = run_length(j, row, end - row);
    const char *x = row_address(j, j->src, row);
    char *y = row_address(j, j->dst, row);
    if (row >= narrow) most = widest;
    count = run < most ? run : most;
    if (j->kernel->forms->columns(&c, (size_t)count, x, j->src->axis, y, j->dst->axis, scratch)) continue;
    if (count <= lanes) {
      by_tiles(w, row, count, scratch + strip_room(j));
      continue;
    }
    narrow = row + count; /* some row needs a rule: again, with fewer of them at once */
    most = count / 8 > lanes ? count / 8 / lanes * lanes : lanes;
    count = 0;
  }
  give_place(w, scratch);
}

/* Whether the kernel has forms for rows of f16 and bf16, and would use them in this call. */
static bool takes_half(const job *j) {
  const row_forms *const forms = j->kernel->forms;
  return forms && j->n > forms->widened && (!forms->half_takes || forms->half_takes(&j->call));
}

/* Whether the kernel can take rows of f16 or bf16 as they are: x, or y and dy. Shorter rows fill
 * tiles, where several are computed at a time. */
static const job_port *half_input(const job *j) { return j->src + (j->src[SRC_DY].present ? SRC_Y : 0); }
static bool as_half(const job *j) {
  const row_store store = j->dst->store;
  if (!takes_half(j) || !j->kernel->forms->half || j->plain || store > STORE_BF16) return false;
  if (!j->dst->data) return false; /* a result that nobody wants */
  for (int p = 0; p < ROW_SRC + ROW_DST; p++) {
    const job_port *port = p < ROW_SRC ? j->src + p : j->dst + (p - ROW_SRC);
    const bool used = port == half_input(j) || port == j->src + SRC_DY || port == j->dst;
    if (port->present && (used ? !port->full || port->store != store || port->axis != 1 : port != j->src))
      return false;
  }
  return true;
}

/* A gradient stores no terms. */
static size_t half_scratch(const job *j) {
  return smx_whole_lines((j->src[SRC_DY].present ? 0 : row_half_scratch((size_t)j->n)) * sizeof(float));
}

static void half_task(void *arg, int64_t task) {
  parallel_job *w = arg;
  const job *j = w->j;
  int64_t row = task * w->rows_a_task, end = row + w->rows_a_task < j->rows ? row + w->rows_a_task : j->rows;
  const size_t n = (size_t)j->n;
  const job_port *const x = half_input(j), *const dy = j->src + SRC_DY;
  char *scratch = take_place(w);
  half_rows h = {.type = x->store, .n = n, .writing = j->call.writing, .scratch = scratch};
  h.x_step = row_step(j, x), h.y_step = row_step(j, j->dst);
  if (dy->present) h.dy_step = row_step(j, dy);
  while (row < end) {
    h.rows = (size_t)run_length(j, row, end - row);
    h.x = row_address(j, x, row), h.y = row_address(j, j->dst, row);
    if (dy->present) h.dy = row_address(j, dy, row);
    const size_t done = j->kernel->forms->half(&h);
    row += (int64_t)done;
    if (done < h.rows) by_tiles(w, row++, 1, scratch + half_scratch(j));
  }
  give_place(w, scratch);
}

/* ---- which way ---- */

/* A row is written while the next of its task is summed, so a task should have many rows or one;
 * but no thread should wait long for others (1024 x 32768 on two threads: 0.27 ns an element with
 * two rows a task, 0.23 with 32). */
static int64_t rows_a_task(const job *j, int64_t threads) {
  const int64_t worth = j->n < TASK ? (TASK + j->n) / (j->n + 1) : 1,
                share = j->rows / (threads * TASKS_A_THREAD);
  return share >= TASK_ROWS && share > worth ? share : worth;
}

/* Chooses the code path of a call, and the rows of a task. */
typedef enum way { BY_ROWS, BY_GROUPS, BY_STRIPS, BY_HALF } way;
typedef struct plan {
  way way;
  int64_t rows_a_task, tasks;
} plan;

/* Whether threads share the rows. A row that one of them takes in its caches keeps its terms;
 * shared, it forms them twice, so that two threads gain nothing (softmax of 262 144 f32, Zen 4: 76
 * us, shared by two 116). */
static bool share_rows(const job *j, int64_t threads) {
  const row_forms *const forms = j->kernel->forms;
  if (threads < 2 || j->n < SPLIT_ROW || j->rows >= 4 * threads) return false;
  return threads > 3 || !forms || j->n > forms->whole;
}

static plan plan_of(const job *j) {
  const int32_t threads = j->plain ? 1 : smx_context_threads(j->ctx);
  const bool shared = share_rows(j, threads);
  plan p = {.rows_a_task = j->rows};
  if (side_by_side(j)) p.way = BY_STRIPS;
  else if (!shared && as_half(j)) p.way = BY_HALF;
  else if (by_groups(j) || (j->n > 0 && row_has_program(j->kernel) && shared)) p.way = BY_GROUPS;
  if (threads > 1 && p.way == BY_STRIPS) p.rows_a_task = strip_bytes(j) / (int64_t)real_bytes(j);
  else if (threads > 1) p.rows_a_task = rows_a_task(j, threads);
  p.tasks = p.way == BY_GROUPS ? (groups_of(j) + RUN_GROUPS - 1) / RUN_GROUPS
                               : (j->rows + p.rows_a_task - 1) / p.rows_a_task;
  return p;
}

/* The memory of a task. */
static size_t task_bytes(const job *j, const plan *p) {
  const int64_t lanes = 64 / (int64_t)real_bytes(j);
  switch (p->way) {
    case BY_GROUPS: return long_row_place(j);
    case BY_STRIPS: return strip_room(j) + part_bytes(j, lanes);
    case BY_HALF: return half_scratch(j) + part_bytes(j, 1);
    default: return rows_bytes(j, p->rows_a_task);
  }
}

/* scratch memory; in a part of a task, memory of its own */
static void even_rows(job *j, plan p, smx_scratch *scratch, char *own, int64_t *empty) {
  static void (*const tasks[])(void *arg, int64_t task) = {
      [BY_ROWS] = rows_task, [BY_STRIPS] = strips_task, [BY_HALF] = half_task};
  job_stores(j, p.way == BY_STRIPS, p.way == BY_HALF);
  parallel_job w = {.j = j, .empty = -1, .rows_a_task = p.rows_a_task, .scratch = scratch, .own = own};
  if (own && p.way == BY_GROUPS) w.own = own + long_bytes(j);
  if (p.way == BY_GROUPS) {
    long_rows(&w, own ? own : scratch->shared, empty);
    return;
  }
  run_tasks(j, p.tasks, tasks[p.way], &w);
  if (*empty < 0) *empty = w.empty;
}

static void part_rows(job *j, char *own, int64_t *empty) {
  merge_dims(j);
  even_rows(j, plan_of(j), NULL, own, empty);
}

/* The scratch memory of a call: that of its longest segment. */
typedef struct need {
  size_t shared, task;
  int64_t tasks;
} need;
static plan add_need(need *n, const job *j) {
  const plan p = plan_of(j);
  const size_t shared = p.way == BY_GROUPS ? long_bytes(j) : 0, task = task_bytes(j, &p);
  n->shared = shared > n->shared ? shared : n->shared;
  n->task = task > n->task ? task : n->task;
  n->tasks = p.tasks > n->tasks ? p.tasks : n->tasks;
  return p;
}

/* Segments of one row of the tensor: each is a row of its own length. */
static int64_t offset_at(const job_port *p, int64_t i) {
  return smx_whole_at(p->data + i * p->axis * p->bytes, p->bytes);
}

static void advance(job *j, int64_t by) {
  for (int p = 0; p < ROW_SRC + ROW_DST; p++) {
    job_port *q = p < ROW_SRC ? j->src + p : j->dst + (p - ROW_SRC);
    if (q->present && q->full && q->data) q->data += by * q->axis * q->bytes;
  }
}

static void segment_needs(job *j, need *n) {
  const int64_t length = j->n;
  for (int64_t s = 0; s < j->segments; s++) {
    j->n = offset_at(j->offsets, s + 1) - offset_at(j->offsets, s);
    if (j->n) add_need(n, j);
  }
  j->n = length;
}
static void segment_rows(job *j, smx_scratch *scratch, int64_t *empty) {
  for (int64_t s = 0; s < j->segments; s++) {
    const int64_t first = offset_at(j->offsets, s);
    int64_t row = -1;
    j->n = offset_at(j->offsets, s + 1) - first;
    if (j->n == 0) continue;
    advance(j, first);
    even_rows(j, plan_of(j), scratch, NULL, &row);
    advance(j, -first);
    if (row >= 0 && *empty < 0) *empty = row, j->segment = s;
  }
}

/* Leaves x in f16 or bf16, if the kernel has a form for that and x is all that is as long as a row.
 * Shorter rows are widened, and several are computed at a time. */
static void leave_half(job *j) {
  job_port *const x = j->src;
  if (!takes_half(j) || j->offsets || !x->present) return;
  if (!x->full || x->store > STORE_BF16 || x->axis != 1) return;
  for (int p = 1; p < ROW_SRC + ROW_DST; p++) {
    const job_port *q = p < ROW_SRC ? j->src + p : j->dst + (p - ROW_SRC);
    if (q->present && q->full && !q->direct) return;
  }
  const row_kernel *const kernel = j->kernel->forms->from_half[x->store];
  if (kernel) j->kernel = kernel, x->direct = true;
}

static bool writes(const job *j) {
  bool any = false;
  for (int p = 0; p < ROW_DST; p++) any |= j->dst[p].present && j->dst[p].data && j->dst[p].length;
  return any;
}

void job_prepare(job *j) {
  for (int p = 0; p < ROW_SRC; p++) j->call.inputs |= (uint32_t)j->src[p].present << p;
  for (int p = 0; p < ROW_DST; p++) j->call.outputs |= (uint32_t)j->dst[p].present << p;
  if (j->rows == 0) return;
  if (j->n == 0 && !writes(j)) j->rows = 1; /* all rows are alike: there may be any number of them */
  merge_dims(j);
}

smx_status job_run(job *j, int64_t *empty) {
  smx_scratch scratch;
  need n = {0};
  plan whole = {0};
  *empty = -1;
  job_prepare(j);
  if (j->rows == 0) return SMX_OK;
  leave_half(j);
  if (j->offsets) segment_needs(j, &n);
  else whole = add_need(&n, j);
  if (!smx_scratch_open(&scratch, j->ctx, n.shared, n.task, n.tasks)) return SMX_ERR_NOMEM;
  if (j->offsets) segment_rows(j, &scratch, empty);
  else even_rows(j, whole, &scratch, NULL, empty);
  smx_scratch_close(&scratch);
  return *empty >= 0 ? SMX_ERR_EMPTY : SMX_OK;
}
