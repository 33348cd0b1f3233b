/* grid.c - a block at every temperature while the caches hold it. Its bins come from
 * calibration_error, a set for each temperature, and are added up over the blocks.
 *
 * Rows are summed at half of the temperatures. With p = softmax(z / T) the softmax of z / (T / 2)
 * is p^2 / sum p^2, and -log sum p^2 is renyi_entropy, which comes from the same read. */
#include "grid.h"

#include "bind.h"
#include "fault.h"
#include "measure.h"
#include "numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MSP = 0, TRUE = 1, ENERGY = 2, RENYI = 3, SCORES = 4 };
enum { HALF = (GRID_TEMPERATURES - 1) / 4 }; /* so many temperatures before one is its half */
#define LEAST_PROBABILITY 1e-30 /* below, floats lose digits of it: the loss is formed from the energy */

int grid_begin(grid *g, smx_context *context, double base, int64_t bins) {
  const size_t cells = (size_t)bins * GRID_TEMPERATURES;
  *g = (grid){.context = context, .bins = bins};
  for (int t = 0; t < GRID_TEMPERATURES; t++)
    g->temperature[t] = base * exp2(4.0 * t / (GRID_TEMPERATURES - 1) - 2);
  g->count = calloc(3 * cells, sizeof *g->count);
  if (!g->count) return fault_memory(3 * cells * sizeof *g->count);
  g->confidence = g->count + cells, g->right = g->confidence + cells;
  return EXIT_OK;
}

void grid_free(grid *g) { free(g->count); }

/* What a block needs: scores of its rows at one temperature; confidence and correct of those that
 * count, at all of them; results of calibration_error. */
typedef struct work {
  double *score, *confidence, *mean, *accuracy;
  int64_t *count, kept;
  unsigned char *right;
} work;

static int reserve(work *w, const grid *g, const judge_block *b) {
  const size_t rows = (size_t)b->rows, cells = (size_t)g->bins * GRID_TEMPERATURES,
               bytes = (SCORES + GRID_TEMPERATURES) * rows * sizeof(double) + 2 * cells * sizeof(double) +
                       cells * sizeof(int64_t) + GRID_TEMPERATURES * rows;
  w->score = malloc(bytes);
  if (!w->score) return fault_memory(bytes);
  w->confidence = w->score + SCORES * rows;
  w->mean = w->confidence + GRID_TEMPERATURES * rows, w->accuracy = w->mean + cells;
  w->count = (int64_t *)(void *)(w->accuracy + cells);
  w->right = (unsigned char *)(w->count + cells);
  return EXIT_OK;
}

static int score_at(const grid *g, const work *w, const judge_block *b, double temperature) {
  static const char *const names[] = {"msp", "true_class_probability", "energy", "renyi_entropy"};
  const smx_op *ops[SCORES];
  smx_params params[SCORES];
  int64_t shape[] = {b->rows, SCORES}, strides[] = {1, b->rows};
  const smx_tensor out = {w->score, {1, 0}, 2, SMX_F64, shape, strides, 0};
  const smx_tensor target = {(void *)(uintptr_t)b->target, {1, 0}, 1, SMX_I64, shape, NULL, 0};
  for (int k = 0; k < SCORES; k++) {
    ops[k] = smx_op_find(names[k]);
    smx_params_init(ops[k], &params[k]);
    smx_params_set(ops[k], &params[k], "temperature", temperature);
  }
  smx_params_set(ops[RENYI], &params[RENYI], "order", 2);
  const smx_status status = smx_scores(g->context, SCORES, ops, params, &b->logits, &target, &out);
  return status == SMX_OK ? EXIT_OK : fault(EXIT_REFUSED, "%s", smx_last_error());
}

static double logit_of(const judge_block *b, int64_t row) {
  const dtype *type = dtype_of(b->logits.dtype);
  return type->get((const char *)b->logits.data +
                   (row * b->logits.shape[1] + b->target[row]) * (int64_t)type->bytes);
}

/* At the temperature t, whose scores there are. */
static void add_own(grid *g, work *w, const judge_block *b, int t, const double *log_true) {
  const double *msp = b->given && t == GRID_TEMPERATURES / 2 ? b->given : w->score + MSP * b->rows;
  for (int64_t i = 0, kept = 0; i < b->rows; i++) {
    if (b->target[i] < 0) continue;
    w->confidence[t * w->kept + kept++] = msp[i], g->loss[t] -= log_true[i];
  }
}

/* At half the temperature of these scores. */
static void add_half(grid *g, work *w, const judge_block *b, int t, const double *log_true) {
  const double *msp = w->score + MSP * b->rows, *renyi = w->score + RENYI * b->rows;
  for (int64_t i = 0, kept = 0; i < b->rows; i++) {
    if (b->target[i] < 0) continue;
    w->confidence[t * w->kept + kept++] = fmin(1, exp(2 * log(msp[i]) + renyi[i]));
    g->loss[t] -= 2 * log_true[i] + renyi[i];
  }
}

/* Temperature t from its scores, and temperature t - HALF, which is half of it, from the same. The
 * middle has scores of its own, so that it is what the metrics have. */
