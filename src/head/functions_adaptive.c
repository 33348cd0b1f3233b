/* head/functions_adaptive.c - adaptive_softmax, adaptive_log_softmax: classes by falling frequency,
 * the rare ones in clusters (Grave et al. 2017). The head is a layer of the frequent classes and a
 * row for each cluster; classes of a cluster are a layer of a narrow projection of h:
 *
 *   log p(y) = head_y, or head_(words + i) + log_softmax(h P_i^T W_i^T)_y   for y in cluster i
 *
 * All products are those of smx_linear_forward. Rows whose target is in a cluster are brought
 * together for its layers, in their order. A row whose head, or whose target's cluster, has only
 * logits of -inf is empty as a whole. What is wanted is made in the call's memory, and copied when
 * nothing can go wrong any more. */
#include <string.h>

#include "driver/carve.h"
#include "functions_layer.h"

enum { H, W, PROJECTION, TAIL, CUTOFF, TARGET }; /* inputs; bias and width follow */
enum { GRADS = 4 };                              /* of h, w, projection, tail; then that of bias */
#define INF __builtin_inf()

typedef struct cluster {
  int64_t low, size, width; /* its classes, and the columns of their layer */
  int64_t row, at;          /* its first row of projection, its first number of tail */
} cluster;

typedef struct adaptive {
  const tensor_call *c;
  bool loss, backward;
  int bias_port;
  int64_t n, d, s, p, q, k, classes, words, bytes;
  int64_t widest, largest; /* columns and classes of a cluster */
  int64_t first_empty;     /* the first row of which a layer has only logits of -inf, or n */
  const int64_t *target;
  cluster *cluster;
  int64_t *place, *row, *within; /* rows: of the head's target; those of a cluster, and their class in it */
  double *total, *line;          /* losses [n], or dh [n, d]; a row */
  char *rows, *hidden, *up;      /* of a cluster: h, its projection, one number a row */
  char *head, *dhead;            /* [n, s]: log-probabilities */
  char *y, *part;                /* [n, classes]; [n, largest] */
  char *dhidden, *made[GRADS + 1];
} adaptive;

/* ---- layers ---- */

typedef head_layer layer;
typedef head_pass pass;
static smx_status run(const adaptive *a, const layer *l, const pass *p) {
  return head_run(a->c, a->c->ctx, l, p);
}

static char *data_of(const adaptive *a, int port) { return a->c->in.view[port].data; }
static layer head_of(const adaptive *a) {
  return (layer){.n = a->n,
                 .d = a->d,
                 .c = a->s,
                 .h = data_of(a, H),
                 .w = data_of(a, W),
                 .bias = a->c->in.given[a->bias_port] ? data_of(a, a->bias_port) : NULL};
}
/* The projection of `rows` rows, and the classes of a cluster. */
static layer projection_of(const adaptive *a, const cluster *u, int64_t rows) {
  return (layer){.n = rows,
                 .d = a->d,
                 .c = u->width,
                 .h = a->loss ? a->rows : data_of(a, H),
                 .w = data_of(a, PROJECTION) + u->row * a->d * a->bytes};
}
static layer tail_of(const adaptive *a, const cluster *u, int64_t rows) {
  return (layer){
      .n = rows, .d = u->width, .c = u->size, .h = a->hidden, .w = data_of(a, TAIL) + u->at * a->bytes};
}
static smx_status project(const adaptive *a, const cluster *u, int64_t rows) {
  const layer l = projection_of(a, u, rows);
  return run(a, &l, &(pass){.op = "softcap", .y = a->hidden, .pitch = u->width});
}

/* The rows of a cluster, of which there are so many. */
static int64_t gather(adaptive *a, const cluster *u, int64_t index) {
  const int64_t line = a->d * a->bytes;
  int64_t count = 0;
  for (int64_t i = 0; i < a->n; i++) {
    if (a->place[i] != a->words + index) continue;
    memcpy(a->rows + count * line, data_of(a, H) + i * line, (size_t)line);
    a->row[count] = i, a->within[count++] = a->target[i] - u->low;
  }
  return count;
}

