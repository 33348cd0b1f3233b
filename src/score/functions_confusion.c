/* score/functions_confusion.c - classification_metrics: who was taken for whom, and what follows.
 * Without weights, or of copies, counts are whole numbers, in double. */
#include "functions.h"

enum { PREDICTION, TARGET, WEIGHT };                                               /* inputs */
enum { ACCURACY, F1, BALANCED, MATTHEWS, CONFUSION, PRECISION, RECALL, OF_CLASS }; /* outputs */

typedef struct confusion {
  const tensor_call *c;
  int64_t n, classes, set;
  double *w;                         /* of the rows of a set, or NULL */
  bool copies;                       /* which they count */
  double *cell;                      /* [classes, classes]: target, prediction */
  double *taken, *there, all, right; /* of each class: predicted, true */
} confusion;

static smx_status confusion_open(confusion *f, const tensor_call *c) {
  int64_t bytes;
  *f = (confusion){.c = c, .n = tensor_dim(c, "n"), .classes = tensor_dim(c, "classes")};
  const smx_status status = score_open_weights(c, WEIGHT, &f->w);
  if (status != SMX_OK) return status;
  f->cell = smx_multiply(f->classes, (f->classes + 2) * (int64_t)sizeof *f->cell, &bytes)
                ? smx_alloc(c->ctx, (size_t)bytes)
                : NULL;
  if (!f->cell) {
    smx_free(c->ctx, f->w);
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld classes", c->op->name, (long long)f->classes);
  }
  f->taken = f->cell + f->classes * f->classes, f->there = f->taken + f->classes;
  return SMX_OK;
}

SCORE_WALK void count_rows(confusion *f, bool weighted) {
  const int64_t *prediction = (const int64_t *)(const void *)f->c->in.view[PREDICTION].data + f->set * f->n,
                *target = (const int64_t *)(const void *)f->c->in.view[TARGET].data + f->set * f->n;
  const int64_t classes = f->classes;
  double *cell = f->cell, *there = f->there, *taken = f->taken, all = 0;
  for (int64_t i = 0; i < f->n; i++) {
    const double w = weighted ? f->w[i] : 1;
    if (target[i] < 0 || prediction[i] < 0) continue;
    cell[target[i] * classes + prediction[i]] += w, there[target[i]] += w, taken[prediction[i]] += w;
    all += w;
  }
  f->all = all, f->right = 0;
  for (int64_t k = 0; k < classes; k++) f->right += cell[k * (classes + 1)];
}

static void count_all(confusion *f) {
  for (int64_t i = 0; i < f->classes * (f->classes + 2); i++) f->cell[i] = 0;
  f->copies = !f->w || score_load_weights(f->c, WEIGHT, f->set, f->w).copies;
  if (f->w) count_rows(f, true);
  else count_rows(f, false);
}

/* Quotients of nothing are 0, as in scikit-learn; a class that is neither predicted nor true takes
 * no part in the means. */
static double share_of(double part, double whole) { return whole > 0 ? part / whole : 0; }

static void write_classes(const confusion *f, double *f1, double *balanced) {
  double some = 0, true_ones = 0;
  *f1 = *balanced = 0;
  for (int64_t k = 0; k < f->classes; k++) {
    const double right = f->cell[k * f->classes + k], both = f->taken[k] + f->there[k];
    const double own = share_of(2 * right, both), recall = share_of(right, f->there[k]);
    *f1 += own, some += both > 0, *balanced += recall, true_ones += f->there[k] > 0;
    tensor_put(f->c, PRECISION, f->set * f->classes + k, share_of(right, f->taken[k]));
    tensor_put(f->c, RECALL, f->set * f->classes + k, recall);
    tensor_put(f->c, OF_CLASS, f->set * f->classes + k, own);
  }
  *f1 /= some, *balanced /= true_ones;
}

/* The correlation of predictions and targets: (right all - sum taken there) / sqrt(...). */
static double matthews_of(const confusion *f) {
  const double all = f->all;
  double both = 0, taken = 0, there = 0;
  for (int64_t k = 0; k < f->classes; k++) {
    const double p = f->taken[k], t = f->there[k];
    both += p * t, taken += p * p, there += t * t;
  }
  const double by = (all * all - taken) * (all * all - there);
  return by > 0 ? (f->right * all - both) / __builtin_sqrt(by) : 0;
}

static void put_cells(const confusion *f) {
  const int64_t count = f->classes * f->classes;
  if (!f->c->out.given[CONFUSION]) return;
  int64_t *to = (int64_t *)(void *)f->c->out.view[CONFUSION].data + f->set * count;
  for (int64_t i = 0; i < count; i++) to[i] = score_copies(f->copies, f->cell[i]);
}

smx_status score_confusion(const tensor_call *c) {
  confusion f;
  smx_status status = score_check_weight(c, WEIGHT);
  if (status == SMX_OK) status = confusion_open(&f, c);
  if (status != SMX_OK) return status;
  for (f.set = 0; f.set < c->dims.lead_count; f.set++) {
    const double nan = __builtin_nan("");
    double f1, balanced;
    count_all(&f);
    write_classes(&f, &f1, &balanced);
    tensor_put(c, ACCURACY, f.set, f.all > 0 ? share_of(f.right, f.all) : nan);
    tensor_put(c, F1, f.set, f.all > 0 ? f1 : nan);
    tensor_put(c, BALANCED, f.set, f.all > 0 ? balanced : nan);
    tensor_put(c, MATTHEWS, f.set, f.all > 0 ? matthews_of(&f) : nan);
    put_cells(&f);
  }
  smx_free(c->ctx, f.cell), smx_free(c->ctx, f.w);
  return SMX_OK;
}
