/* split_linear.c - proves that a linear layer whose classes lie on several ranks has the bytes of
 * one process: losses, other outputs of rows, and gradients, on 1, 2, 3, 5 and 7 ranks, in blocks
 * of several sizes, on several threads; and that what one rank says wrong is an error of all. */
#include "split_linear.h"

#include <string.h>

#include "guard.h"
#include "layers.h"
#include "status.h"

/* A layer cut into ranks. */
typedef struct cut {
  ranks w;
  layer_part part[RANKS_MOST];
} cut;

static void open_rank(cut *c, const layer *l, int i, int64_t block, smx_context *ctx) {
  rank *const a = c->w.at + i;
  layer_part *const p = c->part + i;
  const smx_split_part at = {sizeof at, l->how.classes, a->first, block, 0};
  a->opened = layer_part_open(p, l, ctx, &at, &a->split);
}
static void cut_make(cut *c, const layer *l, int count, const int64_t *owned) {
  memset(c, 0, sizeof *c);
  c->w.count = count;
  for (int i = 0; i < count; i++) {
    c->w.at[i].first = owned[i], c->w.at[i].count = owned[i + 1] - owned[i];
    layer_part_make(c->part + i, l, owned[i], c->w.at[i].count);
  }
}
static void cut_free(cut *c) {
  ranks_close(&c->w);
  for (int i = 0; i < c->w.count; i++) layer_part_free(c->part + i);
}

static void over_ranks(const layer *l, int count, int how, int64_t block, smx_context *ctx, rng *r) {
  int64_t bounds[RANKS_MOST + 1], owned[RANKS_MOST + 1];
  cut c;
  ranks_cut(r, l->how.classes, count, how, bounds, owned);
  cut_make(&c, l, count, owned);
  for (int i = 0; i < count; i++) {
    open_rank(&c, l, i, block, i % 2 ? ctx : NULL);
    if (c.w.at[i].opened != SMX_OK) fail_msg("%s: rank %d: %s", l->how.op, i, smx_last_error());
  }
  ranks_run(&c.w, NULL, NULL);
  for (int i = 0; i < count; i++) {
    good(c.w.at[i].status);
    const char *const what = layer_difference(c.part + i, l);
    if (what)
      fail_msg("%s, %d ranks cut %d, blocks of %d: rank %d differs in %s", l->how.op, count, how, (int)block,
               i, what);
  }
  /* sums of dh go from rank to rank, once for each block of rows */
  if (l->how.dh && block == 64 && !strcmp(l->how.op, "cross_entropy"))
    assert_int_equal(c.w.relays, (l->how.rows + 63) / 64);
  cut_free(&c);
}

static void over_counts(int count, const int *counts) {
  static const int64_t blocks[] = {0, 64, 128};
  const smx_context_options options = {.size = sizeof options, .threads = 3};
  smx_context *ctx;
  rng r = {77};
  good(smx_context_create(&options, &ctx));
  for (int i = 0; i < layer_case_count; i++) {
    layer l;
    layer_make(&l, layer_cases + i, (uint64_t)i + 1);
    for (int k = 0; k < count; k++) over_ranks(&l, counts[k], (i + k) % CUTS, blocks[(i + k) % 3], ctx, &r);
    over_ranks(&l, 3, 0, 64, ctx, &r);
    layer_free(&l);
  }
  smx_context_destroy(ctx);
}
void every_layer(void **state) { over_counts(5, (const int[]){1, 2, 3, 5, 7}); }
void layers_over_ranks(void **state) { over_counts(0, NULL); } /* on three, in blocks of 64 */

/* ---- what is wrong ---- */

static const int64_t two_ranks[] = {0, 8192, 9000};

/* Two ranks, of which the second has something else; every rank has the status. */
static void both_refuse(const layer *l, void (*spoil)(layer_part *p, layer *theirs), smx_status status,
                        const char *words) {
  cut c;
  layer theirs = *l;
  cut_make(&c, l, 2, two_ranks);
  spoil(c.part + 1, &theirs);
  open_rank(&c, l, 0, 64, NULL), good(c.w.at[0].opened);
  open_rank(&c, &theirs, 1, 64, NULL);
  if (c.w.at[1].opened != SMX_OK) refused(c.w.at[1].opened, status, words);
  ranks_run(&c.w, NULL, NULL);
  for (int i = 0; i < 2; i++)
    if (c.w.at[i].status != status) fail_msg("rank %d: status %d, not %d", i, c.w.at[i].status, status);
  for (int64_t i = 0; i < l->how.rows; i++)
    if (((unsigned char *)c.part[0].out[0])[4 * i] != 0xa5) fail_msg("loss %d is written", (int)i);
  cut_free(&c);
}

