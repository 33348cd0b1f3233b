/* driver/split_rounds.c - the rounds of a call whose rows lie on several ranks: what comes next,
 * the pass over own groups, the fold of the groups of all ranks. See split.h.
 *
 * All ranks hold the state of every row and fold the same parts in the same order, so all of them
 * know which rows take part in a round, and how many bytes each message has. */
#include "split.h"
#include <math.h>
#include <softmax/split.h>

/* ---- which rows take part ---- */

static int32_t kind_of(const row_state *st) {
  return !st->serial ? SMX_SPLIT_GATHER : st->reverse ? SMX_SPLIT_RELAY_BACK : SMX_SPLIT_RELAY;
}

static size_t state_bytes(const smx_split *s) {
  const job *const j = &s->o.job;
  return sizeof(row_state) + j->list * sizeof(double) +
         (size_t)(long_row_cells(j) - long_row_inputs(j)) * sizeof(double);
}
size_t split_states_bytes(const smx_split *s, int64_t rows) {
  return sizeof(split_head) + (size_t)rows * (sizeof(int64_t) + state_bytes(s));
}

/* Whether a rank gets fewer bytes where each folder folds its rows and all get the states: parts of
 * T / P rows and T states, not parts of T rows. WAIT stands for the second collective: 1.3 us of a
 * network of 100 Gb/s. */
static bool by_rows(const smx_split *s, const split_block *b) {
  enum { WAIT = 16384 };
  if (s->folders < 2) return false;
  const size_t parts = (size_t)long_row_groups(s->o.job.n) * sizeof(row_part), taking = (size_t)b->taking,
               folders = (size_t)s->folders, rows = (taking + folders - 1) / folders;
  return WAIT + rows * parts + folders * sizeof(split_head) + split_states_bytes(s, b->taking) <
         taking * parts;
}

/* Rows of one kind at a time: those that need not wait for each other first. */
static void choose_rows(const smx_split *s, split_block *b) {
  b->next = SMX_SPLIT_DONE;
  for (int64_t r = 0; r < b->rows; r++) {
    const split_row *const row = split_row_at(s, b, r);
    const int32_t kind = row->done ? SMX_SPLIT_DONE : kind_of(&row->st);
    if (kind && (!b->next || kind < b->next)) b->next = kind;
  }
  b->taking = 0;
  for (int64_t r = 0; r < b->rows; r++) {
    const split_row *const row = split_row_at(s, b, r);
    if (!row->done && kind_of(&row->st) == b->next) b->which[b->taking++] = r;
  }
  if (b->next == SMX_SPLIT_GATHER && by_rows(s, b)) b->next = SMX_SPLIT_SCATTER;
}

static void forget_kept(const smx_split *s, char *terms) {
  if (s->o.job.is_f64) ((double *)(void *)terms)[-1] = (double)NAN;
  else ((float *)(void *)terms)[-1] = NAN;
}

static void begin_block(smx_split *s, int64_t number) {
  const job *const j = &s->o.job;
  split_block *const b = split_slot(s, number);
  b->number = number, b->round = 0, b->failed = SMX_OK;
  b->first = (number - 1) * s->block;
  b->rows = b->left = j->rows - b->first < s->block ? j->rows - b->first : s->block;
  b->job = s->source ? s->source->begin(s->source, b->first, b->rows) : j;
  b->base = s->source ? 0 : b->first, b->summing = false;
  for (int64_t r = 0; r < b->rows; r++) {
    split_row *const row = split_row_at(s, b, r);
    row->done = false;
    row->values = long_row_open(b->job, b->base + r, split_cells(row));
    row->values.list = j->list ? (double *)(void *)((char *)row - smx_job_list(j)) : NULL;
    row->values.work = j->work ? s->work : NULL;
    memset(&row->st, 0, sizeof row->st);
    row->st.list = row->values.list;
    for (int64_t run = 0; b->kept && run < split_runs(s); run++) forget_kept(s, split_kept(s, b, r, run));
    row_begin(j->kernel, &row->values, &row->st);
  }
  choose_rows(s, b);
}

