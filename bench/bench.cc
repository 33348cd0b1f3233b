/* bench/bench.cc - the cases, and their measurement through Google Benchmark. A benchmark is named
 * VERB/DTYPE/SHAPE/THREADS/IMPLEMENTATION: softmax/f32/4096x1024/t1/xnnpack. report.py makes a
 * table of it. */
#include "bench.h"
#include <benchmark/benchmark.h>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <unistd.h>

/* ---- The cases ------------------------------------------------------------------------------- */

namespace {

struct Cases {
  const char *verbs; /* separated by spaces; "op" and "grad" are every operator of the table */
  const char *dtypes;
  const char *shapes; /* ROWSxN, or sizes with the axis as @A; of attention HEADSxLENGTHxWIDTH */
};

const Cases table[] = {
    {"softmax", "f32",
     "1x16 1x64 1x1024 1x16384 1x262144 1x4194304 1x67108864 128x64 65536x8 65536x16 65536x64 32768x128 "
     "4096x128 4096x1024 1024x32768 64x151936"},
    {"softmax", "bf16 f16", "1x1024 1x16384 1x4194304 1x67108864 4096x128 4096x1024 1024x32768 64x151936"},
    {"softmax", "f64", "1x1024 1x16384 1x4194304 1x33554432 65536x16 4096x128 4096x1024 1024x32768"},
    {"log_softmax logsumexp softmax_backward", "f32",
     "1x1024 1x16384 1x4194304 1x67108864 4096x128 4096x1024 1024x32768"},
    {"log_softmax logsumexp softmax_backward", "bf16 f64", "1x16384 4096x1024"},
    {"softmax", "f32", "8192x8192@0 64x1000x512@1"},
    {"cross_entropy cross_entropy_dx", "f32", "8192x32000 512x151936"},
    {"op grad", "f32", "4096x1024"},
    {"op:softmax op:sparsemax op:entmax15 op:softpick op:softmax_n op:sigmoid_attention op:taylor_softmax "
     "op:stablemax op:ssmax op:power_softmax",
     "f32", "2048x32768"},
    {"attention_full attention_causal attention_full_dx attention_causal_dx attention_sigmoid "
     "attention_softpick",
     "f32", "8x1024x64 8x1024x128 2x4096x64 2x4096x128"},
    {"attention_bias attention_dropout attention_sparsemax attention_entmax15", "f32", "8x1024x64"},
    {"attention_decode", "f32 f16", "32x8192x128"},
    {"attention_grouped", "f32", "8x32768x128"},
    {"attention_full attention_causal", "f32",
     "1024x1x64 512x4x64 256x8x64 128x16x64 64x32x64 96x16x32 64x32x32 96x49x32"},
    {"linear_cross_entropy linear_cross_entropy_dx", "f32", "2048x1024"},
    {"pairs_clip", "f32", "4096x512"},
    {"pairs_chain", "f32", "64x512x32"},
    {"scores_all logsumexp", "f32", "65536x1000"},
    {"sample_greedy sample_typical sample_sigma sample_xtc sample_top_p sample_allow", "f32", "1x151936"},
    {"state_sum state_ratio state_delta", "f32", "8x4096x64 8x4096x128"},
    {"state_token", "f32", "256x1x128"},
    {"route_softmax route_groups", "f32", "65536x256"},
    {"route_permutation", "f32", "65536x8"},
    {"route_dispatch route_combine", "f32", "65536x512 16384x2048"},
    {"attention_decode", "f32", "512x1x64 256x16x64 256x64x64 64x256x64 64x256x128"},
};

enum { MIN_PARALLEL = 1 << 18 }; /* elements from which two threads are worth a line */

/* The verbs that have a name of their own. Arithmetic of softmax: the largest element, 2 to
 * round x log2 e, 2 to reduce, the polynomial (6 in f32, 13 in f64), the exponent and its use, the
 * sum, and a product and a comparison for the weight. */
struct Verb {
  const char *name;
  double inputs, outputs, around; /* tensors read and written; arithmetic besides the polynomials */
  int polynomials;
};
const Verb verbs[] = {
    {"softmax", 1, 1, 10, 1},         {"log_softmax", 1, 1, 10, 1},  {"logsumexp", 1, 0, 8, 1},
    {"softmax_backward", 2, 1, 3, 0}, {"cross_entropy", 1, 0, 8, 1}, {"cross_entropy_dx", 1, 1, 11, 1},
};

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

double traffic_of(const smx_port &port) {
  if (port.shape != SMX_SHAPE_FULL) return 0;
  return port.flags & SMX_PORT_MASK ? 0.25 : port.flags & SMX_PORT_INT ? 2 : 1; /* of f32 */
}

/* Forward: the required inputs and the outputs. Backward: what it reads again, the gradients that
 * come in, those that go out. */
Least operator_work(const smx_op *op, bool backward) {
  Least w = {0, 0, 0};
  for (int32_t i = 0; i < op->input_count; i++) {
    const smx_port &port = op->inputs[i];
    if (port.flags & SMX_PORT_OPTIONAL) continue;
    if (!backward || port.flags & SMX_PORT_SAVED) w.reads += traffic_of(port);
    if (backward && port.flags & SMX_PORT_GRAD) w.writes += traffic_of(port);
  }
  for (int32_t i = 0; i < op->output_count; i++) {
    if (!backward) w.writes += traffic_of(op->outputs[i]);
    else w.reads += (op->outputs[i].flags & SMX_PORT_SAVED ? 2 : 1) * traffic_of(op->outputs[i]);
  }
  return w;
}

/* Whether a row of every input and output fits the second-level cache, with some room left. */
bool row_stays_in_cache(const Problem &p, const Verb &v) {
  long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (l2 <= 0) l2 = 1 << 20;
  return !p.contiguous() || (v.inputs + v.outputs) * p.n() * p.type().bits / 8 <= 0.75 * l2;
}

} // namespace

