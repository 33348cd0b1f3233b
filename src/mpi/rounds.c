/* mpi/rounds.c - the rounds of softmax/split.h over a communicator: one Allgatherv of messages a
 * round, that of a block of rows beside the pass of the next. No reduction of MPI is used: their
 * order of additions is nobody's promise. */
#include "call.h"
#include <limits.h>
#include <softmax/split.h>
#include <stdlib.h>

enum {
  ROWS = 256,          /* of a block at most */
  CHAIN = 64,          /* rows of a linear layer that stay together */
  CACHED = 1 << 18,    /* elements of a rank in a block */
  SLOTS = 2,           /* blocks under way */
  MOST_PARTS = 1 << 22 /* groups of all rows of a block, but for a block of one row */
};

typedef struct lane {
  int64_t block;
  MPI_Request request;
  char *message, *all;
  int *count, *at;
  size_t bytes;
} lane;

typedef struct rounds {
  const mpi_call *c;
  smx_split *split;
  int slots;
  MPI_Comm relay; /* a communicator of our own, or MPI_COMM_NULL as long as nothing was relayed */
  char *state;
  lane lane[SLOTS];
} rounds;

static int64_t groups_of(const mpi_call *c, int r) {
  return (c->owned[r + 1] - c->owned[r] + SMX_SPLIT_GROUP - 1) / SMX_SPLIT_GROUP;
}

/* ---- memory ---- */

static smx_status reserve(rounds *w) {
  const mpi_call *const c = w->c;
  size_t all = 0, state = 0;
  for (int r = 0; r < c->ranks; r++) all += smx_split_bytes(w->split, -1, groups_of(c, r));
  if (all > INT_MAX)
    return smx_set_error(SMX_ERR_SHAPE, "smx_mpi: the messages of one row are more than 2 GB");
  if (smx_split_carry(w->split, -1, 0, NULL, &state) != SMX_OK) state = 0; /* a call that has failed */
  bool good = (w->state = malloc(state + 1)) != NULL;
  for (int i = 0; i < SLOTS; i++) {
    lane *const l = w->lane + i;
    l->request = MPI_REQUEST_NULL;
    l->message = malloc(smx_split_bytes(w->split, -1, groups_of(c, c->me)));
    l->all = malloc(all);
    l->count = malloc((size_t)c->ranks * sizeof *l->count), l->at = malloc((size_t)c->ranks * sizeof *l->at);
    good = good && l->message && l->all && l->count && l->at;
  }
  return good ? SMX_OK : smx_set_error(SMX_ERR_NOMEM, "smx_mpi: no memory for messages");
}
static void release(rounds *w) {
  for (int i = 0; i < SLOTS; i++) {
    lane *const l = w->lane + i;
    free(l->message), free(l->all), free(l->count), free(l->at);
  }
  free(w->state);
  if (w->relay != MPI_COMM_NULL) MPI_Comm_free(&w->relay);
}

/* ---- passes ---- */

/* Ranks pass one after another; the last one's state goes to all. */
static smx_status relay(rounds *w, int64_t block, bool back, char *message) {
  const int me = w->c->me, ranks = w->c->ranks, first = back ? ranks - 1 : 0, last = ranks - 1 - first,
            step = back ? -1 : 1;
  size_t bytes;
  smx_status status = SMX_OK;
  if (w->relay == MPI_COMM_NULL) status = mpi_status(MPI_Comm_dup(w->c->comm, &w->relay), "Comm_dup");
  if (status == SMX_OK) status = smx_split_carry(w->split, block, 0, NULL, &bytes);
  if (status == SMX_OK && bytes > INT_MAX)
    status = smx_set_error(SMX_ERR_SHAPE, "smx_mpi: states are more than 2 GB");
  if (status != SMX_OK) return status; /* the same on all ranks, for they hold the same rows */
  const int count = (int)bytes;
  if (me != first) {
    status =
        mpi_status(MPI_Recv(w->state, count, MPI_BYTE, me - step, 0, w->relay, MPI_STATUS_IGNORE), "Recv");
    if (status == SMX_OK) status = smx_split_carry(w->split, block, 1, w->state, &bytes);
  }
  if (status == SMX_OK) status = smx_split_pass(w->split, block, message);
  if (status == SMX_OK) status = smx_split_carry(w->split, block, 0, w->state, &bytes);
  if (status == SMX_OK && me != last)
    status = mpi_status(MPI_Send(w->state, count, MPI_BYTE, me + step, 0, w->relay), "Send");
  if (status == SMX_OK) status = mpi_status(MPI_Bcast(w->state, count, MPI_BYTE, last, w->relay), "Bcast");
  return status == SMX_OK && me != last ? smx_split_carry(w->split, block, 1, w->state, &bytes) : status;
}

