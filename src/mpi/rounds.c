/* mpi/rounds.c - the rounds of softmax/split.h over a communicator: one Allgatherv of messages a
 * round, or an Alltoallv by rows and an Allgatherv of states, those of a block of rows beside the
 * pass of the next. No reduction of MPI is used: their order of additions is nobody's promise. */
#include "call.h"
#include <limits.h>
#include <softmax/split.h>
#include <stdlib.h>
#include <string.h>

enum {
  CHAIN = 64, /* rows of a linear layer that stay together */
  SLOTS = 2   /* blocks under way */
};

typedef struct lane {
  int64_t block;
  MPI_Request request;
  char *message, *packed, *all;
  int *count, *at, *to, *to_at; /* bytes from each rank, to each rank, and where they lie */
  size_t bytes;
} lane;

typedef struct rounds {
  const mpi_call *c;
  smx_split *split[PIECES];
  int64_t groups[PIECES];
  int splits; /* pieces of this rank, one at least */
  int slots;
  MPI_Comm relay; /* a communicator of our own, or MPI_COMM_NULL as long as nothing was relayed */
  char *state;
  size_t state_bytes; /* room */
  lane lane[SLOTS];
} rounds;

/* ---- bytes ---- */

static int64_t groups_of(int64_t first, int64_t end) {
  return (end - first + SMX_SPLIT_GROUP - 1) / SMX_SPLIT_GROUP;
}

/* The next message of a rank: those of its pieces, one behind another. folder: of what is for that
 * rank in a round by rows, or -1. */
static size_t bytes_of(const rounds *w, int64_t block, int r, int folder) {
  size_t bytes = 0;
  int64_t first, end;
  for (int piece = 0; piece < PIECES; piece++)
    if (mpi_piece(w->c, r, piece, &first, &end))
      bytes += smx_split_bytes_for(w->split[0], block, groups_of(first, end), folder);
  return bytes;
}

/* What comes from each rank in a round. */
static void expect(const rounds *w, lane *l, int32_t next) {
  l->bytes = 0;
  for (int r = 0; r < w->c->ranks; r++) {
    const size_t bytes = next == SMX_SPLIT_STATES ? smx_split_bytes_for(w->split[0], l->block, 0, r)
                                                  : bytes_of(w, l->block, r, w->c->me);
    l->at[r] = (int)l->bytes, l->count[r] = (int)bytes;
    l->bytes += bytes;
  }
}

/* ---- memory ---- */

static smx_status reserve(rounds *w) {
  const mpi_call *const c = w->c;
  const size_t mine = bytes_of(w, -1, c->me, -1), numbers = 4 * (size_t)c->ranks;
  size_t all = 0, state = 0;
  for (int r = 0; r < c->ranks; r++) all += bytes_of(w, -1, r, -1);
  if (all > INT_MAX)
    return smx_set_error(SMX_ERR_SHAPE, "smx_mpi: the messages of one row are more than 2 GB");
  if (smx_split_carry(w->split[0], -1, 0, NULL, &state) != SMX_OK) state = 0; /* a call that has failed */
  bool good = (w->state = malloc(state + 1)) != NULL;
  w->state_bytes = state;
  for (int i = 0; i < SLOTS; i++) {
    lane *const l = w->lane + i;
    l->request = MPI_REQUEST_NULL;
    l->message = malloc(mine), l->packed = malloc(mine), l->all = malloc(all);
    l->count = malloc(numbers * sizeof *l->count);
    good = good && l->message && l->packed && l->all && l->count;
    if (l->count) l->at = l->count + c->ranks, l->to = l->at + c->ranks, l->to_at = l->to + c->ranks;
  }
  return good ? SMX_OK : smx_set_error(SMX_ERR_NOMEM, "smx_mpi: no memory for messages");
}
static void release(rounds *w) {
  for (int i = 0; i < SLOTS; i++)
    free(w->lane[i].message), free(w->lane[i].packed), free(w->lane[i].all), free(w->lane[i].count);
  free(w->state);
  if (w->relay != MPI_COMM_NULL) MPI_Comm_free(&w->relay);
}

/* ---- passes ---- */

static size_t piece_bytes(const rounds *w, int i, int64_t block) {
  return smx_split_bytes(w->split[i], block, w->groups[i]);
}

/* The passes of a relay on this rank, one piece after another, from the state of the rank before;
 * the last one's is w->state then. */
