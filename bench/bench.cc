/* bench/bench.cc - the cases, and their measurement through Google Benchmark. A benchmark is named
 * VERB/DTYPE/SHAPE/THREADS/IMPLEMENTATION: softmax/f32/4096x1024/t1/xnnpack. report.py makes a table of it. */
#include "bench.h"
#include <benchmark/benchmark.h>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <unistd.h>

/* ---- The cases ----------------------------------------------------------------------------------------------------------------------- */

namespace {

struct Cases {
  const char *verbs; /* separated by spaces; "op" is every operator of the table */
  const char *dtypes;
  const char *shapes; /* ROWSxN, or sizes with the axis as @A */
};

const Cases table[] = {
    {"softmax", "f32",
     "1x16 1x64 1x1024 1x16384 1x262144 1x4194304 1x67108864 128x64 65536x16 65536x64 32768x128 4096x128 4096x1024 1024x32768 64x151936"},
    {"softmax", "bf16 f16", "1x1024 1x16384 1x4194304 1x67108864 4096x128 4096x1024 1024x32768 64x151936"},
    {"log_softmax logsumexp softmax_backward", "f32", "1x1024 1x16384 1x4194304 1x67108864 4096x128 4096x1024 1024x32768"},
    {"softmax", "f32", "8192x8192@0 64x1000x512@1"},
    {"op", "f32", "4096x1024"},
};

enum { MIN_PARALLEL = 1 << 18 }; /* elements from which two threads are worth a line */

std::vector<std::string> words(const std::string &text, char separator = ' ') {
  std::vector<std::string> out;
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = text.find(separator, at);
    if (end == std::string::npos) end = text.size();
    out.push_back(text.substr(at, end - at));
  }
  return out;
}

Problem parse(const std::string &verb, const std::string &dtype, const std::string &shape, int threads) {
  Problem p;
  p.verb = verb, p.dtype = dtype, p.threads = threads;
  const size_t at = shape.find('@');
  if (at != std::string::npos) p.axis = atoi(shape.c_str() + at + 1);
  for (const std::string &size : words(shape.substr(0, at), 'x')) p.shape.push_back(atoll(size.c_str()));
  return p;
}

/* Whether a row of every input and output fits the second-level cache, with some room left. */
bool row_stays_in_cache(const Problem &p) {
  long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (l2 <= 0) l2 = 1 << 20;
  const double streams = p.verb == "softmax_backward" ? 3 : p.verb == "logsumexp" ? 1 : 2;
  return !p.contiguous() || streams * p.n() * p.type().bits / 8 <= 0.75 * l2;
}

Traffic operator_traffic(const smx_op *op) {
  Traffic t = {0, 0};
  for (int32_t i = 0; i < op->input_count; i++)
    if (op->inputs[i].shape == SMX_SHAPE_FULL && !(op->inputs[i].flags & SMX_PORT_OPTIONAL))
      t.reads += op->inputs[i].flags & SMX_PORT_MASK ? 0.25 : 1;
  for (int32_t i = 0; i < op->output_count; i++) t.writes += op->outputs[i].shape == SMX_SHAPE_FULL;
  return t;
}

} // namespace

Traffic least_traffic(const Problem &p) {
  if (p.verb.compare(0, 3, "op:") == 0) return operator_traffic(smx_op_find(p.verb.c_str() + 3));
  if (p.verb == "logsumexp") return {1, 0};
  const double inputs = p.verb == "softmax_backward" ? 2 : 1;
  return {row_stays_in_cache(p) ? inputs : 2 * inputs, 1};
}

/* ---- Problems and their buffers ------------------------------------------------------------------------------------------------------ */

int64_t Problem::elements() const { return rows() * n(); }
int64_t Problem::n() const { return axis < 0 ? shape.back() : shape[axis]; }
int64_t Problem::rows() const {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count / n();
}
smx_dtype Problem::type() const { return dtype == "f32" ? SMX_F32 : dtype == "bf16" ? SMX_BF16 : SMX_F16; }

namespace {

/* Grows, never shrinks; whole pages, and some bytes more because XNNPACK reads past the end. */
struct Buffer {
  char *data = nullptr;
  size_t bytes = 0;

