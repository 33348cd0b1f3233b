/* pool/functions_forms.h - outputs whose windows have the same form, as kernels take them. */
#ifndef SMX_POOL_FUNCTIONS_FORMS_H
#define SMX_POOL_FUNCTIONS_FORMS_H
#include "functions_window.h"
#include "pool.h"

/* Rows first..end-1 of the outputs of some images: an image is `channels` planes by channel, or one
 * plane. lines: windows one by one, not neighbours of a row side by side. */
typedef struct pool_rows {
  int64_t image, images, first, end;
  bool lines;
} pool_rows;

/* All outputs as tasks: some rows of an image, or some images that are small. */
int64_t pool_task_count(const pool_shape *s);
pool_rows pool_rows_of_task(const pool_shape *s, int64_t task);

/* x, y: the numbers of the first cell that is there, and of the first output. */
typedef void pool_form_fn(void *arg, const pool_windows *w, int64_t x, int64_t y);

/* Calls f for all of them; w has everything but a divisor. */
void pool_each_form(const pool_shape *s, const pool_rows *r, pool_form_fn *f, void *arg);

#endif
