/* pairwise/functions_roles.c - what the pairs of a row are to it, for each operator. */
#include <string.h>

#include "functions.h"

enum { IN_TARGET = IN_OWN };                         /* of info_nce */
enum { IN_LABEL = IN_OWN, IN_LABEL_B, IN_POSITIVE }; /* where they have many */

void pair_negatives(const pair_call *p, int64_t i, unsigned char *role) {
  if (p->in.mask) memcpy(role, p->in.mask->data + i * p->m, (size_t)p->m);
  else memset(role, PAIR_NEGATIVE, (size_t)p->m);
  if (p->self) role[i] = PAIR_OUT;
}

/* ---- info_nce ---- */

smx_status pair_check_keys(const pair_call *p) {
  if (pair_whole(p, IN_TARGET) || p->n <= p->m) return SMX_OK;
  return smx_fail(SMX_ERR_SHAPE, "%s: without target, %lld rows have no %lld keys", p->c->op->name,
                  (long long)p->n, (long long)p->n);
}
int64_t pair_key(const pair_call *p, int64_t i) {
  const int64_t *target = pair_whole(p, IN_TARGET);
  if (!target) return i;
  return (double)target[i] == tensor_param(p->c, "ignore_index") ? -1 : target[i];
}
void pair_key_roles(const pair_call *p, int64_t i, unsigned char *role) {
  const int64_t at = pair_key(p, i);
  pair_negatives(p, i, role);
  if (at >= 0) role[at] = PAIR_POSITIVE;
}
const pair_rule pair_info_nce = {.check = pair_check_keys, .roles = pair_key_roles, .row = pair_contrast};

/* ---- clip_loss ---- */

static void twin_roles(const pair_call *p, int64_t i, unsigned char *role) {
  pair_negatives(p, i, role);
  role[i] = PAIR_POSITIVE;
}
const pair_rule pair_clip = {.roles = twin_roles, .row = pair_both, .columns = true, .square = true};

/* ---- nt_xent ---- */

static smx_status check_views(const pair_call *p) {
  if (p->n % 2 == 0) return SMX_OK;
  return smx_fail(SMX_ERR_SHAPE, "%s: %lld rows are no pairs of views", p->c->op->name, (long long)p->n);
}
static void view_roles(const pair_call *p, int64_t i, unsigned char *role) {
  pair_negatives(p, i, role);
  role[i] = PAIR_OUT;
  role[pair_choice(p->c, "views") ? i ^ 1 : (i + p->n / 2) % p->n] = PAIR_POSITIVE;
}
const pair_rule pair_nt_xent = {.check = check_views,
                                .roles = view_roles,
                                .row = pair_contrast,
                                .alone = true,
                                .no_b = true,
                                .square = true};

/* ---- supervised_contrastive ---- */

smx_status pair_check_labels(const pair_call *p) {
  const char *const name = p->c->op->name;
  const bool label = pair_whole(p, IN_LABEL), label_b = pair_whole(p, IN_LABEL_B);
  if (label == (pair_input(p, &p->c->in, IN_POSITIVE) != NULL))
    return smx_fail(SMX_ERR_PARAM, "%s: give one of label and positive", name);
  if (label_b && !label) return smx_fail(SMX_ERR_PARAM, "%s: label_b is given without label", name);
  if (!label || label_b || p->n == p->m) return SMX_OK;
  return smx_fail(SMX_ERR_SHAPE, "%s: label_b is NULL, and there are %lld rows and %lld columns", name,
                  (long long)p->n, (long long)p->m);
}
void pair_label_roles(const pair_call *p, int64_t i, unsigned char *role) {
  const int64_t *label = pair_whole(p, IN_LABEL), *other = pair_whole(p, IN_LABEL_B);
  const smx_view *set = pair_input(p, &p->c->in, IN_POSITIVE);
  pair_negatives(p, i, role);
  if (!other) other = label;
  for (int64_t j = 0; j < p->m; j++)
    if (role[j] == PAIR_NEGATIVE && (label ? label[i] >= 0 && label[i] == other[j] : set->data[i * p->m + j]))
      role[j] = PAIR_POSITIVE;
}
const pair_rule pair_supervised = {
    .check = pair_check_labels, .roles = pair_label_roles, .row = pair_contrast, .alone = true};
