#!/usr/bin/env python3
"""The peers that live in Python: NumPy, ONNX Runtime and JAX (and PyTorch, where it is installed) beside libsoftmax, in turns, in one process. report.py --peers runs it.

sparsemax and entmax15 stand beside their sort-based way in NumPy, and beside the package entmax where somebody has installed that (it brings PyTorch).
Prints JSON: the versions, and the samples of each implementation in ns per element. A peer that cannot do a case is left out of it. NumPy
writes where it is told, ONNX Runtime into a bound output, JAX into a new one, because it knows no other way.
"""
import argparse
import ctypes
import json
import math
import os
import random
import sys
import time

import peers_attention
import peers_heads
import peers_pairs
import peers_pooling
import peers_routing

OF_PYTORCH = (peers_heads, peers_pairs, peers_pooling, peers_routing)  # cases that have no other peer
SHAPES = "1x1024 1x16384 1x262144 1x4194304 65536x16 4096x128 4096x1024 1024x32768 64x151936 8192x32000 512x151936".split()
VERBS = ("softmax", "log_softmax", "logsumexp", "cross_entropy", "cross_entropy_dx")
SORTED = ("op:sparsemax", "op:entmax15")
SORTED_SHAPE = "2048x32768"
DTYPES = {"f32": (2, 32), "f64": (2, 64), "f16": (2, 16), "bf16": (4, 16)}  # as DLPack numbers them


class Case:
    def __init__(self, name):
        self.verb, self.dtype, shape, threads = name.split("/")
        self.shape = tuple(int(size) for size in shape.split("x"))
        self.threads = int(threads[1:])
        self.elements = math.prod(self.shape)
        # whose case it is, if not of rows
        self.own = next((m for m in (peers_attention, *OF_PYTORCH) if self.verb.startswith(m.PREFIX)), None)


class Refused(Exception):
    """This implementation does not do such cases."""


# ---- libsoftmax, through its C interface -------------------------------------------------------------------------------------------------


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]

    @staticmethod
    def of(array, case):
        code, bits = DTYPES[case.dtype]
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        return Tensor(array.ctypes.data, 1, 0, array.ndim, code, bits, 1, shape, None, 0)


class ContextOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("threads", ctypes.c_int32), ("rest", ctypes.c_void_p * 5), ("policies", ctypes.c_int32 * 2)]


def check(lib, status):
    if status:
        sys.exit("peers.py: %s" % lib.smx_last_error().decode())


def context_of(case, lib):
    options, context = ContextOptions(size=ctypes.sizeof(ContextOptions), threads=case.threads), ctypes.c_void_p()
    check(lib, lib.smx_context_create(ctypes.byref(options), ctypes.byref(context)))
    return context


def targets(case):
    import numpy as np
    return np.arange(case.shape[0]) * 7919 % case.shape[1]


def libsoftmax(case, x, library):
    lib = ctypes.CDLL(library)
    lib.smx_last_error.restype = ctypes.c_char_p
    if case.own:
        return case.own.libsoftmax(case, x, lib, context_of(case, lib), lambda a: Tensor.of(a, case), at_page, check)
    if case.verb.startswith("cross_entropy"):
        return libsoftmax_loss(case, x, lib)
    if case.verb in SORTED:
        return libsoftmax_operator(case, x, lib)
    y = at_page(case.shape[:-1] if case.verb == "logsumexp" else case.shape, x.dtype)
    tensors = [Tensor.of(x, case), Tensor.of(y, case)]
    verb = getattr(lib, "smx_" + case.verb)
    arguments = (context_of(case, lib), ctypes.c_int32(-1), ctypes.byref(tensors[0]), ctypes.byref(tensors[1]))

    def call():
        check(lib, verb(*arguments))
        return y
    return call


