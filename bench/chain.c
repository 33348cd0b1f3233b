/* bench/chain.c - what a draw and the k best of a vocabulary cost, in reads of the same rows:
 * 64 x 151936, f32, one thread, CPU time, the least of several runs that take turns. softmax_chain
 * [RUNS]. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <softmax.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROWS = 64, N = 151936, BEST = 5000 };
typedef long long wide __attribute__((vector_size(64)));

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Eight pages are read together, which is the fastest way. */
static inline __attribute__((always_inline)) long long read_pages(const char *p, size_t bytes) {
  wide sum[8] = {{0}};
  for (size_t at = 0; at + 32768 <= bytes; at += 32768)
    for (size_t i = at; i < at + 4096; i += sizeof(wide))
#pragma GCC unroll 8
      for (size_t j = 0; j < 8; j++) sum[j] ^= *(const wide *)(const void *)(p + i + j * 4096);
  for (int j = 1; j < 8; j++) sum[0] ^= sum[j];
  return sum[0][0] ^ sum[0][1];
}
static long long read_plain(const char *p, size_t bytes) { return read_pages(p, bytes); }
#ifdef __x86_64__
__attribute__((target("avx512f"))) static long long read_avx512(const char *p, size_t bytes) {
  return read_pages(p, bytes);
}
__attribute__((target("avx2"))) static long long read_avx2(const char *p, size_t bytes) {
  return read_pages(p, bytes);
}
#endif

static void read_rows(const float *x) {
  const size_t bytes = sizeof(float) * ROWS * N;
  volatile long long sink;
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) sink = read_avx512((const char *)x, bytes);
  else if (__builtin_cpu_supports("avx2")) sink = read_avx2((const char *)x, bytes);
  else
#endif
    sink = read_plain((const char *)x, bytes);
  (void)sink;
}

static double uniform(void) {
  static unsigned long long s = 88172645463325252u;
  s ^= s << 13, s ^= s >> 7, s ^= s << 17;
  return ((double)(s >> 11) + 0.5) * 0x1p-53;
}

/* Normal logits; `peaks` of each row stand out, each a little less than the one before. Returns the
 * entropy of the first row at T. */
static double fill(float *x, double deviation, int peaks, double temperature) {
  double max = -INFINITY, sum = 0, mean = 0;
  for (size_t i = 0; i < (size_t)ROWS * N; i++)
    x[i] = (float)(deviation * sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()));
  for (size_t r = 0; r < ROWS; r++)
    for (int k = 0; k < peaks; k++) x[r * N + (size_t)(uniform() * N)] = (float)(22 - 0.6 * k);
  for (size_t i = 0; i < N; i++) max = fmax(max, x[i] / temperature);
  for (size_t i = 0; i < N; i++)
    sum += exp(x[i] / temperature - max), mean += exp(x[i] / temperature - max) * (x[i] / temperature - max);
  return log(sum) - mean / sum;
}

static void draw(const float *x, smx_draw method, uint64_t seed) {
  static const smx_step steps[] = {{.kind = SMX_STEP_TEMPERATURE, .a = 0.8},
                                   {.kind = SMX_STEP_TOP_P, .a = 0.95}};
  static int64_t index[ROWS];
  const smx_sample_options o = {
      .size = sizeof o, .steps = steps, .step_count = 2, .draw = method, .seed = seed};
  if (smx_sample_f32(NULL, &o, ROWS, N, x, index, NULL)) exit((puts(smx_last_error()), 1));
}

static void best(const float *x, int64_t k) {
  static float value[(size_t)ROWS * BEST];
  static int64_t index[(size_t)ROWS * BEST];
  const smx_op *op = smx_op_find("softmax_topk");
  int64_t full[] = {ROWS, N}, kept[] = {ROWS, k};
  smx_params p;
  smx_tensor in = {.data = (void *)(uintptr_t)x, .ndim = 2, .dtype = SMX_F32, .shape = full};
  smx_tensor v = {.data = value, .ndim = 2, .dtype = SMX_F32, .shape = kept},
             i = {.data = index, .ndim = 2, .dtype = SMX_I64, .shape = kept};
  const smx_tensor *inputs[] = {&in}, *outputs[] = {&v, &i};
  smx_params_init(op, &p);
  smx_params_set(op, &p, "k", (double)k);
  if (smx_forward(op, NULL, &p, 1, inputs, 2, outputs)) exit((puts(smx_last_error()), 1));
}

static void keep(double *least, double since) {
  const double t = now() - since;
  if (t < *least) *least = t;
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    double deviation;
    int peaks;
  } rows[] = {{"peaked", 2, 40}, {"between", 2, 0}, {"flat", 1, 0}};
  static const int64_t ks[] = {1, 5, 50, 500, 5000};
  const int runs = argc > 1 ? atoi(argv[1]) : 10;
  float *x = aligned_alloc(64, sizeof(float) * ROWS * N);
  if (!x) return 1;
  for (int r = 0; r < 3; r++) {
    double entropy = fill(x, rows[r].deviation, rows[r].peaks, 0.8), read = INFINITY,
           drawn[2] = {INFINITY, INFINITY}, topk[5];
    for (int j = 0; j < 5; j++) topk[j] = INFINITY;
    for (int i = 0; i < runs; i++) {
      double t = now();
      read_rows(x), keep(&read, t);
      for (int m = 0; m < 2; m++)
        t = now(), draw(x, m ? SMX_DRAW_GUMBEL : SMX_DRAW_CDF, (uint64_t)i), keep(drawn + m, t);
      for (int j = 0; j < 5; j++) t = now(), best(x, ks[j]), keep(topk + j, t);
    }
    printf("%-8s entropy %5.2f, one read %.3f ns an element: temperature + top-p + draw %.2f (cdf) %.2f "
           "(gumbel)\n",
           rows[r].name, entropy, read / ROWS / N, drawn[0] / read, drawn[1] / read);
    for (int j = 0; j < 5; j++)
      printf("%s%d %.2f", j ? ", " : "         softmax_topk of ", (int)ks[j], topk[j] / read);
    puts("");
  }
  free(x);
  return 0;
}
