/* split.c - proves that rows split over ranks have the bytes of whole rows: every operator that has
 * a row program, forward and backward, on 1, 2, 3, 5 and 7 ranks, rows of every kind, all float
 * types, cuts anywhere; and that a rank's failure, a spoilt message or no memory is a status that
 * all ranks have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guard.h"
#include "ranks.h"
#include "split_linear.h"
#include "status.h"

static const int rank_counts[] = {1, 2, 3, 5, 7};
/* of each line one, in turn */
static const int64_t lengths[][3] = {{0, 1, 100}, {8191, 8192, 8193}, {20000, 32768, 60001}};
static const kind kinds[KINDS] = {KIND_NORMAL,  KIND_HOLES, KIND_TIES, KIND_WIDE, KIND_RISING,
                                  KIND_SHIFTED, KIND_HUGE,  KIND_NAN,  KIND_INF,  KIND_EMPTY};

/* ---- bytes ---- */

typedef struct tally {
  int64_t calls, rounds, relays;
} tally;

/* One call on so many ranks. False where the operator's rows cannot be split. */
static bool same_bytes(const problem *p, direction d, int type, int count, int how, smx_context *ctx, rng *r,
                       tally *t) {
  int64_t bounds[RANKS_MOST + 1], owned[RANKS_MOST + 1];
  ranks w;
  ranks_cut(r, p->n, count, how, bounds, owned);
  ranks_make(&w, p, d, float_dtypes[type], count, owned);
  w.block = how % 2 ? 0 : 3, w.slots = how;
  bool split = true;
  for (int i = 0; i < count; i++) {
    w.at[i].ctx = i % 2 ? ctx : NULL;
    rank_open(&w, i);
    split = split && !(w.at[i].opened == SMX_ERR_PARAM && strstr(smx_last_error(), "cannot be split"));
    if (split && w.at[i].opened != SMX_OK)
      fail_msg("%s: rank %d of %d: status %d: %s", p->op->name, i, count, w.at[i].opened, smx_last_error());
  }
  ranks_run(&w, NULL, NULL);
  for (int i = 0; i < count && split; i++) good(w.at[i].status);
  for (int i = 0; i < count && split; i++) {
    const smx_port *const port = rank_difference(&w, i);
    if (port)
      fail_msg("%s %s %s, n %d, %d ranks cut %d: rank %d differs in %s", p->op->name,
               d == FORWARD ? "forward" : "backward", float_dtype_names[type], (int)p->n, count, how, i,
               port->name);
  }
  t->calls += split, t->rounds += w.rounds, t->relays += w.relays;
  ranks_close(&w);
  ranks_free(&w);
  return split;
}

/* The last row has nothing valid but its last element, and a NaN in the first group. */
static void hide_a_nan(problem *p) {
  double *const row = p->in[0] + (KINDS - 1) * p->n;
  row[100] = NAN, row[p->n - 1] = 1;
}

/* A problem on some numbers of ranks, cut differently: `many` of them from `from` on. */
static bool over_ranks(const smx_op *op, int64_t n, int variant, int type, int from, int many,
                       smx_context *ctx, rng *r, tally *t) {
  const config how = {NULL, float_dtypes[type], float_dtypes[type], LAYOUT_C, PLACE_END, APART};
  problem p;
  bool split = true;
  if (!problem_possible(op, n)) return true;
  problem_make(&p, op, KINDS, n, variant, (uint64_t)n + 1, kinds, KINDS);
  if (variant % 2 && n > SMX_SPLIT_GROUP && !(op->inputs[0].flags & SMX_PORT_INT)) hide_a_nan(&p);
  problem_round(&p, float_dtypes[type]);
  for (int d = FORWARD; d <= BACKWARD; d++) {
    if (d == BACKWARD && !(op->flags & SMX_OP_BACKWARD)) continue;
    if (problem_run(&p, &how, (direction)d) != SMX_OK) break;
    for (int i = from; i < from + many && split; i++)
      split = same_bytes(&p, (direction)d, type, rank_counts[i % (int)COUNT_OF(rank_counts)],
                         (int)rng_below(r, CUTS), ctx, r, t);
  }
  problem_free(&p);
  return split;
}