int32_t split_next(const smx_split *s, int64_t block) {
  if (block == 0 && s->opening >= 0) return SMX_SPLIT_GATHER;
  if (block <= 0 || block >= s->blocks || s->status != SMX_OK) return SMX_SPLIT_DONE;
  if (s->opening >= 0) return SMX_SPLIT_LATER;
  const split_block *const b = split_slot(s, block);
  return b->number == block ? b->next : b->number > block ? SMX_SPLIT_DONE : SMX_SPLIT_LATER;
}

/* What goes to a folder, or -1: to all of them together. */
static size_t scattered_bytes(const smx_split *s, const split_block *b, int64_t groups, int32_t folder) {
  const int64_t rows =
      folder < 0 ? b->taking : split_folder_row(s, b, folder + 1) - split_folder_row(s, b, folder);
  return sizeof(split_head) * (size_t)(folder < 0 ? s->folders : 1) +
         (size_t)rows * (size_t)groups * sizeof(row_part);
}

size_t split_bytes(const smx_split *s, int64_t block, int64_t groups, int32_t folder) {
  const split_block *const b = split_under_way(s, block);
  const size_t head = sizeof(split_head), counts = (size_t)s->o.job.rows * sizeof(double);
  if (block < 0) {
    const size_t parts = groups < 0 ? 0 : (size_t)s->block * (size_t)groups * sizeof(row_part),
                 folders = (size_t)s->folders, rows = folders > 1 ? (size_t)s->block / folders + 1 : 0,
                 states = rows ? split_states_bytes(s, (int64_t)rows) : 0;
    const size_t most = s->weighted && counts > parts ? counts : parts;
    return head * (folders > 1 ? folders : 1) + (most > states ? most : states);
  }
  if (block == 0) return head + (s->opening == 1 ? counts : 0);
  if (b && b->next == SMX_SPLIT_STATES && folder >= 0)
    return split_states_bytes(s, split_folder_row(s, b, folder + 1) - split_folder_row(s, b, folder));
  if (b && b->next == SMX_SPLIT_SCATTER && groups >= 0) return scattered_bytes(s, b, groups, folder);
  return b && groups >= 0 ? head + (size_t)b->taking * (size_t)groups * sizeof(row_part) : head;
}

/* One row's state, list and small outputs, out of the split or into it. */
static void move_state(const smx_split *s, split_row *row, bool take, char *at) {
  const job *const j = &s->o.job;
  double *const list = row->values.list, *const out = split_cells(row) + long_row_inputs(j);
  const size_t in_list = j->list * sizeof(double),
               in_out = (size_t)(long_row_cells(j) - long_row_inputs(j)) * sizeof(double);
  if (take) memcpy(&row->st, at, sizeof row->st);
  row->st.list = take ? list : NULL; /* an address means nothing elsewhere */
  if (!take) memcpy(at, &row->st, sizeof row->st);
  row->st.list = list;
  at += sizeof row->st;
  if (in_list) memcpy(take ? (void *)list : at, take ? at : (void *)list, in_list);
  if (in_out) memcpy(take ? (void *)out : at + in_list, take ? at + in_list : (void *)out, in_out);
}

/* ---- passes ---- */

typedef struct pass_job {
  smx_split *s;
  split_block *b;
  int64_t runs; /* of a row that are tasks of their own */
} pass_job;

static void pass_task(void *arg, int64_t task) {
  const pass_job *const p = arg;
  smx_split *const s = p->s;
  const int64_t k = task / p->runs, run = task % p->runs, groups = (s->own + p->runs - 1) / p->runs,
                from = run * groups, to = from + groups < s->own ? from + groups : s->own, r = p->b->which[k];
  if (from >= to) return;
  split_row *const row = split_row_at(s, p->b, r);
  const int64_t start = (s->first + from) * ROW_GROUP, end = (s->first + to) * ROW_GROUP, n = s->o.job.n;
  const piece at = {p->b->base + r, 1, start, (end < n ? end : n) - start};
  row_call values = row->values;
  values.terms = p->b->kept && !row->st.serial ? split_kept(s, p->b, r, run) : NULL;
  char *const place = smx_scratch_take(&s->scratch);
  long_row_pass(p->b->job, place, &values, &row->st, &at, p->b->parts + k * s->own + from);
  smx_scratch_give(&s->scratch, place);
}

