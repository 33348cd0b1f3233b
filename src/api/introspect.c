/* api/introspect.c - operators as data: listing, finding, and the parameters of a call. */
#include "base/enter.h"
#include "driver/internal.h"
#include "attention/attention.h"
#include "attention/table_operators.h"
#include "fit/fit.h"
#include "gate/gate.h"
#include "head/head.h"
#include "linear_attention/linear_attention.h"
#include "loss/loss.h"
#include "matrix/matrix.h"
#include "pairwise/pairwise.h"
#include "pool/pool.h"
#include "row/row.h"
#include "sample/sample.h"
#include "score/score.h"
#include "tensor_families.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct family {
  const smx_op *table;
  size_t count;
  const tensor_functions *functions; /* of operators on tensors */
} families[] = {
    [SMX_FAMILY_row] = {row_table, ROW_COUNT},
    [SMX_FAMILY_loss] = {loss_table, LOSS_COUNT},
    [SMX_FAMILY_sample] = {sample_table, SAMPLE_COUNT},
    [SMX_FAMILY_COUNT] = {matrix_table, MATRIX_COUNT, matrix_functions},
    {pool_table, POOL_COUNT, pool_functions},
    {head_table, HEAD_COUNT, head_functions},
    {gate_table, GATE_COUNT, gate_functions},
    {linear_attention_table, LINEAR_ATTENTION_COUNT, linear_attention_functions},
    {pairwise_table, PAIRWISE_COUNT, pairwise_functions},
    {attention_op_table, ATTENTION_OP_COUNT, attention_functions},
    {score_table, SCORE_COUNT, score_functions},
    {fit_table, FIT_COUNT, fit_functions},
};
enum { FAMILIES = sizeof families / sizeof *families };

size_t smx_op_count(void) {
  size_t count = 0;
  for (int r = 0; r < FAMILIES; r++) count += families[r].count;
  return count;
}
const smx_op *smx_op_at(size_t i) {
  for (int r = 0; r < FAMILIES; i -= families[r++].count)
    if (i < families[r].count) return families[r].table + i;
  return NULL;
}
const smx_op *smx_op_find(const char *name) {
  const smx_op *op;
  for (size_t i = 0; name && (op = smx_op_at(i)); i++)
    if (!strcmp(op->name, name)) return op;
  return NULL;
}

const tensor_functions *smx_tensor_functions(int family, size_t index) {
  return families[family].functions + index;
}

/* ---- kinds of attention weights and of steps ---- */

size_t smx_attention_kind_count(void) { return SMX_ATTENTION_KINDS; }
const smx_attention_kind *smx_attention_kind_at(size_t i) {
  return i < SMX_ATTENTION_KINDS ? attention_table + i : NULL;
}
const smx_attention_kind *smx_attention_kind_find(const char *name) {
  for (size_t i = 0; name && i < SMX_ATTENTION_KINDS; i++)
    if (!strcmp(attention_table[i].name, name)) return attention_table + i;
  return NULL;
}

size_t smx_step_count(void) { return SMX_STEP_KINDS; }
const smx_step_info *smx_step_at(size_t i) { return i < SMX_STEP_KINDS ? step_table + i : NULL; }
const smx_step_info *smx_step_find(const char *name) {
  for (size_t i = 0; name && i < SMX_STEP_KINDS; i++)
    if (!strcmp(step_table[i].name, name)) return step_table + i;
  return NULL;
}

/* ---- parameters ---- */

bool smx_op_place(const smx_op *op, int *family, size_t *index) {
  for (*family = 0; *family < FAMILIES; ++*family) {
    uintptr_t offset = (uintptr_t)op - (uintptr_t)families[*family].table;
    *index = offset / sizeof *op;
    if (*index < families[*family].count && offset % sizeof *op == 0) return true;
  }
  return false;
}

smx_status smx_params_init(const smx_op *op, smx_params *params) {
  if (!op) return smx_fail(SMX_ERR_NULL, "smx_params_init: op is NULL");
  if (!params) return smx_fail(SMX_ERR_NULL, "smx_params_init: params is NULL");
  *params = (smx_params){.size = sizeof *params, .axis = -1};
  for (int32_t i = 0; i < op->param_count; i++) params->value[i] = op->params[i].def;
  return SMX_OK;
}

const char *smx_param_why_not(const smx_param *p, double v) {
  if (isnan(v)) return "is not a number";
  if (v < p->min || v > p->max || (v == p->min && (p->flags & SMX_PARAM_OPEN_MIN))) return "is out of range";
  if ((p->flags & SMX_PARAM_NONZERO) && v == 0) return "must not be 0";
  if ((p->flags & SMX_PARAM_INT) && v != floor(v)) return "is not a whole number";
  if ((p->flags & SMX_PARAM_EVEN) && v != 2 * floor(v / 2)) return "is not even";
  return NULL;
}

smx_status smx_param_check(const smx_op *op, const smx_param *p, double v) {
  const char *why = smx_param_why_not(p, v);
  if (!why) return SMX_OK;
  return smx_fail(SMX_ERR_PARAM, "%s: %s: %g %s: %s%g to %g", op->name, p->name, v, why,
                  p->flags & SMX_PARAM_OPEN_MIN ? "above " : "", p->min, p->max);
}

static smx_status find_param(const smx_op *op, const smx_params *params, const char *name, int32_t *at) {
  if (!op || !params || !name)
    return smx_fail(SMX_ERR_NULL, "smx_params_set: %s is NULL", !op ? "op" : !params ? "params" : "name");
  if (params->size != sizeof *params)
    return smx_fail(SMX_ERR_STRUCT, "%s: params.size is %zu, not %zu", op->name, params->size,
                    sizeof *params);
  for (*at = 0; *at < op->param_count; ++*at)
    if (!strcmp(op->params[*at].name, name)) return SMX_OK;
  return smx_fail(SMX_ERR_PARAM, "%s: no parameter named %s", op->name, name);
}

smx_status smx_params_set(const smx_op *op, smx_params *params, const char *name, double value) {
  SMX_ENTER(NULL);
  int32_t i;
  smx_status status = find_param(op, params, name, &i);
  if (status == SMX_OK) status = smx_param_check(op, op->params + i, value);
  if (status == SMX_OK) params->value[i] = value;
  return status;
}

smx_status smx_params_parse(const smx_op *op, smx_params *params, const char *name, const char *text) {
  SMX_ENTER(NULL);
  int32_t i;
  smx_status status = find_param(op, params, name, &i);
  if (status != SMX_OK) return status;
  if (!text) return smx_fail(SMX_ERR_NULL, "%s: %s: text is NULL", op->name, name);
  for (int32_t c = 0; op->params[i].choices && op->params[i].choices[c]; c++)
    if (!strcmp(text, op->params[i].choices[c])) return smx_params_set(op, params, name, c);
  char *end;
  const uint16_t env = smx_fpenv_text_enter();
  const double value = strtod(text, &end);
  smx_fpenv_text_leave(env);
  if (end == text || *end)
    return smx_fail(SMX_ERR_PARAM, "%s: %s: '%s' is not a number%s", op->name, name, text,
                    op->params[i].choices ? " or a choice" : "");
  return smx_params_set(op, params, name, value);
}
