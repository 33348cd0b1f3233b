/* api/sample_steps.c - the steps of smx_sample. What a step does because of the tokens so far is
 * the same for every row of a call, so it is computed here, once. See sample.h. */
#include "driver/params.h"
#include "sample.h"
#include "sample/sample.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static smx_status check_numbers(size_t i, const smx_step_info *info, const smx_step *s) {
  const double v[] = {s->a, s->b, s->c};
  for (int32_t k = 0; k < info->param_count; k++) {
    const smx_param *p = info->params + k;
    if (!smx_param_why_not(p, v[k])) continue;
    return smx_fail(SMX_ERR_PARAM, "smx_sample: step %zu, %s: %s is %g, not %g to %g%s", i, info->name,
                    p->name, v[k], p->min, p->max, p->flags & SMX_PARAM_INT ? ", whole" : "");
  }
  return SMX_OK;
}

static smx_status check_step(size_t i, const smx_step *s, size_t n) {
  const smx_step_info *info = smx_step_at((size_t)s->kind);
  if (!info) return smx_fail(SMX_ERR_PARAM, "smx_sample: step %zu: kind is %d", i, (int)s->kind);
  smx_status status = check_numbers(i, info, s);
  if (status != SMX_OK || !(info->flags & SMX_STEP_HAS_TOKENS)) return status;
  if (s->token_count && !s->tokens)
    return smx_fail(SMX_ERR_NULL, "smx_sample: step %zu, %s: tokens is NULL", i, info->name);
  if (s->token_count && (info->flags & SMX_STEP_HAS_VALUES) && !s->values)
    return smx_fail(SMX_ERR_NULL, "smx_sample: step %zu, %s: values is NULL", i, info->name);
  for (size_t t = 0; t < s->token_count; t++) {
    const bool broken = (info->flags & SMX_STEP_HAS_TEXT) && s->tokens[t] == -1;
    if (!broken && (s->tokens[t] < 0 || (uint64_t)s->tokens[t] >= n))
      return smx_fail(SMX_ERR_PARAM, "smx_sample: step %zu, %s: token %lld is not one of the %zu of a row", i,
                      info->name, (long long)s->tokens[t], n);
    if (s->values && s->values[t] != s->values[t])
      return smx_fail(SMX_ERR_PARAM, "smx_sample: step %zu, %s: a value is NaN", i, info->name);
  }
  return SMX_OK;
}

smx_status smx_steps_check(const smx_step *steps, size_t count, size_t n) {
  for (size_t i = 0; i < count; i++) {
    smx_status status = check_step(i, steps + i, n);
    if (status != SMX_OK) return status;
  }
  return SMX_OK;
}

/* ---- what has been seen ---- */

typedef struct seen {
  int64_t token;
  double value;
} seen;

static int by_token(const void *a, const void *b) {
  const seen *u = a, *v = b;
  return (u->token > v->token) - (u->token < v->token);
}

/* Each token once, with the sum or the largest of its values. Values are whole numbers where the
 * order of equal ones could matter. */
static size_t merge(seen *v, size_t n, bool largest) {
  size_t kept = 0;
  if (n) qsort(v, n, sizeof *v, by_token);
  for (size_t i = 0; i < n; i++) {
    if (kept == 0 || v[kept - 1].token != v[i].token) v[kept++] = v[i];
    else if (!largest) v[kept - 1].value += v[i].value;
    else if (v[i].value > v[kept - 1].value) v[kept - 1].value = v[i].value;
  }
  return kept;
}

/* back[k]: how many tokens before the last k are those that end the text as well, in their order:
 * the Z-function of the text read backwards. */