static void pass_rows(smx_split *s, split_block *b) {
  const bool serial = b->next != SMX_SPLIT_GATHER;
  pass_job p = {s, b, serial ? 1 : split_runs(s)};
  memset(b->parts, 0, (size_t)(b->taking * s->own) * sizeof *b->parts);
  smx_parallel(s->ctx, b->taking * p.runs, pass_task, &p);
}

static smx_status not_its_turn(const char *verb, int64_t block) {
  return smx_fail(SMX_ERR_PARAM, "%s: block is %lld, whose turn it is not", verb, (long long)block);
}

/* A message for each folder. */
static smx_status pass_scattered(smx_split *s, split_block *b, char *message) {
  const split_head head = split_head_of(s, b->number, SPLIT_MESSAGE);
  pass_rows(s, b);
  for (int32_t f = 0; f < s->folders; f++) {
    const size_t bytes = scattered_bytes(s, b, s->own, f) - sizeof head;
    memcpy(message, &head, sizeof head);
    memcpy(message + sizeof head, b->parts + split_folder_row(s, b, f) * s->own, bytes);
    message += sizeof head + bytes;
  }
  return SMX_OK;
}

/* The states of rows that this rank folded, and whether they are done. */
static void export_states(const smx_split *s, const split_block *b, char *message) {
  const int64_t end = s->folder < 0 ? 0 : split_folder_row(s, b, s->folder + 1);
  for (int64_t k = s->folder < 0 ? 0 : split_folder_row(s, b, s->folder); k < end; k++) {
    split_row *const row = split_row_at(s, b, b->which[k]);
    const int64_t over = row->over;
    memcpy(message, &over, sizeof over);
    move_state(s, row, false, message + sizeof over);
    message += sizeof over + state_bytes(s);
  }
}

smx_status split_pass(smx_split *s, int64_t block, char *message) {
  split_block *const b = split_under_way(s, block);
  const bool opening = block == 0 && s->opening >= 0;
  if (!b && s->status != SMX_OK && !opening) return s->status;
  if (!opening && (!b || b->next == SMX_SPLIT_DONE)) return not_its_turn("smx_split_pass", block);
  if (b && b->next == SMX_SPLIT_SCATTER) return pass_scattered(s, b, message);
  const split_head head = split_head_of(s, block, SPLIT_MESSAGE);
  memcpy(message, &head, sizeof head);
  message += sizeof head;
  if (b && b->next == SMX_SPLIT_STATES) {
    export_states(s, b, message);
  } else if (b && b->summing) {
    s->source->add(s->source);
  } else if (b) {
    pass_rows(s, b);
    memcpy(message, b->parts, (size_t)(b->taking * s->own) * sizeof *b->parts);
  }
  for (int64_t r = 0; !b && s->opening == 1 && r < s->o.job.rows; r++) {
    const double count = smx_target_counts(&s->o.targets, r);
    memcpy(message + (size_t)r * sizeof count, &count, sizeof count);
  }
  return SMX_OK;
}

/* ---- folds ---- */

static smx_status finish(smx_split *s) {
  const smx_status status = operation_error(&s->o, s->empty >= 0 ? SMX_ERR_EMPTY : SMX_OK, s->empty);
  operation_close(&s->o, status);
  return status;
}

/* What all columns count together, and the first blocks. */
static smx_status start(smx_split *s) {
  s->opening = -1;
  operation_share(&s->o);
  for (int64_t i = 1; i <= s->slots; i++) begin_block(s, i);
  if (s->blocks > 1) return SMX_OK;
  if (s->source) s->source->begin(s->source, 0, 0), s->source->end(s->source);
  return finish(s);
}

