/* driver/split.h - rows whose columns lie on several ranks (softmax/split.h): a call of an operator
 * whose row program runs in rounds. split.c opens and closes it, split_rounds.c runs its rounds,
 * split_message.c has what travels. */
#ifndef SMX_DRIVER_SPLIT_H
#define SMX_DRIVER_SPLIT_H
#include "long_row.h"
#include "operation.h"

/* A row under way; its list is before it in memory, its cells are behind it. */
typedef struct split_row {
  bool done;
  bool over; /* folded by rows: to be done once all ranks have its state */
  row_state st;
  row_call values;
} split_row;

/* Rows whose x, and where there is one its gradient, is not in memory as a whole: a block at a time
 * is, so that one block is under way. What is made of the gradient of x may be sums over all
 * columns: each rank makes terms of its own, and sums of doubles go from rank to rank, to which
 * each adds its terms. */
typedef struct split_source {
  double facts[4]; /* the same on all ranks */
  /* The job of these rows, whose x is formed. */
  const job *(*begin)(struct split_source *self, int64_t first, int64_t rows);
  /* All rows of the block are done, or all there are. Whether sums go from rank to rank. */
  bool (*end)(struct split_source *self);
  double *sums;
  size_t sum_count;                          /* of this block */
  void (*add)(struct split_source *self);    /* the terms of this rank */
  void (*finish)(struct split_source *self); /* these are the sums */
  void (*close)(struct split_source *self);
} split_source;

/* The rows of one block, in a slot of memory. */
typedef struct split_block {
  int64_t number; /* 0: none */
  int64_t first, rows, left;
  const job *job;
  int64_t base; /* the job's row that is the first */
  bool summing; /* its rows are done; sums of the source go from rank to rank */
  int64_t round;
  int32_t next;      /* SMX_SPLIT_DONE .. SMX_SPLIT_STATES */
  smx_status failed; /* a fold by rows, which the next message tells */
  int64_t taking;    /* how many rows take part in the next round, and which */
  int64_t *which;
  char *memory;
  row_part *parts; /* of own groups, of the rows that take part */
  char *kept;      /* terms of own columns, of all rows; or NULL */
} split_block;

struct smx_split {
  smx_status status; /* not SMX_OK: nothing more is done */
  smx_context *ctx;
  operation o;
  split_source *source; /* of x; NULL: memory */
  uint64_t call;        /* a hash of what is the same on all ranks */
  int64_t own, first;   /* groups */
  int64_t block, blocks, done;
  int64_t slots;
  int32_t folders, folder; /* by rows; folders 0: never */
  int64_t opening;         /* its next round, or -1: it is over */
  bool weighted;
  void *counts; /* weighted: what the target of each row counts, of the real type */
  int64_t empty;
  size_t row_bytes, kept_bytes; /* kept: terms of a row, 0 = formed again where they are needed */
  smx_scratch scratch;
  char *memory, *work;
  row_part *parts; /* of all groups of a row */
  split_block *slot;
};

static inline split_row *split_row_at(const smx_split *s, const split_block *b, int64_t row) {
  return (split_row *)(void *)(b->memory + (size_t)row * s->row_bytes + smx_job_list(&s->o.job));
}
static inline double *split_cells(split_row *r) {
  return (double *)(void *)((char *)r + smx_whole_lines(sizeof *r));
}
static inline split_block *split_slot(const smx_split *s, int64_t block) {
  return s->slot + (block - 1) % s->slots;
}
/* Own groups are passed in so many runs, whose terms are behind a line of which the last number is
 * their reference (exp_kept). */
