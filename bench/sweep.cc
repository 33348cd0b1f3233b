/* bench/sweep.cc - one call at every length: softmax_sweep VERB/DTYPE[/ELEMENTS] ROUNDS. Prints "n
 * x_start y_start ns" for each length and each pair of starts, in elements from a page; ns is the
 * fastest of ROUNDS samples of the call. With ELEMENTS a call has as many rows as that makes.
 *
 * Points are sampled in another order in every round, so that a disturbance hits neighbours at
 * random and not a stretch of lengths. */
#include <softmax.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace {

enum { LONGEST = 70000, PAGE = 4096, SAMPLE_NS = 4000 };

/* ---- Where to look --------------------------------------------------------------------------- */

void around(std::vector<size_t> &out, size_t n, std::initializer_list<int> offsets) {
  for (int offset : offsets) out.push_back(n + static_cast<size_t>(offset));
}

/* Every short length; powers of two, pages of 1024 and groups of 8192 from both sides; in between,
 * steps of 4 %. */
std::vector<size_t> lengths() {
  std::vector<size_t> out;
  for (size_t n = 1; n <= 160; n++) out.push_back(n);
  for (size_t n = 256; n <= LONGEST; n *= 2)
    around(out, n, {-17, -16, -15, -2, -1, 0, 1, 2, 15, 16, 17, 63, 64, 65});
  for (size_t n = 1024; n <= LONGEST; n += 1024) around(out, n, {-1, 0, 1});
  for (size_t n = 8192; n <= LONGEST; n += 8192) around(out, n, {-65, -64, -63, 63, 64, 65});
  for (double n = 160; n <= LONGEST; n *= 1.04) out.push_back(static_cast<size_t>(n));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  out.erase(std::upper_bound(out.begin(), out.end(), static_cast<size_t>(LONGEST)), out.end());
  return out;
}

/* Aligned; x, y or both off by an element; apart by odd numbers; y a line or a few ahead of x in
 * its page, where loads wait for stores. */
const struct Start { size_t x, y; } starts[] = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {5, 11}, {0, 16}, {0, 64}};

/* ---- What to call ---------------------------------------------------------------------------- */

using Call = std::function<smx_status(size_t rows, size_t n, const char *x, char *y)>;

struct Verb {
  const char *name;
  size_t size; /* bytes of an element */
  Call call;
};

template <class T> const T *in(const char *p) { return reinterpret_cast<const T *>(p); }
template <class T> T *out(char *p) { return reinterpret_cast<T *>(p); }
using F = float;
using D = double;
using H = uint16_t;

const Verb verbs[] = {
    {"softmax/f32", 4,
     [](size_t r, size_t n, const char *x, char *y) { return smx_softmax_f32(r, n, in<F>(x), out<F>(y)); }},
    {"softmax/f64", 8,
     [](size_t r, size_t n, const char *x, char *y) { return smx_softmax_f64(r, n, in<D>(x), out<D>(y)); }},
    {"softmax/bf16", 2,
     [](size_t r, size_t n, const char *x, char *y) { return smx_softmax_bf16(r, n, in<H>(x), out<H>(y)); }},
    {"softmax/f16", 2,
     [](size_t r, size_t n, const char *x, char *y) { return smx_softmax_f16(r, n, in<H>(x), out<H>(y)); }},
    {"log_softmax/f32", 4,
     [](size_t r, size_t n, const char *x, char *y) {
       return smx_log_softmax_f32(r, n, in<F>(x), out<F>(y));
     }},
    {"logsumexp/f32", 4,
     [](size_t r, size_t n, const char *x, char *y) { return smx_logsumexp_f32(r, n, in<F>(x), out<F>(y)); }},
    {"memcpy/f32", 4, /* what starts cost without any arithmetic */
     [](size_t r, size_t n, const char *x, char *y) { return memcpy(y, x, r * n * 4), SMX_OK; }},
    {"softmax_backward/f32", 4,
     [](size_t r, size_t n, const char *x, char *y) {
       return smx_softmax_backward_f32(r, n, in<F>(x), in<F>(x), out<F>(y));
     }},
};

