/* mpi.c - proves that calls over the ranks of MPI have the bytes of one process: every operator
 * that has a row program, forward and backward, cut anywhere; that a failure of one rank is the
 * status of all; and that communicators do not meet. Run by mpirun with 1, 2, 3, 5 and 7 ranks; a
 * failure ends all of them. Words name the parts to run, `long` and `allocations` only where they
 * are named; `brief` before them leaves cases out, for tools that take long. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../split/ranks.h"
#include "mpi.h"

int me, count, every = 1;

static const kind kinds[KINDS] = {KIND_NORMAL,  KIND_HOLES, KIND_TIES, KIND_WIDE, KIND_RISING,
                                  KIND_SHIFTED, KIND_HUGE,  KIND_NAN,  KIND_INF,  KIND_EMPTY};

static smx_status call(MPI_Comm comm, const ranks *w, int r, smx_context *ctx) {
  const smx_op *const op = w->p->op;
  const rank *const a = w->at + r;
  const smx_tensor *in[SMX_MAX_PORTS], *out[SMX_MAX_PORTS], *dout[SMX_MAX_PORTS], *din[SMX_MAX_PORTS];
  smx_params params = w->p->params;
  params.axis = -1;
  shard_tensors(a->in, in), shard_tensors(a->out, out), shard_tensors(a->dout, dout),
      shard_tensors(a->din, din);
  if (w->d == FORWARD)
    return smx_mpi_forward(comm, op, ctx, &params, op->input_count, in, op->output_count, out, w->p->n,
                           a->first);
  return smx_mpi_backward(comm, op, ctx, &params, op->input_count, in, op->output_count, out, dout, din,
                          w->p->n, a->first);
}

/* One problem, cut in a way that all ranks choose alike. False where rows cannot be split. */
static bool same_bytes(MPI_Comm comm, const smx_op *op, int64_t rows, int64_t n, int variant, int type,
                       int how, uint64_t seed) {
  const config whole = {NULL, float_dtypes[type], float_dtypes[type], LAYOUT_C, PLACE_END, APART};
  int64_t bounds[RANKS_MOST + 1], owned[RANKS_MOST + 1];
  int r, ranks_here;
  problem p;
  rng g = {seed};
  bool split = true;
  MPI_Comm_rank(comm, &r), MPI_Comm_size(comm, &ranks_here);
  problem_make(&p, op, rows, n, variant, seed, kinds, KINDS);
  problem_round(&p, float_dtypes[type]);
  ranks_cut(&g, n, ranks_here, how, bounds, owned);
  for (int d = FORWARD; d <= BACKWARD && split; d++) {
    ranks w;
    if (d == BACKWARD && !(op->flags & SMX_OP_BACKWARD)) continue;
    if (problem_run(&p, &whole, (direction)d) != SMX_OK) break;
    ranks_make(&w, &p, (direction)d, float_dtypes[type], ranks_here, bounds);
    const smx_status status = call(comm, &w, r, NULL);
    split = status != SMX_ERR_PARAM;
    CHECK(status == SMX_OK || !split, "%s: status %d: %s", op->name, status, smx_last_error());
    const smx_port *const port = split ? rank_difference(&w, r) : NULL;
    CHECK(!port, "%s %s, n %d, cut %d: %s differs", op->name, d == FORWARD ? "forward" : "backward", (int)n,
          how, port->name);
    ranks_free(&w);
  }
  problem_free(&p);
  return split;
}

/* Half of the operators, so that each runs on two or three of the numbers of ranks; test_split has
 * all of them on all. */
static void every_operator(void) {
  int splits = 0;
  for (size_t o = (size_t)(count + 1) / 2 % 2; o < row_op_count(); o += 2 * (size_t)every) {
    const smx_op *const op = smx_op_at(o);
    const int64_t n = o % 3 ? 8500 : 16500;
    if (!problem_possible(op, n)) continue;
    splits += same_bytes(MPI_COMM_WORLD, op, 5, n, (int)o % variants_of(op), (int)o % FLOAT_DTYPES,
                         (int)o % CUTS, o);
  }
  if (!me) printf("%d ranks: %d operators\n", count, splits);
  CHECK(splits >= 60 / every, "only %d operators", splits);
}

static void shapes(void) {
  static const char *const names[] = {"softmax", "logsumexp", "cross_entropy", "softmax_topk"};
  static const int64_t lengths[] = {1, 8193, 20000};
  for (size_t o = 0; o < COUNT_OF(names); o++)
    for (size_t l = 0; l < COUNT_OF(lengths); l++)
      for (int how = lengths[l] > 9000 ? 1 : 0; how < (lengths[l] > 9000 ? 2 : CUTS); how++) {
        const smx_op *const op = smx_op_find(names[o]);
        if (problem_possible(op, lengths[l])) same_bytes(MPI_COMM_WORLD, op, KINDS, lengths[l], 0, 0, how, l);
      }
  /* several blocks of rows, two of them under way */
  same_bytes(MPI_COMM_WORLD, smx_op_find("softmax"), 520, 8300, 0, 0, 1, 1);
  same_bytes(MPI_COMM_WORLD, smx_op_find("cross_entropy"), 520, 8300, 1, 0, 0, 2);
  same_bytes(MPI_COMM_WORLD, smx_op_find("softmax_topk"), 520, 8300, 0, 0, 1, 3);
  same_bytes(MPI_COMM_WORLD, smx_op_find("softmax"), 0, 9000, 0, 0, 1, 1);
}

