/* fit/functions_cascade.c - a cascade of models: from which confidence on a stage answers, and
 * which stage answers each row. */
#include "driver/number_sort.h"
#include "functions.h"

#define NAN_ __builtin_nan("")

/* ---- cascade_fit ---- */

enum { CONFIDENCE, CORRECT };           /* inputs */
enum { THRESHOLD, ACCURACY, COVERAGE }; /* outputs */

typedef struct cascade {
  const tensor_call *c;
  int64_t n;
  sort_entry *entry;
  sort_counts *counts;
} cascade;

/* Down to each different confidence: the accuracy of the rows that have it or more. */
static void look(const sort_entry *order, int64_t n, double least, double *best, int64_t *rows,
                 double *accuracy) {
  double right = 0;
  *best = -1;
  for (int64_t from = 0, end; from < n; from = end) {
    for (end = from; end < n && order[end].key == order[from].key; end++) right += order[end].y;
    const double share = right / (double)end;
    *best = share > *best ? share : *best;
    if (share >= least) *rows = end, *accuracy = share;
  }
}

static void fit_stage(const cascade *x, int64_t set) {
  const tensor_call *c = x->c;
  double best, accuracy = NAN_;
  int64_t rows = 0;
  bool nan = x->n == 0;
  for (int64_t i = 0; i < x->n; i++) {
    double confidence;
    tensor_load(c, c->in.view + CONFIDENCE, set * x->n + i, 1, &confidence);
    nan |= confidence != confidence;
    x->entry[i] = (sort_entry){sort_key_descending(nan ? 0 : confidence),
                               c->in.view[CORRECT].data[set * x->n + i] != 0};
  }
  const sort_entry *order = sort_numbers(x->entry, x->entry + x->n, x->n, x->counts);
  if (!nan) look(order, x->n, 2, &best, &rows, &accuracy);
  if (!nan) look(order, x->n, best - tensor_param(c, "slack"), &best, &rows, &accuracy);
  tensor_put(c, THRESHOLD, set, nan ? NAN_ : sort_number(order[rows - 1].key));
  tensor_put(c, ACCURACY, set, nan ? NAN_ : accuracy);
  tensor_put(c, COVERAGE, set, nan ? NAN_ : (double)rows / (double)x->n);
}

smx_status fit_cascade(const tensor_call *c) {
  cascade x = {.c = c, .n = tensor_dim(c, "n")};
  int64_t bytes;
  const bool fits = smx_multiply(x.n, 2 * (int64_t)sizeof(sort_entry), &bytes) && bytes < INT64_MAX / 2;
  x.entry = fits ? smx_alloc(c->ctx, (size_t)bytes + sizeof *x.counts) : NULL;
  if (!x.entry) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows", c->op->name, (long long)x.n);
  x.counts = (sort_counts *)(void *)(x.entry + 2 * x.n);
  for (int64_t s = 0; s < c->dims.lead_count; s++) fit_stage(&x, s);
  smx_free(c->ctx, x.entry);
  return SMX_OK;
}

/* ---- cascade ---- */

enum { CUT = 1, COST };           /* inputs */
enum { STAGE, SHARE, MEAN_COST }; /* outputs */

/* Each row goes to the first stage that is sure enough; the last answers whatever it is. */
smx_status fit_cascade_apply(const tensor_call *c) {
  const int64_t m = tensor_dim(c, "m"), n = tensor_dim(c, "n");
  int64_t *stage = (int64_t *)(void *)c->out.view[STAGE].data;
  double cost = 0, left = (double)n;
  if (m == 0 && n > 0)
    return smx_fail(SMX_ERR_SHAPE, "%s: confidence: shape[0] is 0, not at least 1", c->op->name);
  for (int64_t i = 0; i < n; i++) {
    int64_t s = 0;
    while (s + 1 < m && !(fit_number(c, CONFIDENCE, s * n + i, 0) >= fit_number(c, CUT, s, 0))) s++;
    stage[i] = s;
  }
  for (int64_t s = 0; s < m; s++) {
    int64_t here = 0;
    for (int64_t i = 0; i < n; i++) here += stage[i] == s;
    cost += fit_number(c, COST, s, 1) * left, left -= (double)here;
    tensor_put(c, SHARE, s, (double)here / (double)n);
  }
  tensor_put(c, MEAN_COST, 0, cost / (double)n);
  return SMX_OK;
}