/* Every operator from `first` on, `step` apart. */
static void operators(size_t first, size_t step) {
  const smx_context_options options = {.size = sizeof options, .threads = 2};
  smx_context *ctx;
  rng r = {31};
  tally all = {0};
  int splits = 0, relayed = 0;
  good(smx_context_create(&options, &ctx));
  for (size_t o = first; o < row_op_count(); o += step) {
    const smx_op *const op = smx_op_at(o);
    bool split = true;
    tally t = {0};
    const int turn = (int)o, variants = variants_of(op);
    for (int l = 0; l < (int)COUNT_OF(lengths); l++)
      split &= over_ranks(op, lengths[l][turn % 3], (l + turn) % variants, (l + turn) % FLOAT_DTYPES, turn,
                          l < 2 ? 5 : 2, ctx, &r, &t);
    for (int v = 0; v < variants && split; v++)
      split &= over_ranks(op, 8500, v, (v + turn) % FLOAT_DTYPES, v + turn, 1, ctx, &r, &t);
    if (!split) printf("not split: %s\n", op->name);
    if (split && !t.calls) fail_msg("%s: no call was compared", op->name);
    splits += split, relayed += t.relays > 0;
    all.calls += t.calls, all.rounds += t.rounds;
  }
  printf("%d of %d operators, %lld calls, %lld rounds; %d of them relay\n", splits,
         (int)((row_op_count() - first + step - 1) / step), (long long)all.calls, (long long)all.rounds,
         relayed);
  assert_true(splits * (int64_t)step >= 120);
  smx_context_destroy(ctx);
}
/* Rows of so many groups that ranks fold some of them each: all kinds of rows, of which some need
 * more rounds than others, and the same bytes. */
static void by_rows(void **state) {
  static const char *const names[] = {"softmax", "cross_entropy", "softmax_topk", "entmax15"};
  const config how = {NULL, SMX_F32, SMX_F32, LAYOUT_C, PLACE_END, APART};
  const int64_t n = 290000;
  rng r = {11};
  for (size_t o = 0; o < COUNT_OF(names); o++)
    for (int d = FORWARD; d <= BACKWARD; d++) {
      problem p;
      problem_make(&p, smx_op_find(names[o]), 14, n, 0, o, kinds, KINDS);
      problem_round(&p, SMX_F32);
      if (d == BACKWARD) good(problem_run(&p, &how, FORWARD));
      good(problem_run(&p, &how, (direction)d));
      for (int i = 0; i < (int)COUNT_OF(rank_counts); i++) {
        int64_t bounds[RANKS_MOST + 1], owned[RANKS_MOST + 1];
        ranks w;
        ranks_cut(&r, n, rank_counts[i], i % CUTS, bounds, owned);
        ranks_make(&w, &p, (direction)d, SMX_F32, rank_counts[i], owned);
        w.by_rows = true;
        for (int k = 0; k < w.count; k++) {
          rank_open(&w, k);
          good(w.at[k].opened);
        }
        ranks_run(&w, NULL, NULL);
        for (int k = 0; k < w.count; k++) {
          const smx_port *const port = rank_difference(&w, k);
          good(w.at[k].status);
          if (port) fail_msg("%s, %d ranks: rank %d differs in %s", names[o], w.count, k, port->name);
        }
        if (w.count >= 3 && o < 2 && !w.scattered) fail_msg("%s, %d ranks: not by rows", names[o], w.count);
        ranks_close(&w);
        ranks_free(&w);
      }
      problem_free(&p);
    }
}

static void some_operators(void **state) { operators(3, 17); }
static void every_operator(void **state) { operators(0, 1); }

/* ---- shards and plans ---- */