static smx_status relay_pieces(rounds *w, int64_t block, bool back, bool from_state, char *message) {
  char *place[PIECES];
  size_t bytes;
  smx_status status = SMX_OK;
  for (int i = 0; i < w->splits; i++) place[i] = message, message += piece_bytes(w, i, block);
  for (int k = 0; k < w->splits && status == SMX_OK; k++) {
    smx_split *const s = w->split[back ? w->splits - 1 - k : k];
    if (k || from_state) {
      status = smx_split_carry(s, block, 0, NULL, &bytes);
      if (status == SMX_OK) status = smx_split_carry(s, block, 1, w->state, &bytes);
    }
    if (status == SMX_OK) status = smx_split_pass(s, block, place[back ? w->splits - 1 - k : k]);
    bytes = w->state_bytes;
    if (status == SMX_OK) status = smx_split_carry(s, block, 0, w->state, &bytes);
  }
  return status;
}

/* Ranks pass one after another; the last one's state goes to all. */
static smx_status relay(rounds *w, int64_t block, bool back, char *message) {
  const int me = w->c->me, ranks = w->c->ranks, first = back ? ranks - 1 : 0, last = ranks - 1 - first,
            step = back ? -1 : 1;
  size_t bytes;
  smx_status status = SMX_OK;
  if (w->relay == MPI_COMM_NULL) status = mpi_status(MPI_Comm_dup(w->c->comm, &w->relay), "Comm_dup");
  if (status == SMX_OK) status = smx_split_carry(w->split[0], block, 0, NULL, &bytes);
  if (status == SMX_OK && bytes > INT_MAX)
    status = smx_set_error(SMX_ERR_SHAPE, "smx_mpi: states are more than 2 GB");
  if (status != SMX_OK) return status; /* the same on all ranks, for they hold the same rows */
  const int count = (int)bytes;
  if (me != first)
    status =
        mpi_status(MPI_Recv(w->state, count, MPI_BYTE, me - step, 0, w->relay, MPI_STATUS_IGNORE), "Recv");
  if (status == SMX_OK) status = relay_pieces(w, block, back, me != first, message);
  if (status == SMX_OK && me != last)
    status = mpi_status(MPI_Send(w->state, count, MPI_BYTE, me + step, 0, w->relay), "Send");
  if (status == SMX_OK) status = mpi_status(MPI_Bcast(w->state, count, MPI_BYTE, last, w->relay), "Bcast");
  const int own = back ? 0 : w->splits - 1; /* whose state it is, on the last rank */
  for (int i = 0; i < w->splits && status == SMX_OK; i++)
    if (me != last || i != own) status = smx_split_carry(w->split[i], block, 1, w->state, &bytes);
  return status;
}

/* Every piece passes; with several of them, what is for one rank is brought together. */
static smx_status scatter(rounds *w, lane *l) {
  const mpi_call *const c = w->c;
  size_t at[PIECES], sent = 0;
  char *message = l->message;
  smx_status status = SMX_OK;
  for (int i = 0; i < w->splits && status == SMX_OK; i++) {
    at[i] = (size_t)(message - l->message);
    status = smx_split_pass(w->split[i], l->block, message);
    message += piece_bytes(w, i, l->block);
  }
  for (int r = 0; r < c->ranks && status == SMX_OK; r++) {
    l->to_at[r] = (int)sent;
    for (int i = 0; i < w->splits; i++) {
      const size_t bytes = smx_split_bytes_for(w->split[i], l->block, w->groups[i], r);
      memcpy(l->packed + sent, l->message + at[i], bytes);
      at[i] += bytes, sent += bytes;
    }
    l->to[r] = (int)sent - l->to_at[r];
  }
  if (status != SMX_OK) return status;
  return mpi_status(MPI_Ialltoallv(l->packed, l->to, l->to_at, MPI_BYTE, l->all, l->count, l->at, MPI_BYTE,
                                   c->comm, &l->request),
                    "Ialltoallv");
}

/* The pass of a block's next round, and its messages on their way. */
static smx_status begin(rounds *w, lane *l, int64_t block) {
  const mpi_call *const c = w->c;
  const int32_t next = smx_split_next(w->split[0], block);
  smx_status status = SMX_OK;
  l->block = block;
  expect(w, l, next);
  if (next == SMX_SPLIT_SCATTER) return scatter(w, l);
  if (next == SMX_SPLIT_RELAY || next == SMX_SPLIT_RELAY_BACK) {
    status = relay(w, block, next == SMX_SPLIT_RELAY_BACK, l->message);
  } else {
    char *message = l->message;
    const int passing = next == SMX_SPLIT_STATES ? 1 : w->splits; /* the first one folds */
    for (int i = 0; i < passing && status == SMX_OK; i++) {
      status = smx_split_pass(w->split[i], block, message);
      message += piece_bytes(w, i, block);
    }
  }
  if (status != SMX_OK) return status;
  return mpi_status(MPI_Iallgatherv(l->message, l->count[c->me], MPI_BYTE, l->all, l->count, l->at, MPI_BYTE,
                                    c->comm, &l->request),
                    "Iallgatherv");
}

