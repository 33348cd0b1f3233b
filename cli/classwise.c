/* classwise.c - see classwise.h. Probabilities come from softmax, and their bins, which are those
 * of calibration_error, from histogram_binning of the numbers of the bins. */
#include "classwise.h"

#include "fault.h"

#include <math.h>
#include <stdlib.h>

enum { PIECE = 1 << 15 }; /* probabilities at a time, which the caches hold */

int classwise_begin(classwise *c, int64_t classes, int64_t bins) {
  const size_t cells = (size_t)classes * (size_t)bins;
  *c = (classwise){.classes = classes, .bins = bins};
  c->gap = calloc(cells + (size_t)bins, sizeof *c->gap);
  if (!c->gap) return fault_memory(cells * sizeof *c->gap);
  c->number = c->gap + cells;
  for (int64_t b = 0; b < bins; b++) c->number[b] = (double)b;
  return EXIT_OK;
}

void classwise_free(classwise *c) { free(c->gap); }

static int run(smx_context *context, const char *name, const smx_params *params, const smx_tensor *first,
               const smx_tensor *second, const smx_tensor *result) {
  const smx_tensor *in[] = {first, second};
  const smx_status status = smx_forward(smx_op_find(name), context, params, second ? 2 : 1, in, 1, &result);
  return status == SMX_OK ? EXIT_OK : fault(EXIT_REFUSED, "%s: %s", name, smx_last_error());
}

/* Probabilities above the first bin, which are few: each, its class less the target's, its bin. */
typedef struct above {
  double *p, *gap, *bin;
  int64_t *class, count;
} above;

static void add_row(classwise *c, const double *p, int64_t target, double weight, above *a) {
  const double first = 1 / (double)c->bins;
  for (int64_t k = 0; k < c->classes; k++) {
    const double gap = weight * (p[k] - (target == k));
    if (p[k] <= first) c->gap[k] += gap;
    else a->p[a->count] = p[k], a->gap[a->count] = gap, a->class[a->count++] = k;
  }
}

/* p: those of some rows. */
static int add_rows(classwise *c, smx_context *context, const double *p, above *a, const int64_t *target,
                    const double *weight, int64_t rows) {
  a->count = 0;
  for (int64_t r = 0; r < rows; r++) {
    const double w = weight ? weight[r] : 1;
    if (target[r] >= 0) add_row(c, p + r * c->classes, target[r], w, a), c->rows += w;
  }
  const smx_tensor chance = {a->p, {1, 0}, 1, SMX_F64, &a->count, NULL, 0},
                   number = {c->number, {1, 0}, 1, SMX_F64, &c->bins, NULL, 0},
                   bin = {a->bin, {1, 0}, 1, SMX_F64, &a->count, NULL, 0};
  const int code = run(context, "histogram_binning", NULL, &chance, &number, &bin);
  for (int64_t i = 0; !code && i < a->count; i++)
    c->gap[(int64_t)a->bin[i] * c->classes + a->class[i]] += a->gap[i];
  return code;
}

int classwise_add(classwise *c, smx_context *context, const smx_tensor *logits, const double *p,
                  const int64_t *target, const double *weight, int64_t rows, double temperature) {
  const int64_t piece = c->classes < PIECE ? PIECE / c->classes : 1;
  const size_t room = (size_t)(piece < rows ? piece : rows) * (size_t)c->classes;
  const smx_op *softmax = smx_op_find("softmax");
  smx_params params;
  smx_params_init(softmax, &params);
  smx_params_set(softmax, &params, "temperature", temperature);
  double *own = malloc(5 * room * sizeof *own + 1);
  above a = {own + room, own + 2 * room, own + 3 * room, (int64_t *)(void *)(own + 4 * room), 0};
  int code = own ? EXIT_OK : fault_memory(5 * room * sizeof *own);
  for (int64_t from = 0; !code && from < rows; from += piece) {
    const int64_t count = rows - from < piece ? rows - from : piece;
    int64_t shape[] = {count, c->classes};
    const double *these = p ? p + from * c->classes : own;
    if (!p) {
      const smx_tensor x = {logits->data,
                            {1, 0},
                            2,
                            logits->dtype,
                            shape,
                            NULL,
                            (uint64_t)(from * c->classes) * (logits->dtype.bits / 8)},
                       y = {own, {1, 0}, 2, SMX_F64, shape, NULL, 0};
      code = run(context, "softmax", &params, &x, NULL, &y);
    }
    if (!code) code = add_rows(c, context, these, &a, target + from, weight ? weight + from : NULL, count);
  }
  free(own);
  return code;
}

double classwise_error(const classwise *c) {
  double sum = 0;
  for (int64_t i = 0; i < c->classes * c->bins; i++) sum += fabs(c->gap[i]);
  return sum / c->rows / (double)c->classes;
}
