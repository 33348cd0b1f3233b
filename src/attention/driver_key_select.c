/* attention/driver_key_select.c - which keys a cache keeps, by their mass. Rows become doubles, the
 * masses of neighbouring keys are pooled, and the first of a total order (mass descending, index
 * ascending) are kept. Nothing is sorted: the order key of the last one kept is found byte by byte
 * from counts. */
#include "base/enter.h"
#include "driver/attention.h"
#include "driver/view.h"

enum { MOST_KERNELS = 64 };

typedef struct selection {
  attention_job j; /* for its name, its context and its checks of tensors */
  const smx_attention_select_options *options;
  smx_view mass, keys, kept, lengths, budgets; /* data NULL: absent */
  int64_t batch, heads, lists, length, most; /* lists: of a sequence, its heads or 1; most: keys of a list */
  int64_t kernels;
  smx_scratch scratch;
} selection;

/* ---- the order ---- */

/* An unsigned key in the order of the values; -0 and 0 are one, and NaN counts as -inf. */
static uint64_t order_of(double x) {
  uint64_t bits, sign = (uint64_t)1 << 63;
  if (x != x) x = -__builtin_inf();
  if (x == 0) x = 0;
  memcpy(&bits, &x, sizeof bits);
  return bits & sign ? ~bits : bits | sign;
}

/* The order key of the k-th largest of n; k in 1..n. *ties: how many keys equal to it belong to
 * the k. */
static uint64_t find_last(const uint64_t *order, int64_t n, int64_t k, int64_t *ties) {
  uint64_t known = 0, mask = 0;
  for (int shift = 56; shift >= 0; shift -= 8) {
    int64_t count[256] = {0};
    int byte = 255;
    for (int64_t i = 0; i < n; i++)
      if ((order[i] & mask) == known) count[order[i] >> shift & 255]++;
    while (count[byte] < k) k -= count[byte--];
    known |= (uint64_t)byte << shift, mask |= (uint64_t)255 << shift;
  }
  *ties = k;
  return known;
}

/* ---- one list ---- */

static int64_t whole_at(const smx_view *v, int64_t b, int64_t h) {
  const int64_t bytes = smx_dtype_bytes(v->dtype);
  return smx_whole_at(v->data + (b * v->strides[0] + (v->ndim == 2 ? h * v->strides[1] : 0)) * bytes, bytes);
}

/* The mass of n keys from `first` on. For a list that all heads share: the sum over the heads, in
 * order. */
static void load_mass(const selection *s, int64_t b, int64_t h, int64_t first, int64_t n, double *x,
                      double *more) {
  const int64_t heads = s->lists == s->heads ? 1 : s->heads, bytes = smx_dtype_bytes(s->mass.dtype);
  for (int64_t i = 0; i < heads; i++) {
    const int64_t at = b * s->mass.strides[0] + (h + i) * s->mass.strides[1] + first * s->mass.strides[2];
    matrix_load(&s->mass, s->mass.data + at * bytes, n, i ? more : x);
    for (int64_t t = 0; i && t < n; t++) x[t] += more[t];
  }
}

/* The order key of each key by its n neighbours, itself included: by their sum, or by the largest.
 * With a NaN among them it is the lowest. */
static void pool(const selection *s, const double *x, int64_t n, int64_t span, uint64_t *order) {
  const bool largest = s->options->pool == SMX_ATTENTION_POOL_MAX;
  for (int64_t i = 0; i < n; i++) {
    const int64_t from = i > span ? i - span : 0, to = n - 1 - i > span ? i + span : n - 1;
    double all = x[from];
    for (int64_t t = from + 1; t <= to; t++) {
      if (!largest) all += x[t];
      else if (x[t] > all || x[t] != x[t]) all = x[t];
    }
    order[i] = order_of(all);
  }
}

static int64_t kernel_at(const selection *s, int64_t t) {
  return s->options->kernels ? s->options->kernels[t] : s->options->kernel;
}

/* Marks the `wanted` keys that are taken: each kernel in turn takes its share of those that are
 * left. The order 0 is below that of any mass. */
static void take_best(const selection *s, const double *x, int64_t n, int64_t wanted, uint64_t *order,
                      char *taken) {
  memset(taken, 0, (size_t)n);
  for (int64_t t = 0; t < s->kernels; t++) {
    const int64_t share = wanted / s->kernels + (t < wanted % s->kernels);
    int64_t ties;
    if (share == 0) continue;
    pool(s, x, n, kernel_at(s, t) / 2, order);
    for (int64_t i = 0; i < n; i++)
      if (taken[i]) order[i] = 0;
    const uint64_t least = find_last(order, n, share, &ties);
    for (int64_t i = 0; i < n; i++)
      if (order[i] > least || (order[i] == least && ties-- > 0)) taken[i] = 1;
  }
}