def libsoftmax_loss(case, x, lib):
    import numpy as np
    rows, n = case.shape
    wanted = case.verb.endswith("dx")
    arrays = x, targets(case), np.empty(rows, x.dtype), at_page(x.shape, x.dtype) if wanted else None
    at = [ctypes.c_void_p(a.ctypes.data if a is not None else None) for a in arrays]
    arguments = (context_of(case, lib), ctypes.c_size_t(rows), ctypes.c_size_t(n), at[0], at[1], None, at[2], at[3], None)

    def call():
        check(lib, lib.smx_cross_entropy_f32(*arguments))
        return arrays[2:] if wanted else arrays[2]  # an address does not keep its array: this does
    return call


def libsoftmax_operator(case, x, lib):
    y = at_page(x.shape, x.dtype)
    context = context_of(case, lib)
    lib.smx_op_find.restype = ctypes.c_void_p
    op = ctypes.c_void_p(lib.smx_op_find(case.verb.split(":")[1].encode()))
    tensors = Tensor.of(x, case), Tensor.of(y, case)
    ports = [(ctypes.POINTER(Tensor) * 1)(ctypes.pointer(t)) for t in tensors]

    def call():
        check(lib, lib.smx_forward(op, context, None, 1, ports[0], 1, ports[1]))
        return y
    return call


# ---- The peers -------------------------------------------------------------------------------------------------------------------------


def numpy(case, x, _):
    import numpy as np
    if case.dtype == "bf16" or case.own:
        raise Refused  # a dtype of an extension; a formula that nobody uses
    if case.verb in SORTED:
        return numpy_sorted(case, x)
    y, row = at_page(x.shape, x.dtype), np.empty(case.shape[:-1] + (1,), x.dtype)

    def shifted():
        np.max(x, axis=-1, keepdims=True, out=row)
        np.subtract(x, row, out=y)

    def softmax():
        shifted()
        np.exp(y, out=y)
        np.sum(y, axis=-1, keepdims=True, out=row)
        return np.divide(y, row, out=y)

    def log_softmax():
        shifted()
        return np.subtract(y, np.log(np.sum(np.exp(y), axis=-1, keepdims=True)), out=y)

    def logsumexp():
        shifted()
        np.exp(y, out=y)
        return (row + np.log(np.sum(y, axis=-1, keepdims=True)))[..., 0]

    def cross_entropy():
        return -log_softmax()[np.arange(len(x)), target]

    def cross_entropy_dx():
        loss = cross_entropy()
        np.exp(y, out=y)
        y[np.arange(len(x)), target] -= 1
        return loss, y
    target = targets(case) if case.verb.startswith("cross_entropy") else None
    return {"softmax": softmax, "log_softmax": log_softmax, "logsumexp": logsumexp, "cross_entropy": cross_entropy,
            "cross_entropy_dx": cross_entropy_dx}[case.verb]


def numpy_sorted(case, x):
    """Sort the row, find how many elements have weight from sums along it, and from them the threshold."""
    import numpy as np
    counts = np.arange(1, x.shape[-1] + 1, dtype=x.dtype)

    def sparsemax():
        z = -np.sort(-x, axis=-1)
        sums = np.cumsum(z, axis=-1)
        support = np.sum(1 + counts * z > sums, axis=-1, keepdims=True)
        tau = (np.take_along_axis(sums, support - 1, -1) - 1) / support
        return np.maximum(x - tau, 0)

    def entmax15():
        half = (x - np.max(x, axis=-1, keepdims=True)) / 2
        z = -np.sort(-half, axis=-1)
        mean = np.cumsum(z, axis=-1) / counts
        spread = np.cumsum(z * z, axis=-1) - counts * mean * mean
        tau = mean - np.sqrt(np.maximum((1 - spread) / counts, 0))
        support = np.sum(tau <= z, axis=-1, keepdims=True)
        return np.maximum(half - np.take_along_axis(tau, support - 1, -1), 0)**2
    return sparsemax if case.verb == "op:sparsemax" else entmax15


