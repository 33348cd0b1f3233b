/* mpi_keys.c - proves that attention whose keys lie on ranks, and its gradient, has the bytes of
 * one process: for kinds whose states can be merged and for others, with all that hides or moves
 * scores, for cuts at and between the keys of a state, and where ranks have none; and that
 * errors of one rank are those of all. */
#include <math.h>
#include <softmax/attention.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "mpi.h"
#include "util.h"

enum { B = 2, H = 6, KV = 2, N = 5300, D = 8, E = 12, CUTS = 4, WAYS = 10 };

typedef struct tensor {
  smx_tensor t;
  int64_t shape[4];
} tensor;

static void make(tensor *x, smx_dtype dtype, int32_t ndim, const int64_t *shape) {
  int64_t elements = 1;
  for (int d = 0; d < ndim; d++) x->shape[d] = shape[d], elements *= shape[d];
  x->t = (smx_tensor){.device = {1, 0}, .ndim = ndim, .dtype = dtype, .shape = x->shape};
  x->t.data = calloc((size_t)elements + 1, dtype.bits / 8u);
  CHECK(x->t.data, "no memory");
}
static int64_t elements_of(const tensor *x) {
  int64_t n = 1;
  for (int d = 0; d < x->t.ndim; d++) n *= x->shape[d];
  return n;
}
static void fill(tensor *x, rng *g) {
  for (int64_t i = 0; i < elements_of(x); i++) {
    if (x->t.dtype.bits == 8) ((uint8_t *)x->t.data)[i] = rng_below(g, 4) != 0;
    else if (x->t.dtype.bits == 16)
      ((uint16_t *)x->t.data)[i] = (uint16_t)(0x3f00 + rng_below(g, 256) + 0x8000 * rng_below(g, 2));
    else ((float *)x->t.data)[i] = (float)rng_normal(g);
  }
}
/* Keys first .. first + own - 1 of axis `axis`. */
static void shard(tensor *part, const tensor *x, int axis, int64_t first, int64_t own) {
  const size_t bytes = x->t.dtype.bits / 8u;
  int64_t shape[4], outer = 1, inner = 1;
  memcpy(shape, x->shape, sizeof shape);
  shape[axis] = own;
  make(part, x->t.dtype, x->t.ndim, shape);
  for (int d = 0; d < axis; d++) outer *= x->shape[d];
  for (int d = axis + 1; d < x->t.ndim; d++) inner *= x->shape[d];
  for (int64_t i = 0; i < outer; i++)
    memcpy((char *)part->t.data + (size_t)(i * own * inner) * bytes,
           (const char *)x->t.data + (size_t)((i * x->shape[axis] + first) * inner) * bytes,
           (size_t)(own * inner) * bytes);
}
static bool same(const tensor *a, const tensor *b) {
  return !memcmp(a->t.data, b->t.data, (size_t)elements_of(a) * (a->t.dtype.bits / 8u));
}

/* At multiples of 1024, anywhere, all on the last rank, and states on all but one. */
static int64_t begin(int cut, int r) {
  const int64_t even = (int64_t)N * r / count;
  if (r == count) return N;
  return cut == 0 ? even / 1024 * 1024 : cut == 1 ? even : cut == 2 ? 0 : r ? 2048 + even / 2048 * 1024 : 0;
}

typedef struct tensors {
  tensor q, k, v, d_o, d_lse, mask, bias, slopes, sinks, lengths, streams;
} tensors;

