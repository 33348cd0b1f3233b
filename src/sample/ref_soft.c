/* sample/ref_soft.c - soft tokens under noise, and noise itself, straight from their formulas. See
 * ref.c. */
#include "ref.h"

/* p of the named tokens among themselves; -1 of what names none. Their largest x, NaN with a NaN or
 * +inf, -inf where none is valid. */
static double named(const row_ref_call *c, double *p) {
  const size_t k = (size_t)c->q[0];
  double most = -INFINITY;
  long double sum = 0;
  for (size_t j = 0; j < k; j++) {
    const double id = c->in[1][j];
    p[j] = id >= 0 && id < (double)c->n;
    for (size_t i = 0; i < j; i++) p[j] = c->in[1][i] == id ? 0 : p[j];
    if (p[j] > 0 && !(c->in[0][(size_t)id] <= most)) most = isnan(most) ? most : c->in[0][(size_t)id];
    if (p[j] > 0 && c->in[0][(size_t)id] == INFINITY) most = NAN;
  }
  for (size_t j = 0; j < k; j++)
    sum += p[j] > 0 && most > -INFINITY ? expl((long double)c->in[0][(size_t)c->in[1][j]] - most) : 0;
  for (size_t j = 0; j < k; j++)
    p[j] = !(p[j] > 0)        ? -1
           : most > -INFINITY ? (double)(expl((long double)c->in[0][(size_t)c->in[1][j]] - most) / sum)
                              : 0;
  return most;
}
enum { FLOOR = 1, SCALE, SEED, CUT = 3, LOW, HIGH };

void soft_thinking_noise_ref(const row_ref_call *c) {
  double *p = room_for((size_t)c->q[0]), most = named(c, p);
  for (size_t j = 0; j < (size_t)c->q[0]; j++) {
    c->out[0][j] = isnan(most) ? NAN : -INFINITY;
    if (isnan(most) || !(p[j] > 1e-304)) continue;
    const double noise =
        gumbel((uint64_t)c->q[SEED], (uint64_t)(int64_t)c->in[2][0], 4, (uint64_t)c->in[1][j]);
    c->out[0][j] = log(p[j] + c->q[FLOOR]) + c->q[SCALE] * fmin(fmax(noise, c->q[SEED + 1]), c->q[SEED + 2]);
  }
  free(p);
}

void soft_thinking_logp_ref(const row_ref_call *c) {
  double *p = room_for((size_t)c->q[0]), most = named(c, p);
  long double sum = 0, count = 0;
  int nan = isnan(most);
  for (size_t j = 0; j < (size_t)c->q[0]; j++) {
    nan |= p[j] >= 0 && isnan(c->in[2][j]);
    const long double log = p[j] > 1e-304 ? logl((long double)p[j] + c->q[FLOOR]) : -INFINITY;
    if (!(log > c->q[CUT])) continue;
    const long double e = fminl(fmaxl((c->in[2][j] - log) / c->q[SCALE], c->q[LOW]), c->q[HIGH]);
    sum += -e - expl(-e) - logl(c->q[SCALE]), count++;
  }
  c->out[0][0] = nan ? NAN : count > 0 ? (double)(sum / count) : 0;
  free(p);
}

/* x with so much of what `variate` makes of a uniform number. */
static void noisy(const row_ref_call *c, double size, unsigned purpose, double (*variate)(double u)) {
  int nan = !(size >= 0 && size < INFINITY);
  for (size_t i = 0; i < c->n; i++) nan |= !(c->in[0][i] < INFINITY);
  for (size_t i = 0; i < c->n; i++)
    c->out[0][i] =
        nan ? NAN : c->in[0][i] + size * variate(uniform((uint64_t)c->q[1], stream_of(c), purpose, i));
}
static double centred(double u) { return 2 * u - 1; }

void normal_noise_ref(const row_ref_call *c) { noisy(c, c->in[2] ? c->in[2][0] : c->q[0], 5, normal); }
void embedding_noise_ref(const row_ref_call *c) {
  noisy(c, c->q[0] / sqrt(c->q[2] * (double)(c->n > 0 ? c->n : 1)), 17, centred);
}