Least least_work(const Problem &p) {
  Least own;
  if (attention_work(p, &own) || heads_work(p, &own) || routing_work(p, &own) || sampling_work(p, &own) ||
      scores_work(p, &own) || states_work(p, &own) || pairs_work(p, &own))
    return own;
  if (const smx_op *op = p.op()) return operator_work(op, p.gradient());
  for (const Verb &v : verbs)
    if (p.verb == v.name) {
      const double passes = row_stays_in_cache(p, v) || v.outputs == 0 ? 1 : 2;
      return {passes * v.inputs, v.outputs, v.around + v.polynomials * (p.dtype == "f64" ? 13 : 6)};
    }
  return {0, 0, 0};
}

/* ---- Measurement ----------------------------------------------------------------------------- */

namespace {

void measure(benchmark::State &state, const Problem &p, const Implementation &who) {
  try {
    const Call call = who.make(p);
    if (!call) throw std::runtime_error("not in this implementation");
    /* the workers of the one before stop spinning */
    if (p.threads > 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (p.elements() <= 1 << 23) call();
    for (auto _ : state) call();
  } catch (const std::runtime_error &e) { state.SkipWithError(e.what()); }
  const Least least = least_work(p);
  state.counters["work"] = who.elements ? who.elements : static_cast<double>(p.elements());
  state.counters["elements"] = static_cast<double>(p.elements());
  state.counters["reads"] = least.reads;
  state.counters["writes"] = least.writes;
  state.counters["arithmetic"] = least.arithmetic;
}

void add(const std::string &verb, const std::string &dtype, const std::string &shape, int threads) {
  static const std::vector<Implementation> all = [] {
    std::vector<Implementation> list = library_implementations();
    for (auto more : {peer_implementations(), ceiling_implementations()})
      list.insert(list.end(), more.begin(), more.end());
    return list;
  }();
  const Problem p = parse(verb, dtype, shape, threads);
  if (threads > 1 && p.elements() < MIN_PARALLEL) return;
  for (const Implementation &who : all) {
    const std::string name =
        verb + "/" + dtype + "/" + shape + "/t" + std::to_string(threads) + "/" + who.name;
    benchmark::RegisterBenchmark(name.c_str(), [p, who](benchmark::State &state) {
      measure(state, p, who);
    })->UseRealTime();
  }
}

/* "op" and "grad" stand for the operators that have one. */
std::vector<std::string> verbs_meant(const std::string &verb) {
  if (verb != "op" && verb != "grad") return {verb};
  std::vector<std::string> out;
  for (size_t i = 0; i < smx_op_count(); i++)
    if (smx_op_at(i)->inputs[0].shape != SMX_SHAPE_DIMS && /* no rows of this shape */
        (verb == "op" || smx_op_at(i)->flags & SMX_OP_BACKWARD))
      out.push_back(verb + ":" + smx_op_at(i)->name);
  return out;
}

void add_all(const Cases &cases) {
  for (const std::string &word : words(cases.verbs))
    for (const std::string &verb : verbs_meant(word))
      for (const std::string &dtype : words(cases.dtypes))
        for (const std::string &shape : words(cases.shapes))
          for (int threads : {1, 2}) add(verb, dtype, shape, threads);
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
