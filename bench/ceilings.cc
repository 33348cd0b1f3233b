/* bench/ceilings.cc - what the machine can do: copy, read and write the bytes of a case; multiply
 * and add. */
#include "bench.h"
#include <cstring>
#include <omp.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

typedef long long Vec16 __attribute__((vector_size(16)));
typedef long long Vec32 __attribute__((vector_size(32)));
typedef long long Vec64 __attribute__((vector_size(64)));
#define INLINE __attribute__((always_inline)) inline

/* Eight pages are walked together: more of the memory's prefetch streams are in flight than in
 * index order. */
enum { PAGE = 4096, WALK = 8 };

template <class V> INLINE void fold(V *sum, const char *p, size_t stride) {
#pragma GCC unroll 8
  for (int j = 0; j < WALK; j++) sum[j] ^= *reinterpret_cast<const V *>(p + j * stride);
}

template <class V> INLINE long long read_bytes(const char *p, size_t bytes) {
  V sum[WALK] = {};
  size_t at = 0;
  if (bytes > PAGE * WALK)
    for (; at + PAGE * WALK <= bytes; at += PAGE * WALK)
      for (size_t i = 0; i < PAGE; i += sizeof(V)) fold<V>(sum, p + at + i, PAGE);
  for (; at + WALK * sizeof(V) <= bytes; at += WALK * sizeof(V)) fold<V>(sum, p + at, sizeof(V));
  for (; at + sizeof(V) <= bytes; at += sizeof(V)) sum[0] ^= *reinterpret_cast<const V *>(p + at);
  for (int j = 1; j < WALK; j++) sum[0] ^= sum[j];
  return sum[0][0] ^ sum[0][1];
}

using Reader = long long (*)(const char *, size_t);
using Writer = void (*)(char *, size_t);

long long read_plain(const char *p, size_t bytes) { return read_bytes<Vec16>(p, bytes); }
void write_plain(char *p, size_t bytes) { memset(p, 1, bytes); }

#if defined(__x86_64__)
__attribute__((target("avx512f"))) long long read_avx512(const char *p, size_t bytes) {
  return read_bytes<Vec64>(p, bytes);
}
__attribute__((target("avx2"))) long long read_avx2(const char *p, size_t bytes) {
  return read_bytes<Vec32>(p, bytes);
}

__attribute__((target("avx512f"))) void write_nt_avx512(char *p, size_t bytes) {
  const __m512i one = _mm512_set1_epi8(1);
  for (size_t i = 0; i + 64 <= bytes; i += 64) _mm512_stream_si512(reinterpret_cast<__m512i *>(p + i), one);
  _mm_sfence();
}
__attribute__((target("avx2"))) void write_nt_avx2(char *p, size_t bytes) {
  const __m256i one = _mm256_set1_epi8(1);
  for (size_t i = 0; i + 32 <= bytes; i += 32) _mm256_stream_si256(reinterpret_cast<__m256i *>(p + i), one);
  _mm_sfence();
}

Reader best_reader() {
  if (__builtin_cpu_supports("avx512f")) return read_avx512;
  return __builtin_cpu_supports("avx2") ? read_avx2 : read_plain;
}
Writer best_nt_writer() {
  if (__builtin_cpu_supports("avx512f")) return write_nt_avx512;
  return __builtin_cpu_supports("avx2") ? write_nt_avx2 : nullptr;
}
#else
Reader best_reader() { return read_plain; }
Writer best_nt_writer() { return nullptr; }
#endif

/* ---- Multiplying and adding ------------------------------------------------------------------ */

/* As many chains as hide the latency of two units. One fused instruction where the processor has
 * it: the compiler joins x a + b. */
enum { CHAINS = 10 };
typedef float Float16 __attribute__((vector_size(16)));
typedef float Float32 __attribute__((vector_size(32)));
typedef float Float64 __attribute__((vector_size(64)));

