/* attention/functions_sheets.h - attention by whole matrices of scores, "sheets", in double:
 *
 *   s = scale q k^T, w = rule(s), y = w v
 *   g = dy v^T + dw, ds = rule's gradient, dq = scale ds k, dk = scale ds^T q, dv = w^T dy
 *
 * Some sheets are in memory at a time; no bit depends on how many. */
#ifndef SMX_ATTENTION_FUNCTIONS_SHEETS_H
#define SMX_ATTENTION_FUNCTIONS_SHEETS_H
#include "driver/carve.h"
#include "driver/operator.h"
#include "functions.h"

/* The first inputs; OWN: the rule's. */
enum { SHEET_Q, SHEET_K, SHEET_V, SHEET_OWN };
enum { SHEET_Y, SHEET_WEIGHTS };

typedef struct sheets sheets;

/* What makes weights of scores: operators, and what is done before and after; NULL: nothing. */
typedef struct sheet_rule {
  int mask;                                 /* the number of that input; 0: there is none */
  smx_status (*call)(sheets *s, bool back); /* w of s, which it may change; or ds of s, w and g */
  void (*before)(sheets *s), (*after)(sheets *s);
  void (*back_before)(sheets *s), (*back_after)(sheets *s); /* ds is to be 0 where a key is hidden */
  void (*room)(sheets *s, carver *c);                       /* memory of its own */
  void (*end)(sheets *s);                                   /* after the last block of the way back */
} sheet_rule;

struct sheets {
  const tensor_call *c;
  const sheet_rule *rule;
  bool backward, causal;
  const unsigned char *mask;  /* or NULL */
  int64_t all, heads;         /* sheets, and how many of them go together */
  int64_t most, first, count; /* a block: of so many at most, these */
  int64_t l, t, d, e;
  double scale;
  double *q, *k, *v, *k_turned, *v_turned, *dy; /* of the block; turned: columns as rows */
  double *s, *w, *g, *ds;                       /* [count][l][t] */
  /* Results of all sheets, written when no operator can fail any more; NULL: not wanted. */
  double *y, *weights, *dq, *dk, *dv;
  void *own; /* of the rule */
};

smx_status sheets_run(const tensor_call *c, const sheet_rule *rule, void *own, bool backward);

/* The block as a tensor; `shape`: room for three. */
smx_tensor sheets_tensor(const sheets *s, double *data, int64_t shape[3]);

/* task(s, sheet of the block, row) of every row. */
typedef void sheet_row_fn(sheets *s, int64_t sheet, int64_t row);
void sheets_each_row(sheets *s, int64_t rows, sheet_row_fn *task);

static inline bool sheet_hides(const sheets *s, int64_t sheet, int64_t i, int64_t j) {
  const int64_t item = (s->first + sheet) / s->heads;
  if (s->causal && j - i > s->t - s->l) return true;
  return s->mask && !s->mask[(item * s->l + i) * s->t + j];
}

#endif
