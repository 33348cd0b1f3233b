/* mpi/views.c - parts of tensors, and how they travel. */
#include "views.h"
#include <string.h>

static void point(view *v) { v->t.shape = v->shape, v->t.strides = v->strides; }

void mpi_view_part(view *part, const view *v, int32_t axis, int64_t first, int64_t count) {
  *part = *v;
  point(part);
  part->shape[axis] = count;
  part->t.byte_offset += (uint64_t)(first * v->strides[axis] * (v->t.dtype.bits / 8));
}

void mpi_view_packed(view *v, void *data, smx_dtype dtype, const int64_t *shape) {
  int64_t step = 1;
  memset(v, 0, sizeof *v);
  for (int d = 3; d >= 0; step *= shape[d--]) v->shape[d] = shape[d], v->strides[d] = step;
  v->t = (smx_tensor){.data = data, .device = {1, 0}, .ndim = 4, .dtype = dtype};
  point(v);
}

int64_t mpi_view_bytes(const view *v) {
  return v->shape[0] * v->shape[1] * v->shape[2] * v->shape[3] * (v->t.dtype.bits / 8);
}

const smx_tensor *mpi_view_tensor(view *v, int32_t ndim) {
  if (!v->t.data) return NULL;
  point(v);
  v->t.ndim = ndim;
  return &v->t;
}

/* Its elements at the addresses where they are: a type of MPI_BOTTOM. */
static int type_of(const view *v, MPI_Datatype *type) {
  const int bytes = v->t.dtype.bits / 8;
  MPI_Datatype inner;
  MPI_Aint at;
  int one = 1, code = MPI_Type_contiguous(bytes, MPI_BYTE, &inner);
  for (int d = 3; d >= 0 && code == MPI_SUCCESS; d--) {
    MPI_Datatype outer;
    code = MPI_Type_create_hvector((int)v->shape[d], 1, (MPI_Aint)(v->strides[d] * bytes), inner, &outer);
    MPI_Type_free(&inner);
    inner = outer;
  }
  if (code == MPI_SUCCESS) code = MPI_Get_address((char *)v->t.data + v->t.byte_offset, &at);
  if (code == MPI_SUCCESS) code = MPI_Type_create_hindexed(1, &one, &at, inner, type);
  if (code == MPI_SUCCESS) code = MPI_Type_commit(type);
  if (code == MPI_SUCCESS) MPI_Type_free(&inner);
  return code;
}
static bool travels(const view *v) { return v->t.data && mpi_view_bytes(v) > 0; }

smx_status mpi_exchange(const mpi_call *c, const view *sent, const view *come) {
  int *const out = c->numbers, *const in = out + c->ranks, *const nowhere = in + c->ranks;
  MPI_Datatype *const types = c->types, *const others = types + c->ranks;
  int code = MPI_SUCCESS, made = 0;
  for (; made < c->ranks && code == MPI_SUCCESS; made++) {
    const view *const s = sent + made, *const r = come + made;
    types[made] = others[made] = MPI_BYTE;
    out[made] = travels(s), in[made] = travels(r), nowhere[made] = 0;
    if (out[made]) code = type_of(s, types + made);
    if (in[made] && code == MPI_SUCCESS) code = type_of(r, others + made);
  }
  if (code == MPI_SUCCESS)
    code = MPI_Alltoallw(MPI_BOTTOM, out, nowhere, types, MPI_BOTTOM, in, nowhere, others, c->comm);
  for (int r = 0; r < made; r++) {
    if (types[r] != MPI_BYTE) MPI_Type_free(types + r);
    if (others[r] != MPI_BYTE) MPI_Type_free(others + r);
  }
  return mpi_status(code, "Alltoallw");
}

smx_status mpi_share(const mpi_call *c, const view *v, int r) {
  MPI_Datatype type;
  if (!travels(v)) return SMX_OK;
  int code = type_of(v, &type);
  if (code == MPI_SUCCESS) {
    code = MPI_Bcast(MPI_BOTTOM, 1, type, r, c->comm);
    MPI_Type_free(&type);
  }
  return mpi_status(code, "Bcast");
}