/* total_r += the rows of real numbers, each n long; of a cluster, or all in order. */
static void add_rows(adaptive *a, const char *rows, int64_t count, int64_t n, bool apart) {
  for (int64_t i = 0; i < count; i++) {
    double *const to = a->total + (apart ? a->row[i] : i) * n;
    smx_reals_load(a->c->is_f64, rows + i * n * a->bytes, n, a->line);
    for (int64_t j = 0; j < n; j++) to[j] += a->line[j];
  }
}

/* ---- empty rows ---- */

/* Whether a row has only logits of -inf. The layer is of this row alone: with SMX_EMPTY_ERROR a
 * call of many rows does not say which one it is. */
static smx_status ask_empty(const adaptive *a, layer row, bool *empty) {
  char at[8];
  double sum = 0;
  const smx_status status = run(a, &row, &(pass){.op = "logsumexp", .y = at, .single = true});
  if (status == SMX_OK) smx_reals_load(a->c->is_f64, at, 1, &sum);
  *empty = status == SMX_ERR_EMPTY || sum == -INF;
  return status == SMX_ERR_EMPTY ? SMX_OK : status;
}

static void drop(adaptive *a, int64_t i, bool apart) {
  const int64_t row = apart ? a->row[i] : i;
  if (apart) a->within[i] = -1;
  if (a->loss) a->place[row] = -1;
  if (row < a->first_empty) a->first_empty = row;
}

/* Rows of a layer, or of a cluster, that have only logits of -inf do not count any more. One logit
 * of each says that most are no such rows: that of the first class which no bias of -inf hides. */
static smx_status drop_empty(adaptive *a, const layer *l, bool apart) {
  layer one = *l;
  double x = -INF;
  if (!l->c || !l->n) return SMX_OK;
  for (int64_t j = 0; j < l->c && l->bias && x == -INF; j++) {
    smx_reals_load(a->c->is_f64, l->bias + j * a->bytes, 1, &x);
    if (x != -INF) one.bias += j * a->bytes, one.w += j * l->d * a->bytes;
  }
  one.c = 1;
  smx_status status = run(a, &one, &(pass){.op = "softcap", .y = a->up, .pitch = 1});
  for (int64_t i = 0; i < l->n && status == SMX_OK; i++) {
    bool empty;
    layer row = *l;
    row.n = 1, row.h += i * l->d * a->bytes;
    smx_reals_load(a->c->is_f64, a->up + i * a->bytes, 1, &x);
    if (x != -INF || (a->loss && !apart && a->place[i] < 0)) continue;
    status = ask_empty(a, row, &empty);
    if (status == SMX_OK && empty) drop(a, i, apart);
  }
  return status;
}

static bool on_empty(const adaptive *a, smx_on_empty is) { return smx_context_on_empty(a->c->ctx) == is; }
/* SMX_EMPTY_ERROR: after all layers, so that it is the first row. */
static smx_status report_empty(const adaptive *a, smx_status status) {
  if (status != SMX_OK || a->first_empty == a->n || !on_empty(a, SMX_EMPTY_ERROR)) return status;
  return smx_fail(SMX_ERR_EMPTY, "%s: row %lld has nothing valid", a->c->op->name, (long long)a->first_empty);
}

/* ---- the call ---- */

static smx_status bad(const adaptive *a, const char *what, int64_t is, int64_t wanted) {
  return smx_fail(SMX_ERR_SHAPE, "%s: %s %lld, not %lld", a->c->op->name, what, (long long)is,
                  (long long)wanted);
}

/* The columns of cluster i, as many as `width` or the division says. */
static int64_t width_of(const adaptive *a, int64_t i, double divisor) {
  const int port = a->bias_port + 1;
  const double width = (double)a->d / divisor;
  if (a->c->in.given[port]) return ((const int64_t *)(const void *)data_of(a, port))[i];
  return width < (double)INT32_MAX ? (int64_t)width : INT32_MAX;
}