/* What targets count, of the real type. All but the rank of a class say 0. */
static void add_counts(const smx_split *s, const char *body) {
  for (int64_t r = 0; r < s->o.job.rows; r++) {
    double count;
    memcpy(&count, body + (size_t)r * sizeof count, sizeof count);
    if (count == 0) continue;
    if (s->o.job.is_f64) ((double *)s->counts)[r] = count;
    else ((float *)s->counts)[r] = (float)count;
  }
}

static smx_status fold_opening(smx_split *s, split_walk w) {
  const job *const j = &s->o.job;
  counted *const c = &s->o.counted;
  double elements = 0;
  if (s->opening == 1) memset(s->counts, 0, (size_t)j->rows * sizeof(double));
  while (split_walk_on(s, 0, &w)) {
    elements += w.head.elements;
    if (s->opening == 1) add_counts(s, w.body);
  }
  if (s->opening == 0 && c->about == SMX_MEAN_ELEMENTS) c->total = elements;
  if (s->opening == 0 && s->weighted) {
    s->opening = 1;
    return SMX_OK;
  }
  if (s->opening == 1) c->total = smx_rows_sum(s->counts, j->rows, j->is_f64);
  return start(s);
}

/* The parts of all groups of row k of those that take part. */
static void gather_row(const smx_split *s, const split_block *b, split_walk w, int64_t k) {
  row_part *to = s->parts;
  while (split_walk_on(s, b->number, &w)) {
    const size_t bytes = (size_t)w.head.groups * sizeof *to;
    memcpy(to, w.body + (size_t)k * bytes, bytes);
    to += w.head.groups;
  }
}

static void merge_row(smx_split *s, split_row *row) {
  const job *const j = &s->o.job;
  row_merge(j->kernel, &row->values, &row->st, s->parts, (size_t)long_row_groups(j->n));
  row->over = !row_next(j->kernel, &row->values, &row->st);
}

static void settle_row(smx_split *s, split_block *b, int64_t r) {
  const job *const j = &s->o.job;
  split_row *const row = split_row_at(s, b, r);
  if (!row->over) return;
  row->done = true, b->left--;
  if (!row->st.empty || j->call.on_empty != SMX_EMPTY_ERROR)
    long_row_close(b->job, b->base + r, &row->values);
  else if (s->empty < 0 || b->first + r < s->empty) s->empty = b->first + r;
}

/* Rows whose parts of all groups are there: all that take part, or those of this folder. */
static void fold_rows(smx_split *s, split_block *b, const split_walk *w, int64_t from, int64_t to) {
  for (int64_t k = from; k < to; k++) {
    gather_row(s, b, *w, k - from);
    merge_row(s, split_row_at(s, b, b->which[k]));
  }
}

static void import_states(smx_split *s, split_block *b, split_walk w) {
  int64_t k = 0;
  while (split_walk_on(s, b->number, &w))
    for (int64_t i = 0; i < w.head.groups; i++, k++) {
      split_row *const row = split_row_at(s, b, b->which[k]);
      char *const at = (char *)(uintptr_t)w.body + (size_t)i * (sizeof(int64_t) + state_bytes(s));
      int64_t over;
      memcpy(&over, at, sizeof over);
      row->over = over != 0;
      move_state(s, row, true, at + sizeof over);
    }
}

/* One round of a block. A fold by rows that fails, which only its folder sees, is told with the
 * states. */
static smx_status fold_round(smx_split *s, split_block *b, const split_walk *w) {
  const bool scatter = b->next == SMX_SPLIT_SCATTER, folds = !scatter || s->folder >= 0;
  smx_status status = folds ? split_check(s, b->number, w->at, w->left) : SMX_OK;
  if (scatter) {
    b->failed = status;
    if (folds && status == SMX_OK)
      fold_rows(s, b, w, split_folder_row(s, b, s->folder), split_folder_row(s, b, s->folder + 1));
    b->round++, b->next = SMX_SPLIT_STATES;
    return SMX_OK;
  }
  if (status != SMX_OK) return status;
  if (b->next == SMX_SPLIT_STATES) import_states(s, b, *w);
  else if (!b->summing) fold_rows(s, b, w, 0, b->taking);
  for (int64_t k = 0; k < b->taking; k++) settle_row(s, b, b->which[k]);
  b->round++;
  choose_rows(s, b);
  return SMX_OK;
}