static void put_key(const selection *s, int64_t b, int64_t h, int64_t at, int64_t key) {
  const smx_view *v = &s->keys;
  *(int32_t *)(void *)(v->data + (b * v->strides[0] + h * v->strides[1] + at * v->strides[2]) * 4) =
      (int32_t)key;
}

static void select_keys(const selection *s, int64_t b, int64_t h, double *x) {
  const int64_t n = s->lengths.data ? whole_at(&s->lengths, b, 0) : s->length;
  const int64_t budget = s->budgets.data ? whole_at(&s->budgets, b, h) : s->most,
                count = budget < n ? budget : n;
  const int64_t first = n <= budget ? n : s->options->first, last = n <= budget ? 0 : s->options->last;
  const int64_t between = n - first - last, wanted = count - first - last;
  uint64_t *order = (uint64_t *)(x + s->length);
  char *taken = (char *)(order + s->length);
  int64_t at = 0;
  if (wanted > 0) {
    load_mass(s, b, h, first, between, x, (double *)order);
    take_best(s, x, between, wanted, order, taken);
  }
  for (int64_t i = 0; i < first; i++) put_key(s, b, h, at++, i);
  for (int64_t i = 0; i < between && wanted > 0; i++)
    if (taken[i]) put_key(s, b, h, at++, first + i);
  for (int64_t i = n - last; i < n; i++) put_key(s, b, h, at++, i);
  while (at < s->most) put_key(s, b, h, at++, -1);
  if (s->kept.data)
    *(int32_t *)(void *)(s->kept.data + (b * s->kept.strides[0] + h * s->kept.strides[1]) * 4) =
        (int32_t)count;
}

static void select_task(void *arg, int64_t at) {
  selection *s = arg;
  double *x = smx_scratch_take(&s->scratch);
  select_keys(s, at / s->lists, at % s->lists, x);
  smx_scratch_give(&s->scratch, x);
}

/* ---- arguments ---- */

static smx_status check_kernels(selection *s) {
  const smx_attention_select_options *o = s->options;
  s->kernels = o->kernel_count ? (int64_t)o->kernel_count : 1;
  if ((o->kernels == NULL) != (o->kernel_count == 0))
    return smx_fail(SMX_ERR_NULL, "%s: options.kernels is %sNULL, options.kernel_count %zu", s->j.name,
                    o->kernels ? "not " : "", o->kernel_count);
  if (o->kernel_count > MOST_KERNELS)
    return smx_fail(SMX_ERR_PARAM, "%s: options.kernel_count is %zu, not at most %d", s->j.name,
                    o->kernel_count, MOST_KERNELS);
  if (o->kernels && o->kernel)
    return smx_fail(SMX_ERR_PARAM, "%s: options.kernel is %lld, which is not possible beside kernels",
                    s->j.name, (long long)o->kernel);
  if (!o->kernels && o->kernel == 0) return SMX_OK;
  for (int64_t t = 0; t < s->kernels; t++)
    if (kernel_at(s, t) < 1 || kernel_at(s, t) % 2 == 0)
      return smx_fail(SMX_ERR_PARAM, "%s: options.kernel%s is %lld, not an odd number", s->j.name,
                      o->kernels ? "s" : "", (long long)kernel_at(s, t));
  return SMX_OK;
}

static smx_status check_options(selection *s) {
  const smx_attention_select_options *o = s->options;
  if (o->size != sizeof *o)
    return smx_fail(SMX_ERR_STRUCT, "%s: options.size is %zu, not %zu", s->j.name, o->size, sizeof *o);
  if (o->first < 0 || o->last < 0)
    return smx_fail(SMX_ERR_PARAM, "%s: options.%s is %lld, not at least 0", s->j.name,
                    o->first < 0 ? "first" : "last", (long long)(o->first < 0 ? o->first : o->last));
  if (o->first > s->most || o->last > s->most - o->first)
    return smx_fail(SMX_ERR_PARAM,
                    "%s: options.first + options.last is %lld + %lld, more than the %lld of a list",
                    s->j.name, (long long)o->first, (long long)o->last, (long long)s->most);
  smx_status status = check_kernels(s);
  if (status != SMX_OK) return status;
  if ((int)o->pool < 0 || o->pool > SMX_ATTENTION_POOL_MAX)
    return smx_fail(SMX_ERR_PARAM, "%s: options.pool is %d, not 0..%d", s->j.name, (int)o->pool,
                    SMX_ATTENTION_POOL_MAX);
  return SMX_OK;
}

/* Checks that integers are all in least..most. Integers that stand for several lists are checked
 * once. */
