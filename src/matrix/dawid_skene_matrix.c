/* matrix/dawid_skene_matrix.c - votes as a matrix [items, workers], for the operators that find
 * classes from them. */
#include "driver/view.h"
#include "functions.h"

typedef struct ballots {
  const char *name;
  const tensor_call *c;
  smx_view x, y;
  size_t count, classes;
  smx_vote *votes;
  double *posterior, *row; /* [items, classes]; room for the votes on an item */
} ballots;

static smx_status ballots_room(ballots *b) {
  int64_t votes, cells;
  size_t bytes;
  const bool fits = smx_multiply(b->x.shape[0], b->x.shape[1], &votes) &&
                    smx_multiply(b->x.shape[0], (int64_t)b->classes, &cells);
  if (!fits || votes > INT64_MAX / 64 || cells > INT64_MAX / 64)
    return smx_fail(SMX_ERR_SHAPE, "%s: x: %lld x %lld votes on %zu classes are too many", b->name,
                    (long long)b->x.shape[0], (long long)b->x.shape[1], b->classes);
  bytes = (size_t)votes * sizeof *b->votes + (size_t)(cells + b->x.shape[1] + 1) * sizeof *b->posterior;
  b->votes = smx_alloc(b->c->ctx, bytes);
  if (!b->votes) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %zu bytes", b->name, bytes);
  b->posterior = (double *)(void *)(b->votes + votes);
  b->row = b->posterior + cells;
  return SMX_OK;
}

/* The votes that are present, as a list, item by item. */
static smx_status ballots_read(ballots *b) {
  for (int64_t i = 0; i < b->x.shape[0]; i++) {
    matrix_load(&b->x, matrix_at(&b->x, 1, i), b->x.shape[1], b->row);
    for (int64_t w = 0; w < b->x.shape[1]; w++) {
      const double label = b->row[w];
      if (!(label >= 0)) continue;
      if (!(label < (double)b->classes) || label != (double)(int64_t)label)
        return smx_fail(SMX_ERR_TARGET, "%s: x: [%lld, %lld] is %g, no class of 0..%zu", b->name,
                        (long long)i, (long long)w, label, b->classes - 1);
      b->votes[b->count++] = (smx_vote){i, w, (int64_t)label};
    }
  }
  return SMX_OK;
}

static smx_status ballots_open(ballots *b) {
  b->x = b->c->in.view[0], b->y = b->c->out.view[0];
  smx_status status = ballots_room(b);
  if (status == SMX_OK) status = ballots_read(b);
  return status;
}
static smx_status ballots_close(ballots *b, smx_status status) {
  for (int64_t i = 0; status == SMX_OK && i < b->x.shape[0]; i++)
    matrix_store(&b->y, b->posterior + (size_t)i * b->classes, (int64_t)b->classes, matrix_at(&b->y, 1, i));
  smx_free(b->c->ctx, b->votes);
  return status;
}

smx_status matrix_dawid_skene(const tensor_call *c) {
  ballots b = {.name = "dawid_skene", .c = c, .classes = (size_t)c->param[0]};
  const smx_dawid_skene_options o = {sizeof o, (int64_t)c->param[1], c->param[2]};
  smx_status status = ballots_open(&b);
  if (status == SMX_OK)
    status = smx_dawid_skene(c->ctx, &o, b.count, b.votes, (size_t)b.x.shape[0], (size_t)b.x.shape[1],
                             b.classes, b.posterior, NULL, NULL, NULL);
  return ballots_close(&b, status);
}
smx_status matrix_worker_agreement(const tensor_call *c) {
  ballots b = {.name = "worker_agreement", .c = c, .classes = (size_t)c->param[0]};
  smx_status status = ballots_open(&b);
  if (status == SMX_OK)
    status = smx_votes_agreement(c->ctx, b.count, b.votes, (size_t)b.x.shape[0], (size_t)b.x.shape[1],
                                 b.classes, b.posterior);
  return ballots_close(&b, status);
}