  bool grow(size_t wanted) {
    if (wanted <= bytes) return false;
    free(data);
    bytes = (wanted + 2 * 4096) / 4096 * 4096;
    data = static_cast<char *>(aligned_alloc(4096, bytes));
    if (!data) abort();
    memset(data, 0, bytes);
    return true;
  }
};

uint16_t to_half(float f, bool bfloat) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  if (bfloat) return static_cast<uint16_t>(bits >> 16);
  const uint32_t sign = bits >> 16 & 0x8000;
  const int exponent = static_cast<int>(bits >> 23 & 255) - 112; /* the values are neither large nor subnormal, save those near 0 */
  return static_cast<uint16_t>(exponent <= 0 ? sign : sign | exponent << 10 | (bits >> 13 & 0x3ff));
}

/* One block of normal * 5, again and again: a block is longer than any cache line pattern could notice, and quick to make. */
void fill(Buffer &b, const std::string &dtype, int seed) {
  const size_t size = dtype == "f32" ? 4 : 2, count = (1 << 18) + 5;
  std::vector<char> block(count * size);
  std::mt19937_64 random(seed + 1);
  std::normal_distribution<float> normal(0, 5);
  for (size_t i = 0; i < count; i++) {
    const float value = normal(random);
    const uint16_t half = to_half(value, dtype == "bf16");
    memcpy(&block[i * size], size == 4 ? static_cast<const void *>(&value) : &half, size);
  }
  for (size_t at = 0; at < b.bytes; at += block.size()) memcpy(b.data + at, block.data(), std::min(block.size(), b.bytes - at));
}

} // namespace

void *input(const Problem &p, int which) {
  static std::map<std::string, Buffer> buffers;
  Buffer &b = buffers[p.dtype + std::to_string(which)];
  if (b.grow(p.bytes())) fill(b, p.dtype, which);
  return b.data;
}

void *output(size_t bytes) {
  static Buffer b;
  b.grow(bytes);
  return b.data;
}

/* ---- Measurement --------------------------------------------------------------------------------------------------------------------- */

namespace {

void measure(benchmark::State &state, const Problem &p, const Implementation &who) {
  const Call call = who.make(p);
  if (!call) {
    state.SkipWithError("not in this implementation");
    return;
  }
  if (p.threads > 1) std::this_thread::sleep_for(std::chrono::milliseconds(2)); /* the workers of the one before stop spinning */
  if (p.elements() <= 1 << 23) call();
  for (auto _ : state) call();
  const Traffic t = least_traffic(p);
  state.counters["elements"] = static_cast<double>(p.elements());
  state.counters["reads"] = t.reads;
  state.counters["writes"] = t.writes;
}

void add(const std::string &verb, const std::string &dtype, const std::string &shape, int threads) {
  static const std::vector<Implementation> all = [] {
    std::vector<Implementation> list = library_implementations();
    for (auto more : {peer_implementations(), ceiling_implementations()}) list.insert(list.end(), more.begin(), more.end());
    return list;
  }();
  const Problem p = parse(verb, dtype, shape, threads);
  if (threads > 1 && p.elements() < MIN_PARALLEL) return;
  for (const Implementation &who : all) {
    const std::string name = verb + "/" + dtype + "/" + shape + "/t" + std::to_string(threads) + "/" + who.name;
    benchmark::RegisterBenchmark(name.c_str(), [p, who](benchmark::State &state) { measure(state, p, who); })->UseRealTime();
  }
}

void add_all(const Cases &cases) {
  for (const std::string &verb : words(cases.verbs))
    for (const std::string &dtype : words(cases.dtypes))
      for (const std::string &shape : words(cases.shapes))
        for (int threads : {1, 2}) {
          if (verb != "op") add(verb, dtype, shape, threads);
          else
            for (size_t i = 0; i < smx_op_count(); i++) add(std::string("op:") + smx_op_at(i)->name, dtype, shape, threads);
        }
}

} // namespace

int main(int argc, char **argv) {
  for (const Cases &cases : table) add_all(cases);
  benchmark::AddCustomContext("libsoftmax", smx_version());
  benchmark::AddCustomContext("isa", smx_isa_name());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
