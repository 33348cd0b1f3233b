/* bench/tensor.h - tensors and contexts that free themselves. */
#ifndef BENCH_TENSOR_H
#define BENCH_TENSOR_H
#include "bench.h"
#include <memory>
#include <stdexcept>

inline void require(smx_status status) {
  if (status != SMX_OK) throw std::runtime_error(smx_last_error());
}

/* A view of memory: someone else's, or its own. */
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<char> own;
  smx_tensor view = {};

  Tensor(std::vector<int64_t> dims, smx_dtype type, void *data = nullptr) : shape(std::move(dims)) {
    view.ndim = static_cast<int32_t>(shape.size());
    view.shape = shape.data();
    view.dtype = type;
    view.data = data;
    if (!data) {
      int64_t count = 1;
      for (int64_t d : shape) count *= d;
      own.resize(static_cast<size_t>(count) * type.bits / 8);
      view.data = own.data();
    }
  }
  Tensor(const Tensor &) = delete;
};
using TensorPtr = std::unique_ptr<Tensor>;

using ContextPtr = std::shared_ptr<smx_context>;
inline ContextPtr make_context(int threads) {
  smx_context_options options = {};
  options.size = sizeof options;
  options.threads = threads;
  smx_context *ctx = nullptr;
  require(smx_context_create(&options, &ctx));
  return {ctx, smx_context_destroy};
}

#endif