static smx_status check_cutoffs(const adaptive *a, const int64_t *cut) {
  for (int64_t i = 0; i < a->k; i++) {
    const int64_t least = i ? cut[i - 1] + 1 : 1;
    if (cut[i] < least || cut[i] >= a->classes)
      return smx_fail(SMX_ERR_TARGET, "%s: cutoff: number %lld is %lld, not within %lld..%lld",
                      a->c->op->name, (long long)i, (long long)cut[i], (long long)least,
                      (long long)(a->classes - 1));
  }
  return SMX_OK;
}

static smx_status find_clusters(adaptive *a) {
  const int64_t *const cut = (const int64_t *)(const void *)data_of(a, CUTOFF);
  double divisor = 1;
  int64_t row = 0, at = 0;
  const smx_status status = check_cutoffs(a, cut);
  if (status != SMX_OK) return status;
  for (int64_t i = 0; i < a->k; i++) {
    cluster *const u = a->cluster + i;
    const int64_t end = i + 1 < a->k ? cut[i + 1] : a->classes;
    divisor *= tensor_param(a->c, "div_value");
    *u = (cluster){cut[i], end - cut[i], width_of(a, i, divisor), row, at};
    if (u->width < 0 || u->width > a->p - row)
      return smx_fail(SMX_ERR_SHAPE,
                      "%s: projection: cluster %lld has a width of %lld, but %lld rows are left",
                      a->c->op->name, (long long)i, (long long)u->width, (long long)(a->p - row));
    if (u->size > 0 && u->width > 0 && u->width > (a->q - at) / u->size)
      return smx_fail(SMX_ERR_SHAPE, "%s: tail: %lld numbers are left for the %lld x %lld of cluster %lld",
                      a->c->op->name, (long long)(a->q - at), (long long)u->size, (long long)u->width,
                      (long long)i);
    row += u->width, at += u->size * u->width;
    if (u->width > a->widest) a->widest = u->width;
    if (u->size > a->largest) a->largest = u->size;
  }
  a->words = a->k ? cut[0] : a->classes;
  if (a->s != a->words + a->k)
    return bad(a, "w: the classes before the first cutoff, and clusters, are", a->words + a->k, a->s);
  if (row != a->p) return bad(a, "projection: the widths of clusters sum up to", row, a->p);
  return at == a->q ? SMX_OK : bad(a, "tail: the clusters' weights are", at, a->q);
}

static void divide_rows(adaptive *a, carver *m) {
  const int64_t longest = a->d > 1 ? a->d : 1;
  a->place = carve(m, a->loss ? a->n : 0, 1, sizeof *a->place);
  a->row = carve(m, a->loss ? a->n : 0, 1, sizeof *a->row);
  a->within = carve(m, a->loss ? a->n : 0, 1, sizeof *a->within);
  a->total = carve(m, a->n, a->backward ? a->d : a->loss, sizeof *a->total);
  a->line = carve(m, a->s > longest ? a->s : longest, 1, sizeof *a->line);
  a->rows = carve(m, a->loss ? a->n : 0, a->d, a->bytes);
  a->hidden = carve(m, a->n, a->widest, a->bytes);
  a->up = carve(m, a->n, 1, a->bytes);
}
static void divide(adaptive *a, carver *m) {
  const tensor_ports *const to = &a->c->din;
  const int64_t sizes[GRADS] = {a->n * a->d, a->s * a->d, a->p * a->d, a->q};
  divide_rows(a, m);
  a->head = carve(m, a->loss ? 0 : a->n, a->s, a->bytes);
  a->dhead = carve(m, a->loss || !a->backward ? 0 : a->n, a->s, a->bytes);
  a->y = carve(m, a->loss || a->backward ? 0 : a->n, a->classes, a->bytes);
  a->part = carve(m, a->loss || !a->backward ? 0 : a->n, a->largest, a->bytes);
  a->dhidden = carve(m, a->backward ? a->n : 0, a->widest, a->bytes);
  for (int i = 0; i <= GRADS && a->backward; i++) {
    const bool wanted = to->given[i < GRADS ? i : a->bias_port];
    char *const at = carve(m, !wanted ? 0 : i < GRADS ? sizes[i] : a->s, 1, a->bytes);
    a->made[i] = wanted ? at : NULL;
  }
}

