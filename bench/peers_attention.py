"""Attention in peers.py: the operator of ONNX Runtime, the functions of JAX and PyTorch beside the library. Inputs are q, k, v and the gradient of o."""
import ctypes

PREFIX = "attention_"
KINDS = {"full": (0, 0), "causal": (1, 0), "full_dx": (0, 1), "causal_dx": (1, 1), "decode": (0, 0)}  # causal, gradients
SHAPES = "8x1024x64 8x1024x128 2x4096x64 2x4096x128".split()
SHORT = "1024x1x64 512x4x64 256x8x64 128x16x64 64x32x64 96x16x32 64x32x32 96x49x32".split()
DECODE = "32x8192x128 512x1x64 256x16x64 256x64x64 64x256x64 64x256x128".split()
CASES = [("attention_" + kind, "f32", shape) for kind in KINDS if kind != "decode" for shape in SHAPES]
CASES += [("attention_" + kind, "f32", shape) for kind in ("full", "causal") for shape in SHORT] + [("attention_decode", "f32", shape) for shape in DECODE]


def kind_of(case):
    return KINDS[case.verb.removeprefix("attention_")]


def inputs(case, at_page):
    import numpy as np
    heads, length, width = case.shape
    rows = 1 if case.verb == "attention_decode" else length
    x = [at_page((1, heads, n, width), np.float32) for n in (rows, length, length, rows)]
    for seed, a in enumerate(x):
        a[...] = np.random.default_rng(seed).standard_normal(a.shape)
    return x


class Options(ctypes.Structure):
    """The beginning of smx_attention_options; the rest is room that smx_attention_init fills."""
    _fields_ = [("size", ctypes.c_size_t), ("weights", ctypes.c_int32), ("param", ctypes.c_double * 4), ("scale", ctypes.c_double),
                ("softcap", ctypes.c_double), ("causal", ctypes.c_int32), ("rest", ctypes.c_byte * 256)]


def libsoftmax(case, x, lib, context, tensor, at_page, check):
    """tensor: of an array, for the library; check: of a status."""
    causal, gradients = kind_of(case)
    q, k, v, d_o = x
    o, lse, options = at_page(q.shape, q.dtype), at_page(q.shape[:3], q.dtype), Options()
    grads = tuple(at_page(a.shape, a.dtype) for a in (q, k, v))
    check(lib, lib.smx_attention_init(ctypes.byref(options)))
    options.causal = causal
    arrays = q, k, v, o, lse, d_o, *grads
    at = [ctypes.byref(tensor(a)) for a in arrays]
    forward = (context, ctypes.byref(options), *at[:5])
    backward = (*forward, at[5], None, *at[6:])
    alone = (*forward[:-1], None)  # the peers give no lse

    def call():
        check(lib, lib.smx_attention_backward(*backward) if gradients else lib.smx_attention(*alone))
        return arrays[6:] if gradients else arrays[3]  # a tensor does not keep its array: this does
    check(lib, lib.smx_attention(*forward))
    return call


def onnxruntime(case, x, session_of, at_page):
    """The operator Attention of ONNX 23; session_of: of a model."""
    import onnxruntime as ort
    from onnx import TensorProto, helper
    names, kind = ("q", "k", "v"), TensorProto.FLOAT
    graph = helper.make_graph([helper.make_node("Attention", names, ["o"], is_causal=kind_of(case)[0])], "case",
                              [helper.make_tensor_value_info(name, kind, a.shape) for name, a in zip(names, x)],
                              [helper.make_tensor_value_info("o", kind, x[0].shape)])
    session = session_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10))
    o, binding = ort.OrtValue.ortvalue_from_numpy(at_page(x[0].shape, x[0].dtype)), session.io_binding()
    for name, a in zip(names, x):
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(a))
    binding.bind_ortvalue_output("o", o)

    def call():
        session.run_with_iobinding(binding)
        return o
    return call


class Turned:
    """Arrays of JAX with the heads in the third axis: transposed outside of what is timed."""

    def __init__(self, result):
        self.result = result

    def numpy(self):
        import numpy as np
        return np.asarray(self.result).swapaxes(1, 2)


def jax(case, x):
    import jax as lib
    causal, gradients = kind_of(case)
    there = tuple(lib.device_put(a.swapaxes(1, 2)) for a in x)

    def forward(q, k, v, _):
        return lib.nn.dot_product_attention(q, k, v, is_causal=bool(causal))

    def backward(q, k, v, d_o):
        return lib.vjp(lambda *qkv: forward(*qkv, d_o), q, k, v)[1](d_o)
    compiled = lib.jit(backward if gradients else forward)

    def call():
        result = lib.block_until_ready(compiled(*there))
        return tuple(Turned(a) for a in result) if gradients else Turned(result)
    return call


def torch(case, x, lib):
    """The function of PyTorch, and its gradients by autograd, which has a forward pass in it."""
    causal, gradients = kind_of(case)
    q, k, v, d_o = (lib.from_numpy(a) for a in x)
    function = lib.nn.functional.scaled_dot_product_attention

    def forward():
        with lib.inference_mode():
            return function(q, k, v, is_causal=bool(causal))

    def backward():
        inputs = [a.detach().requires_grad_() for a in (q, k, v)]
        return lib.autograd.grad(function(*inputs, is_causal=bool(causal)), inputs, d_o)
    return backward if gradients else forward
