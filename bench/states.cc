/* bench/states.cc - linear attention, HEADSxTOKENSxWIDTH of queries, keys and values, causal:
 * state_sum without norm, state_ratio with elu + 1 and the sum of weights, state_delta gated and
 * with the delta rule; state_token one token with a past, whose state is WIDTHxWIDTH. */
#include "tensor.h"

namespace {

struct Run {
  ContextPtr ctx;
  smx_params params = {};
  std::vector<TensorPtr> tensors;
  const smx_tensor *in[7] = {}, *out[2] = {};

  const smx_tensor *see(std::vector<int64_t> shape, const float *data = nullptr) {
    tensors.push_back(std::make_unique<Tensor>(std::move(shape), SMX_F32, const_cast<float *>(data)));
    return &tensors.back()->view;
  }
};

void fill(const smx_tensor *t, int64_t count, float value) {
  auto *x = static_cast<float *>(t->data);
  for (int64_t i = 0; i < count; i++) x[i] = value;
}

} // namespace

bool is_state(const Problem &p) { return p.verb.compare(0, 6, "state_") == 0; }

/* Each token adds to its state and reads it; the delta rule reads it twice, and shrinks it. One
 * token reads a state and writes one. */
bool states_work(const Problem &p, Least *least) {
  if (!is_state(p)) return false;
  const double d = static_cast<double>(p.n());
  if (p.verb == "state_token") *least = {d, d, 2 * d};
  else *least = {3, 1, (p.verb == "state_delta" ? 4 : 2) * d};
  return true;
}

Call states_call(const Problem &p, int threads) {
  auto run = std::make_shared<Run>();
  const smx_op *op = smx_op_find("linear_attention");
  const int64_t h = p.shape[0], t = p.shape[1], d = p.n(), norm = p.verb == "state_ratio";
  const float *x = static_cast<const float *>(input(p, 0)), *v = static_cast<const float *>(input(p, 1));
  if (threads) run->ctx = make_context(threads);
  smx_params_init(op, &run->params);
  if (norm) require(smx_params_parse(op, &run->params, "map", "elu1"));
  if (norm) require(smx_params_parse(op, &run->params, "norm", "sum"));
  run->in[0] = run->in[1] = run->see({h, t, d}, x), run->in[2] = run->see({h, t, d}, v);
  if (p.verb == "state_delta") {
    run->in[3] = run->see({h, t, 1}), run->in[4] = run->see({h, t});
    fill(run->in[3], h * t, -0.1F), fill(run->in[4], h * t, 0.0005F); /* keys are normal * 5 */
  }
  if (p.verb == "state_token") run->in[5] = run->see({h, d, d});
  run->out[0] = run->see({h, t, d}), run->out[1] = run->see({h, d + norm, d + norm});
  return [=] { require(smx_forward(op, run->ctx.get(), &run->params, 7, run->in, 2, run->out)); };
}