static void shards(void **state) {
  static const int64_t sizes[] = {0, 1, 8192, 8193, 151936, (int64_t)1 << 62};
  for (size_t s = 0; s < COUNT_OF(sizes); s++)
    for (int64_t count = 1; count <= 40; count += 3) {
      int64_t end = 0, least = INT64_MAX, most = 0;
      for (int64_t r = 0; r < count; r++) {
        int64_t first, held;
        good(smx_split_shard(sizes[s], count, r, &first, &held));
        assert_int_equal(first, end);
        assert_true(first % SMX_SPLIT_GROUP == 0 || first == sizes[s]);
        end += held;
        const int64_t groups = held / SMX_SPLIT_GROUP + (held % SMX_SPLIT_GROUP != 0);
        least = groups < least ? groups : least, most = groups > most ? groups : most;
      }
      assert_int_equal(end, sizes[s]);
      assert_true(most - least <= 1);
    }
}

/* Who holds most of a group, the first of equals. */
static int owner_of(int64_t from, int64_t to, int count, const int64_t *bounds) {
  int best = 0;
  int64_t most = -1;
  for (int r = 0; r < count; r++) {
    const int64_t low = bounds[r] > from ? bounds[r] : from, high = bounds[r + 1] < to ? bounds[r + 1] : to;
    if (high - low > most) most = high - low, best = r;
  }
  return best;
}

static void plans(void **state) {
  rng r = {5};
  for (int i = 0; i < 2000; i++) {
    const int count = 1 + (int)rng_below(&r, RANKS_MOST);
    const int64_t n = rng_below(&r, i % 2 ? 20000 : 90000);
    int64_t bounds[RANKS_MOST + 1], owned[RANKS_MOST + 1];
    ranks_cut(&r, n, count, i % CUTS, bounds, owned);
    assert_true(owned[0] == 0 && owned[count] == n);
    for (int64_t from = 0; from < n; from += SMX_SPLIT_GROUP) {
      const int64_t to = from + SMX_SPLIT_GROUP < n ? from + SMX_SPLIT_GROUP : n;
      const int owner = owner_of(from, to, count, bounds);
      assert_true(owned[owner] <= from && owned[owner + 1] >= to);
    }
  }
}

/* So few that a rank has 2^18 columns of them at most, and a message 2^22 groups. */
static void rows_of_blocks(void **state) {
  static const int64_t cases[][3] = {
      {0, 0, 256},           {20000, 0, 256},           {20000, 1, 256},
      {20000, 1024, 256},    {20000, 10000, 26},        {151936, 75968, 3},
      {1 << 20, 1 << 20, 1}, {1 << 22, 1 << 21, 256},   {(int64_t)1 << 40, 0, 1},
      {-7, -1, 256},         {(int64_t)1 << 29, 0, 64}, {INT64_MAX, INT64_MAX, 1}};
  for (size_t i = 0; i < COUNT_OF(cases); i++)
    assert_int_equal(smx_split_rows(cases[i][0], cases[i][1]), cases[i][2]);
}

static void wrong_shards(void **state) {
  int64_t first, count, bounds[] = {0, 9, 5}, owned[3];
  refused(smx_split_shard(-1, 1, 0, &first, &count), SMX_ERR_SHAPE, "n is -1");
  refused(smx_split_shard(1, 0, 0, &first, &count), SMX_ERR_SHAPE, "ranks is 0");
  refused(smx_split_shard(1, 2, 2, &first, &count), SMX_ERR_SHAPE, "rank is 2");
  refused(smx_split_shard(1, 2, 1, &first, NULL), SMX_ERR_NULL, "count is NULL");
  refused(smx_split_plan(5, 2, bounds, owned), SMX_ERR_SHAPE, "bounds[1] is 9");
  refused(smx_split_plan(9, 2, bounds, owned), SMX_ERR_SHAPE, "bounds[2] is 5");
  refused(smx_split_plan(9, 2, NULL, owned), SMX_ERR_NULL, "bounds is NULL");
}