static void place_targets(adaptive *a) {
  const int64_t ignore = (int64_t)tensor_param(a->c, "ignore_index");
  for (int64_t i = 0; i < a->n; i++) {
    int64_t t = a->target[i], in = a->k - 1;
    while (in >= 0 && t < a->cluster[in].low) in--;
    a->place[i] = t == ignore ? -1 : in < 0 ? t : a->words + in;
  }
}

static smx_status open_adaptive(adaptive *a, const tensor_call *c, bool loss, bool backward, char **memory) {
  *a = (adaptive){.c = c, .loss = loss, .backward = backward, .bias_port = loss ? TARGET + 1 : TARGET};
  a->n = a->first_empty = tensor_dim(c, "n"), a->d = tensor_dim(c, "d"), a->s = tensor_dim(c, "s");
  a->p = tensor_dim(c, "p"), a->q = tensor_dim(c, "q"), a->k = tensor_dim(c, "k");
  a->classes = (int64_t)tensor_param(c, "classes"), a->bytes = c->is_f64 ? 8 : 4;
  if (loss) a->target = (const int64_t *)(const void *)data_of(a, TARGET);
  a->cluster = smx_alloc(c->ctx, sizeof *a->cluster * (size_t)(a->k + 1));
  smx_status status =
      a->cluster ? find_clusters(a)
                 : smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld clusters", c->op->name, (long long)a->k);
  carver m = {.fits = true};
  if (status == SMX_OK) divide(a, &m);
  *memory = status == SMX_OK && m.fits ? smx_alloc(c->ctx, (size_t)m.at + 1) : NULL;
  if (*memory) {
    memset(*memory, 0, (size_t)m.at);
    m = (carver){.base = *memory, .fits = true};
    divide(a, &m);
    if (loss) place_targets(a);
  } else if (status == SMX_OK)
    status = smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows", c->op->name, (long long)a->n);
  if (!*memory) smx_free(c->ctx, a->cluster);
  return status;
}
/* A call of a loss or of log-probabilities, forward or backward. */
static smx_status call(const tensor_call *c, bool loss, bool backward, smx_status (*of)(adaptive *)) {
  adaptive a;
  char *memory;
  smx_status status = open_adaptive(&a, c, loss, backward, &memory);
  if (status != SMX_OK) return status;
  status = of(&a);
  smx_free(c->ctx, a.cluster), smx_free(c->ctx, memory);
  return status;
}

/* ---- losses ---- */

static smx_status losses(adaptive *a) {
  const layer head = head_of(a);
  char *const loss = a->up;
  const bool drops = !on_empty(a, SMX_EMPTY_NAN); /* which is what its layers give */
  smx_status status = drops ? drop_empty(a, &head, false) : SMX_OK;
  for (int64_t i = 0; i < a->k && status == SMX_OK; i++) {
    const cluster *const u = a->cluster + i;
    const int64_t count = gather(a, u, i);
    if (!count) continue;
    const layer l = tail_of(a, u, count);
    status = project(a, u, count);
    if (status == SMX_OK && drops) status = drop_empty(a, &l, true);
    if (status == SMX_OK) status = run(a, &l, &(pass){.op = "cross_entropy", .target = a->within, .y = loss});
    if (status == SMX_OK) add_rows(a, loss, count, 1, true);
  }
  if (status == SMX_OK) status = run(a, &head, &(pass){.op = "cross_entropy", .target = a->place, .y = loss});
  if (status == SMX_OK) add_rows(a, loss, a->n, 1, false);
  status = report_empty(a, status);
  if (status == SMX_OK) tensor_store(a->c, a->c->out.view, 0, a->n, a->total);
  return status;
}