/* ---- Measurement ----------------------------------------------------------------------------- */

struct Point {
  size_t n, rows;
  Start start;
  double ns;
};

char *pages(size_t bytes) {
  char *p = static_cast<char *>(aligned_alloc(PAGE, (bytes + 2 * PAGE) / PAGE * PAGE));
  if (!p) exit(1);
  memset(p, 0, bytes);
  return p;
}

/* An element of the value, or of bits that mean about 2 to 4 in either format of 16 bits. */
void put(char *at, size_t size, double value) {
  const float f = static_cast<float>(value);
  const uint16_t h = static_cast<uint16_t>(0x4000 + (value < 25 ? static_cast<int>(value + 25) : 0x80));
  memcpy(at,
         size == 8   ? static_cast<const void *>(&value)
         : size == 4 ? static_cast<const void *>(&f)
                     : &h,
         size);
}

/* Normal * 5, below 25. */
std::vector<char> scores(size_t bytes, size_t size) {
  std::vector<char> x(bytes);
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal(0, 5);
  for (size_t at = 0; at + size <= bytes; at += size)
    put(&x[at], size, std::min(24.0, std::max(-24.0, normal(random))));
  return x;
}

/* The call on rows whose largest element is the last: some verbs look for it, and every length
 * shall have the same work. */
void sample(const Verb &v, const std::vector<char> &data, char *x, char *y, Point *p) {
  using Clock = std::chrono::steady_clock;
  const size_t row = p->n * v.size,
               calls = std::isinf(p->ns) ? 1 : 1 + static_cast<size_t>(SAMPLE_NS / p->ns);
  x += p->start.x * v.size, y += p->start.y * v.size;
  memcpy(x, data.data(), p->rows * row);
  for (size_t r = 1; r <= p->rows; r++) put(x + r * row - v.size, v.size, 25);
  if (v.call(p->rows, p->n, x, y) != SMX_OK)
    exit((fprintf(stderr, "softmax_sweep: %s\n", smx_last_error()), 1));
  const Clock::time_point begin = Clock::now();
  for (size_t i = 0; i < calls; i++) v.call(p->rows, p->n, x, y);
  p->ns = std::min(p->ns, std::chrono::duration<double, std::nano>(Clock::now() - begin).count() /
                              static_cast<double>(calls));
}

void sweep(const Verb &v, size_t elements, int rounds) {
  std::vector<Point> points;
  for (size_t n : lengths())
    for (const Start &start : starts)
      points.push_back({n, std::max<size_t>(1, elements / n), start, HUGE_VAL});
  const size_t bytes = (std::max<size_t>(elements, LONGEST) + 128) * v.size;
  const std::vector<char> data = scores(bytes, v.size);
  char *const x = pages(bytes), *const y = pages(bytes);
  std::mt19937_64 random(2);
  for (int round = 0; round <= rounds; round++) { /* the first one only finds how many calls a sample takes */
    std::shuffle(points.begin(), points.end(), random);
    for (Point &p : points) sample(v, data, x, y, &p);
  }
  for (const Point &p : points)
    printf("%zu %zu %zu %.3f\n", p.n, p.start.x, p.start.y, p.ns / static_cast<double>(p.rows));
  free(x), free(y);
}

} // namespace

int main(int argc, char **argv) {
  const std::string series = argc == 3 ? argv[1] : "";
  for (const Verb &v : verbs) {
    const std::string name = v.name;
    if (series != name && series.compare(0, name.size() + 1, name + "/") != 0) continue;
    sweep(v, series == name ? 0 : strtoull(series.c_str() + name.size() + 1, nullptr, 10), atoi(argv[2]));
    return 0;
  }
  fprintf(stderr, "usage: softmax_sweep VERB/DTYPE[/ELEMENTS] ROUNDS, with one of:");
  for (const Verb &v : verbs) fprintf(stderr, " %s", v.name);
  fprintf(stderr, "\n");
  return 1;
}
