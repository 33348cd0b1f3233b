/* mpi_linear.c - proves that a linear layer whose classes lie on the ranks of MPI has the bytes of
 * one process, wherever the classes are cut, and that what one rank says wrong is the status of
 * all. */
#include <string.h>

#include "../split/layers.h"
#include "mpi.h"

static smx_status call(const layer *l, layer_part *p, const smx_linear *linear) {
  const layer_case *const c = &l->how;
  if (c->d == FORWARD)
    return smx_mpi_linear_forward(MPI_COMM_WORLD, l->op, NULL, &l->params, linear, l->n_in, p->in, l->n_out,
                                  p->outs, c->classes, p->first);
  return smx_mpi_linear_backward(MPI_COMM_WORLD, l->op, NULL, &l->params, linear, l->n_in, p->in, l->n_out,
                                 p->outs, p->douts, p->din, c->classes, p->first);
}

static void same_bytes(const layer *l, int how, rng *r) {
  int64_t bounds[RANKS_MOST + 1], owned[RANKS_MOST + 1];
  layer_part p;
  ranks_cut(r, l->how.classes, count, how, bounds, owned);
  layer_part_make(&p, l, bounds[me], bounds[me + 1] - bounds[me]);
  const smx_status status = call(l, &p, &p.linear);
  CHECK(status == SMX_OK, "%s: status %d: %s", l->how.op, status, smx_last_error());
  const char *const what = layer_difference(&p, l);
  CHECK(!what, "%s, cut %d at %d: %s differs", l->how.op, how, (int)p.first, what);
  layer_part_free(&p);
}

enum { FAULTS = 7 };

/* On one rank; what every rank has then. */
static smx_status make_wrong(int fault, layer_part *p, const smx_linear **linear) {
  static int64_t bad[70] = {9000};
  switch (fault) {
    case 0: *linear = NULL; return SMX_ERR_NULL;
    case 1: p->linear.size = 3; return SMX_ERR_STRUCT;
    case 2: p->linear.w = NULL; return SMX_ERR_NULL;
    case 3: p->linear.h = NULL; return SMX_ERR_NULL;
    case 4: p->shapes[0][1]++; return SMX_ERR_SHAPE;
    case 5: p->t[7 + LAYER_OUTS].data = bad; return SMX_ERR_TARGET;
    default: p->linear.softcap = -1; return SMX_ERR_PARAM;
  }
}

static void refused(const layer *l) {
  for (int wrong = 0; wrong < count; wrong++)
    for (int fault = 0; fault < FAULTS; fault++) {
      const int64_t first = l->how.classes * me / count, end = l->how.classes * (me + 1) / count;
      layer_part p, theirs;
      const smx_linear *linear = &p.linear, *ignored;
      layer_part_make(&p, l, first, end - first), layer_part_make(&theirs, l, 0, 0);
      const smx_status expected = me == wrong ? make_wrong(fault, &p, &linear)
                                              : make_wrong(fault, &theirs, &ignored),
                       status = call(l, &p, linear);
      CHECK(status == expected, "fault %d of rank %d: status %d, not %d: %s", fault, wrong, status, expected,
            smx_last_error());
      for (int64_t i = 0; i < l->how.rows; i++)
        CHECK(((unsigned char *)p.out[0])[4 * i] == 0xa5, "fault %d: loss %d is written", fault, (int)i);
      p.t[7 + LAYER_OUTS].data = NULL;
      layer_part_free(&p), layer_part_free(&theirs);
    }
}

void linear_layers(void) {
  rng r = {11};
  layer l;
  for (int i = every > 1 ? 1 : 0; i < layer_case_count; i += every) {
    layer_make(&l, layer_cases + i, (uint64_t)i + 1);
    same_bytes(&l, i % CUTS, &r), same_bytes(&l, 1, &r);
    layer_free(&l);
  }
  const layer_case how = {"cross_entropy", FORWARD, 70, 9000, 8, {2, 32, 1}, 0, 0, true, true, true};
  layer_make(&l, &how, 5);
  refused(&l);
  layer_free(&l);
}