/* ---- failures ---- */

/* Cross-entropy with its gradient on three ranks, of which the last has no columns. */
typedef struct scene {
  problem p;
  ranks w;
} scene;

static void scene_open(scene *s, const char *name, int variant) {
  static const int64_t owned[] = {0, 8192, 20000, 20000};
  static const kind plain[] = {KIND_NORMAL};
  const config how = {NULL, SMX_F32, SMX_F32, LAYOUT_C, PLACE_END, APART};
  problem_make(&s->p, smx_op_find(name), 5, 20000, variant, 3, plain, 1);
  problem_round(&s->p, SMX_F32);
  good(problem_run(&s->p, &how, FORWARD));
  ranks_make(&s->w, &s->p, FORWARD, SMX_F32, 3, owned);
}
static void scene_close(scene *s) {
  ranks_close(&s->w);
  ranks_free(&s->w);
  problem_free(&s->p);
}
/* Runs it; every rank has the status. */
static void all_have(scene *s, smx_status status, spoiler *spoil, void *user) {
  ranks_run(&s->w, spoil, user);
  for (int r = 0; r < s->w.count; r++)
    if (s->w.at[r].status != status)
      fail_msg("rank %d has status %d, not %d: %s", r, s->w.at[r].status, status, smx_last_error());
  ranks_close(&s->w);
}
static void open_all(scene *s) {
  for (int r = 0; r < s->w.count; r++) rank_open(&s->w, r);
}

static bool untouched(const scene *s) {
  for (int r = 0; r < s->w.count; r++)
    for (int o = 0; o < s->p.op->output_count; o++) {
      const shard *const out = s->w.at[r].out + o;
      const size_t bytes = dtype_size(out->t.dtype);
      for (size_t i = 0; i < bytes && out->shape[1]; i++)
        if (((unsigned char *)out->t.data)[i] != 0xa5) return false;
    }
  return true;
}

static void a_bad_target(void **state) {
  for (int bad = 0; bad < 3; bad++) {
    scene s;
    scene_open(&s, "cross_entropy", 0);
    for (int i = 0; i < s.p.op->input_count; i++)
      if (s.p.op->inputs[i].flags & SMX_PORT_TARGET) ((int64_t *)s.w.at[bad].in[i].t.data)[2] = 20000;
    open_all(&s);
    assert_int_equal(s.w.at[bad].opened, SMX_ERR_TARGET);
    all_have(&s, SMX_ERR_TARGET, NULL, NULL);
    assert_true(untouched(&s));
    scene_close(&s);
  }
}

static void another_target(void **state) {
  scene s;
  scene_open(&s, "cross_entropy", 0);
  for (int i = 0; i < s.p.op->input_count; i++)
    if (s.p.op->inputs[i].flags & SMX_PORT_TARGET) ((int64_t *)s.w.at[1].in[i].t.data)[2] ^= 1;
  open_all(&s);
  all_have(&s, SMX_ERR_BACKEND, NULL, NULL);
  assert_true(untouched(&s) && strstr(smx_last_error(), "another call"));
  scene_close(&s);
}

static void empty_rows_are_errors(void **state) {
  static const int64_t owned[] = {0, 8192, 20000};
  const smx_context_options options = {.size = sizeof options, .on_empty = SMX_EMPTY_ERROR};
  smx_context *ctx;
  problem p;
  ranks w;
  good(smx_context_create(&options, &ctx));
  problem_make(&p, smx_op_find("softmax"), KINDS, 20000, 0, 3, kinds, KINDS);
  ranks_make(&w, &p, FORWARD, SMX_F32, 2, owned);
  for (int r = 0; r < 2; r++) w.at[r].ctx = ctx, rank_open(&w, r);
  ranks_run(&w, NULL, NULL);
  for (int r = 0; r < 2; r++) assert_int_equal(w.at[r].status, SMX_ERR_EMPTY);
  assert_non_null(strstr(smx_last_error(), "row 9"));
  ranks_close(&w);
  ranks_free(&w);
  problem_free(&p);
  smx_context_destroy(ctx);
}

