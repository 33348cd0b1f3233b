/* driver/loss_reduction.c - checks and counts targets, and sums the losses of rows, in an order
 * that depends on the number of rows alone. */
#include "loss_reduction.h"
#include <string.h>

enum { ROWS_A_BLOCK = 256 };

/* A running sum over rows. */
typedef struct row_sum {
  double blocks, block; /* block: of the real type, which a double holds */
  int64_t rows;
  bool is_f64;
} row_sum;

static void add_row(row_sum *s, double value) {
  s->block = s->is_f64 ? s->block + value : (double)((float)s->block + (float)value);
  if (++s->rows % ROWS_A_BLOCK) return;
  s->blocks += s->block;
  s->block = 0;
}

static double value_of(const void *values, int64_t r, bool is_f64) {
  return is_f64 ? ((const double *)values)[r] : (double)((const float *)values)[r];
}
double smx_rows_sum(const void *values, int64_t rows, bool is_f64) {
  row_sum s = {.is_f64 = is_f64};
  for (int64_t r = 0; r < rows; r++) add_row(&s, value_of(values, r, is_f64));
  return s.blocks + s.block;
}

static double counts(const smx_targets *t, int64_t y) {
  union {
    float f;
    double d;
  } weight;
  if (!t->weights) return 1;
  if (y < t->first || y - t->first >= t->held) return 0;
  t->io->load(t->store, t->weights + (y - t->first) * t->step, 1, 1, &weight);
  return t->is_f64 ? weight.d : (double)weight.f;
}

int64_t smx_weights_negative(const smx_targets *t, double *weight) {
  enum { BLOCK = 128 };
  union {
    float f[BLOCK];
    double d[BLOCK];
  } block;
  for (int64_t first = 0; first < t->held; first += BLOCK) {
    const int64_t left = t->held - first, n = left < BLOCK ? left : BLOCK;
    t->io->load(t->store, t->weights + first * t->step, t->step / smx_dtype_bytes(t->dtype), (size_t)n,
                &block);
    for (int64_t y = 0; y < n; y++) {
      *weight = t->is_f64 ? block.d[y] : (double)block.f[y];
      if (*weight < 0) return t->first + first + y;
    }
  }
  return -1;
}

/* Element r of a view in C order. */
static const char *element(const smx_view *v, int64_t r) {
  int64_t offset = 0;
  for (int32_t d = v->ndim - 1; d >= 0; d--) {
    offset += r % v->shape[d] * v->strides[d];
    r /= v->shape[d];
  }
  return v->data + offset * smx_dtype_bytes(v->dtype);
}

static int64_t whole_of(const smx_view *v, int64_t r) {
  return smx_whole_at(element(v, r), smx_dtype_bytes(v->dtype));
}

smx_mean smx_mean_of(const smx_param *param, double value) {
  const char *const *choice = param->choices;
  const bool over = choice && !strcmp(param->name, "over"), sets = choice && !strcmp(param->name, "sets");
  if (over && !strcmp(choice[(int)value], "all")) return SMX_MEAN_ELEMENTS;
  return sets && !strcmp(choice[(int)value], "apart") ? SMX_MEAN_SETS : SMX_MEAN_ROWS;
}

/* Where row r of a mask begins. */
static const char *mask_row(const smx_view *v, int32_t axis, int64_t r) {
  int64_t offset = 0;
  for (int32_t d = v->ndim - 1; d >= 0; d--) {
    if (d == axis) continue;
    offset += r % v->shape[d] * v->strides[d];
    r /= v->shape[d];
  }
  return v->data + offset;
}
double smx_elements_kept(const smx_view *mask, int32_t axis, const smx_view *length, int64_t rows,
                         int64_t first, int64_t held) {
  double sum = 0;
  for (int64_t r = 0; r < rows; r++) {
    const int64_t below = length ? whole_of(length, r) - first : held, end = below < 0      ? 0
                                                                             : below < held ? below
                                                                                            : held;
    const char *at = mask ? mask_row(mask, axis, r) : NULL;
    int64_t kept = mask ? 0 : end;
    for (int64_t i = 0; mask && i < end; i++) kept += at[i * mask->strides[axis]] != 0;
    sum += (double)kept;
  }
  return sum;
}