static smx_status end(rounds *w, lane *l) {
  smx_status status = mpi_status(MPI_Wait(&l->request, MPI_STATUS_IGNORE), "Wait");
  for (int i = 0; i < w->splits && status == SMX_OK; i++)
    status = smx_split_fold(w->split[i], l->block, l->all, l->bytes);
  return status;
}

/* Lanes take turns: while the messages of one travel, the other passes. All ranks come to the same
 * order. */
static smx_status run(rounds *w) {
  smx_status status = SMX_OK;
  while (status == SMX_OK && smx_split_next(w->split[0], 0) != SMX_SPLIT_DONE) {
    status = begin(w, w->lane, 0);
    if (status == SMX_OK) status = end(w, w->lane);
  }
  const int64_t blocks = smx_split_blocks(w->split[0]);
  int busy = 0;
  for (int i = 0; i < SLOTS; i++) w->lane[i].block = -1;
  for (int i = 0; i < w->slots && i + 1 < blocks && status == SMX_OK; i++)
    status = begin(w, w->lane + i, i + 1), busy++;
  for (int turn = 0; busy && status == SMX_OK; turn = (turn + 1) % SLOTS) {
    lane *const l = w->lane + turn;
    if (l->block < 0) continue;
    status = end(w, l);
    if (status == SMX_OK && smx_split_next(w->split[0], l->block) == SMX_SPLIT_DONE) l->block += w->slots;
    if (l->block >= blocks) l->block = -1, busy--;
    else if (status == SMX_OK) status = begin(w, l, l->block);
  }
  /* a message that is no good is so for all ranks: what else is on its way arrives */
  for (int i = 0; i < SLOTS; i++)
    if (w->lane[i].request != MPI_REQUEST_NULL) MPI_Wait(&w->lane[i].request, MPI_STATUS_IGNORE);
  return status;
}

/* Begins the call for a piece. What is wrong with it, all ranks hear in the opening. */
static void open_split(rounds *w, int piece, const smx_split_part *part) {
  const mpi_call *const c = w->c;
  const smx_op *const op = c->op;
  const smx_tensor *const *const in = c->used[piece][IN], *const *const out = c->used[piece][OUT],
                                 *const *const dout = c->used[piece][DOUT],
                                 *const *const din = c->used[piece][DIN];
  const int32_t ins = op->input_count, outs = op->output_count;
  if (c->layered) {
    smx_linear own = *c->linear;
    own.w = c->used[piece][LAYER][LAYER_W], own.bias = c->used[piece][LAYER][LAYER_BIAS];
    own.dw = c->used[piece][DLAYER][LAYER_W], own.dbias = c->used[piece][DLAYER][LAYER_BIAS];
    if (c->backward)
      smx_split_linear_backward(op, c->ctx, c->params, &own, ins, in, outs, out, dout, din, part,
                                w->split + w->splits);
    else
      smx_split_linear_forward(op, c->ctx, c->params, &own, ins, in, outs, out, part, w->split + w->splits);
  } else if (c->backward) {
    smx_split_backward(op, c->ctx, c->params, ins, in, outs, out, dout, din, part, w->split + w->splits);
  } else {
    smx_split_forward(op, c->ctx, c->params, ins, in, outs, out, part, w->split + w->splits);
  }
}

/* Rows of a block: whole chains for a layer, whose logits no cache holds. */
static int64_t rows_of_block(const mpi_call *c) {
  int64_t most = 0;
  for (int r = 0; r < c->ranks && !c->layered; r++)
    if (c->owned[r + 1] - c->owned[r] > most) most = c->owned[r + 1] - c->owned[r];
  const int64_t rows = smx_split_rows(c->n, most);
  if (c->layered) return rows < CHAIN ? CHAIN : rows / CHAIN * CHAIN;
  return rows;
}

smx_status mpi_rounds(mpi_call *c) {
  rounds w = {.c = c, .relay = MPI_COMM_NULL, .slots = c->layered ? 1 : SLOTS};
  smx_split_part part = {
      .size = sizeof part, .n = c->n, .block = rows_of_block(c), .slots = w.slots, .folders = c->ranks};
  for (int piece = 0; piece < PIECES; piece++) {
    int64_t end;
    if (!mpi_piece(c, c->me, piece, &part.first, &end)) continue;
    part.folder = w.splits ? -1 : c->me;
    open_split(&w, piece, &part);
    w.groups[w.splits++] = groups_of(part.first, end);
  }
  smx_status status = mpi_agree(c, reserve(&w));
  if (status == SMX_OK) status = run(&w);
  for (int i = 0; i < w.splits; i++) smx_split_close(w.split[i]);
  release(&w);
  return status;
}