/* Allocations of one rank fail in turn. */
static void no_memory(void **state) {
  for (int poor = 0; poor < 3; poor++) {
    bool done = false;
    for (int64_t left = 0; !done; left++) {
      guard_heap heap = {0};
      heap.left = -1;
      scene s;
      scene_open(&s, "cross_entropy", 1);
      s.w.block = 2, s.w.slots = 2;
      const smx_context_options options = {.size = sizeof options};
      smx_context *const ctx = guard_context(&heap, options);
      const int64_t before = heap.live;
      s.w.at[poor].ctx = ctx;
      heap.left = left;
      open_all(&s);
      heap.left = -1;
      done = s.w.at[poor].opened == SMX_OK;
      all_have(&s, done ? SMX_OK : SMX_ERR_NOMEM, NULL, NULL);
      assert_int_equal(heap.live, before);
      assert_true(done || (left < 10 && untouched(&s)));
      smx_context_destroy(ctx);
      scene_close(&s);
    }
  }
}

/* ---- messages ---- */

/* Which message of which round of a block, and which byte of it; SHORT: the last bytes are
 * missing. */
typedef struct spoilt {
  int64_t block, round, at;
} spoilt;
typedef struct spoiling {
  const spoilt *how;
  int64_t seen;
} spoiling;
enum { MAGIC = 0, VERSION = 4, CALL = 8, BLOCK = 16, ROUND = 24, FIRST = 32, GROUPS = 40, SHORT = -8 };

static void spoil(void *user, ranks *w, int64_t block, unsigned char *messages, size_t *bytes) {
  spoiling *const s = user;
  if (block != s->how->block || s->seen++ != s->how->round) return;
  if (s->how->at == SHORT) *bytes -= 8;
  else messages[s->how->at] ^= 1;
}

static void spoilt_messages(void **state) {
  static const spoilt cases[] = {{0, 0, MAGIC}, {0, 0, VERSION}, {0, 0, CALL}, {0, 0, GROUPS}, {0, 0, SHORT},
                                 {1, 0, MAGIC}, {1, 0, VERSION}, {1, 1, CALL}, {1, 0, BLOCK},  {1, 0, ROUND},
                                 {1, 0, FIRST}, {1, 1, GROUPS},  {1, 0, SHORT}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    spoiling how = {cases + i, 0};
    scene s;
    scene_open(&s, "cross_entropy", 0);
    open_all(&s);
    all_have(&s, SMX_ERR_BACKEND, spoil, &how);
    scene_close(&s);
  }
}

/* Messages of the same bytes, but of another operator. */
static void another_operator(void **state) {
  scene s, other;
  scene_open(&s, "softmax", 0);
  scene_open(&other, "log_softmax", 0);
  open_all(&s), open_all(&other);
  smx_split *const swap = s.w.at[1].split;
  s.w.at[1].split = other.w.at[1].split, other.w.at[1].split = swap;
  all_have(&s, SMX_ERR_BACKEND, NULL, NULL);
  all_have(&other, SMX_ERR_BACKEND, NULL, NULL);
  scene_close(&s);
  scene_close(&other);
}