smx_status adaptive_forward(const tensor_call *c) { return call(c, true, false, losses); }

/* ---- gradients ---- */

static char *made_at(const adaptive *a, int port, int64_t element) {
  return a->made[port] ? a->made[port] + element * a->bytes : NULL;
}
/* From the upstream gradient of a layer's results to its weights and to the rows that are added
 * to dh. */
static smx_status head_back(adaptive *a, const pass *p) {
  layer l = head_of(a);
  l.dh = a->made[H], l.dw = a->made[W], l.dbias = a->made[GRADS];
  const smx_status status = run(a, &l, p);
  if (status == SMX_OK && l.dh) add_rows(a, l.dh, a->n, a->d, false);
  return status;
}
static smx_status cluster_back(adaptive *a, const cluster *u, int64_t count, const pass *p) {
  layer l = tail_of(a, u, count);
  const bool deeper = a->made[H] || a->made[PROJECTION];
  l.dh = deeper ? a->dhidden : NULL, l.dw = made_at(a, TAIL, u->at);
  smx_status status = run(a, &l, p);
  if (status != SMX_OK || !deeper) return status;
  l = projection_of(a, u, count);
  l.dh = a->made[H], l.dw = made_at(a, PROJECTION, u->row * a->d);
  status = run(a, &l, &(pass){.op = "softcap", .dy = a->dhidden, .dy_pitch = u->width});
  if (status == SMX_OK && l.dh) add_rows(a, l.dh, count, a->d, a->loss);
  return status;
}

static void put_gradients(const adaptive *a) {
  const int64_t sizes[GRADS] = {0, a->s * a->d, a->p * a->d, a->q};
  for (int i = W; i <= GRADS; i++)
    if (a->made[i])
      memcpy(a->c->din.view[i < GRADS ? i : a->bias_port].data, a->made[i],
             (size_t)((i < GRADS ? sizes[i] : a->s) * a->bytes));
  if (a->c->din.given[H]) tensor_store(a->c, a->c->din.view + H, 0, a->n * a->d, a->total);
}

static smx_status loss_gradients(adaptive *a) {
  char *const dloss = a->c->dout.view[0].data;
  const layer head = head_of(a);
  smx_status status = drop_empty(a, &head, false);
  for (int64_t i = 0; i < a->k && status == SMX_OK; i++) {
    const cluster *const u = a->cluster + i;
    const int64_t count = gather(a, u, i);
    if (!count) continue;
    const layer l = tail_of(a, u, count);
    status = project(a, u, count);
    if (status == SMX_OK) status = drop_empty(a, &l, true);
    for (int64_t r = 0; r < count; r++)
      memcpy(a->up + r * a->bytes, dloss + a->row[r] * a->bytes, (size_t)a->bytes);
    const pass p = {.op = "cross_entropy", .target = a->within, .dy = a->up};
    if (status == SMX_OK) status = cluster_back(a, u, count, &p);
  }
  const pass p = {.op = "cross_entropy", .target = a->place, .dy = dloss};
  if (status == SMX_OK) status = head_back(a, &p);
  if (status == SMX_OK) put_gradients(a);
  return status;
}

smx_status adaptive_backward(const tensor_call *c) { return call(c, true, true, loss_gradients); }

/* ---- log-probabilities of all classes ---- */

smx_status adaptive_log_sizes(dims *d) {
  dims_set(d, "c", 0, (int64_t)dims_param(d, "classes", 1));
  return SMX_OK;
}

/* The log-probabilities of a layer, `pitch` numbers apart. */
static smx_status layer_log(adaptive *a, const layer *l, char *y, int64_t pitch) {
  smx_status status = on_empty(a, SMX_EMPTY_ERROR) ? drop_empty(a, l, false) : SMX_OK;
  if (status != SMX_OK || a->first_empty < a->n) return status;
  return run(a, l, &(pass){.op = "log_softmax", .y = y, .pitch = pitch});
}
static smx_status head_log(adaptive *a) {
  const layer l = head_of(a);
  return layer_log(a, &l, a->head, a->s);
}