/* So many groups that each rank folds some of the rows for all. */
static void by_rows(void) {
  for (int i = 0; i < 2; i++) {
    const int64_t before = scattered;
    const smx_op *const op = smx_op_find(i % 2 ? "softmax" : "cross_entropy");
    same_bytes(MPI_COMM_WORLD, op, 5 - i, 1200000, i, 0, 3, 4);
    CHECK(count == 1 || scattered > before, "%s: not by rows", op->name);
  }
}

/* Halves of the ranks, each with its own rows and its own number of rounds. */
static void communicators(void) {
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &half);
  for (int i = 0; i < 3; i++)
    same_bytes(half, smx_op_find(me % 2 ? "softmax_topk" : "softmax"), KINDS, 20000 + 7 * i, 0, 0, 1,
               (uint64_t)i);
  MPI_Comm_free(&half);
}

/* ---- cross-entropy as a plain function ---- */

static void cross_entropy(void) {
  enum { ROWS = 260, N = 8300 };
  rng g = {7};
  float *const x = malloc(sizeof(float) * ROWS * N), *const dx = malloc(sizeof(float) * ROWS * N),
               *const mine = malloc(sizeof(float) * ROWS * N + 1),
               *const got = malloc(sizeof(float) * ROWS * N + 1);
  static float weight[N], loss[ROWS], loss2[ROWS], lse[ROWS], lse2[ROWS];
  static int64_t target[ROWS];
  CHECK(x && dx && mine && got, "no memory");
  for (int64_t i = 0; i < ROWS * N; i++) x[i] = (float)(5 * rng_normal(&g));
  for (int i = 0; i < N; i++) weight[i] = (float)rng_uniform(&g);
  for (int r = 0; r < ROWS; r++) target[r] = r % 9 ? rng_below(&g, N) : -100;
  const int64_t first = (int64_t)N * me / count, own = (int64_t)N * (me + 1) / count - first;
  for (int reduction = 0; reduction < 4; reduction++)
    for (int weighted = 0; weighted < 2; weighted++) {
      float reduced = -1, reduced2 = -1;
      smx_cross_entropy_options o = {
          .size = sizeof o, .reduction = (smx_reduction)reduction, .label_smoothing = 0.1f};
      for (int64_t r = 0; r < ROWS; r++) memcpy(mine + r * own, x + r * N + first, (size_t)own * sizeof *x);
      o.class_weight = weighted ? weight : NULL, o.lse = lse;
      CHECK(!smx_cross_entropy_f32(NULL, ROWS, N, x, target, &o, loss, dx, &reduced), "%s", smx_last_error());
      o.class_weight = weighted ? weight + first : NULL, o.lse = lse2;
      float *const gradient = weighted ? mine : got; /* in place, and apart */
      CHECK(!smx_mpi_cross_entropy_f32(MPI_COMM_WORLD, NULL, ROWS, N, first, (size_t)own, mine, target, &o,
                                       loss2, gradient, &reduced2),
            "%s", smx_last_error());
      CHECK(!memcmp(loss, loss2, sizeof loss) && !memcmp(lse, lse2, sizeof lse), "losses, reduction %d",
            reduction);
      CHECK(!memcmp(&reduced, &reduced2, sizeof reduced), "reduction %d: %g, not %g", reduction,
            (double)reduced2, (double)reduced);
      for (int64_t r = 0; r < ROWS; r++)
        CHECK(!memcmp(gradient + r * own, dx + r * N + first, (size_t)own * sizeof *x), "gradient of row %d",
              (int)r);
    }
  free(x), free(dx), free(mine), free(got);
}

/* ---- failures ---- */

static int64_t left; /* allocations before one fails */
static void *take(void *user, size_t bytes, size_t alignment) {
  return left-- > 0 ? aligned_alloc(alignment, (bytes + alignment) / alignment * alignment) : NULL;
}
static void give(void *user, void *p) { free(p); }

