/* bench/attention.cc - attention of HEADS x LENGTH x WIDTH: as many queries as keys, or one query a
 * head over a cache of that many keys. */
#include "tensor.h"
#include <cmath>

namespace {

struct Attention {
  const char *name; /* after "attention_" */
  smx_attention_weights weights;
  bool causal, gradient, decode;
};

const Attention verbs[] = {
    {"full", SMX_ATTENTION_SOFTMAX, false, false, false},
    {"causal", SMX_ATTENTION_SOFTMAX, true, false, false},
    {"full_dx", SMX_ATTENTION_SOFTMAX, false, true, false},
    {"causal_dx", SMX_ATTENTION_SOFTMAX, true, true, false},
    {"decode", SMX_ATTENTION_SOFTMAX, false, false, true},
    {"sigmoid", SMX_ATTENTION_SIGMOID, false, false, false},
    {"softpick", SMX_ATTENTION_SOFTPICK, false, false, false},
};

const Attention *find(const Problem &p) {
  for (const Attention &a : verbs)
    if (p.verb == std::string("attention_") + a.name) return &a;
  return nullptr;
}

struct Run {
  ContextPtr ctx;
  smx_attention_options options = {};
  TensorPtr q, k, v, o, lse, d_o, dq, dk, dv;

  void forward() const {
    require(smx_attention(ctx.get(), &options, &q->view, &k->view, &v->view, &o->view,
                          lse ? &lse->view : nullptr));
  }
  void backward() const {
    require(smx_attention_backward(ctx.get(), &options, &q->view, &k->view, &v->view, &o->view, &lse->view,
                                   &d_o->view, nullptr, &dq->view, &dk->view, &dv->view));
  }
};

} // namespace

/* Multiplications and additions: <q, k> and weight times v of every pair, with their gradients
 * five. A cache is read once. */
bool attention_work(const Problem &p, Least *least) {
  const Attention *a = find(p);
  if (!a) return false;
  const double keys = static_cast<double>(p.shape[1]), seen = a->causal ? (keys + 1) / 2 : keys;
  *least = a->decode ? Least{2, 0, 2} : a->gradient ? Least{5, 3, 5 * seen} : Least{3, 1, 2 * seen};
  return true;
}

/* Inputs are normal * 5; the scale makes the scores normal. Threads 0: without a context. */
Call attention_call(const Problem &p, int threads) {
  const Attention *a = find(p);
  auto run = std::make_shared<Run>();
  const std::vector<int64_t> keys = {1, p.shape[0], p.shape[1], p.shape[2]},
                             rows = {1, p.shape[0], a->decode ? 1 : p.shape[1], p.shape[2]};
  const auto given = [&](const std::vector<int64_t> &shape, int which) {
    return std::make_unique<Tensor>(shape, p.type(), input(p, which));
  };
  const auto made = [&](const std::vector<int64_t> &shape) {
    return std::make_unique<Tensor>(shape, p.type());
  };
  if (threads) run->ctx = make_context(threads);
  require(smx_attention_init(&run->options));
  run->options.weights = a->weights;
  run->options.causal = a->causal;
  run->options.scale = 0.04 / std::sqrt(static_cast<double>(p.shape[2]));
  run->q = given(rows, 0), run->k = given(keys, 1), run->v = given(keys, 2), run->o = made(rows);
  if (!a->gradient) return [run] { run->forward(); };
  run->lse = std::make_unique<Tensor>(std::vector<int64_t>{rows[0], rows[1], rows[2]}, SMX_F32);
  run->d_o = given(rows, 3), run->dq = made(rows), run->dk = made(keys), run->dv = made(keys);
  run->forward();
  return [run] { run->backward(); };
}