static void wrong_calls(void **state) {
  float x[4] = {0}, y[4];
  int64_t shape[] = {4}, odd[] = {3};
  smx_tensor tx = {.data = x, .ndim = 1, .dtype = SMX_F32, .shape = shape}, ty = tx;
  ty.data = y;
  const smx_tensor *in[] = {&tx}, *out[] = {&ty};
  const smx_op *const op = smx_op_find("softmax");
  smx_split_part part = {sizeof part, 4, 0, 0, 0};
  smx_split *s;
  unsigned char message[256];
  size_t bytes = sizeof message;
#define REFUSED(status, word) \
  refused(smx_split_forward(op, NULL, NULL, 1, in, 1, out, &part, &s), status, word); \
  assert_int_equal(smx_split_next(s, 0), SMX_SPLIT_GATHER); \
  smx_split_close(s)
  refused(smx_split_forward(op, NULL, NULL, 1, in, 1, out, &part, NULL), SMX_ERR_NULL, "split is NULL");
  refused(smx_split_forward(op, NULL, NULL, 1, in, 1, out, NULL, &s), SMX_ERR_NULL, "part is NULL");
  smx_split_close(s);
  part.size = 1;
  REFUSED(SMX_ERR_STRUCT, "part.size is 1");
  part = (smx_split_part){sizeof part, 4, 1, 0, 0};
  REFUSED(SMX_ERR_SHAPE, "part.first is 1");
  part = (smx_split_part){sizeof part, 3, 0, 0, 0};
  REFUSED(SMX_ERR_SHAPE, "shape[0] is 4");
  part = (smx_split_part){sizeof part, 9000, 0, 0, 0};
  REFUSED(SMX_ERR_SHAPE, "end at 4");
  part = (smx_split_part){sizeof part, 4, 0, -1, 0};
  REFUSED(SMX_ERR_PARAM, "part.block is -1");
  part = (smx_split_part){sizeof part, 4, 0, 0, -1};
  REFUSED(SMX_ERR_PARAM, "part.slots is -1");
  part = (smx_split_part){sizeof part, 4, 0, 0, 0};
  ty.shape = odd;
  REFUSED(SMX_ERR_SHAPE, "y: shape[0] is 3");
  ty.shape = shape;
  refused(smx_split_forward(smx_op_find("sinkhorn"), NULL, NULL, 1, in, 1, out, &part, &s), SMX_ERR_PARAM,
          "sinkhorn");
  smx_split_close(s);
  refused(smx_split_forward(NULL, NULL, NULL, 1, in, 1, out, &part, &s), SMX_ERR_NULL, "op is NULL");
  smx_split_close(s);
  good(smx_split_forward(op, NULL, NULL, 1, in, 1, out, &part, &s));
  assert_int_equal(smx_split_next(s, 1), SMX_SPLIT_LATER);
  refused(smx_split_pass(s, 1, message), SMX_ERR_PARAM, "block is 1");
  refused(smx_split_pass(s, 0, NULL), SMX_ERR_NULL, "message is NULL");
  refused(smx_split_pass(NULL, 0, message), SMX_ERR_NULL, "split is NULL");
  refused(smx_split_fold(s, 0, NULL, 0), SMX_ERR_NULL, "messages is NULL");
  refused(smx_split_fold(s, 2, message, 0), SMX_ERR_PARAM, "block is 2");
  refused(smx_split_carry(s, 1, 0, message, &bytes), SMX_ERR_PARAM, "block is 1");
  refused(smx_split_carry(s, 1, 0, message, NULL), SMX_ERR_NULL, "bytes is NULL");
  smx_split_close(s);
  smx_split_close(NULL);
}

/* With the name of a test that test alone; else all but the longest. */
int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(shards),
                                     cmocka_unit_test(rows_of_blocks),
                                     cmocka_unit_test(plans),
                                     cmocka_unit_test(wrong_shards),
                                     cmocka_unit_test(wrong_calls),

                                     cmocka_unit_test(some_operators),
                                     cmocka_unit_test(every_operator),
                                     cmocka_unit_test(every_layer),
                                     cmocka_unit_test(a_bad_target),
                                     cmocka_unit_test(another_target),
                                     cmocka_unit_test(no_memory),
                                     cmocka_unit_test(by_rows),
                                     cmocka_unit_test(empty_rows_are_errors),
                                     cmocka_unit_test(spoilt_messages),
                                     cmocka_unit_test(another_operator),
                                     cmocka_unit_test(layers_over_ranks),
                                     cmocka_unit_test(wrong_layers),
                                     cmocka_unit_test(layers_without_memory)};
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  else cmocka_set_skip_filter("every_*");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