template <class V> INLINE float multiply(size_t count) {
  const V half = V{} + 0.5f;
  V x[CHAINS];
  for (int j = 0; j < CHAINS; j++) x[j] = V{} + static_cast<float>(j);
  for (size_t i = 0; i < count; i += CHAINS) {
#pragma GCC unroll 10
    for (int j = 0; j < CHAINS; j++) x[j] = x[j] * half + half;
  }
  for (int j = 1; j < CHAINS; j++) x[0] += x[j];
  return x[0][0];
}

using Multiplier = float (*)(size_t);
float multiply_plain(size_t count) { return multiply<Float16>(count); }
#if defined(__x86_64__)
__attribute__((target("avx512f"))) float multiply_avx512(size_t count) { return multiply<Float64>(count); }
__attribute__((target("avx2,fma"))) float multiply_avx2(size_t count) { return multiply<Float32>(count); }
#endif

struct Unit {
  const char *name; /* of the ceiling */
  Multiplier run;
  int bytes; /* of a vector */
};

/* The best one, and where that is wider than AVX2's also that. */
std::vector<Unit> units() {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (__builtin_cpu_supports("avx512f"))
    return {{"fma", multiply_avx512, 64}, {"fma_avx2", multiply_avx2, 32}};
  if (avx2) return {{"fma", multiply_avx2, 32}};
#endif
  return {{"fma", multiply_plain, 16}};
}

/* ---- The calls ------------------------------------------------------------------------------- */

enum { MULTIPLICATIONS = 1 << 20 }; /* elements of a call, whatever the case */

/* One of the threads at its share: they need nothing from each other. */
Call multiply_call(const Problem &p, const Unit &unit) {
  const int size = p.dtype == "f64" ? 8 : 4; /* half precision is computed in f32 */
  const size_t count = static_cast<size_t>(MULTIPLICATIONS) * size / unit.bytes / p.threads;
  return [=] {
    volatile float sink = unit.run(count);
    (void)sink;
  };
}

/* part(offset, bytes) on each thread's share of the case, in whole cache lines. */
template <class Part> Call shared_out(const Problem &p, Part part) {
  const size_t bytes = p.bytes();
  const int threads = p.threads;
  if (threads == 1) return [=] { part(size_t{0}, bytes); };
  const size_t share = (bytes / threads + 63) / 64 * 64;
  return [=] {
#pragma omp parallel num_threads(threads)
    {
      const size_t from = share * omp_get_thread_num();
      if (from < bytes) part(from, from + share < bytes ? share : bytes - from);
    }
  };
}

Call copy_call(const Problem &p) {
  const char *x = static_cast<const char *>(input(p, 0));
  char *y = static_cast<char *>(output(p.bytes()));
  return shared_out(p, [=](size_t at, size_t bytes) { memcpy(y + at, x + at, bytes); });
}

Call read_call(const Problem &p) {
  const char *x = static_cast<const char *>(input(p, 0));
  const Reader reader = best_reader();
  return shared_out(p, [=](size_t at, size_t bytes) {
    volatile long long sink = reader(x + at, bytes);
    (void)sink;
  });
}

Call write_call(const Problem &p, Writer writer) {
  char *y = static_cast<char *>(output(p.bytes()));
  return shared_out(p, [=](size_t at, size_t bytes) { writer(y + at, bytes); });
}

} // namespace

std::vector<Implementation> ceiling_implementations() {
  std::vector<Implementation> all = {
      {"memcpy", copy_call},
      {"read", read_call},
      {"write", [](const Problem &p) { return write_call(p, write_plain); }},
  };
  for (const Unit &unit : units())
    all.push_back({unit.name, [=](const Problem &p) { return multiply_call(p, unit); }, MULTIPLICATIONS});
  if (Writer writer = best_nt_writer())
    all.push_back({"write_nt", [=](const Problem &p) { return write_call(p, writer); }});
  return all;
}
