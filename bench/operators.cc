/* bench/operators.cc - any operator of the table, forward or backward: inputs follow from the rules
 * of its ports. */
#include "tensor.h"
#include <cstring>

namespace {

/* value(i) at every element. */
template <class T, class Value> TensorPtr filled(std::vector<int64_t> shape, smx_dtype type, Value value) {
  auto t = std::make_unique<Tensor>(std::move(shape), type);
  T *data = static_cast<T *>(t->view.data);
  for (size_t i = 0, count = t->own.size() / sizeof(T); i < count; i++)
    data[i] = static_cast<T>(value(static_cast<int64_t>(i)));
  return t;
}

std::vector<int64_t> shape_of(const Problem &p, const smx_port &port) {
  if (port.shape == SMX_SHAPE_COLUMN) return {p.n()};
  if (port.shape == SMX_SHAPE_OFFSETS) return {17};
  if (port.shape == SMX_SHAPE_K) return {8};
  return port.shape == SMX_SHAPE_ROW ? p.shape_of_rows() : p.shape;
}

/* Sixteen segments of about one length; masks keep seven of eight; whole numbers are elements of
 * the row; values a row or a column are 1. */
TensorPtr build_input(const Problem &p, const smx_port &port, int which) {
  const int64_t n = p.n();
  const std::vector<int64_t> shape = shape_of(p, port);
  if (port.shape == SMX_SHAPE_OFFSETS)
    return filled<int64_t>(shape, SMX_I64, [n](int64_t i) { return n * i / 16; });
  if (port.flags & SMX_PORT_MASK)
    return filled<uint8_t>(shape, SMX_BOOL, [](int64_t i) { return i % 8 != 5; });
  if (port.flags & SMX_PORT_INT) return filled<int64_t>(shape, SMX_I64, [n](int64_t i) { return i * 7 % n; });
  if (port.shape == SMX_SHAPE_FULL) return std::make_unique<Tensor>(shape, p.type(), input(p, which > 0));
  return filled<float>(shape, SMX_F32, [](int64_t) { return 1; });
}

/* The tensors of one kind, in the order of the ports; NULL where none is given. */
struct Tensors {
  std::vector<TensorPtr> own;
  std::vector<const smx_tensor *> view;

  void add(TensorPtr t) {
    view.push_back(t ? &t->view : nullptr);
    own.push_back(std::move(t));
  }
  int32_t count() const { return static_cast<int32_t>(view.size()); }
};

struct Run {
  const smx_op *op;
  ContextPtr ctx;
  Tensors in, out, dout, din;

  void forward() const {
    require(smx_forward(op, ctx.get(), nullptr, in.count(), in.view.data(), out.count(), out.view.data()));
  }
  void backward() const {
    require(smx_backward(op, ctx.get(), nullptr, in.count(), in.view.data(), out.count(), out.view.data(),
                         dout.view.data(), din.view.data()));
  }
};

/* A full result of the call that is timed goes to the shared buffer. */
void build_outputs(Run &run, const Problem &p) {
  std::vector<smx_shape> shape(run.op->output_count);
  require(smx_infer(run.op, nullptr, run.in.count(), run.in.view.data(), run.op->output_count, shape.data()));
  for (const smx_shape &s : shape) {
    const bool shared = !p.gradient() && run.out.own.empty() && run.op->outputs[0].shape == SMX_SHAPE_FULL;
    run.out.add(std::make_unique<Tensor>(std::vector<int64_t>(s.dim, s.dim + s.ndim), s.dtype,
                                         shared ? output(p.bytes()) : nullptr));
  }
}

/* Upstream gradients for the outputs that can have one; gradients of the inputs that have one and
 * are given. */
void build_gradients(Run &run, const Problem &p) {
  for (int32_t i = 0; i < run.op->output_count; i++) {
    const smx_port &port = run.op->outputs[i];
    const Tensor &y = *run.out.own[i];
    if (port.flags & SMX_PORT_INT || i >= 4) {
      run.dout.add(nullptr);
    } else if (port.shape == SMX_SHAPE_FULL) {
      run.dout.add(std::make_unique<Tensor>(y.shape, y.view.dtype, input(p, 1)));
    } else {
      run.dout.add(std::make_unique<Tensor>(y.shape, y.view.dtype));
      /* small numbers, in any dtype */
      memset(run.dout.own[i]->own.data(), 0x3c, run.dout.own[i]->own.size());
    }
  }
  for (int32_t i = 0; i < run.op->input_count; i++) {
    const bool wanted = run.in.own[i] && run.op->inputs[i].flags & SMX_PORT_GRAD;
    run.din.add(
        wanted ? std::make_unique<Tensor>(run.in.own[i]->shape, p.type(), i ? nullptr : output(p.bytes()))
               : nullptr);
  }
}

} // namespace

Call operator_call(const Problem &p, bool optional) {
  auto run = std::make_shared<Run>();
  bool any_optional = false;
  run->op = p.op();
  run->ctx = make_context(p.threads);
  for (int32_t i = 0; i < run->op->input_count; i++) {
    const smx_port &port = run->op->inputs[i];
    any_optional |= (port.flags & SMX_PORT_OPTIONAL) != 0;
    /* of those that exclude each other, the one of a value a row */
    const bool either = (port.flags & SMX_PORT_EITHER) != 0;
    const bool wanted = either ? port.shape == SMX_SHAPE_ROW : optional || !(port.flags & SMX_PORT_OPTIONAL);
    run->in.add(wanted ? build_input(p, port, i) : nullptr);
  }
  if (optional && !any_optional) return {};
  build_outputs(*run, p);
  if (!p.gradient()) return [run] { run->forward(); };
  run->forward();
  build_gradients(*run, p);
  return [run] { run->backward(); };
}