static void inputs(tensors *x, smx_dtype dtype, int way) {
  const int64_t lq = way == 3 ? 300 : 5; /* more than go at a time */
  rng g = {(uint64_t)way};
  make(&x->q, dtype, 4, (int64_t[]){B, H, lq, D}), make(&x->k, dtype, 4, (int64_t[]){B, KV, N, D});
  make(&x->v, dtype, 4, (int64_t[]){B, KV, N, E}), make(&x->d_o, dtype, 4, (int64_t[]){B, H, lq, E});
  make(&x->d_lse, SMX_F32, 3, (int64_t[]){B, H, lq});
  make(&x->mask, SMX_BOOL, 4, way % 2 ? (int64_t[]){B, 1, lq, N} : (int64_t[]){B, H, 1, 1});
  make(&x->bias, SMX_F32, way % 2 ? 4 : 2, way % 2 ? (int64_t[]){1, H, lq, N} : (int64_t[]){lq, N});
  make(&x->slopes, SMX_F32, 1, (int64_t[]){H}), make(&x->sinks, SMX_F32, 2, (int64_t[]){B, H});
  make(&x->lengths, SMX_I32, 1, (int64_t[]){B}), make(&x->streams, SMX_I32, 1, (int64_t[]){B});
  tensor *const all[] = {&x->q, &x->k, &x->v, &x->d_o, &x->d_lse, &x->mask, &x->bias, &x->slopes, &x->sinks};
  for (size_t i = 0; i < COUNT_OF(all); i++) fill(all[i], &g);
  for (int b = 0; b < B; b++)
    ((int32_t *)x->lengths.t.data)[b] = N - 700 * b, ((int32_t *)x->streams.t.data)[b] = 50 + 9 * b;
}

static void options_of(smx_attention_options *o, const tensors *x, int way) {
  static const smx_attention_weights kinds[] = {SMX_ATTENTION_SOFTMAX, SMX_ATTENTION_SSMAX,
                                                SMX_ATTENTION_SIGMOID, SMX_ATTENTION_RELU,
                                                SMX_ATTENTION_SOFTMAX_N};
  smx_attention_init(o);
  CHECK(!smx_attention_set_weights(o, kinds[way % 5]), "%s", smx_last_error());
  o->causal = way % 3 == 1;
  if (way % 4 == 2) o->window_left = 2500, o->window_right = 10;
  if (way % 4 == 1) o->softcap = 3;
  if (way % 3 != 1) o->mask = &x->mask.t;
  if (way % 3 == 2) o->bias = &x->bias.t;
  if (way % 2) o->slopes = &x->slopes.t;
  if (way % 5 == 0) o->sinks = &x->sinks.t;
  if (way == 5) o->lengths = &x->lengths.t;
  if (way > 6) o->dropout = 0.25, o->seed = 77, o->stream = 1000;
  if (way == 8) o->streams = &x->streams.t;
  if (way == 9) o->query_start = 4000;
}

