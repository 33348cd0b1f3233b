/* vec/philox.h - random numbers as pure functions of (seed, stream, purpose, index), so that a draw
 * does not depend on what was drawn before it, on the batch around it, or on who computes it.
 * Philox4x32-10: Parallel Random Numbers: As Easy as 1, 2, 3 (Salmon et al. 2011).
 *
 * Variates are formed in double from 64-bit words: with words of 24 bits the tail of a Gumbel
 * variate would stop at 16.6, and a vocabulary of 131072 would notice. Their logarithms are
 * d_log's, the same on every machine. */
#ifndef SMX_VEC_PHILOX_H
#define SMX_VEC_PHILOX_H
#include "math.h"

/* Keeps operators that share a seed and a stream independent of each other. Part of the interface:
 * never renumbered. */
typedef enum purpose {
  PURPOSE_GUMBEL = 1,      /* categorical draw: argmax of score + Gumbel */
  PURPOSE_UNIFORM = 2,     /* categorical draw: inverse of the distribution function */
  PURPOSE_GUMBEL_TOPK = 3, /* draws without replacement */
  PURPOSE_RELAXED = 4,     /* Gumbel-softmax */
  PURPOSE_NORMAL = 5,
  PURPOSE_GAMMA = 6,
  PURPOSE_GAMMA_BOOST = 7,
  PURPOSE_LOGISTIC = 8, /* binary concrete */
  PURPOSE_ACCEPT = 9,   /* speculative decoding: accept or not */
  PURPOSE_RESIDUAL = 10,
  PURPOSE_HASHES = 11, /* places of a count sketch */
  PURPOSE_HASH_SIGNS = 12,
  PURPOSE_COIN = 14,  /* exclude top choices */
  PURPOSE_CELLS = 15, /* stochastic pooling */
  PURPOSE_DROPOUT = 16,
  PURPOSE_EMBEDDING = 17, /* uniform noise on embeddings */
  PURPOSE_BOOTSTRAP = 18, /* rows of a set, drawn with replacement */
  PURPOSE_SIGNS = 19,     /* of differences, in a test by permutations */
  PURPOSE_CLASSES = 20    /* candidates of a sampled loss */
} purpose;

typedef struct draws {
  uint64_t seed, stream;
  purpose purpose;
} draws;

#define PHILOX_0 0xD2511F53u
#define PHILOX_1 0xCD9E8D57u
#define PHILOX_KEY_0 0x9E3779B9u
#define PHILOX_KEY_1 0xBB67AE85u

/* Ten rounds on a counter. */
SMI void philox(uint32_t c[4], uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; round++, k0 += PHILOX_KEY_0, k1 += PHILOX_KEY_1) {
    const uint64_t p = (uint64_t)PHILOX_0 * c[0], q = (uint64_t)PHILOX_1 * c[2];
    const uint32_t c1 = c[1], c3 = c[3];
    c[0] = (uint32_t)(q >> 32) ^ c1 ^ k0, c[1] = (uint32_t)q;
    c[2] = (uint32_t)(p >> 32) ^ c3 ^ k1, c[3] = (uint32_t)p;
  }
}

/* The two words of a block: those of the indices 2 block and 2 block + 1. */
SMI void draw_block(const draws *d, uint64_t block, uint64_t words[2]) {
  uint32_t c[4] = {(uint32_t)block, ((uint32_t)(block >> 32) & 0xffffff) | (uint32_t)d->purpose << 24,
                   (uint32_t)d->stream, (uint32_t)(d->stream >> 32)};
  philox(c, (uint32_t)d->seed, (uint32_t)(d->seed >> 32));
  words[0] = c[0] | (uint64_t)c[1] << 32;
  words[1] = c[2] | (uint64_t)c[3] << 32;
}
SMI uint64_t draw_word(const draws *d, uint64_t index) {
  uint64_t words[2];
  draw_block(d, index >> 1, words);
  return words[index & 1];
}

