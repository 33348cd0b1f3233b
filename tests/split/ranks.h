/* ranks.h - a problem (problem.h) cut into ranks that live in one process: their tensors, their
 * splits, and messages that travel by memcpy. */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H
#include <softmax/split.h>
#include <stdbool.h>

#include "problem.h"

enum { RANKS_MOST = 7 };

/* A tensor that a rank has of a port. */
typedef struct shard {
  bool there;
  smx_tensor t;
  int64_t shape[2];
} shard;

typedef struct rank {
  int64_t first, count; /* its columns */
  shard in[SMX_MAX_PORTS], out[SMX_MAX_PORTS], dout[SMX_MAX_PORTS], din[SMX_MAX_PORTS];
  smx_context *ctx;
  smx_split *split;
  smx_status opened, status; /* of its beginning, and in the end */
} rank;

typedef struct ranks {
  const problem *p;
  direction d;
  smx_dtype type; /* of floats */
  int count;
  int64_t block;
  int32_t slots;
  rank at[RANKS_MOST];
  bool by_rows; /* ranks fold some rows each where that is less to send */
  int64_t rounds, relays, scattered;
} ranks;

/* Cuts the problem at cuts[]; p->out has the results of the forward run where d is BACKWARD. */
void ranks_make(ranks *w, const problem *p, direction d, smx_dtype type, int count, const int64_t *cuts);
void ranks_free(ranks *w);

/* Begins the call of one rank. */
void rank_open(ranks *w, int r);
/* Rounds until the blocks are done or a rank has failed. spoil, if not NULL, is called with the
 * messages of a round before they are folded, and may shorten them. */
typedef void spoiler(void *user, ranks *w, int64_t block, unsigned char *messages, size_t *bytes);
void ranks_run(ranks *w, spoiler *spoil, void *user);
void ranks_close(ranks *w);

/* The first port of a rank whose bytes differ from those that the problem has, or NULL. */
const smx_port *rank_difference(const ranks *w, int r);

/* What a rank gives for its ports; NULL where it has none. */
void shard_tensors(const shard *s, const smx_tensor **t);

/* Cuts n columns for so many ranks: 0 even groups, 1 anywhere, 2 anywhere with empty ones, 3 all on
 * the last. */
enum { CUTS = 4 };
void ranks_cut(rng *r, int64_t n, int count, int how, int64_t *bounds, int64_t *owned);

#endif
