/* head/functions_layer.c - see functions_layer.h. */
#include "functions_layer.h"

#include <string.h>

smx_status head_run(const tensor_call *c, smx_context *ctx, const head_layer *l, const head_pass *p) {
  const smx_op *const op = smx_op_find(p->op);
  const smx_dtype real = c->is_f64 ? SMX_F64 : SMX_F32;
  int64_t hs[] = {l->n, l->d}, ws[] = {l->c, l->d}, ys[] = {l->n, l->c}, step[] = {p->pitch, 1},
          dy_step[] = {p->dy_pitch, 1};
  const int32_t ndim = p->target || p->single ? 1 : 2;
  const smx_tensor h = smx_tensor_of(l->h, real, 2, hs, NULL), w = smx_tensor_of(l->w, real, 2, ws, NULL),
                   b = smx_tensor_of(l->bias, real, 1, ws, NULL),
                   dh = smx_tensor_of(l->dh, real, 2, hs, NULL), dw = smx_tensor_of(l->dw, real, 2, ws, NULL),
                   db = smx_tensor_of(l->dbias, real, 1, ws, NULL),
                   t = smx_tensor_of(p->target, SMX_I64, 1, hs, NULL),
                   y = smx_tensor_of(p->y, real, ndim, ys, ndim == 1 ? NULL : step),
                   lse = smx_tensor_of(p->lse, real, 1, ys, NULL),
                   dy = smx_tensor_of(p->dy, real, ndim, ys, ndim == 1 ? NULL : dy_step);
  const smx_linear linear = {.size = sizeof linear,
                             .h = &h,
                             .w = &w,
                             .bias = l->bias ? &b : NULL,
                             .scale = l->scale,
                             .keep_bytes = head_keep(c),
                             .dh = l->dh ? &dh : NULL,
                             .dw = l->dw ? &dw : NULL,
                             .dbias = l->dbias ? &db : NULL};
  const smx_tensor *const in[] = {NULL, &t}, *const out[] = {&y, NULL, &lse}, *const up[] = {&dy};
  const int32_t n_in = p->target ? 2 : 0;
  smx_params params;
  head_shared_params(c, op, &params);
  if (p->target) smx_params_set(op, &params, "ignore_index", -1);
  else if (!strcmp(p->op, "softcap")) smx_params_set(op, &params, "cap", __builtin_inf());
  if (!p->dy) return smx_linear_forward(op, ctx, &params, &linear, n_in, in, p->lse ? 3 : 1, out);
  if (!l->dh && !l->dw && !l->dbias) return SMX_OK;
  return smx_linear_backward(op, ctx, &params, &linear, n_in, in, 1, p->y ? out : NULL, up, NULL);
}