static smx_status check_wholes(const selection *s, const char *port, const smx_tensor *t, int32_t ndim,
                               const int64_t *shape, int64_t least, int64_t most, smx_view *v) {
  smx_status status = attention_broadcast(&s->j, port, t, WHOLES, ndim, shape, v);
  if (status != SMX_OK || !t) return status;
  const int64_t batch = v->strides[0] ? s->batch : s->batch > 0;
  const int64_t lists = ndim == 1 ? 1 : v->strides[1] ? s->lists : s->lists > 0;
  for (int64_t i = 0; status == SMX_OK && i < batch * lists; i++) {
    const int64_t value = whole_at(v, i / lists, i % lists);
    if (value < least || value > most)
      status = smx_fail(SMX_ERR_SHAPE, "%s: %s: number %lld is %lld, not %lld..%lld", s->j.name, port,
                        (long long)i, (long long)value, (long long)least, (long long)most);
  }
  return status;
}

static smx_status check_inputs(selection *s, const smx_tensor *mass, const smx_tensor *keys) {
  const attention_job *j = &s->j;
  smx_status status = attention_tensor(j, "mass", mass, FLOATS, 3, (int64_t[]){-1, -1, -1}, &s->mass);
  if (status != SMX_OK) return status;
  s->batch = s->mass.shape[0], s->heads = s->mass.shape[1], s->length = s->mass.shape[2];
  if (s->length > INT32_MAX)
    return smx_fail(SMX_ERR_SHAPE, "%s: mass: shape[2] is %lld, not at most %d", j->name,
                    (long long)s->length, INT32_MAX);
  status = attention_tensor(j, "keys", keys, PAGES, 3, (int64_t[]){s->batch, -1, -1}, &s->keys);
  if (status != SMX_OK) return status;
  s->lists = s->keys.shape[1], s->most = s->keys.shape[2];
  if (s->lists != s->heads && (s->lists != 1 || s->heads == 0))
    return smx_fail(SMX_ERR_SHAPE, "%s: keys: shape[1] is %lld, not %lld or 1", j->name, (long long)s->lists,
                    (long long)s->heads);
  status = check_options(s);
  if (status != SMX_OK) return status;
  const int64_t lists[] = {s->batch, s->lists}, forced = s->options->first + s->options->last;
  status = check_wholes(s, "lengths", s->options->lengths, 1, lists, 0, s->length, &s->lengths);
  return status == SMX_OK
             ? check_wholes(s, "budgets", s->options->budgets, 2, lists, forced, s->most, &s->budgets)
             : status;
}

static smx_status check_apart(const selection *s, const char *port, const smx_view *out) {
  const smx_view *others[] = {&s->mass, &s->keys, &s->lengths, &s->budgets};
  static const char *const names[] = {"mass", "keys", "lengths", "budgets"};
  if (!smx_view_injective(out))
    return smx_fail(SMX_ERR_ALIAS, "%s: %s: two of its elements share an address", s->j.name, port);
  for (int i = 0; i < 4; i++)
    if (others[i] != out && others[i]->data && smx_view_overlap(out, others[i]))
      return smx_fail(SMX_ERR_ALIAS, "%s: %s: overlaps %s", s->j.name, port, names[i]);
  return SMX_OK;
}

smx_status smx_attention_select(smx_context *ctx, const smx_attention_select_options *options,
                                const smx_tensor *mass, const smx_tensor *keys, const smx_tensor *kept) {
  SMX_ENTER(ctx);
  static const smx_attention_select_options defaults = {.size = sizeof defaults};
  SMX_OWN(selection, s, ctx);
  if (!attention_open(s ? &s->j : NULL, "smx_attention_select", ctx)) return SMX_ERR_NOMEM;
  s->options = options ? options : &defaults;
  smx_status status = check_inputs(s, mass, keys);
  if (status == SMX_OK) status = check_apart(s, "keys", &s->keys);
  if (status == SMX_OK && kept)
    status = attention_tensor(&s->j, "kept", kept, PAGES, 2, (int64_t[]){s->batch, s->lists}, &s->kept);
  if (status == SMX_OK && kept) status = check_apart(s, "kept", &s->kept);
  const smx_view *const outputs[] = {&s->keys, &s->kept};
  if (status != SMX_OK || !attention_writes_any(outputs, sizeof outputs / sizeof *outputs)) return status;
  if (!smx_scratch_open(&s->scratch, ctx, 0, (size_t)(3 * s->length + 1) * sizeof(double),
                        s->batch * s->lists))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld keys", s->j.name, (long long)s->length);
  smx_parallel(ctx, s->batch * s->lists, select_task, s);
  smx_scratch_close(&s->scratch);
  return SMX_OK;
}
