/* fit/functions_eigen.c - see functions_eigen.h. Tasks own rows, or columns, of a matrix, so that
 * each number is made by one chain of operations. */
#include "functions_eigen.h"
#include "driver/merge_sort.h"
#include "functions.h"

enum { ROWS = 16, COLUMNS = 32, LANES = 8, MOST_SWEEPS = 60 };
static const double TINY = 0x1p-52;

/* ---- whitening ---- */

typedef struct factor {
  int64_t n, k;
  double *a, *w;
} factor;

/* Rows below k, less what column k of L has of them. */
static void factor_task(void *arg, int64_t task) {
  const factor *f = arg;
  const int64_t n = f->n, from = f->k + 1 + task * ROWS,
                end = fit_task_end(task, n - f->k - 1, ROWS) + f->k + 1;
  const double *top = f->a + f->k * n;
  for (int64_t i = from; i < end; i++)
    for (int64_t j = i; j < n; j++) f->a[i * n + j] -= top[i] * top[j];
}

/* Some columns of L^-1: w_ij = ([i = j] - sum_k l_ik w_kj) / l_ii, l_ik = a_ki. */
static void inverse_task(void *arg, int64_t task) {
  const factor *f = arg;
  const int64_t n = f->n, from = task * COLUMNS, end = fit_task_end(task, n, COLUMNS);
  for (int64_t i = from; i < n; i++) {
    double *to = f->w + i * n;
    for (int64_t j = from; j < end; j++) to[j] = i == j;
    for (int64_t k = from; k < i; k++) {
      const double l = f->a[k * n + i], *w = f->w + k * n;
      for (int64_t j = from; j < end; j++) to[j] -= l * w[j];
    }
    for (int64_t j = from; j < end; j++) to[j] /= f->a[i * n + i];
  }
}

bool fit_whiten(smx_context *ctx, int64_t n, double *a, double *w) {
  factor f = {.n = n, .a = a, .w = w};
  bool good = true;
  for (int64_t i = 0; i < n; i++) w[i] = a[i * n + i]; /* until w is made */
  for (; f.k < n && good; f.k++) {
    double *top = a + f.k * n, pivot = top[f.k];
    good = pivot > (double)n * TINY * w[f.k] && pivot - pivot == 0;
    pivot = __builtin_sqrt(pivot);
    for (int64_t j = f.k; j < n; j++) top[j] = j == f.k ? pivot : top[j] / pivot;
    smx_parallel(ctx, fit_tasks(n - f.k - 1, ROWS), factor_task, &f);
  }
  for (int64_t i = 0; i < n * n; i++) w[i] = good ? 0 : __builtin_nan("");
  if (good) smx_parallel(ctx, fit_tasks(n, COLUMNS), inverse_task, &f);
  return good;
}

/* ---- eigenvalues ----
 *
 * a = Q T Q^T with Q = H_0 H_1 ..., H = I - t v v^T, and T = S D S^T by rotations of rows next to
 * each other: the eigenvectors are the rows of S^T Q^T. */

typedef struct eigen {
  int64_t n, k;
  double *a, *z;     /* z: the rows that are rotated */
  double *d, *e;     /* the diagonal of T, and beside it */
  double *v, *p;     /* of a reflection: the vector, which stays in row k of a, and t a v */
  double *t;         /* of every reflection */
  double *cos, *sin; /* of a sweep: of rows i and i + 1, from `last` down to `first` */
  int64_t first, last;
} eigen;

static double dot(const double *x, const double *y, int64_t n) {
  double lane[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int l = 0; l < LANES; l++) lane[l] += x[i + l] * y[i + l];
  for (int l = 0; i < n; i++, l++) lane[l] += x[i] * y[i];
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int l = 0; l < half; l++) lane[l] += lane[l + half];
  return lane[0];
}

/* p = t a v, rows behind k */
static void times_task(void *arg, int64_t task) {
  const eigen *x = arg;
  const int64_t n = x->n, from = x->k + 1;
  for (int64_t i = from + task * ROWS; i < from + fit_task_end(task, n - from, ROWS); i++)
    x->p[i] = x->t[x->k] * dot(x->a + i * n + from, x->v + from, n - from);
}
/* a - v p^T - p v^T, rows behind k */
static void update_task(void *arg, int64_t task) {
  const eigen *x = arg;
  const int64_t n = x->n, from = x->k + 1;
  for (int64_t i = from + task * ROWS; i < from + fit_task_end(task, n - from, ROWS); i++)
    for (int64_t j = from; j < n; j++) x->a[i * n + j] -= x->v[i] * x->p[j] + x->p[i] * x->v[j];
}

/* Row k behind the diagonal becomes (e, 0, 0, ...): v = row - e e_1, e = -sgn(first) |row|. */
static void reflect(smx_context *ctx, eigen *x) {
  const int64_t n = x->n, k = x->k, rest = n - k - 1;
  x->v = x->a + k * n;
  double *v = x->v + k + 1;
  const double norm = __builtin_sqrt(dot(v, v, rest));
  x->d[k] = x->v[k], x->t[k] = 0, x->e[k] = v[0];
  if (rest < 2 || norm == __builtin_fabs(v[0])) return;
  x->e[k] = v[0] > 0 ? -norm : norm;
  v[0] -= x->e[k];
  x->t[k] = 2 / dot(v, v, rest);
  smx_parallel(ctx, fit_tasks(rest, ROWS), times_task, x);
  const double by = x->t[k] / 2 * dot(x->p + k + 1, v, rest);
  for (int64_t i = k + 1; i < n; i++) x->p[i] -= by * x->v[i];
  smx_parallel(ctx, fit_tasks(rest, ROWS), update_task, x);
}

