/* bench/library.cc - libsoftmax: the plain calls, and the tensor calls with a context of
 * threads. */
#include "tensor.h"

extern "C" { /* cpu/cpu.h: the instruction sets of this machine, fastest first */
int smx_isa_count(void);
const char *smx_isa_at(int i);
int smx_isa_set(const char *name);
}

namespace {

/* ---- Plain calls ----------------------------------------------------------------------------- */

Call plain_softmax(const Problem &p) {
  const size_t rows = p.rows(), n = p.n();
  const void *x = input(p, 0);
  void *y = output(p.bytes());
  using U16 = uint16_t;
  if (p.dtype == "f32")
    return [=] { require(smx_softmax_f32(rows, n, static_cast<const float *>(x), static_cast<float *>(y))); };
  if (p.dtype == "f64")
    return
        [=] { require(smx_softmax_f64(rows, n, static_cast<const double *>(x), static_cast<double *>(y))); };
  if (p.dtype == "bf16")
    return [=] { require(smx_softmax_bf16(rows, n, static_cast<const U16 *>(x), static_cast<U16 *>(y))); };
  return [=] { require(smx_softmax_f16(rows, n, static_cast<const U16 *>(x), static_cast<U16 *>(y))); };
}

/* The loss of each row, and the gradient where the verb asks for it; with a context or without. */
Call cross_entropy_call(const Problem &p, const ContextPtr &ctx) {
  const size_t rows = p.rows(), n = p.n();
  const float *x = static_cast<const float *>(input(p, 0));
  float *dx = p.verb == "cross_entropy_dx" ? static_cast<float *>(output(p.bytes())) : nullptr;
  auto loss = std::make_shared<std::vector<float>>(rows);
  auto target = std::make_shared<std::vector<int64_t>>(rows);
  for (size_t i = 0; i < rows; i++) (*target)[i] = static_cast<int64_t>(i * 7919 % n);
  return [=] {
    require(smx_cross_entropy_f32(ctx.get(), rows, n, x, target->data(), nullptr, loss->data(), dx, nullptr));
  };
}
bool is_attention(const Problem &p) { return p.verb.compare(0, 10, "attention_") == 0; }
bool is_cross_entropy(const Problem &p) { return p.verb.compare(0, 13, "cross_entropy") == 0; }

Call plain_call(const Problem &p) {
  if (p.threads != 1 || !p.contiguous()) return {};
  if (is_cross_entropy(p)) return cross_entropy_call(p, nullptr);
  if (is_attention(p)) return attention_call(p, 0);
  if (is_head(p)) return heads_call(p, 0);
  if (is_routing(p)) return routing_call(p, 0);
  if (is_sampling(p)) return sampling_call(p, 0);
  if (is_scores(p)) return scores_call(p, 0);
  if (is_state(p)) return states_call(p, 0);
  if (is_pairs(p)) return pairs_call(p, 0);
  if (p.verb == "softmax") return plain_softmax(p);
  if (p.dtype != "f32") return {};
  const size_t rows = p.rows(), n = p.n();
  const float *x = static_cast<const float *>(input(p, 0));
  float *y = static_cast<float *>(output(p.bytes()));
  if (p.verb == "log_softmax") return [=] { require(smx_log_softmax_f32(rows, n, x, y)); };
  if (p.verb == "logsumexp") return [=] { require(smx_logsumexp_f32(rows, n, x, y)); };
  if (p.verb != "softmax_backward") return {};
  const float *dy = static_cast<const float *>(input(p, 1));
  return [=] { require(smx_softmax_backward_f32(rows, n, x, dy, y)); };
}

/* ---- Tensor calls ---------------------------------------------------------------------------- */

struct Tensors {
  ContextPtr ctx;
  TensorPtr x, dy, y;
};

Call tensor_call(const Problem &p) {
  if (is_cross_entropy(p)) return cross_entropy_call(p, make_context(p.threads));
  if (is_attention(p)) return p.threads > 1 ? attention_call(p, p.threads) : Call();
  if (is_head(p)) return p.threads > 1 ? heads_call(p, p.threads) : Call();
  if (is_routing(p)) return p.threads > 1 ? routing_call(p, p.threads) : Call();
  if (is_sampling(p)) return p.threads > 1 ? sampling_call(p, p.threads) : Call();
  if (is_scores(p)) return p.threads > 1 ? scores_call(p, p.threads) : Call();
  if (is_state(p)) return p.threads > 1 ? states_call(p, p.threads) : Call();
  if (is_pairs(p)) return p.threads > 1 ? pairs_call(p, p.threads) : Call();
  auto s = std::make_shared<Tensors>();
  const int axis = p.axis;
  s->ctx = make_context(p.threads);
  s->x = std::make_unique<Tensor>(p.shape, p.type(), input(p, 0));
  s->y = std::make_unique<Tensor>(p.verb == "logsumexp" ? p.shape_of_rows() : p.shape, p.type(),
                                  output(p.bytes()));
  if (p.verb == "softmax") return [=] { require(smx_softmax(s->ctx.get(), axis, &s->x->view, &s->y->view)); };
  if (p.verb == "log_softmax")
    return [=] { require(smx_log_softmax(s->ctx.get(), axis, &s->x->view, &s->y->view)); };
  if (p.verb == "logsumexp")
    return [=] { require(smx_logsumexp(s->ctx.get(), axis, &s->x->view, &s->y->view)); };
  if (p.verb != "softmax_backward") return {};
  s->dy = std::make_unique<Tensor>(p.shape, p.type(), input(p, 1));
  return [=] { require(smx_softmax_backward(s->ctx.get(), axis, &s->x->view, &s->dy->view, &s->y->view)); };
}

/* ---- The list -------------------------------------------------------------------------------- */

Call any_call(const Problem &p, const std::string &isa, bool tensor) {
  if (smx_isa_set(isa.c_str())) return {};
  if (p.op()) return operator_call(p, tensor);
  if (tensor) return tensor_call(p);
  Call call = plain_call(p);
  return call || isa == smx_isa_at(0) ? call : tensor_call(p);
}

} // namespace

/* smx: the plain call. smx-tensor: the tensor call with a context. smx-ISA: either, on a lower
 * instruction set.
 * For an operator of the table: smx with the required inputs only, smx-tensor with the optional
 * ones too. */
std::vector<Implementation> library_implementations() {
  const std::string best = smx_isa_name();
  std::vector<Implementation> all = {
      {"smx", [=](const Problem &p) { return any_call(p, best, false); }},
      {"smx-tensor", [=](const Problem &p) { return any_call(p, best, true); }},
  };
  for (int i = 1; i < smx_isa_count(); i++) {
    const std::string isa = smx_isa_at(i);
    if (isa != best) all.push_back({"smx-" + isa, [=](const Problem &p) { return any_call(p, isa, false); }});
  }
  return all;
}
