/* mpi_draws.c - proves that smx_mpi_sample_f32 draws what one process does: by every kind of
 * draw, with steps, masks, seeds of rows and several draws, in rows of every status and for
 * every cut; and that errors of one rank are those of all. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mpi.h"
#include "util.h"

enum { ROWS = 13, N = 9001, WORDS = (N + 31) / 32, DRAWS = 3, GAP = 5, CUTS = 3 };

typedef struct result {
  int64_t index[ROWS * DRAWS];
  float log_p[ROWS * DRAWS];
  smx_row_status status[ROWS];
} result;

static float logits[ROWS * N];
static uint32_t masks[ROWS * WORDS];
static uint64_t seeds[ROWS], streams[ROWS];

/* Where columns of rank r begin: evenly, all on the last rank, or one on each but the last. */
static int64_t begin(int cut, int r) {
  if (r == count) return N;
  return cut == 0 ? (int64_t)N * r / count : cut == 1 ? 0 : r;
}

static void fill(void) {
  rng g = {11};
  for (int i = 0; i < ROWS * N; i++) logits[i] = (float)(3 * rng_normal(&g));
  logits[2 * N + 77] = NAN, logits[3 * N + 8000] = INFINITY;
  for (int i = 0; i < N; i++) logits[4 * N + i] = -INFINITY;
  for (int i = 0; i < ROWS * WORDS; i++) masks[i] = (uint32_t)rng_bits(&g);
  for (int r = 0; r < ROWS; r++) seeds[r] = rng_bits(&g), streams[r] = rng_bits(&g);
}

static void one(int cut, int draw, int more, result *want, result *got) {
  static const int64_t banned[] = {5, 8999};
  smx_step steps[3];
  memset(steps, 0, sizeof steps);
  steps[0].kind = SMX_STEP_BAN, steps[0].tokens = banned, steps[0].token_count = 2;
  steps[1].kind = SMX_STEP_TEMPERATURE, steps[1].a = 0.7;
  steps[2].kind = SMX_STEP_TOP_P, steps[2].a = 0.9;
  const int64_t first = begin(cut, me), own = begin(cut, me + 1) - first;
  float *const whole = malloc(sizeof logits),
               *const mine = malloc((size_t)(ROWS * (own + GAP)) * sizeof *mine),
               *const left = malloc((size_t)(ROWS * own + 1) * sizeof *left);
  CHECK(whole && mine && left, "no memory");
  for (int64_t r = 0; r < ROWS; r++)
    memcpy(mine + r * (own + GAP), logits + r * N + first, (size_t)own * sizeof *mine);
  smx_sample_options o = {.size = sizeof o, .draw = (smx_draw)draw, .seed = 9, .stream = 40};
  if (more) {
    o.steps = steps, o.step_count = 3, o.draws = DRAWS;
    o.masks = masks, o.seeds = seeds, o.streams = streams;
  }
  memset(want, 0, sizeof *want), memset(got, 0, sizeof *got);
  o.status = want->status, o.processed = whole;
  CHECK(!smx_sample_f32(NULL, &o, ROWS, N, logits, want->index, want->log_p), "%s", smx_last_error());
  o.status = got->status, o.processed = left, o.row_stride = (size_t)own + GAP;
  CHECK(!smx_mpi_sample_f32(MPI_COMM_WORLD, NULL, &o, ROWS, N, first, (size_t)own, mine, got->index,
                            got->log_p),
        "%s", smx_last_error());
  for (int64_t r = 0; r < ROWS; r++)
    CHECK(!own || !memcmp(left + r * own, whole + r * N + first, (size_t)own * sizeof *left),
          "processed scores of row %d", (int)r);
  free(whole), free(mine), free(left);
}

static void refused(void) {
  float x[4] = {0};
  int64_t index[1] = {7};
  smx_sample_options o = {.size = sizeof o};
  const int64_t n = 4 * count;
  for (int bad = 0; bad < count; bad++) {
    o.draw = me == bad ? (smx_draw)3 : SMX_DRAW_CDF;
    CHECK(smx_mpi_sample_f32(MPI_COMM_WORLD, NULL, &o, 1, n, 4 * me, 4, x, index, NULL) == SMX_ERR_PARAM,
          "an unknown draw of rank %d", bad);
    o.draw = SMX_DRAW_CDF;
    CHECK(smx_mpi_sample_f32(MPI_COMM_WORLD, NULL, &o, 1, n, 4 * me + (me == bad), 4, x, index, NULL) ==
              SMX_ERR_SHAPE,
          "a wrong first of rank %d", bad);
    CHECK(smx_mpi_sample_f32(MPI_COMM_WORLD, NULL, &o, 1, n, 4 * me, 4, me == bad ? NULL : x, index, NULL) ==
              SMX_ERR_NULL,
          "no logits on rank %d", bad);
    CHECK(index[0] == 7 && *smx_last_error(), "written, or no text");
  }
  CHECK(!smx_mpi_sample_f32(MPI_COMM_WORLD, NULL, NULL, 0, n, 4 * me, 4, NULL, NULL, NULL), "%s",
        smx_last_error());
}

void draws(void) {
  static result want, got;
  fill();
  for (int cut = 0; cut < CUTS; cut++)
    for (int draw = 0; draw <= SMX_DRAW_GREEDY; draw++)
      for (int more = 0; more < 2; more++) {
        one(cut, draw, more, &want, &got);
        CHECK(!memcmp(want.index, got.index, sizeof got.index), "cut %d, draw %d: an index", cut, draw);
        CHECK(!memcmp(want.log_p, got.log_p, sizeof got.log_p), "cut %d, draw %d: a probability", cut, draw);
        CHECK(!memcmp(want.status, got.status, sizeof got.status), "cut %d, draw %d: a status", cut, draw);
      }
  refused();
}