/* Rank `bad` does something else than the others, who all hear of it. */
typedef enum fault { TARGET, NO_OP, NO_X, NO_TARGET, FIRST, N, DTYPE, SHAPE, MEMORY, FAULTS } fault;
static void one_fault(fault f, int bad, smx_status want) {
  enum { ROWS = 3, EACH = 5000 };
  static float x[ROWS * EACH], dx[ROWS * EACH];
  _Alignas(int64_t) float loss[ROWS] = {7, 7, 7}; /* one fault takes them for numbers of 8 bytes */
  int64_t target[ROWS] = {0, 1, 2}, shape[] = { ROWS, EACH }, wrong[] = { ROWS, EACH - 1 };
  smx_context_options options = {.size = sizeof options, .alloc = take, .release = give};
  smx_context *ctx;
  const bool mine = me == bad;
  left = INT64_MAX;
  CHECK(!smx_context_create(&options, &ctx), "%s", smx_last_error());
  if (f == MEMORY && mine) left = 1;
  if (f == TARGET && mine) target[1] = (int64_t)EACH
  *count;
  smx_tensor tx = {.data = x, .ndim = 2, .dtype = SMX_F32, .shape = shape}, td = tx;
  smx_tensor tt = {.data = target, .ndim = 1, .dtype = SMX_I64, .shape = shape},
             tl = {.data = loss, .ndim = 1, .dtype = SMX_F32, .shape = shape};
  td.data = dx;
  if (f == DTYPE && mine) tl.dtype = SMX_I64;
  if (f == SHAPE && mine) td.shape = wrong;
  const smx_tensor *in[] = {f == NO_X && mine ? NULL : &tx, f == NO_TARGET && mine ? NULL : &tt},
                   *out[] = {&tl, &td};
  const int64_t n = (int64_t)EACH
  *count + (f == N && mine), first = (int64_t)EACH
  *me + (f == FIRST && mine);
  const smx_op *const op = f == NO_OP && mine ? NULL : smx_op_find("cross_entropy");
  const smx_status status = smx_mpi_forward(MPI_COMM_WORLD, op, ctx, NULL, 2, in, 2, out, n, first);
  CHECK(status == want && *smx_last_error(), "fault %d of rank %d: status %d, not %d: %s", f, bad, status,
        want, smx_last_error());
  CHECK(loss[0] == 7 && dx[0] == 0, "fault %d of rank %d: something was written", f, bad);
  left = INT64_MAX;
  smx_context_destroy(ctx);
}

static void faults(void) {
  static const smx_status statuses[FAULTS] = {
      [TARGET] = SMX_ERR_TARGET,  [NO_OP] = SMX_ERR_NULL,  [NO_X] = SMX_ERR_SHAPE,
      [NO_TARGET] = SMX_ERR_NULL, [FIRST] = SMX_ERR_SHAPE, [N] = SMX_ERR_SHAPE,
      [DTYPE] = SMX_ERR_DTYPE,    [SHAPE] = SMX_ERR_SHAPE, [MEMORY] = SMX_ERR_NOMEM};
  for (int f = 0; f < FAULTS; f++)
    for (int bad = 0; bad < count; bad++) one_fault((fault)f, bad, statuses[f]);
}

/* Every allocation of one rank's context fails in turn. */
static void memory(void) {
  const smx_context_options options = {.size = sizeof options, .alloc = take, .release = give};
  static const kind plain[] = {KIND_NORMAL};
  for (int bad = 0; bad < count; bad++)
    for (int64_t n = 1, done = 0; !done; n++) {
      smx_context *ctx;
      problem p;
      ranks w;
      int64_t bounds[RANKS_MOST + 1], owned[RANKS_MOST + 1];
      rng g = {9};
      problem_make(&p, smx_op_find("softmax"), 3, 20000, 0, 1, plain, 1);
      ranks_cut(&g, 20000, count, 1, bounds, owned);
      ranks_make(&w, &p, FORWARD, SMX_F32, count, bounds);
      left = INT64_MAX;
      CHECK(!smx_context_create(&options, &ctx), "%s", smx_last_error());
      if (me == bad) left = n - 1;
      const smx_status status = call(MPI_COMM_WORLD, &w, me, ctx);
      CHECK(status == SMX_OK || status == SMX_ERR_NOMEM, "status %d: %s", status, smx_last_error());
      CHECK(n < 20, "it never ends");
      left = INT64_MAX;
      done = status == SMX_OK;
      smx_context_destroy(ctx);
      ranks_free(&w);
      problem_free(&p);
    }
}

/* What is run without words, but for the last two; with words, those that they name. */
static const struct {
  const char *name;
  void (*run)(void);
} parts[] = {
    {"operators", every_operator},
    {"shapes", shapes},
    {"rows", by_rows},
    {"communicators", communicators},
    {"loss", cross_entropy},
    {"layers", linear_layers},
    {"draws", draws},
    {"keys", keys},
    {"bytes", bytes},
    {"faults", faults},
    {"memory", memory},
    {"long", long_rows},
    {"allocations", allocations},
};

static bool asked_for(const char *name, int words, char **word) {
  for (int i = 0; i < words; i++)
    if (!strcmp(word[i], name)) return true;
  return !words && strcmp(name, "long") && strcmp(name, "allocations");
}

int main(int argc, char **argv) {
  int ran = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me), MPI_Comm_size(MPI_COMM_WORLD, &count);
  CHECK(count <= RANKS_MOST, "at most %d ranks", RANKS_MOST);
  if (argc > 1 && !strcmp(argv[1], "brief")) every = 4, argv++, argc--;
  for (size_t i = 0; i < COUNT_OF(parts); i++)
    if (asked_for(parts[i].name, argc - 1, argv + 1)) parts[i].run(), ran++;
  CHECK(argc == 1 || ran == argc - 1, "%d parts, not %d: some word names none", ran, argc - 1);
  MPI_Finalize();
  return 0;
}