static void another_scale(layer_part *p, layer *theirs) { p->linear.scale = 2; }
static void another_cap(layer_part *p, layer *theirs) { p->linear.softcap = 1; }
static void no_dh(layer_part *p, layer *theirs) { p->linear.dh = NULL; }
static void no_dw(layer_part *p, layer *theirs) { p->linear.dw = p->linear.dbias = NULL; }
static void no_w(layer_part *p, layer *theirs) { p->linear.w = NULL; }
static void wrong_h(layer_part *p, layer *theirs) { p->shapes[0][1]++; }
static void no_size(layer_part *p, layer *theirs) { p->linear.size = 3; }
static void bad_target(layer_part *p, layer *theirs) {
  static int64_t bad[70] = {9000};
  p->t[7 + LAYER_OUTS].data = bad;
}
static void dh_over_h(layer_part *p, layer *theirs) { p->t[3].data = p->t[0].data; }

void wrong_layers(void **state) {
  const layer_case how = {"cross_entropy", FORWARD, 70, 9000, 8, {2, 32, 1}, 0, 0, true, true, true};
  layer l;
  layer_make(&l, &how, 5);
  both_refuse(&l, another_scale, SMX_ERR_BACKEND, "");
  both_refuse(&l, another_cap, SMX_ERR_BACKEND, "");
  both_refuse(&l, no_dh, SMX_ERR_BACKEND, "");
  both_refuse(&l, no_dw, SMX_ERR_BACKEND, "");
  both_refuse(&l, no_w, SMX_ERR_NULL, "w is NULL");
  both_refuse(&l, wrong_h, SMX_ERR_SHAPE, "w: shape[1] is 8, not 9");
  both_refuse(&l, no_size, SMX_ERR_STRUCT, "linear.size is 3");
  both_refuse(&l, bad_target, SMX_ERR_TARGET, "9000");
  both_refuse(&l, dh_over_h, SMX_ERR_ALIAS, "dh: overlaps h");

  cut c;
  smx_split *s = NULL;
  cut_make(&c, &l, 1, (const int64_t[]){0, 9000});
  layer_part *const p = c.part;
  smx_split_part at = {sizeof at, 9000, 0, 10, 0};
#define OPEN() \
  smx_split_linear_forward(l.op, NULL, &l.params, &p->linear, l.n_in, p->in, l.n_out, p->outs, &at, &s)
  refused(OPEN(), SMX_ERR_PARAM, "part.block 10"), smx_split_close(s);
  at.block = 64, at.slots = 2;
  refused(OPEN(), SMX_ERR_PARAM, "part.slots is 2"), smx_split_close(s);
  at.slots = 1, at.n = 0;
  refused(OPEN(), SMX_ERR_SHAPE, ""), smx_split_close(s);
  at.n = 9000;
  good(OPEN());
  smx_split_close(s); /* not finished */
  refused(
      smx_split_linear_forward(l.op, NULL, &l.params, &p->linear, l.n_in, p->in, l.n_out, p->outs, &at, NULL),
      SMX_ERR_NULL, "split is NULL");
  refused(smx_split_linear_forward(smx_op_find("softmax"), NULL, NULL, &p->linear, 0, NULL, 0, NULL, &at, &s),
          SMX_ERR_NO_BACKWARD, "those of smx_split_linear_backward");
  smx_split_close(s);
  cut_free(&c);
  layer_free(&l);
}

/* Allocations of one rank fail in turn: both ranks hear of it, and nothing is lost. */
void layers_without_memory(void **state) {
  const layer_case how = {"cross_entropy", FORWARD, 70, 9000, 8, {2, 32, 1}, 0, 0, true, true, true};
  layer l;
  layer_make(&l, &how, 6);
  for (int poor = 0; poor < 2; poor++) {
    bool done = false;
    for (int64_t left = 0; !done; left++) {
      guard_heap heap = {.left = -1};
      const smx_context_options options = {.size = sizeof options};
      smx_context *const ctx = guard_context(&heap, options);
      const int64_t before = heap.live;
      cut c;
      cut_make(&c, &l, 2, two_ranks);
      heap.left = left;
      for (int i = 0; i < 2; i++) open_rank(&c, &l, i, 64, i == poor ? ctx : NULL);
      heap.left = -1;
      done = c.w.at[poor].opened == SMX_OK;
      ranks_run(&c.w, NULL, NULL);
      for (int i = 0; i < 2; i++) assert_int_equal(c.w.at[i].status, done ? SMX_OK : SMX_ERR_NOMEM);
      assert_true(left < 12);
      cut_free(&c);
      assert_int_equal(heap.live, before);
      smx_context_destroy(ctx);
    }
  }
  layer_free(&l);
}