/* Rows of Q^T = ... H_1 H_0, from those of I. */
static void vectors_task(void *arg, int64_t task) {
  const eigen *x = arg;
  const int64_t n = x->n;
  for (int64_t i = task * ROWS; i < fit_task_end(task, n, ROWS); i++) {
    double *row = x->z + i * n;
    for (int64_t j = 0; j < n; j++) row[j] = i == j;
    for (int64_t k = n - 2; k >= 0; k--) {
      const double *v = x->a + k * n + k + 1;
      if (x->t[k] == 0) continue;
      const double by = x->t[k] * dot(row + k + 1, v, n - k - 1);
      for (int64_t j = k + 1; j < n; j++) row[j] -= by * v[j - k - 1];
    }
  }
}

/* The rotations of a sweep, in some columns. */
static void rotate_task(void *arg, int64_t task) {
  const eigen *x = arg;
  const int64_t n = x->n, from = task * COLUMNS, end = fit_task_end(task, n, COLUMNS);
  for (int64_t i = x->last; i >= x->first; i--) {
    double *a = x->z + i * n, *b = a + n;
    const double c = x->cos[i], s = x->sin[i];
    for (int64_t j = from; j < end; j++) {
      const double low = a[j], high = b[j];
      a[j] = c * low - s * high, b[j] = s * low + c * high;
    }
  }
}

/* One sweep from m up to l with the shift of the 2 x 2 matrix at l. */
static void sweep(smx_context *ctx, eigen *x, int64_t l, int64_t m) {
  double *d = x->d, *e = x->e, c = 1, s = 1, p = 0, r;
  double g = (d[l + 1] - d[l]) / (2 * e[l]);
  r = __builtin_sqrt(g * g + 1);
  g = d[m] - d[l] + e[l] / (g + (g < 0 ? -r : r));
  x->last = m - 1, x->first = l;
  for (int64_t i = m - 1; i >= l; i--) {
    const double f = s * e[i], b = c * e[i];
    r = e[i + 1] = __builtin_sqrt(f * f + g * g);
    if (r == 0) {
      d[i + 1] -= p, e[m] = 0, x->first = i + 1;
      break;
    }
    s = f / r, c = g / r;
    g = d[i + 1] - p;
    r = (d[i] - g) * s + 2 * c * b;
    p = s * r, d[i + 1] = g + p, g = c * r - b;
    x->cos[i] = c, x->sin[i] = s;
  }
  if (x->first == l) d[l] -= p, e[l] = g, e[m] = 0;
  smx_parallel(ctx, fit_tasks(x->n, COLUMNS), rotate_task, x);
}

static bool is_larger(const void *arg, int64_t a, int64_t b) {
  const double *d = arg;
  return d[a] > d[b];
}

/* Values and rows in order, back where the matrix was. */
static void in_order(const eigen *x, double *values, double scale) {
  const int64_t n = x->n;
  int64_t *order = (int64_t *)(void *)x->cos, *spare = (int64_t *)(void *)x->sin;
  for (int64_t i = 0; i < n; i++) order[i] = i;
  order = smx_merge_sort(order, spare, n, is_larger, x->d);
  for (int64_t i = 0; i < n; i++) {
    values[i] = x->d[order[i]] * scale;
    memcpy(x->a + i * n, x->z + order[i] * n, (size_t)n * sizeof *x->a);
  }
}

/* By a power of two to numbers within 1, so that squares are far from the ends; 0: not finite. */
static double scale_of(const double *a, int64_t count) {
  double most = 0, scale = 1;
  for (int64_t i = 0; i < count; i++) {
    const double size = __builtin_fabs(a[i]);
    if (size - size != 0) return 0;
    most = size > most ? size : most;
  }
  while (scale < most) scale *= 2;
  while (most > 0 && scale / 2 >= most) scale /= 2;
  return scale;
}

bool fit_eigen(smx_context *ctx, int64_t n, double *a, double *values, double *room) {
  eigen x = {.n = n, .a = a, .z = room, .d = room + n * n};
  const double scale = scale_of(a, n * n);
  x.e = x.d + n, x.p = x.e + n, x.t = x.p + n, x.cos = x.t + n, x.sin = x.cos + n;
  for (int64_t i = 0; i < n && scale == 0; i++) values[i] = __builtin_nan("");
  if (scale == 0 || n == 0) return n == 0;
  for (int64_t i = 0; i < n * n; i++) a[i] /= scale;
  for (; x.k < n - 1; x.k++) reflect(ctx, &x);
  x.d[n - 1] = a[n * n - 1], x.e[n - 1] = 0;
  smx_parallel(ctx, fit_tasks(n, ROWS), vectors_task, &x);
  for (int64_t l = 0; l < n; l++)
    for (int turn = 0; turn < MOST_SWEEPS; turn++) {
      int64_t m = l;
      while (m < n - 1 &&
             __builtin_fabs(x.e[m]) > TINY * (__builtin_fabs(x.d[m]) + __builtin_fabs(x.d[m + 1])))
        m++;
      if (m == l) break;
      sweep(ctx, &x, l, m);
    }
  in_order(&x, values, scale);
  return true;
}
