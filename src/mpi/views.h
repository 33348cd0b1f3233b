/* mpi/views.h - parts of tensors that travel. */
#ifndef SMX_MPI_VIEWS_H
#define SMX_MPI_VIEWS_H
#include "call.h"

/* A tensor, or a part of one, with four axes. t.data NULL: there is none. */
typedef struct view {
  smx_tensor t;
  int64_t shape[4], strides[4];
} view;

/* `count` of an axis, from `first` on. */
void mpi_view_part(view *part, const view *v, int32_t axis, int64_t first, int64_t count);
/* Packed elements. */
void mpi_view_packed(view *v, void *data, smx_dtype dtype, const int64_t *shape);
int64_t mpi_view_bytes(const view *v);
/* The tensor of the first ndim axes, or NULL. */
const smx_tensor *mpi_view_tensor(view *v, int32_t ndim);

/* Collective. For each rank r what this rank sends to it and what comes from it. */
smx_status mpi_exchange(const mpi_call *c, const view *sent, const view *come);
/* Collective. From rank r to all others, in place. */
smx_status mpi_share(const mpi_call *c, const view *v, int r);

#endif
