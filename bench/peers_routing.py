"""The choice of experts in peers.py: PyTorch's composition beside the library.

Inputs are logits; chosen are the 8 best of all experts, or by sigmoids and a bias those of the 4 best of 8 groups."""
import ctypes

PREFIX = "route_"
K = 8
CASES = [(verb, "f32", "65536x256") for verb in ("route_softmax", "route_groups")]


class Gate(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("k", ctypes.c_int64), ("score", ctypes.c_int32), ("raw", ctypes.c_int32),
                ("groups", ctypes.c_int64), ("top_groups", ctypes.c_int64), ("group", ctypes.c_int32),
                ("scale", ctypes.c_double), ("temperature", ctypes.c_double)]


def inputs(case, at_page):
    import numpy as np
    x = [at_page(case.shape, np.float32), at_page(case.shape[1:], np.float32)]
    x[0][...] = np.random.default_rng(0).standard_normal(case.shape)
    x[1][...] = 0.02 * (np.arange(case.shape[1]) % 7 - 3)
    return x


def libsoftmax(case, x, lib, context, tensor, at_page, check):
    import numpy as np
    groups = case.verb == "route_groups"
    gate = Gate(size=ctypes.sizeof(Gate), k=K)
    if groups:
        gate.score, gate.groups, gate.top_groups, gate.scale = 1, 8, 4, 2.5
    weight, index = at_page((case.shape[0], K), np.float32), at_page((case.shape[0], K), np.int64)
    tensors = [tensor(a) for a in (*x, weight, index)]
    tensors[3].code, tensors[3].bits = 0, 64  # whole numbers
    there = [ctypes.byref(t) for t in tensors]
    if not groups:
        there[1] = None

    def call():
        check(lib, lib.smx_gate_topk(context, ctypes.byref(gate), *there))
        return weight, index
    return call


def torch(case, x, lib):
    x, bias = (lib.from_numpy(a) for a in x)

    def best():
        with lib.inference_mode():
            value, index = x.topk(K, dim=-1)
            return value.softmax(-1), index

    def groups():
        """As DeepSeek-V3 has it."""
        with lib.inference_mode():
            score = lib.sigmoid(x)
            key = (score + bias).view(len(x), 8, -1)
            kept = key.topk(2, dim=-1)[0].sum(-1).topk(4, dim=-1)[1]
            hidden = lib.ones(len(x), 8, dtype=lib.bool).scatter_(1, kept, False)
            index = key.masked_fill(hidden.unsqueeze(-1), -lib.inf).flatten(1).topk(K, dim=-1)[1]
            weight = score.gather(1, index)
            return weight / weight.sum(-1, keepdim=True) * 2.5, index
    return groups if case.verb == "route_groups" else best
