/* driver/loss_reduction.c - checks and counts targets, and sums the losses of rows, in an order
 * that depends on the number of rows alone. */
#include "loss_reduction.h"

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

double smx_rows_sum(const void *values, int64_t rows, bool is_f64) {
  row_sum s = {.is_f64 = is_f64};
  for (int64_t r = 0; r < rows; r++)
    add_row(&s, is_f64 ? ((const double *)values)[r] : (double)((const float *)values)[r]);
  return s.blocks + s.block;
}

static double counts(const smx_targets *t, int64_t y) {
  union {
    float f;
    double d;
  } weight;
  if (!t->weights) return 1;
  t->io->load(t->store, t->weights + y * t->step, 1, 1, &weight);
  return t->is_f64 ? weight.d : (double)weight.f;
}

int64_t smx_weights_negative(const smx_targets *t, double *weight) {
  enum { BLOCK = 128 };
  union {
    float f[BLOCK];
    double d[BLOCK];
  } block;
  for (int64_t first = 0; first < t->classes; first += BLOCK) {
    const int64_t left = t->classes - first, n = left < BLOCK ? left : BLOCK;
    t->io->load(t->store, t->weights + first * t->step, t->step / smx_dtype_bytes(t->dtype), (size_t)n,
                &block);
    for (int64_t y = 0; y < n; y++) {
      *weight = t->is_f64 ? block.d[y] : (double)block.f[y];
      if (*weight < 0) return first + y;
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

smx_status smx_targets_check(const smx_targets *t, double *total) {
  row_sum s = {.is_f64 = t->is_f64};
  const int64_t rows = smx_view_elements(t->index);
  for (int64_t r = 0; r < rows; r++) {
    int64_t y = smx_whole_at(element(t->index, r), smx_dtype_bytes(t->index->dtype));
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

double smx_reduced(smx_reduction how, const void *losses, int64_t rows, double total, bool is_f64) {
  const double tiny = is_f64 ? 0x1p-1022 : 0x1p-126;
  double v = smx_rows_sum(losses, rows, is_f64);
  if (how >= SMX_REDUCE_MEAN) v = total != 0 ? v / total : how == SMX_REDUCE_MEAN ? __builtin_nan("") : 0;
  return v != v ? __builtin_nan("") : v < tiny && v > -tiny ? 0 : v;
}

double smx_share(smx_reduction how, double total) {
  return how < SMX_REDUCE_MEAN ? 1 : total == 0 ? 0 : 1 / total;
}
