/* bench/peers.cc - the others: XNNPACK's operator, oneDNN's primitive, a plain loop over expf. */
#include "bench.h"
#include <cmath>
#include <memory>
#include <omp.h>
#ifdef WITH_XNNPACK
#include <pthreadpool.h>
#include <xnnpack.h>
#endif
#ifdef WITH_ONEDNN
#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace {

/* ---- A plain loop ---------------------------------------------------------------------------- */

void expf_row(const float *x, float *y, int64_t n) {
  float max = x[0], sum = 0;
  for (int64_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
  for (int64_t i = 0; i < n; i++) sum += y[i] = expf(x[i] - max);
  for (int64_t i = 0; i < n; i++) y[i] /= sum;
}

Call expf_call(const Problem &p) {
  if (p.verb != "softmax" || p.dtype != "f32" || !p.contiguous()) return {};
  const int64_t rows = p.rows(), n = p.n();
  const int threads = p.threads;
  const float *x = static_cast<const float *>(input(p, 0));
  float *y = static_cast<float *>(output(p.bytes()));
  if (threads == 1)
    return [=] {
      for (int64_t r = 0; r < rows; r++) expf_row(x + r * n, y + r * n, n);
    };
  return [=] {
#pragma omp parallel for num_threads(threads)
    for (int64_t r = 0; r < rows; r++) expf_row(x + r * n, y + r * n, n);
  };
}

/* ---- XNNPACK --------------------------------------------------------------------------------- */

#ifdef WITH_XNNPACK
struct Xnn {
  xnn_operator_t op = nullptr;
  pthreadpool_t pool = nullptr;
  ~Xnn() {
    xnn_delete_operator(op);
    pthreadpool_destroy(pool);
  }
};

Call xnnpack_call(const Problem &p) {
  static const bool ready = xnn_initialize(nullptr) == xnn_status_success;
  if (!ready || p.verb != "softmax" || p.dtype != "f32" || !p.contiguous()) return {};
  auto state = std::make_shared<Xnn>();
  if (p.threads > 1) state->pool = pthreadpool_create(p.threads);
  const float *x = static_cast<const float *>(input(p, 0));
  float *y = static_cast<float *>(output(p.bytes()));
  if (xnn_create_softmax_nc_f32(p.n(), p.n(), p.n(), 0, &state->op) != xnn_status_success) return {};
  if (xnn_setup_softmax_nc_f32(state->op, p.rows(), x, y, state->pool) != xnn_status_success) return {};
  return [state] { xnn_run_operator(state->op, state->pool); };
}
#endif

/* ---- oneDNN ---------------------------------------------------------------------------------- */

#ifdef WITH_ONEDNN
using Memory = dnnl::memory;

Memory::desc describe(const Problem &p) {
  const auto type = p.dtype == "f32"    ? Memory::data_type::f32
                    : p.dtype == "bf16" ? Memory::data_type::bf16
                                        : Memory::data_type::f16;
  Memory::dims strides(p.shape.size(), 1);
  for (size_t i = p.shape.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * p.shape[i + 1];
  return Memory::desc(p.shape, type, strides);
}

#if DNNL_VERSION_MAJOR >= 3
dnnl::softmax_forward::primitive_desc forward_desc(const dnnl::engine &e, dnnl::algorithm a,
                                                   const Memory::desc &md, int axis) {
  return {e, dnnl::prop_kind::forward_training, a, md, md, axis};
}
dnnl::primitive forward_primitive(const dnnl::engine &e, dnnl::algorithm a, const Memory::desc &md,
                                  int axis) {
  return dnnl::softmax_forward(forward_desc(e, a, md, axis));
}
dnnl::primitive backward_primitive(const dnnl::engine &e, dnnl::algorithm a, const Memory::desc &md,
                                   int axis) {
  return dnnl::softmax_backward({e, a, md, md, md, axis, forward_desc(e, a, md, axis)});
}
#else
dnnl::softmax_v2_forward::primitive_desc forward_desc(const dnnl::engine &e, dnnl::algorithm a,
                                                      const Memory::desc &md, int axis) {
  return {{dnnl::prop_kind::forward_training, a, md, md, axis}, e};
}
dnnl::primitive forward_primitive(const dnnl::engine &e, dnnl::algorithm a, const Memory::desc &md,
                                  int axis) {
  return dnnl::softmax_v2_forward(forward_desc(e, a, md, axis));
}
dnnl::primitive backward_primitive(const dnnl::engine &e, dnnl::algorithm a, const Memory::desc &md,
                                   int axis) {
  return dnnl::softmax_v2_backward({{a, md, md, md, axis}, e, forward_desc(e, a, md, axis)});
}
#endif

struct Dnnl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::primitive primitive;
  std::unordered_map<int, Memory> arguments;
};

Call onednn_primitive(const Problem &p) {
  omp_set_num_threads(p.threads);
  auto state = std::make_shared<Dnnl>();
  const Memory::desc md = describe(p);
  const int axis = p.axis < 0 ? static_cast<int>(p.shape.size()) - 1 : p.axis;
  Memory x(md, state->engine, input(p, 0)), y(md, state->engine, output(p.bytes()));
  if (p.verb == "softmax_backward") {
    Memory dy(md, state->engine, input(p, 1));
    state->primitive = backward_primitive(state->engine, dnnl::algorithm::softmax_accurate, md, axis);
    state->arguments = {{DNNL_ARG_DST, x}, {DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_SRC, y}};
  } else {
    const auto algorithm =
        p.verb == "softmax" ? dnnl::algorithm::softmax_accurate : dnnl::algorithm::softmax_log;
    state->primitive = forward_primitive(state->engine, algorithm, md, axis);
    state->arguments = {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}};
  }
  return [state] {
    state->primitive.execute(state->stream, state->arguments);
    state->stream.wait();
  };
}

Call onednn_call(const Problem &p) {
  if (p.verb != "softmax" && p.verb != "log_softmax" && p.verb != "softmax_backward") return {};
  /* its reference code: hundreds of nanoseconds per element, half a minute a call */
  if (!p.contiguous()) return {};
  try {
    return onednn_primitive(p);
  } catch (const dnnl::error &) { return {}; /* a dtype that this version does not know */ }
}
#endif

} // namespace

std::vector<Implementation> peer_implementations() {
  std::vector<Implementation> all;
#ifdef WITH_XNNPACK
  all.push_back({"xnnpack", xnnpack_call});
#endif
#ifdef WITH_ONEDNN
  all.push_back({"onednn", onednn_call});
#endif
  all.push_back({"expf", expf_call});
  return all;
}