static void matches(const int64_t *text, size_t n, size_t *back) {
  size_t from = 0, end = 0, whole = 0;
  while (whole < n && text[n - 1 - whole] >= 0) whole++; /* up to the last break */
  for (size_t k = 1; k < n; k++) {
    size_t m = k < end ? (back[k - from] < end - k ? back[k - from] : end - k) : 0;
    while (k + m < n && text[n - 1 - m] == text[n - 1 - k - m]) m++;
    back[k] = m;
    if (k + m > end) from = k, end = k + m;
  }
  for (size_t k = 1; k < n; k++)
    if (back[k] > whole) back[k] = whole;
  if (n) back[0] = 0;
}

/* b^e by products alone, so that every C library gives the same bits. */
static double power(double b, uint64_t e) {
  double y = 1;
  for (; e; e >>= 1, b *= b)
    if (e & 1) y *= b;
  return y;
}

/* The tokens that would go on with a run of `least` or more that ends the text, each with the
 * length of the longest. */
static size_t continuations(const smx_step *s, double least, size_t *back, seen *v) {
  const size_t n = s->token_count;
  size_t count = 0;
  matches(s->tokens, n, back);
  for (size_t i = 0; i < n; i++) {
    const double length = i ? (double)back[n - i] : 0;
    if (length >= least && s->tokens[i] >= 0) v[count++] = (seen){s->tokens[i], length};
  }
  return merge(v, count, true);
}

static size_t collect(smx_step *s, size_t *back, seen *v) {
  if (s->kind == SMX_STEP_NO_REPEAT) {
    s->kind = SMX_STEP_BAN;
    return continuations(s, s->a - 1, back, v);
  }
  if (s->kind == SMX_STEP_DRY) {
    s->kind = SMX_STEP_BIAS;
    size_t count = s->a > 0 ? continuations(s, s->c, back, v) : 0;
    for (size_t i = 0; i < count; i++)
      v[i].value = -fmin(s->a * power(s->b, (uint64_t)(v[i].value - s->c)), 1e30);
    return count;
  }
  for (size_t i = 0; i < s->token_count; i++) v[i] = (seen){s->tokens[i], s->values ? s->values[i] : 1};
  return merge(v, s->token_count, false);
}

/* Whether its tokens are computed here; the tokens of other steps stay as they are. */
static bool collects(const smx_step *s) {
  const bool listed = step_table[s->kind].flags & SMX_STEP_HAS_TOKENS;
  return listed && s->kind != SMX_STEP_BIAS && s->kind != SMX_STEP_BAN && s->kind != SMX_STEP_ALLOW;
}

bool smx_steps_need(const smx_step *steps, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (collects(steps + i)) return true;
  return false;
}

smx_step *smx_steps_prepare(smx_context *ctx, const smx_step *steps, size_t count) {
  size_t tokens = 0, most = 0, bytes;
  for (size_t i = 0; i < count; i++) {
    if (!(step_table[steps[i].kind].flags & SMX_STEP_HAS_TOKENS)) continue;
    if (__builtin_add_overflow(tokens, steps[i].token_count, &tokens)) return NULL;
    if (steps[i].token_count > most) most = steps[i].token_count;
  }
  const size_t a_token = sizeof(int64_t) + sizeof(double) + sizeof(seen) + sizeof(size_t);
  if (__builtin_mul_overflow(tokens, a_token, &bytes) ||
      __builtin_add_overflow(bytes, (count + 1) * sizeof *steps, &bytes))
    return NULL;
  smx_step *own = smx_alloc(ctx, bytes);
  if (!own) return NULL;
  int64_t *token = (int64_t *)(own + count);
  double *value = (double *)(token + tokens);
  seen *v = (seen *)(value + tokens);
  size_t *back = (size_t *)(v + most);
  for (size_t i = 0; i < count; i++) {
    smx_step *s = own + i;
    *s = steps[i];
    if (!collects(s)) continue;
    const size_t kept = collect(s, back, v);
    for (size_t k = 0; k < kept; k++) token[k] = v[k].token, value[k] = v[k].value;
    s->tokens = token, s->values = value, s->token_count = kept;
    token += kept, value += kept;
  }
  return own;
}