static inline int64_t split_runs(const smx_split *s) {
  return s->own ? (s->own + RUN_GROUPS - 1) / RUN_GROUPS : 1;
}
static inline int64_t split_run_groups(const smx_split *s) {
  return (s->own + split_runs(s) - 1) / split_runs(s);
}
static inline size_t split_run_kept(const smx_split *s) {
  return 64 + (size_t)(split_run_groups(s) * ROW_GROUP) * (s->o.job.is_f64 ? sizeof(double) : sizeof(float));
}
static inline char *split_kept(const smx_split *s, const split_block *b, int64_t row, int64_t run) {
  return b->kept + (size_t)row * s->kept_bytes + (size_t)run * split_run_kept(s) + 64;
}

/* The block's slot, if the block is under way there. */
static inline split_block *split_under_way(const smx_split *s, int64_t block) {
  if (s->status != SMX_OK || s->opening >= 0 || block < 1 || block >= s->blocks) return NULL;
  split_block *const b = split_slot(s, block);
  return b->number == block ? b : NULL;
}

/* ---- split_message.c ---- */

/* What every message and every state begins with. */
typedef struct split_head {
  uint32_t magic, version;
  uint64_t call;
  int64_t block, round, first, groups; /* groups of the rank */
  double elements;                     /* that masks keep of its columns */
  int32_t status, kind;
} split_head;
enum { SPLIT_MESSAGE, SPLIT_STATE };

split_head split_head_of(const smx_split *s, int64_t block, int kind);
smx_status split_check_head(const smx_split *s, int64_t block, int kind, const split_head *h, int64_t which);
uint64_t split_call_hash(const smx_split *s, double *cells); /* cells: room for those of a row */

/* Of the rows that take part, those that a folder folds: from this one up to that of the next. */
static inline int64_t split_folder_row(const smx_split *s, const split_block *b, int32_t folder) {
  return b->taking * folder / s->folders;
}

/* Of a message of STATES with so many rows. */
size_t split_states_bytes(const smx_split *s, int64_t rows);

/* Messages one behind another; at: of the next one, and left: the bytes from there on. */
typedef struct split_walk {
  const char *at, *body; /* body: what is behind the head of the last one */
  size_t left;
  split_head head;
} split_walk;
/* The next message; false where there is none, or not all of one. */
bool split_walk_on(const smx_split *s, int64_t block, split_walk *w);
/* Whether the messages of all ranks are there and belong together, and no rank has failed. */
smx_status split_check(const smx_split *s, int64_t block, const void *messages, size_t bytes);

/* ---- split.c, and the functions of softmax/split.h ---- */

smx_status split_shard(int64_t n, int64_t ranks, int64_t rank, int64_t *first, int64_t *count);
smx_status split_plan(int64_t n, int64_t ranks, const int64_t *bounds, int64_t *owned);
int64_t split_rows(int64_t n, int64_t most);

/* The arguments of smx_forward, or with backward of smx_backward. */
typedef struct split_call {
  bool backward;
  const smx_op *op;
  smx_context *ctx;
  const smx_params *params;
  int32_t n_in, n_out;
  const smx_tensor *const *in, *const *out, *const *dout, *const *din;
} split_call;

/* A split without a call, for the caller: *split is one even without memory. NULL: *status says
 * why. */
smx_split *split_new(const char *verb, smx_context *ctx, smx_split **split, smx_status *status);
/* The operation in the split. To be done before that, and behind it. */
smx_status split_operation(smx_split *s, const operation_columns *columns, const split_call *c);
smx_status split_check_part(const char *verb, const smx_op *op, const smx_split_part *part,
                            operation_columns *columns);
smx_status split_open(smx_split *s, const smx_split_part *part);
smx_split *split_no_memory(void); /* stands for what could not be made */
void split_close(smx_split *s);

int32_t split_next(const smx_split *s, int64_t block);
/* folder -1: of the whole message. */
size_t split_bytes(const smx_split *s, int64_t block, int64_t groups, int32_t folder);
smx_status split_pass(smx_split *s, int64_t block, char *message);
smx_status split_fold(smx_split *s, int64_t block, const void *messages, size_t bytes);
smx_status split_carry(smx_split *s, int64_t block, bool take, char *state, size_t *bytes);

#endif
