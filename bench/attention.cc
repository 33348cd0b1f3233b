/* bench/attention.cc - attention of HEADS x LENGTH x WIDTH: as many queries as keys, or one query a
 * head over a cache of that many keys, or four heads of one query each. */
#include "tensor.h"
#include <cmath>

namespace {

struct Attention {
  const char *name; /* after "attention_" */
  smx_attention_weights weights;
  bool causal, gradient;
  int queries;      /* of each head of a cache; 0: as many as keys */
  const char *with; /* "bias", "dropout", an operator that makes the weights; or NULL */
};

const Attention verbs[] = {
    {"full", SMX_ATTENTION_SOFTMAX, false, false, 0, nullptr},
    {"causal", SMX_ATTENTION_SOFTMAX, true, false, 0, nullptr},
    {"full_dx", SMX_ATTENTION_SOFTMAX, false, true, 0, nullptr},
    {"causal_dx", SMX_ATTENTION_SOFTMAX, true, true, 0, nullptr},
    {"decode", SMX_ATTENTION_SOFTMAX, false, false, 1, nullptr},
    {"grouped", SMX_ATTENTION_SOFTMAX, false, false, 4, nullptr},
    {"sigmoid", SMX_ATTENTION_SIGMOID, false, false, 0, nullptr},
    {"softpick", SMX_ATTENTION_SOFTPICK, false, false, 0, nullptr},
    {"bias", SMX_ATTENTION_SOFTMAX, false, false, 0, "bias"},
    {"dropout", SMX_ATTENTION_SOFTMAX, false, false, 0, "dropout"},
    {"sparsemax", SMX_ATTENTION_SOFTMAX, false, false, 0, "sparsemax"},
    {"entmax15", SMX_ATTENTION_SOFTMAX, false, false, 0, "entmax15"},
};

const Attention *find(const Problem &p) {
  for (const Attention &a : verbs)
    if (p.verb == std::string("attention_") + a.name) return &a;
  return nullptr;
}

struct Run {
  ContextPtr ctx;
  smx_attention_options options = {};
  TensorPtr q, k, v, o, bias, lse, d_o, dq, dk, dv;
  const smx_op *op = nullptr; /* that makes the weights */

  void forward() const {
    if (op) {
      require(smx_attention_rows(ctx.get(), &options, op, nullptr, &q->view, &k->view, &v->view, &o->view));
      return;
    }
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
  *least = a->queries    ? Least{2, 0, 2.0 * a->queries}
           : a->gradient ? Least{5, 3, 5 * seen}
                         : Least{3, 1, 2 * seen};
  return true;
}

/* Inputs are normal * 5; the scale makes the scores normal. Threads 0: without a context. */
Call attention_call(const Problem &p, int threads) {
  const Attention *a = find(p);
  auto run = std::make_shared<Run>();
  const std::vector<int64_t> keys = {1, p.shape[0], p.shape[1], p.shape[2]},
                             rows = {1, a->queries ? p.shape[0] * a->queries : p.shape[0],
                                     a->queries ? 1 : p.shape[1], p.shape[2]};
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
  const std::string with = a->with ? a->with : "";
  if (with == "bias") {
    run->bias = made({1, p.shape[0], p.shape[1], p.shape[1]});
    run->options.bias = &run->bias->view;
  } else if (with == "dropout") run->options.dropout = 0.1;
  else if (!with.empty()) run->op = smx_op_find(a->with);
  run->options.scale = 0.04 / std::sqrt(static_cast<double>(p.shape[2]));
  run->q = given(rows, 0), run->k = given(keys, 1), run->v = given(keys, 2), run->o = made(rows);
  if (!a->gradient) return [run] { run->forward(); };
  run->lse = std::make_unique<Tensor>(std::vector<int64_t>{rows[0], rows[1], rows[2]}, SMX_F32);
  run->d_o = given(rows, 3), run->dq = made(rows), run->dk = made(keys), run->dv = made(keys);
  run->forward();
  return [run] { run->backward(); };
}