def entmax(case, x, _):
    if case.verb not in SORTED:
        raise Refused
    try:
        import entmax as lib
        import torch
    except ImportError as e:
        raise Refused from e
    torch.set_num_threads(case.threads)
    function, there = getattr(lib, case.verb.split(":")[1]), torch.from_numpy(x)
    return lambda: function(there, dim=-1).numpy()


def onnxruntime(case, x, _):
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper
    types = {"f32": TensorProto.FLOAT, "f64": TensorProto.DOUBLE, "f16": TensorProto.FLOAT16}
    others = case.verb in SORTED or case.own in OF_PYTORCH
    if case.dtype not in types or case.verb.startswith("cross_entropy") or case.verb.endswith("_dx") or others:
        raise Refused

    def session_of(model):
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = case.threads, 1, 4
        onnx.checker.check_model(model)
        try:
            return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as e:  # its own kinds: no kernel for this dtype
            raise Refused from e
    if case.own:
        return case.own.onnxruntime(case, x, session_of, at_page)
    operator, attributes, shape = {"softmax": ("Softmax", {"axis": -1}, case.shape), "log_softmax": ("LogSoftmax", {"axis": -1}, case.shape),
                                   "logsumexp": ("ReduceLogSumExp", {"keepdims": 0, "axes": [-1]}, case.shape[:-1])}[case.verb]
    kind = types[case.dtype]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], **attributes)], "case",
                              [helper.make_tensor_value_info("x", kind, case.shape)], [helper.make_tensor_value_info("y", kind, shape)])
    session = session_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))
    y, binding = ort.OrtValue.ortvalue_from_numpy(at_page(shape, x.dtype)), session.io_binding()
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x))
    binding.bind_ortvalue_output("y", y)

    def call():
        session.run_with_iobinding(binding)
        return y
    return call


def jax(case, x, _):
    import jax as lib
    lib.config.update("jax_enable_x64", True)
    if case.verb in SORTED or case.own in OF_PYTORCH:
        raise Refused
    if case.own:
        return case.own.jax(case, x)
    if case.verb.startswith("cross_entropy"):
        return jax_loss(case, x, lib)
    function = {"softmax": lib.nn.softmax, "log_softmax": lib.nn.log_softmax, "logsumexp": lib.nn.logsumexp}[case.verb]
    compiled, there = lib.jit(lambda a: function(a, axis=-1)), lib.device_put(x)
    return lambda: compiled(there).block_until_ready()


def jax_loss(case, x, lib):
    """log_softmax, gather, exp, subtract, as one program."""
    rows, wanted = lib.numpy.arange(case.shape[0]), case.verb.endswith("dx")

    def path(a, target):
        log_p = lib.nn.log_softmax(a, axis=-1)
        loss = -log_p[rows, target]
        return (loss, lib.numpy.exp(log_p).at[rows, target].add(-1)) if wanted else loss
    compiled, there, target = lib.jit(path), lib.device_put(x), lib.device_put(targets(case))
    return lambda: lib.block_until_ready(compiled(there, target))


def pytorch(case, x, _):
    """PyTorch, where somebody has installed it into the peers' environment: 3 GB are not fetched for a benchmark."""
    try:
        import torch as lib
        if case.verb == "pairs_chain":
            import torchcrf  # noqa: F401
    except ImportError:
        raise Refused from None
    if case.verb not in ("softmax", "log_softmax", "logsumexp") and not case.own or case.dtype not in ("f32", "f64"):
        raise Refused
    lib.set_num_threads(case.threads)
    if case.own:
        return case.own.torch(case, x, lib)
    shape = case.shape[:1] if case.verb == "logsumexp" else case.shape
    there, function, out = lib.from_numpy(x), getattr(lib, case.verb), lib.from_numpy(at_page(shape, x.dtype))
    return lambda: function(there, -1, out=out)


IMPLEMENTATIONS = {"smx-python": libsoftmax, "numpy": numpy, "onnxruntime": onnxruntime, "jax": jax, "entmax": entmax, "torch": pytorch}