static int see_temperature(grid *g, work *w, const judge_block *b, int t) {
  const int code = score_at(g, w, b, g->temperature[t]);
  double *own = w->score + TRUE * b->rows, *energy = w->score + ENERGY * b->rows;
  for (int64_t i = 0; !code && i < b->rows; i++)
    if (b->target[i] >= 0)
      own[i] = own[i] > LEAST_PROBABILITY ? log(own[i]) : (logit_of(b, i) - energy[i]) / g->temperature[t];
  if (!code) add_own(g, w, b, t, own);
  if (!code && t != 2 * HALF) add_half(g, w, b, t - HALF, own);
  return code;
}

/* One set a temperature; which rows are right does not depend on it. */
static int add_bins(grid *g, const work *w) {
  static const char *const names[] = {"ece", "count", "mean", "accuracy"};
  const smx_op *op = smx_op_find("calibration_error");
  double ece[GRID_TEMPERATURES];
  void *const data[] = {ece, w->count, w->mean, w->accuracy};
  int64_t rows[] = {GRID_TEMPERATURES, w->kept}, bins[] = {GRID_TEMPERATURES, g->bins};
  const smx_tensor confidence = {w->confidence, {1, 0}, 2, SMX_F64, rows, NULL, 0};
  const smx_tensor right = {w->right, {1, 0}, 2, SMX_U8, rows, NULL, 0};
  const smx_tensor *in[] = {&confidence, &right}, *out[SMX_MAX_PORTS] = {NULL};
  smx_tensor results[4];
  smx_params params;
  smx_params_init(op, &params), smx_params_set(op, &params, "bins", (double)g->bins);
  for (int k = 0; k < 4; k++) {
    results[k] = (smx_tensor){data[k], {1, 0}, k ? 2 : 1, k == 1 ? SMX_I64 : SMX_F64, bins, NULL, 0};
    out[find_output(op, names[k])] = &results[k];
  }
  if (smx_forward(op, g->context, &params, 2, in, op->output_count, out) != SMX_OK)
    return fault(EXIT_REFUSED, "%s", smx_last_error());
  for (int64_t i = 0; i < GRID_TEMPERATURES * g->bins; i++) {
    const double count = (double)w->count[i];
    if (count == 0) continue;
    g->count[i] += count, g->confidence[i] += count * w->mean[i], g->right[i] += count * w->accuracy[i];
  }
  return EXIT_OK;
}

int grid_see(void *user, const judge_block *b) {
  grid *g = user;
  work w = {0};
  int code = reserve(&w, g, b);
  for (int64_t i = 0; !code && i < b->rows; i++)
    if (b->target[i] >= 0) w.right[w.kept++] = b->rank[i] == 0;
  for (int t = 1; !code && t < GRID_TEMPERATURES; t++) memcpy(w.right + t * w.kept, w.right, (size_t)w.kept);
  /* HALF..2 HALF give 0..HALF - 1 and themselves, 3 HALF + 1 and later 2 HALF + 1 and later */
  for (int t = HALF; !code && t < GRID_TEMPERATURES; t++)
    if (t <= 2 * HALF || t > 3 * HALF) code = see_temperature(g, &w, b, t);
  if (!code && w.kept) code = add_bins(g, &w);
  g->rows += w.kept;
  free(w.score);
  return code;
}

/* ECE and MCE of the bins that were added up. */
static void errors_of(const grid *g, int t, double *ece, double *mce) {
  *ece = *mce = 0;
  for (int64_t b = t * g->bins; b < (t + 1) * g->bins; b++) {
    const double gap = fabs(g->right[b] - g->confidence[b]);
    if (g->count[b] == 0) continue;
    *ece += gap / (double)g->rows, *mce = fmax(*mce, gap / g->count[b]);
  }
}

json_t *grid_json(const grid *g) {
  json_t *loss = json_array(), *eces = json_array(), *mces = json_array(), *bins = json_array();
  for (int t = 0; t < GRID_TEMPERATURES; t++) {
    double ece, mce;
    errors_of(g, t, &ece, &mce);
    json_array_append_new(loss, json_number(g->loss[t] / (double)g->rows));
    json_array_append_new(eces, json_number(ece)), json_array_append_new(mces, json_number(mce));
    json_t *count = json_array(), *right = json_array(), *confidence = json_array();
    for (int64_t b = t * g->bins; b < (t + 1) * g->bins; b++) {
      json_array_append_new(count, json_integer((json_int_t)g->count[b]));
      json_array_append_new(right, json_integer((json_int_t)lround(g->right[b])));
      json_array_append_new(confidence, json_number(g->confidence[b] / g->count[b]));
    }
    json_array_append_new(
        bins, json_pack("{s:o, s:o, s:o}", "count", count, "right", right, "confidence", confidence));
  }
  return json_pack("{s:o, s:o, s:o, s:o, s:o}", "temperature",
                   json_numbers(g->temperature, GRID_TEMPERATURES), "log_loss", loss, "ece", eces, "mce",
                   mces, "bins", bins);
}
