/* score/functions_weights.c - weights of the rows of a set, for all metrics that take them. */
#include "driver/powers.h"
#include "functions.h"

#define COPIES_MOST 0x1p53 /* below, sums of whole numbers are exact */

static bool is_whole(double w) { return w <= COPIES_MOST && w == (double)(int64_t)w; }

static smx_status refuse(const tensor_call *c, int port, int64_t number, double value, const char *why) {
  return smx_fail(SMX_ERR_PARAM, "%s: %s: number %lld is %g, %s", c->op->name, c->op->inputs[port].name,
                  (long long)number, value, why);
}

static smx_status check(const tensor_call *c, int port, bool finite) {
  const int64_t all = c->in.given[port] ? c->dims.lead_count * tensor_dim(c, "n") : 0;
  for (int64_t i = 0; i < all; i++) {
    double w;
    tensor_load(c, c->in.view + port, i, 1, &w);
    if (w < 0) return refuse(c, port, i, w, "below 0");
    if (finite && w - w != 0) return refuse(c, port, i, w, "not finite");
  }
  return SMX_OK;
}

smx_status score_check_cost(const tensor_call *c, int port) { return check(c, port, false); }
smx_status score_check_weight(const tensor_call *c, int port) { return check(c, port, true); }

score_weights score_load_weights(const tensor_call *c, int port, int64_t set, double *w) {
  const int64_t n = tensor_dim(c, "n");
  score_weights s = {.copies = true, .ones = true};
  double sum = 0, most = 0;
  if (!c->in.given[port])
    for (int64_t i = 0; i < n; i++) w[i] = 1;
  else tensor_load(c, c->in.view + port, set * n, n, w);
  for (int64_t i = 0; i < n; i++) {
    s.ones &= w[i] == 1 || w[i] == 0, s.copies &= is_whole(w[i]);
    sum += w[i], most = w[i] > most ? w[i] : most;
  }
  s.copies &= sum <= COPIES_MOST;
  const double power = s.copies || most == 0 ? 1 : power_below(most);
  for (int64_t i = 0; i < n && power != 1; i++) w[i] /= power;
  return s;
}

smx_status score_open_weights(const tensor_call *c, int port, double **w) {
  const int64_t n = tensor_dim(c, "n");
  int64_t bytes;
  *w = NULL;
  if (!c->in.given[port]) return SMX_OK;
  *w = smx_multiply(n + 1, (int64_t)sizeof **w, &bytes) ? smx_alloc(c->ctx, (size_t)bytes) : NULL;
  return *w ? SMX_OK : smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows", c->op->name, (long long)n);
}

int64_t score_drop_rows(int64_t n, double *w, int columns, double *const *column) {
  int64_t kept = 0;
  for (int64_t i = 0; i < n; i++) {
    if (w[i] == 0) continue;
    w[kept] = w[i];
    for (int k = 0; k < columns; k++) column[k][kept] = column[k][i];
    kept++;
  }
  return kept;
}