# ---- Measurement -----------------------------------------------------------------------------------------------------------------------


def at_page(shape, dtype):
    """An array that starts at a page, as in softmax_bench: those of NumPy start 16 bytes on, which costs wide vectors a quarter of their speed."""
    import numpy as np
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.zeros(size + 4096, np.uint8)
    start = -room.ctypes.data % 4096
    return room[start:start + size].view(dtype).reshape(shape)


def scores(case):
    if case.own:
        return case.own.inputs(case, at_page)
    import ml_dtypes  # comes with JAX
    import numpy as np
    x = at_page(case.shape, {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[case.dtype])
    x[...] = np.random.default_rng(1).standard_normal(case.shape) * 5
    return x


def as_array(y):
    import numpy as np
    if isinstance(y, tuple) and len(y) == 3:  # the gradients of attention
        return np.concatenate([as_array(a).ravel() for a in y])
    if isinstance(y, tuple):  # a loss and some rows of its gradient; weights and some rows of indices
        return np.concatenate([as_array(y[0]).ravel(), as_array(y[1][::1024]).ravel()])
    return np.asarray(y.numpy() if hasattr(y, "numpy") else y).astype(np.float64)


def agree(calls):
    """Nobody is fast by doing something else."""
    import numpy as np
    want = as_array(calls["smx-python"]())
    for name, call in calls.items():
        if not np.allclose(as_array(call()), want, rtol=0.02, atol=0.01):
            sys.exit("peers.py: %s gives other results" % name)


def sample(call, clock, count):
    begin = clock()
    for _ in range(count):
        call()
    return (clock() - begin) / count


def measure(case, library, repetitions, min_time):
    """One thread is timed in CPU time of the process, held to one processor; two threads in real time."""
    clock = time.process_time_ns if case.threads == 1 else time.perf_counter_ns
    calls, counts, samples, x = {}, {}, {}, scores(case)
    for name, make in IMPLEMENTATIONS.items():
        try:
            calls[name] = make(case, x, library)
        except Refused:
            continue
    agree(calls)
    for name, call in calls.items():
        counts[name] = max(1, math.ceil(min_time * 1e9 / max(1, min(sample(call, clock, 1) for _ in range(3)))))
    for _ in range(repetitions):
        for name in random.sample(list(calls), len(calls)):
            if case.threads > 1:
                time.sleep(0.005)  # the workers of the one before stop spinning
            samples.setdefault(name, []).append(sample(calls[name], clock, counts[name]) / case.elements)
    return samples


def versions():
    from importlib import metadata
    there = {d.metadata["Name"] for d in metadata.distributions()}
    return {name: metadata.version(name) for name in ("numpy", "onnxruntime", "jax", "entmax", "torch") if name in there}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--list", action="store_true", help="print the cases")
    p.add_argument("--library", help="libsoftmax.so")
    p.add_argument("--case", help="the one to measure")
    p.add_argument("--repetitions", type=int, default=9)
    p.add_argument("--min-time", type=float, default=0.01, metavar="SECONDS")
    args = p.parse_args()
    if args.list:
        cases = [(v, d, s) for v in VERBS for d in DTYPES for s in SHAPES] + [(v, "f32", SORTED_SHAPE) for v in SORTED]
        cases += peers_attention.CASES + peers_heads.CASES + peers_pairs.CASES + peers_pooling.CASES + peers_routing.CASES
        print("\n".join("%s/%s/%s/t%d" % (*case, t) for case in cases for t in (1, 2)))
        return
    case = Case(args.case)
    os.environ.update(OMP_NUM_THREADS=str(case.threads), OPENBLAS_NUM_THREADS=str(case.threads), JAX_PLATFORMS="cpu")
    if case.threads == 1:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # some of them make threads whatever they are told
    print(json.dumps({"context": versions(), "samples": measure(case, args.library, args.repetitions, args.min_time)}))


if __name__ == "__main__":
    main()
