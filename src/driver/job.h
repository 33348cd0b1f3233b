/* driver/job.h - a checked call, as the driver runs it. */
#ifndef SMX_DRIVER_JOB_H
#define SMX_DRIVER_JOB_H
#include "base/base.h"
#include "cpu/cpu.h"

/* One buffer of a call. outer: its strides over the rows' dimensions; bytes of an element, strides
 * in elements. */
typedef struct job_port {
  char *data;                /* NULL = absent, or computed and discarded */
  bool present, full, whole; /* full: as long as the row; whole: of whole numbers */
  bool same, direct;         /* same: has the dtype that kernels use; direct: kernels can use it in place */
  row_store store;
  int64_t length; /* elements of a row: n, 1 or k */
  int64_t bytes, axis, outer[SMX_MAX_DIMS];
} job_port;

/* A kernel without a row program gets whole rows, and that many scratch rows as further FULL
 * outputs: the last ones of dst. */
enum { SMX_WHOLE_SCRATCH = 4 };

/* Runs a job whose x, and with a gradient dst[0], is not in memory as a whole, by jobs on parts of
 * its rows; as job_run. */
typedef struct job job;
typedef struct job_source {
  smx_status (*run)(const struct job_source *self, const job *j, int64_t *empty);
} job_source;

struct job {
  const job_source *source; /* of x; NULL: memory */
  const row_kernel *kernel;
  const dtype_io *io;
  smx_context *ctx;
  bool is_f64; /* the real type is double */
  bool plain;  /* part of another job: on this thread, and not in strips */
  int64_t n, rows;
  int32_t dims; /* of the rows */
  int64_t dim[SMX_MAX_DIMS];
  size_t list, work;         /* row_pair's */
  int in_place;              /* which src the operator can overwrite with dst[0] */
  const job_port *offsets;   /* segments: where they start, or NULL */
  int64_t segments, segment; /* segment: the one that SMX_ERR_EMPTY is about */
  row_call call;             /* parameters and policies */
  job_port src[ROW_SRC], dst[ROW_DST];
};

/* What kernels ask for beside the rows, before all else of a thread's memory. */
static inline size_t smx_job_list(const job *j) { return smx_whole_lines(j->list * sizeof(double)); }
static inline size_t smx_job_own(const job *j) { return smx_job_list(j) + smx_whole_lines(j->work); }
/* Hands it to a call; returns what is behind. */
static inline char *smx_job_lend(const job *j, char *memory, row_call *c) {
  c->list = j->list ? (double *)(void *)memory : NULL;
  c->work = j->work ? memory + smx_job_list(j) : NULL;
  return memory ? memory + smx_job_own(j) : NULL;
}

/* Tells the call which ports there are, and joins dimensions of the rows that every port walks as
 * one, so that there is one or more. */
void job_prepare(job *j);
/* Chooses the stores that write the output. strips, half: the kernel writes what is no direct
 * port. */
void job_stores(job *j, bool strips, bool half);

/* Runs the job. SMX_ERR_NOMEM, or SMX_ERR_EMPTY with the row in *empty. */
smx_status job_run(job *j, int64_t *empty);

#endif
