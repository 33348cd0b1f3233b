/* engine/dtype_io.h - conversions between dtypes and the real type, as the driver calls them. */
#ifndef SMX_ENGINE_DTYPE_IO_H
#define SMX_ENGINE_DTYPE_IO_H
#include "program.h"
#include "vec.h"

/* n elements, `stride` apart, to or from contiguous ones of the real type. */
#define dtype_load SMX_FN(dtype_load)
#define dtype_store SMX_FN(dtype_store)
void dtype_load(row_store type, const void *src, ptrdiff_t stride, size_t n, void *dst);
void dtype_store(row_store type, const void *src, size_t n, void *dst, ptrdiff_t stride);

#endif