double smx_rows_other(const smx_view *set) {
  double sum = 0;
  for (int64_t r = 0, rows = set ? smx_view_elements(set) : 0; r < rows; r++) sum += whole_of(set, r) != 0;
  return sum;
}
smx_status smx_targets_check(const smx_targets *t, double *total) {
  row_sum s = {.is_f64 = t->is_f64};
  const int64_t rows = smx_view_elements(t->index);
  for (int64_t r = 0; r < rows; r++) {
    int64_t y = whole_of(t->index, r);
    bool ignored = y == t->ignore;
    if (!ignored && (y < 0 || y >= t->classes))
      return smx_fail(SMX_ERR_TARGET, SMX_LABEL ": row %lld has target %lld, not 0..%lld or %lld",
                      SMX_LABEL_ARGS(t->what), (long long)r, (long long)y, (long long)t->classes - 1,
                      (long long)t->ignore);
    add_row(&s, ignored ? 0 : counts(t, y));
  }
  *total = s.blocks + s.block;
  return SMX_OK;
}

double smx_target_counts(const smx_targets *t, int64_t row) {
  const int64_t y = whole_of(t->index, row);
  return y == t->ignore ? 0 : counts(t, y);
}

smx_status smx_lengths_check(smx_label what, const smx_view *length, int64_t n) {
  for (int64_t r = 0, rows = smx_view_elements(length); r < rows; r++) {
    const int64_t l = whole_of(length, r);
    if (l < 0 || l > n)
      return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": row %lld has %lld, not 0..%lld", SMX_LABEL_ARGS(what),
                      (long long)r, (long long)l, (long long)n);
  }
  return SMX_OK;
}

static double mean_of(smx_reduction how, double sum, double total) {
  return total != 0 ? sum / total : how == SMX_REDUCE_MEAN ? __builtin_nan("") : 0;
}
static double clean(double v, bool is_f64) {
  const double tiny = is_f64 ? 0x1p-1022 : 0x1p-126;
  return v != v ? __builtin_nan("") : v < tiny && v > -tiny ? 0 : v;
}
double smx_reduced(smx_reduction how, const void *losses, int64_t rows, double total, bool is_f64) {
  const double sum = smx_rows_sum(losses, rows, is_f64);
  return clean(how < SMX_REDUCE_MEAN ? sum : mean_of(how, sum, total), is_f64);
}
/* The sum of the rows whose number in `set` is 0, or of the others. */
static double set_sum(const void *losses, const smx_view *set, bool other, int64_t rows, bool is_f64) {
  row_sum s = {.is_f64 = is_f64};
  for (int64_t r = 0; r < rows; r++)
    add_row(&s, (set && whole_of(set, r) != 0) == other ? value_of(losses, r, is_f64) : 0);
  return s.blocks + s.block;
}
double smx_reduced_sets(smx_reduction how, const void *losses, const smx_view *set, int64_t rows,
                        double total, double other, bool is_f64) {
  const double sum = set_sum(losses, set, false, rows, is_f64),
               more = set_sum(losses, set, true, rows, is_f64);
  if (how < SMX_REDUCE_MEAN || total + other == 0)
    return clean(how < SMX_REDUCE_MEAN ? sum + more : mean_of(how, sum + more, 0), is_f64);
  return clean((total > 0 ? sum / total : 0) + (other > 0 ? more / other : 0), is_f64);
}

double smx_share(smx_reduction how, double total) {
  return how < SMX_REDUCE_MEAN ? 1 : total == 0 ? 0 : 1 / total;
}