/* In [2^-53, 1 - 2^-53], exactly representable, and so is 1 - u. */
SMI double uniform_of(uint64_t word) { return ((double)(word >> 12) + 0.5) * 0x1p-52; }
SMI double exponential_of(uint64_t word) { return -d_log(uniform_of(word), 0); } /* [1.1e-16, 36.74] */
SMI double gumbel_of(uint64_t word) { return -d_log(exponential_of(word), 0); }  /* [-3.60, 36.74] */
#define GUMBEL_MOST 36.75
SMI double logistic_of(uint64_t word) {
  double u = uniform_of(word);
  return d_log(u, 0) - d_log(1 - u, 0);
}

SMI double horner(const double *c, double x) { /* eight coefficients, highest first */
  double y = c[0];
  for (int i = 1; i < 8; i++) y = y * x + c[i];
  return y;
}

/* Inverse of the normal distribution function: PPND16 of AS 241 (Wichura 1988). Three rationals,
 * numerator and denominator. */
SMI double normal_of(uint64_t word) {
  static const double middle[2][8] = {
      {2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4, 4.5921953931549871457e+4,
       1.3731693765509461125e+4, 1.9715909503065514427e+3, 1.3314166789178437745e+2,
       3.3871328727963666080e+0},
      {5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4, 2.1213794301586595867e+4,
       5.3941960214247511077e+3, 6.8718700749205790830e+2, 4.2313330701600911252e+1, 1.0}};
  static const double side[2][8] = {
      {7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
       1.27045825245236838258e+0, 3.64784832476320460504e+0, 5.76949722146069140550e+0,
       4.63033784615654529590e+0, 1.42343711074968357734e+0},
      {1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
       1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e+0,
       2.05319162663775882187e+0, 1.0}};
  static const double far[2][8] = {
      {2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
       2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e+0,
       5.46378491116411436990e+0, 6.65790464350110377720e+0},
      {2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
       7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
       5.99832206555887937690e-1, 1.0}};
  double u = uniform_of(word), q = u - 0.5;
  if (q <= 0.425 && q >= -0.425) {
    double r = 0.180625 - q * q;
    return q * horner(middle[0], r) / horner(middle[1], r);
  }
  double r = __builtin_sqrt(-d_log(q < 0 ? u : 1 - u, 0));
  double x = r <= 5 ? horner(side[0], r - 1.6) / horner(side[1], r - 1.6)
                    : horner(far[0], r - 5) / horner(far[1], r - 5);
  return q < 0 ? -x : x;
}

/* log of variate `index` of the gamma distribution with this shape > 0 (Marsaglia, Tsang 2000;
 * below 1 by the boost of a uniform). In the log domain it does not underflow, however small the
 * shape. At most 256 tries; none of them is accepted with a chance below 1e-300. */
static inline double log_gamma_of(uint64_t seed, uint64_t stream, uint64_t index, double shape) {
  const draws tries = {seed, stream, PURPOSE_GAMMA}, boost = {seed, stream, PURPOSE_GAMMA_BOOST};
  double d = (shape >= 1 ? shape : shape + 1) - 1.0 / 3, c = 1 / __builtin_sqrt(9 * d), log_v = 0;
  for (uint64_t t = 0; t < 256; t++) {
    uint64_t words[2];
    draw_block(&tries, index << 8 | t, words);
    double z = normal_of(words[0]), q = 1 + c * z, v = q * q * q;
    if (q <= 0) continue;
    double log_q_cubed = d_log(v, 0);
    if (!(d_log(uniform_of(words[1]), 0) < 0.5 * z * z + d - d * v + d * log_q_cubed)) continue;
    log_v = log_q_cubed;
    break;
  }
  double log = d_log(d, 0) + log_v;
  return shape < 1 ? log + d_log(uniform_of(draw_word(&boost, index)), 0) / shape : log;
}

#endif