/* The pass of a block's next round, and its messages on their way. */
static smx_status begin(rounds *w, lane *l, int64_t block) {
  const mpi_call *const c = w->c;
  const int32_t next = smx_split_next(w->split, block);
  l->block = block, l->bytes = 0;
  for (int r = 0; r < c->ranks; r++) {
    l->at[r] = (int)l->bytes, l->count[r] = (int)smx_split_bytes(w->split, block, groups_of(c, r));
    l->bytes += (size_t)l->count[r];
  }
  const smx_status status = next == SMX_SPLIT_GATHER
                                ? smx_split_pass(w->split, block, l->message)
                                : relay(w, block, next == SMX_SPLIT_RELAY_BACK, l->message);
  if (status != SMX_OK) return status;
  return mpi_status(MPI_Iallgatherv(l->message, l->count[c->me], MPI_BYTE, l->all, l->count, l->at, MPI_BYTE,
                                    c->comm, &l->request),
                    "Iallgatherv");
}

static smx_status end(rounds *w, lane *l) {
  const smx_status status = mpi_status(MPI_Wait(&l->request, MPI_STATUS_IGNORE), "Wait");
  return status == SMX_OK ? smx_split_fold(w->split, l->block, l->all, l->bytes) : status;
}

/* Lanes take turns: while the messages of one travel, the other passes. All ranks come to the same
 * order. */
static smx_status run(rounds *w) {
  smx_status status = SMX_OK;
  while (status == SMX_OK && smx_split_next(w->split, 0) != SMX_SPLIT_DONE) {
    status = begin(w, w->lane, 0);
    if (status == SMX_OK) status = end(w, w->lane);
  }
  const int64_t blocks = smx_split_blocks(w->split);
  int busy = 0;
  for (int i = 0; i < SLOTS; i++) w->lane[i].block = -1;
  for (int i = 0; i < w->slots && i + 1 < blocks && status == SMX_OK; i++)
    status = begin(w, w->lane + i, i + 1), busy++;
  for (int turn = 0; busy && status == SMX_OK; turn = (turn + 1) % SLOTS) {
    lane *const l = w->lane + turn;
    if (l->block < 0) continue;
    status = end(w, l);
    if (status == SMX_OK && smx_split_next(w->split, l->block) == SMX_SPLIT_DONE) l->block += w->slots;
    if (l->block >= blocks) l->block = -1, busy--;
    else if (status == SMX_OK) status = begin(w, l, l->block);
  }
  /* a message that is no good is so for all ranks: what else is on its way arrives */
  for (int i = 0; i < SLOTS; i++)
    if (w->lane[i].request != MPI_REQUEST_NULL) MPI_Wait(&w->lane[i].request, MPI_STATUS_IGNORE);
  return status;
}

/* Begins the call on this rank. What is wrong with it, all ranks hear in the opening. */
static void open_split(rounds *w, const smx_split_part *part) {
  const mpi_call *const c = w->c;
  const smx_op *const op = c->op;
  const smx_tensor *const *const in = c->used[IN], *const *const out = c->used[OUT],
                                 *const *const dout = c->used[DOUT], *const *const din = c->used[DIN];
  const int32_t ins = op->input_count, outs = op->output_count;
  if (c->layered) {
    smx_linear own = *c->linear;
    own.w = c->used[LAYER][LAYER_W], own.bias = c->used[LAYER][LAYER_BIAS];
    own.dw = c->used[DLAYER][LAYER_W], own.dbias = c->used[DLAYER][LAYER_BIAS];
    if (c->backward)
      smx_split_linear_backward(op, c->ctx, c->params, &own, ins, in, outs, out, dout, din, part, &w->split);
    else smx_split_linear_forward(op, c->ctx, c->params, &own, ins, in, outs, out, part, &w->split);
  } else if (c->backward) {
    smx_split_backward(op, c->ctx, c->params, ins, in, outs, out, dout, din, part, &w->split);
  } else {
    smx_split_forward(op, c->ctx, c->params, ins, in, outs, out, part, &w->split);
  }
}

/* Rows of a block: whole chains for a layer, elsewhere so few that the caches keep the columns of a
 * rank, and what the first pass makes of them, for the next one. */
static int64_t rows_of_block(const mpi_call *c) {
  const int64_t groups = c->n / SMX_SPLIT_GROUP + 1, parts = MOST_PARTS / groups + 1;
  int64_t most = 1, rows = ROWS;
  for (int r = 0; r < c->ranks; r++)
    if (c->owned[r + 1] - c->owned[r] > most) most = c->owned[r + 1] - c->owned[r];
  if (parts < rows) rows = parts;
  if (c->layered) return rows < CHAIN ? CHAIN : rows / CHAIN * CHAIN;
  return CACHED / most >= rows ? rows : CACHED / most ? CACHED / most : 1;
}

smx_status mpi_rounds(mpi_call *c) {
  rounds w = {.c = c, .relay = MPI_COMM_NULL, .slots = c->layered ? 1 : SLOTS};
  const smx_split_part part = {
      .size = sizeof part, .n = c->n, .first = c->owned[c->me], .block = rows_of_block(c), .slots = w.slots};
  open_split(&w, &part);
  smx_status status = mpi_agree(c, reserve(&w));
  if (status == SMX_OK) status = run(&w);
  smx_split_close(w.split);
  release(&w);
  return status;
}
