/* score/functions_confusion.c - classification_metrics: who was taken for whom, and what follows.
 * Counts are whole numbers. */
#include "functions.h"

enum { PREDICTION, TARGET };                                                       /* inputs */
enum { ACCURACY, F1, BALANCED, MATTHEWS, CONFUSION, PRECISION, RECALL, OF_CLASS }; /* outputs */

typedef struct confusion {
  const tensor_call *c;
  int64_t n, classes, set;
  int64_t *cell;                      /* [classes, classes]: target, prediction */
  int64_t *taken, *there, all, right; /* of each class: predicted, true */
} confusion;

static smx_status confusion_open(confusion *f, const tensor_call *c) {
  int64_t bytes;
  *f = (confusion){.c = c, .n = tensor_dim(c, "n"), .classes = tensor_dim(c, "classes")};
  f->cell = smx_multiply(f->classes, (f->classes + 2) * (int64_t)sizeof *f->cell, &bytes)
                ? smx_alloc(c->ctx, (size_t)bytes)
                : NULL;
  if (!f->cell)
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld classes", c->op->name, (long long)f->classes);
  f->taken = f->cell + f->classes * f->classes, f->there = f->taken + f->classes;
  return SMX_OK;
}

static void count_all(confusion *f) {
  const int64_t *prediction = (const int64_t *)(const void *)f->c->in.view[PREDICTION].data + f->set * f->n,
                *target = (const int64_t *)(const void *)f->c->in.view[TARGET].data + f->set * f->n;
  for (int64_t i = 0; i < f->classes * (f->classes + 2); i++) f->cell[i] = 0;
  f->all = f->right = 0;
  for (int64_t i = 0; i < f->n; i++) {
    if (target[i] < 0 || prediction[i] < 0) continue;
    f->cell[target[i] * f->classes + prediction[i]]++, f->all++, f->right += target[i] == prediction[i];
    f->there[target[i]]++, f->taken[prediction[i]]++;
  }
}

/* Quotients of nothing are 0, as in scikit-learn; a class that is neither predicted nor true takes
 * no part in the means. */
static double share_of(int64_t part, int64_t whole) { return whole ? (double)part / (double)whole : 0; }

static void write_classes(const confusion *f, double *f1, double *balanced) {
  double some = 0, true_ones = 0;
  *f1 = *balanced = 0;
  for (int64_t k = 0; k < f->classes; k++) {
    const int64_t right = f->cell[k * f->classes + k], both = f->taken[k] + f->there[k];
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
  const double all = (double)f->all;
  double both = 0, taken = 0, there = 0;
  for (int64_t k = 0; k < f->classes; k++) {
    const double p = (double)f->taken[k], t = (double)f->there[k];
    both += p * t, taken += p * p, there += t * t;
  }
  const double by = (all * all - taken) * (all * all - there);
  return by > 0 ? ((double)f->right * all - both) / __builtin_sqrt(by) : 0;
}

static void put_cells(const confusion *f) {
  const int64_t count = f->classes * f->classes;
  if (!f->c->out.given[CONFUSION]) return;
  int64_t *to = (int64_t *)(void *)f->c->out.view[CONFUSION].data + f->set * count;
  for (int64_t i = 0; i < count; i++) to[i] = f->cell[i];
}

smx_status score_confusion(const tensor_call *c) {
  confusion f;
  const smx_status status = confusion_open(&f, c);
  if (status != SMX_OK) return status;
  for (f.set = 0; f.set < c->dims.lead_count; f.set++) {
    const double nan = __builtin_nan("");
    double f1, balanced;
    count_all(&f);
    write_classes(&f, &f1, &balanced);
    tensor_put(c, ACCURACY, f.set, f.all ? share_of(f.right, f.all) : nan);
    tensor_put(c, F1, f.set, f.all ? f1 : nan);
    tensor_put(c, BALANCED, f.set, f.all ? balanced : nan);
    tensor_put(c, MATTHEWS, f.set, f.all ? matthews_of(&f) : nan);
    put_cells(&f);
  }
  smx_free(c->ctx, f.cell);
  return SMX_OK;
}