/* Task: a row, to whose classes in clusters the head's number of the cluster is added. */
static void add_head(void *arg, int64_t row) {
  const adaptive *const a = arg;
  const tensor_call *const c = a->c;
  char *const y = a->y + row * a->classes * a->bytes, *const head = a->head + row * a->s * a->bytes;
  memcpy(y, head, (size_t)(a->words * a->bytes));
  for (int64_t i = 0; i < a->k; i++) {
    const cluster *const u = a->cluster + i;
    double of, x[64];
    smx_reals_load(c->is_f64, head + (a->words + i) * a->bytes, 1, &of);
    for (int64_t j = 0; j < u->size; j += 64) {
      const int64_t count = u->size - j < 64 ? u->size - j : 64;
      char *const at = y + (u->low + j) * a->bytes;
      smx_reals_load(c->is_f64, at, count, x);
      for (int64_t e = 0; e < count; e++) x[e] += of;
      smx_reals_store(c->is_f64, x, count, at);
    }
  }
}

static smx_status logs(adaptive *a) {
  smx_status status = head_log(a);
  for (int64_t i = 0; i < a->k && status == SMX_OK; i++) {
    const cluster *const u = a->cluster + i;
    const layer l = tail_of(a, u, a->n);
    status = project(a, u, a->n);
    if (status == SMX_OK) status = layer_log(a, &l, a->y + u->low * a->bytes, a->classes);
  }
  status = report_empty(a, status);
  if (status != SMX_OK) return status;
  smx_parallel(a->c->ctx, a->n, add_head, a);
  memcpy(a->c->out.view[0].data, a->y, (size_t)(a->n * a->classes * a->bytes));
  return SMX_OK;
}

smx_status adaptive_log_forward(const tensor_call *c) { return call(c, false, false, logs); }

/* Task: the gradient of a row of the head, whose clusters have the sums of their classes. */
static void sum_clusters(void *arg, int64_t row) {
  const adaptive *const a = arg;
  const tensor_call *const c = a->c;
  const char *const dy = c->dout.view[0].data + row * a->classes * a->bytes;
  char *const to = a->dhead + row * a->s * a->bytes;
  memcpy(to, dy, (size_t)(a->words * a->bytes));
  for (int64_t i = 0; i < a->k; i++) {
    double sum = 0, x[64];
    for (int64_t j = 0; j < a->cluster[i].size; j += 64) {
      const int64_t count = a->cluster[i].size - j < 64 ? a->cluster[i].size - j : 64;
      smx_reals_load(c->is_f64, dy + (a->cluster[i].low + j) * a->bytes, count, x);
      for (int64_t e = 0; e < count; e++) sum += x[e];
    }
    smx_reals_store(c->is_f64, &sum, 1, to + (a->words + i) * a->bytes);
  }
}

static smx_status log_gradients(adaptive *a) {
  smx_parallel(a->c->ctx, a->n, sum_clusters, a);
  smx_status status = head_log(a);
  const pass head = {.op = "log_softmax", .y = a->head, .dy = a->dhead, .pitch = a->s, .dy_pitch = a->s};
  if (status == SMX_OK) status = head_back(a, &head);
  for (int64_t i = 0; i < a->k && status == SMX_OK; i++) {
    const cluster *const u = a->cluster + i;
    const layer l = tail_of(a, u, a->n);
    char *const dy = a->c->dout.view[0].data + u->low * a->bytes;
    status = project(a, u, a->n);
    if (status == SMX_OK) status = layer_log(a, &l, a->part, u->size);
    const pass p = {.op = "log_softmax", .y = a->part, .dy = dy, .pitch = u->size, .dy_pitch = a->classes};
    if (status == SMX_OK) status = cluster_back(a, u, a->n, &p);
  }
  status = report_empty(a, status);
  if (status == SMX_OK) put_gradients(a);
  return status;
}

smx_status adaptive_log_backward(const tensor_call *c) { return call(c, false, true, log_gradients); }