/* A block whose rows are done: whether there is another round, of sums. */
static bool sums_follow(smx_split *s, split_block *b) {
  if (!s->source || s->empty >= 0) return false;
  if (b->summing) s->source->finish(s->source);
  else if (s->source->end(s->source)) b->next = SMX_SPLIT_RELAY, b->summing = true;
  return b->next != SMX_SPLIT_DONE;
}

smx_status split_fold(smx_split *s, int64_t block, const void *messages, size_t bytes) {
  split_block *const b = split_under_way(s, block);
  const bool opening = block == 0 && s->opening >= 0;
  if (!b && s->status != SMX_OK && !opening) return s->status;
  if (!opening && (!b || b->next == SMX_SPLIT_DONE)) return not_its_turn("smx_split_fold", block);
  const split_walk w = {.at = messages, .left = bytes};
  smx_status status = b ? fold_round(s, b, &w) : split_check(s, block, messages, bytes);
  if (status == SMX_OK && opening) status = fold_opening(s, w);
  if (status == SMX_OK && b && b->next == SMX_SPLIT_DONE && !sums_follow(s, b)) {
    if (block + s->slots < s->blocks) begin_block(s, block + s->slots);
    if (++s->done == s->blocks - 1) status = finish(s);
  }
  if (status != SMX_OK && s != split_no_memory()) s->status = status, s->opening = -1;
  return status;
}

/* ---- the state of relayed rows, and sums ---- */

/* What is behind a state's head. */
static size_t carried(const smx_split *s, const split_block *b) {
  return b->summing ? s->source->sum_count * sizeof(double) : (size_t)b->taking * state_bytes(s);
}
static size_t most_carried(const smx_split *s) {
  const size_t rows = (size_t)s->block * state_bytes(s),
               sums = s->source ? s->source->sum_count * sizeof(double) : 0;
  return rows > sums ? rows : sums;
}

smx_status split_carry(smx_split *s, int64_t block, bool take, char *state, size_t *bytes) {
  static const char verb[] = "smx_split_carry";
  split_block *const b = split_under_way(s, block);
  if (s->status != SMX_OK) return s->status;
  if (block < 0 && !take) {
    *bytes = sizeof(split_head) + most_carried(s);
    return SMX_OK;
  }
  if (!b || (b->next != SMX_SPLIT_RELAY && b->next != SMX_SPLIT_RELAY_BACK)) return not_its_turn(verb, block);
  const size_t all = sizeof(split_head) + carried(s, b), given = *bytes;
  split_head head = split_head_of(s, block, SPLIT_STATE);
  if (!take) *bytes = all;
  if (!take && !state) return SMX_OK;
  if (!state) return smx_fail(SMX_ERR_NULL, "%s: state is NULL", verb);
  if (take ? given != all : given < all)
    return smx_fail(SMX_ERR_PARAM, "%s: *bytes is %zu, not %zu", verb, given, all);
  if (take) {
    memcpy(&head, state, sizeof head);
    const smx_status status = split_check_head(s, block, SPLIT_STATE, &head, 0);
    if (status != SMX_OK) return s->status = status;
  } else {
    memcpy(state, &head, sizeof head);
  }
  state += sizeof head;
  if (b->summing)
    memcpy(take ? (void *)s->source->sums : state, take ? state : (void *)s->source->sums, carried(s, b));
  for (int64_t k = 0; k < b->taking; k++, state += state_bytes(s))
    move_state(s, split_row_at(s, b, b->which[k]), take, state);
  return SMX_OK;
}
