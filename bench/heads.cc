/* bench/heads.cc - cross-entropy of a linear layer with 32 000 classes: ROWSxWIDTH, the loss or the
 * loss with the gradients of features and weights in the same walk. */
#include "tensor.h"
#include <cmath>

namespace {

enum { CLASSES = 32000 };

struct Run {
  ContextPtr ctx;
  std::vector<float> w, loss, dh, dw;
  std::vector<int64_t> target;
};

} // namespace

bool is_head(const Problem &p) { return p.verb.compare(0, 20, "linear_cross_entropy") == 0; }

/* A product for each class and element of h; three with the gradients. */
bool heads_work(const Problem &p, Least *least) {
  if (!is_head(p)) return false;
  const double products = p.verb == "linear_cross_entropy" ? 1 : 3;
  *least = {1, products == 1 ? 0.0 : 1.0, products * CLASSES};
  return true;
}

/* Inputs are normal * 5; those of w are scaled so that the logits are normal. Threads 0: without a
 * context. */
Call heads_call(const Problem &p, int threads) {
  auto run = std::make_shared<Run>();
  const size_t rows = p.rows(), width = p.n();
  const float *h = static_cast<const float *>(input(p, 0));
  const auto scale = static_cast<float>(0.04 / std::sqrt(static_cast<double>(width)));
  if (threads) run->ctx = make_context(threads);
  run->w.resize(CLASSES * width), run->loss.resize(rows), run->target.resize(rows);
  for (size_t i = 0; i < run->w.size(); i++) run->w[i] = h[i * 7 % (rows * width)] * scale;
  for (size_t i = 0; i < rows; i++) run->target[i] = static_cast<int64_t>(i * 7919 % CLASSES);
  const bool gradients = p.verb == "linear_cross_entropy_dx";
  if (gradients) run->dh.resize(rows * width), run->dw.resize(run->w.size());
  return [=] {
    require(smx_linear_cross_entropy_f32(run->ctx.get(), rows, CLASSES, width, h, run->w.data(), nullptr,
                                         run->target.data(), nullptr, run->loss.data(),
                                         gradients ? run->dh.data() : nullptr,
                                         gradients ? run->dw.data() : nullptr, nullptr, nullptr));
  };
}