static void one(int way, int cut, smx_dtype dtype) {
  tensors x;
  tensor k, v, mask, bias, o[2], lse[2], dq[2], dk[3], dv[3];
  smx_attention_options options;
  const int64_t first = begin(cut, me), own = begin(cut, me + 1) - first;
  inputs(&x, dtype, way);
  options_of(&options, &x, way);
  for (int i = 0; i < 2; i++) {
    make(o + i, dtype, 4, x.d_o.shape), make(lse + i, SMX_F32, 3, x.d_lse.shape);
    make(dq + i, dtype, 4, x.q.shape);
  }
  shard(&k, &x.k, 2, first, own), shard(&v, &x.v, 2, first, own);
  make(dk, dtype, 4, x.k.shape), make(dv, dtype, 4, x.v.shape);
  make(dk + 1, dtype, 4, k.shape), make(dv + 1, dtype, 4, v.shape);
  CHECK(!smx_attention(NULL, &options, &x.q.t, &x.k.t, &x.v.t, &o[0].t, &lse[0].t), "%s", smx_last_error());
  CHECK(!smx_attention_backward(NULL, &options, &x.q.t, &x.k.t, &x.v.t, &o[0].t, &lse[0].t, &x.d_o.t,
                                &x.d_lse.t, &dq[0].t, &dk[0].t, &dv[0].t),
        "%s", smx_last_error());
  shard(&mask, &x.mask, 3, way % 2 ? first : 0, way % 2 ? own : 1);
  shard(&bias, &x.bias, x.bias.t.ndim - 1, first, own);
  if (options.mask) options.mask = &mask.t;
  if (options.bias) options.bias = &bias.t;
  CHECK(!smx_mpi_attention(MPI_COMM_WORLD, NULL, &options, &x.q.t, &k.t, &v.t, &o[1].t, &lse[1].t, N, first),
        "way %d, cut %d: %s", way, cut, smx_last_error());
  CHECK(same(o, o + 1) && same(lse, lse + 1), "way %d, cut %d: results differ", way, cut);
  CHECK(!smx_mpi_attention_backward(MPI_COMM_WORLD, NULL, &options, &x.q.t, &k.t, &v.t, &o[1].t, &lse[1].t,
                                    &x.d_o.t, &x.d_lse.t, &dq[1].t, &dk[1].t, &dv[1].t, N, first),
        "way %d, cut %d: %s", way, cut, smx_last_error());
  shard(dk + 2, dk, 2, first, own), shard(dv + 2, dv, 2, first, own);
  CHECK(same(dq, dq + 1), "way %d, cut %d: gradients of queries differ", way, cut);
  CHECK(same(dk + 1, dk + 2) && same(dv + 1, dv + 2), "way %d, cut %d: gradients of keys differ", way, cut);
  const tensor *const all[] = {&x.q,      &x.k,     &x.v,   &x.d_o, &x.d_lse,   &x.mask,    &x.bias,
                               &x.slopes, &x.sinks, &k,     &v,     &x.lengths, &x.streams, &mask,
                               &bias,     o,        o + 1,  lse,    lse + 1,    dq,         dq + 1,
                               dk,        dk + 1,   dk + 2, dv,     dv + 1,     dv + 2};
  for (size_t i = 0; i < COUNT_OF(all); i++) free(all[i]->t.data);
}

static void refused(void) {
  tensor q, k, o;
  smx_attention_options options;
  make(&q, SMX_F32, 4, (int64_t[]){1, 2, 1, 4}), make(&k, SMX_F32, 4, (int64_t[]){1, 1, 10, 4});
  make(&o, SMX_F32, 4, (int64_t[]){1, 2, 1, 4});
  ((float *)o.t.data)[0] = 7;
  for (int bad = 0; bad < count; bad++)
    for (int fault = 0; fault < 6; fault++) {
      const bool mine = me == bad;
      tensor v = k, q2 = q;
      smx_attention_init(&options);
      v.t.shape = v.shape, q2.t.shape = q2.shape;
      if (fault == 0 && mine) v.shape[2] = 9;
      if (fault == 1 && mine) options.size = 3;
      if (fault == 2 && mine) options.key_offsets = &q.t;
      if (fault == 3) v.t.dtype = SMX_I32; /* found by the parts of the call */
      const int64_t first = 10 * me + (fault == 4 && mine);
      const smx_status want = (const smx_status[]){SMX_ERR_SHAPE, SMX_ERR_STRUCT, SMX_ERR_PARAM,
                                                   SMX_ERR_DTYPE, SMX_ERR_SHAPE,  SMX_ERR_NULL}[fault];
      const smx_status got =
          smx_mpi_attention(MPI_COMM_WORLD, NULL, &options, fault == 5 && mine ? NULL : &q2.t, &k.t, &v.t,
                            &o.t, NULL, 10 * count, first);
      CHECK(got == want && *smx_last_error(), "fault %d of rank %d: status %d, not %d: %s", fault, bad, got,
            want, smx_last_error());
      CHECK(((float *)o.t.data)[0] == 7, "fault %d: something was written", fault);
    }
  free(q.t.data), free(k.t.data), free(o.t.data);
}

void keys(void) {
  for (int way = every > 1; way < WAYS; way += every)
    for (int cut = way / CUTS % every; cut < CUTS; cut += every)
      one(way, cut, (way + cut) % 3 ? SMX_F32 : SMX_BF16);
  refused();
}
