/* pool/functions_columns.c - see functions_columns.h. */
#include "functions_columns.h"

pool_columns pool_columns_of(const pool_sets *s, const pool_set *q, int64_t width) {
  return (pool_columns){s, q, width, POOL_RUN / width / POOL_LANES * POOL_LANES};
}

bool pool_next_run(const pool_columns *k, pool_run *r) {
  r->item = r->rows ? r->item + r->rows : k->q->first;
  r->rows = k->q->end - r->item < k->rows ? k->q->end - r->item : k->rows;
  r->n = r->rows * k->width;
  return r->rows > 0;
}

void pool_load_run(const pool_columns *k, const pool_run *r, const smx_view *v, int64_t at, int64_t step,
                   double *x) {
  at += r->item * step;
  if (step == k->width) tensor_load(k->s->c, v, at, r->n, x);
  else
    for (int64_t i = 0; i < r->rows; i++) tensor_load(k->s->c, v, at + i * step, k->width, x + i * k->width);
}
void pool_store_run(const pool_columns *k, const pool_run *r, const smx_view *v, int64_t at, int64_t step,
                    const double *x) {
  at += r->item * step;
  if (step == k->width) tensor_store(k->s->c, v, at, r->n, x);
  else
    for (int64_t i = 0; i < r->rows; i++) tensor_store(k->s->c, v, at + i * step, k->width, x + i * k->width);
}

void pool_hide(const pool_columns *k, const pool_run *r, double value, double *x) {
  for (int64_t i = 0; k->s->mask && i < r->rows; i++)
    for (int64_t j = 0; j < k->width && !pool_set_has(k->s, k->q, r->item + i); j++)
      x[i * k->width + j] = value;
}

void pool_add(const pool_columns *k, const pool_run *r, const double *x, double *lane) {
  const int64_t turn = POOL_LANES * k->width;
  int64_t i = 0;
  for (; i + turn <= r->n; i += turn)
    for (int64_t t = 0; t < turn; t++) lane[t] += x[i + t];
  for (int64_t t = 0; i + t < r->n; t++) lane[t] += x[i + t];
}
void pool_fold(const pool_columns *k, const double *lane, double *sum) {
  const int64_t w = k->width;
  for (int64_t j = 0; j < w; j++) sum[j] = (lane[j] + lane[j + 2 * w]) + (lane[j + w] + lane[j + 3 * w]);
}

static double larger(double v, double than) { return v > than || v != v ? v : than; }
void pool_raise(const pool_columns *k, const pool_run *r, double sign, const double *x, double *lane) {
  const int64_t turn = POOL_LANES * k->width;
  int64_t i = 0;
  for (; i + turn <= r->n; i += turn)
    for (int64_t t = 0; t < turn; t++) lane[t] = larger(sign * x[i + t], lane[t]);
  for (int64_t t = 0; i + t < r->n; t++) lane[t] = larger(sign * x[i + t], lane[t]);
}
void pool_fold_largest(const pool_columns *k, const double *lane, double *largest) {
  for (int64_t j = 0; j < k->width; j++) {
    largest[j] = lane[j];
    for (int l = 1; l < POOL_LANES; l++) largest[j] = larger(lane[l * k->width + j], largest[j]);
  }
}
