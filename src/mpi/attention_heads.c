/* mpi/attention_heads.c - attention of which keys travel: the ranks take turns at the key heads,
 * each gets all keys of its head with what else is cut along keys, calls smx_attention or its
 * gradient for the queries of that head, and gives back gradients of keys and results of
 * queries. */
#include "attention.h"
#include <softmax/attention.h>
#include <stdlib.h>
#include <string.h>

typedef struct by_heads {
  attention *a;
  char *room[TENSORS]; /* all keys of a head, of tensors that are cut */
  int64_t *streams;    /* of dropout, for each sequence */
  view *sent, *come;
} by_heads;

/* The heads of a tensor that go with key head g. */
static void head_part(const attention *a, int t, int64_t g, view *part) {
  const int64_t group = mpi_tensor_facts[t].of_key_heads ? 1 : a->heads / a->key_heads;
  mpi_attention_part(part, t, a->tensor + t, 1, g * group, group);
}

/* The same, with the keys of all ranks in room. */
static void whole_part(const by_heads *w, int t, int64_t g, view *whole) {
  const attention *const a = w->a;
  view part;
  head_part(a, t, g, &part);
  *whole = part;
  if (!a->cut[t]) return;
  int64_t shape[4];
  memcpy(shape, part.shape, sizeof shape);
  shape[mpi_tensor_facts[t].keys] = a->c->n;
  mpi_view_packed(whole, w->room[t], part.t.dtype, shape);
}

static smx_status reserve(by_heads *w) {
  const attention *const a = w->a;
  const size_t ranks = (size_t)a->c->ranks;
  bool good = (w->sent = malloc(2 * ranks * sizeof *w->sent)) != NULL;
  good = (w->streams = malloc((size_t)a->batch * sizeof *w->streams + 1)) != NULL && good;
  w->come = w->sent + ranks;
  for (int t = 0; t < TENSORS && a->c->me < a->key_heads; t++) {
    view whole;
    if (!a->cut[t]) continue;
    whole_part(w, t, 0, &whole);
    int64_t bytes = whole.t.dtype.bits / 8;
    for (int d = 0; d < 4; d++)
      if (__builtin_mul_overflow(bytes, whole.shape[d], &bytes))
        return smx_set_error(SMX_ERR_SHAPE, "smx_mpi_attention: the keys of a head overflow");
    good = (w->room[t] = malloc((size_t)bytes + 1)) != NULL && good;
  }
  return good ? SMX_OK : smx_set_error(SMX_ERR_NOMEM, "smx_mpi_attention: no memory for the keys of a head");
}

/* A tensor that is cut, to the ranks of the key heads from g on, or back from there. */
static smx_status redistribute(by_heads *w, int t, int64_t g, bool back) {
  const attention *const a = w->a;
  const mpi_call *const c = a->c;
  const int32_t keys = mpi_tensor_facts[t].keys;
  view whole;
  memset(w->sent, 0, 2 * (size_t)c->ranks * sizeof *w->sent);
  if (g + c->me < a->key_heads) whole_part(w, t, g + c->me, &whole);
  for (int r = 0; r < c->ranks; r++) {
    if (g + r < a->key_heads) head_part(a, t, g + r, w->sent + r);
    if (g + c->me < a->key_heads)
      mpi_view_part(w->come + r, &whole, keys, c->bounds[r], c->bounds[r + 1] - c->bounds[r]);
  }
  return back ? mpi_exchange(c, w->come, w->sent) : mpi_exchange(c, w->sent, w->come);
}

/* stream + b heads + h, or streams[b] + h, where heads begin at that of key head g. */
static smx_status streams_of(by_heads *w, int64_t g, smx_tensor *t, int64_t *shape) {
  const attention *const a = w->a;
  const smx_tensor *const given = a->options.streams;
  const int64_t head = g * (a->heads / a->key_heads);
  for (int64_t b = 0; b < a->batch; b++)
    w->streams[b] = (int64_t)(a->options.stream + (uint64_t)(b * a->heads + head));
  if (given && given->ndim == 1 && given->data && given->shape[0] == a->batch && given->dtype.code == 0 &&
      (given->dtype.bits == 32 || given->dtype.bits == 64)) {
    const int64_t step = given->strides ? given->strides[0] : 1;
    const char *const at = (const char *)given->data + given->byte_offset;
    for (int64_t b = 0; b < a->batch; b++)
      w->streams[b] = head + (given->dtype.bits == 64 ? ((const int64_t *)(const void *)at)[b * step]
                                                      : ((const int32_t *)(const void *)at)[b * step]);
  } else if (given) {
    return smx_set_error(SMX_ERR_SHAPE, "smx_mpi_attention: streams is not [B] of i32 or i64");
  }
  *shape = a->batch;
  *t = mpi_tensor(w->streams, SMX_I64, 1, shape);
  return SMX_OK;
}

/* This rank's key head. */
static smx_status one_head(by_heads *w, int64_t g) {
  const attention *const a = w->a;
  view p[TENSORS];
  smx_tensor streams;
  int64_t shape;
  for (int t = 0; t < TENSORS; t++) {
    p[t] = a->tensor[t];
    if (p[t].t.data) whole_part(w, t, g, p + t);
  }
  smx_attention_options o = mpi_attention_options(a, p);
  const smx_status status = streams_of(w, g, &streams, &shape);
  if (status != SMX_OK) return status;
  if (o.dropout > 0) o.streams = &streams;
  const smx_tensor *const q = mpi_view_tensor(p + Q, 4), *const k = mpi_view_tensor(p + K, 4),
                          *const v = mpi_view_tensor(p + V, 4), *const r = mpi_view_tensor(p + O, 4),
                          *const lse = mpi_view_tensor(p + LSE, 3);
  if (!a->backward) return smx_attention(a->c->ctx, &o, q, k, v, r, lse);
  return smx_attention_backward(a->c->ctx, &o, q, k, v, r, lse, mpi_view_tensor(p + D_O, 4),
                                mpi_view_tensor(p + D_LSE, 3), mpi_view_tensor(p + DQ, 4),
                                mpi_view_tensor(p + DK, 4), mpi_view_tensor(p + DV, 4));
}

static bool written(const attention *a, int t) {
  return a->backward ? t == DQ || t == DK || t == DV : t == O || t == LSE;
}

static smx_status some_heads(by_heads *w, int64_t g) {
  const attention *const a = w->a;
  const mpi_call *const c = a->c;
  smx_status status = SMX_OK;
  for (int t = 0; t < TENSORS && status == SMX_OK; t++)
    if (a->cut[t] && !written(a, t)) status = redistribute(w, t, g, false);
  if (status == SMX_OK) status = mpi_agree(c, g + c->me < a->key_heads ? one_head(w, g + c->me) : SMX_OK);
  for (int t = 0; t < TENSORS && status == SMX_OK; t++) {
    if (!written(a, t) || !a->tensor[t].t.data) continue;
    if (a->cut[t]) status = redistribute(w, t, g, true);
    for (int r = 0; !a->cut[t] && r < c->ranks && g + r < a->key_heads && status == SMX_OK; r++) {
      view part;
      head_part(a, t, g + r, &part);
      status = mpi_share(c, &part, r);
    }
  }
  return status;
}

smx_status mpi_attention_by_heads(attention *a) {
  by_heads w = {.a = a};
  smx_status status = mpi_agree(a->c, reserve(&w));
  for (int64_t g = 0; g < a->key_heads && status == SMX_OK; g += a->c->ranks) status = some_heads(&w, g);
  for (int t = 0; t < TENSORS; t++) free(w.room[t]);
  free(w.streams), free(w.sent);
  return status;
}
