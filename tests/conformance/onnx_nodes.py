"""The node tests of ONNX, as the onnx package ships them: every test of one node of these families, found in the package.

passed: dtype, shape and values are those of the test. not covered: libsoftmax has no operator for the node (yet).
"""
import collections
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import libsoftmax

FAMILIES = ["Softmax", "LogSoftmax", "Hardmax", "ReduceLogSumExp", "TopK", "SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss",
            "Attention", "LinearAttention", "AveragePool", "MaxPool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool",
            "NonMaxSuppression"]

# Largest error, in parts of the largest value; ONNX asks for 1e-3. The expected values are those of NumPy in the dtype of the node.
TOLERANCE = {"float64": 1e-12, "float32": 2e-6, "float16": 1e-3}

# Tests whose expected values are written with four digits.
COARSE = {"test_averagepool_2d_ceil_last_window_starts_on_pad": 1e-3}

# Tests whose data contradict the text of a later version (1.23) on masks; the text wins. None of the families covered so far has masks.
SUPERSEDED = {}


# ---- nodes as calls ----

def along_axis(name):
    def run(node, inputs):
        return [getattr(libsoftmax, name)(inputs[0], axis=node.get("axis", -1))]
    return run


def reduce_log_sum_exp(node, inputs):
    """Any set of axes: they are brought to the end and made one."""
    x = inputs[0]
    axes = node.get("axes", inputs[1].tolist() if len(inputs) > 1 and inputs[1] is not None else None)
    if not axes:
        if node.get("noop_with_empty_axes", 0):
            return [x]
        axes = range(x.ndim)
    axes = sorted(a % x.ndim for a in axes)
    rest = [a for a in range(x.ndim) if a not in axes]
    rows = x.transpose(rest + axes).reshape([x.shape[a] for a in rest] + [int(np.prod([x.shape[a] for a in axes]))])
    y = libsoftmax.logsumexp(rows)
    return [y.reshape([1 if a in axes else n for a, n in enumerate(x.shape)]) if node.get("keepdims", 1) else y]


def loss(name):
    """Classes lie along axis 1."""
    def run(node, inputs):
        x, target, weight = (*inputs, None)[:3]
        reduction, ignore = node.get("reduction", b"mean").decode(), {"ignore_index": node["ignore_index"]} if "ignore_index" in node else {}
        return [getattr(libsoftmax, name)(x, target, class_weight=weight, axis=1, reduction=reduction, **ignore).loss]
    return run


def softmax_cross_entropy(node, inputs):
    """The second output, where it is asked for, is the logarithm of the weights."""
    return loss("cross_entropy")(node, inputs) + [libsoftmax.log_softmax(inputs[0], axis=1)]


def top_k(node, inputs):
    """Where the k best are; what they are follows from that. Whole numbers below 2^53 are scores in double."""
    x, k, axis = inputs[0], int(inputs[1][0]), node.get("axis", -1)
    scores = x if x.dtype.kind == "f" else x.astype("float64")
    index = libsoftmax.softmax_topk(scores if node.get("largest", 1) else -scores, k=k, axis=axis).index
    return [np.take_along_axis(x, index, axis), index]


def heads(x, count):
    """[B, L, H D] as [B, H, L, D], without a copy."""
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def attention(node, inputs):
    """Query, key, value, mask, past key, past value, lengths; outputs Y, present key, present value, and scores of some stage."""
    q, k, v, mask, past_k, past_v, lengths = (*inputs, *[None] * 7)[:7]
    packed = q.ndim == 3
    if packed:
        q, k, v = heads(q, node["q_num_heads"]), heads(k, node["kv_num_heads"]), heads(v, node["kv_num_heads"])
    if past_k is not None:
        k, v = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
    settings = {"scale": node.get("scale", 0.0), "softcap": node.get("softcap", 0.0), "causal": bool(node.get("is_causal", 0)),
                "window_left": node.get("left_window_size", -1), "window_right": node.get("right_window_size", -1), "lengths": lengths,
                "query_start": past_k.shape[2] if past_k is not None else -1 if lengths is not None else 0}
    if mask is not None:  # what it is too short for is hidden
        hidden = False if mask.dtype == bool else -np.inf
        mask = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, k.shape[2] - mask.shape[-1])], constant_values=hidden)
        settings["mask" if mask.dtype == bool else "bias"] = mask
    y = libsoftmax.attention(q, k, v, **settings)
    stage = ("products", "capped", "scores", "weights")[node.get("qk_matmul_output_mode", 0)]
    y = y.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], -1) if packed else y
    return [y, k, v, libsoftmax.attention_scores(q, k, stage=stage, **settings)]


def linear_attention(node, inputs):
    """Query, key, value, past state, decay, beta. decay: of every head, or of each element of its key; beta: of every head, or of all."""
    q, k, v, past, decay, beta = (*inputs, *[None] * 3)[:6]
    groups = node["kv_num_heads"]
    if beta is not None:
        beta = np.broadcast_to(beta.transpose(0, 2, 1), (len(k), groups, k.shape[1]))
    q, k, v = heads(q, node["q_num_heads"]), heads(k, groups), heads(v, groups)
    y, state = libsoftmax.linear_attention(q, k, v, decay=None if decay is None else heads(decay, groups), beta=beta, past=past,
                                           scale=node.get("scale", 0.0))
    return [y.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], -1), state.astype(q.dtype if past is None else past.dtype)]


def before_and_behind(node, shape, kernel):
    """The cells of padding of each axis, as ONNX has them: given, or as many as the outputs of SAME need, the odd one before or behind."""
    auto, strides, dilations = node.get("auto_pad", b"NOTSET").decode(), node.get("strides"), node.get("dilations", [1] * len(kernel))
    pads = node.get("pads", [0] * 2 * len(kernel))
    if not auto.startswith("SAME"):
        return list(zip(pads[:len(kernel)], pads[len(kernel):]))
    both = [max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0) for n, k, s, d in zip(shape, kernel, strides or [1] * len(kernel), dilations)]
    return [(b // 2, b - b // 2) if auto == "SAME_UPPER" else (b - b // 2, b // 2) for b in both]


def windows(node, x):
    """The parameters of the windows of x, and the cells to add before and behind where padding is not the same there, or beyond half of a kernel."""
    kernel = node["kernel_shape"]
    axes = len(kernel)
    pads = before_and_behind(node, x.shape[-axes:], kernel)
    some = {"spatial": axes, "ceil": "yes" if node.get("ceil_mode", 0) else "no"}
    even = all(a == b and 2 * a <= k for (a, b), k in zip(pads, kernel))
    lists = {"kernel": kernel, "stride": node.get("strides", [1] * axes), "padding": [a if even else 0 for a, _ in pads],
             "dilation": node.get("dilations", [1] * axes)}
    for name, values in lists.items():
        for ending, value in zip(("", "_h", "_d"), reversed(values)):
            some[name + ending] = value
    return some, None if even else [(0, 0)] * (x.ndim - axes) + pads


def max_pool(node, inputs):
    """Indices are those of the whole tensor there; column by column where the storage order says so."""
    x = inputs[0]
    some, pads = windows(node, x)
    scores = x if x.dtype.kind == "f" else x.astype("float32")
    if pads:
        scores = np.pad(scores, pads, constant_values=-np.inf)
    y, index = libsoftmax.max_pool(scores, **some, return_index=True)
    cells = int(np.prod(x.shape[2:]))
    if node.get("storage_order", 0):
        index = index % x.shape[-1] * x.shape[-2] + index // x.shape[-1]
    planes = np.arange(int(np.prod(x.shape[:2]))).reshape(x.shape[:2] + (1,) * (x.ndim - 2))
    return [y.astype(x.dtype), index + planes * cells]


def avg_pool(node, inputs):
    """A sum over a number of cells, where the padding is made of cells."""
    x = inputs[0]
    padded = node.get("count_include_pad", 0)
    some, pads = windows(node, x)
    if not pads:
        return [libsoftmax.avg_pool(x, **some, count="padded" if padded else "present")]
    there = np.pad(np.ones_like(x), pads, constant_values=1 if padded else 0)
    return [libsoftmax.avg_pool(np.pad(x, pads), **some, divisor=1) / libsoftmax.avg_pool(there, **some, divisor=1)]


def lp_pool(node, inputs):
    """Cells of padding are 0, which adds nothing."""
    some, pads = windows(node, inputs[0])
    return [libsoftmax.lp_pool(np.pad(inputs[0], pads) if pads else inputs[0], power=node.get("p", 2), **some)]


def global_lp_pool(node, inputs):
    """All cells of a plane as a set."""
    x = inputs[0]
    cells = x.reshape(x.shape[0], x.shape[1], -1).transpose(0, 2, 1)
    return [libsoftmax.gnp_pool(cells, power=node.get("p", 2), count_power=0).reshape(x.shape[:2] + (1,) * (x.ndim - 2))]


def global_pool(name):
    def run(node, inputs):
        return [getattr(libsoftmax, name)(inputs[0], spatial=inputs[0].ndim - 2)]
    return run


def non_max_suppression(node, inputs):
    """Image by image and class by class; corners in any order, or centres with sizes."""
    boxes, scores, most, threshold, least = (*inputs, None, None, None)[:5]
    most, threshold, least = (0 if v is None else np.ravel(v)[0] for v in (most, threshold, least))
    if node.get("center_point_box", 0):
        centre, size = boxes[..., :2], boxes[..., 2:]
        boxes = np.concatenate([centre - size / 2, centre + size / 2], -1)
    corners = np.stack([boxes[..., :2], boxes[..., 2:]])
    boxes = np.concatenate([corners.min(0), corners.max(0)], -1)
    found = []
    for b, image in enumerate(scores):
        for c, row in enumerate(image):
            index = libsoftmax.nms(boxes[b], row, threshold=threshold, most=int(most), least=least if least else -np.inf).index if most else []
            found += [(b, c, i) for i in index if i >= 0]
    return [np.array(found, np.int64).reshape(-1, 3)]


# node -> (operator that it needs, call)
CALLS = {
    "Softmax": ("softmax", along_axis("softmax")),
    "LogSoftmax": ("log_softmax", along_axis("log_softmax")),
    "Hardmax": ("hardmax", along_axis("hardmax")),
    "ReduceLogSumExp": ("logsumexp", reduce_log_sum_exp),
    "TopK": ("softmax_topk", top_k),
    "NegativeLogLikelihoodLoss": ("nll_loss", loss("nll_loss")),
    "Attention": ("attention", attention),
    "LinearAttention": ("linear_attention", linear_attention),
    "SoftmaxCrossEntropyLoss": ("cross_entropy", softmax_cross_entropy),
    "MaxPool": ("max_pool", max_pool),
    "AveragePool": ("avg_pool", avg_pool),
    "LpPool": ("lp_pool", lp_pool),
    "GlobalLpPool": ("gnp_pool", global_lp_pool),
    "NonMaxSuppression": ("nms", non_max_suppression),
    "GlobalAveragePool": ("adaptive_avg_pool", global_pool("adaptive_avg_pool")),
    "GlobalMaxPool": ("adaptive_max_pool", lambda node, inputs: [global_pool("adaptive_max_pool")(node, inputs)[0].y]),
}


# ---- tests ----

def tests():
    """(name, node, folders of data) for every test that is one node of a family; several nodes are another operator's definition."""
    for case in load_model_tests(kind="node"):
        model = onnx.load(Path(case.model_dir) / "model.onnx")
        nodes = model.graph.node
        if len(nodes) == 1 and nodes[0].op_type in FAMILIES:
            yield case.name, nodes[0], sorted(Path(case.model_dir).glob("test_data_set_*"))


def tensors(folder, kind, count):
    return [numpy_helper.to_array(onnx.load_tensor(folder / ("%s_%d.pb" % (kind, i)))) for i in range(count)]


def difference(found, expected, tolerance):
    """What is wrong, or None."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return "%s %s, not %s %s" % (found.dtype, found.shape, expected.dtype, expected.shape)
    if expected.dtype.kind != "f":
        return None if np.array_equal(found, expected) else "other values"
    finite = np.isfinite(expected)
    if not np.array_equal(found[~finite], expected[~finite], equal_nan=True):
        return "other infinities or NaN"
    scale = np.abs(expected[finite]).max(initial=0) or 1
    error = np.abs(found[finite] - expected[finite]).max(initial=0) / scale
    return None if error <= tolerance else "error %.2g" % error


def run(name, node, folder):
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    given = [name != "" for name in node.input]
    values = iter(tensors(folder, "input", sum(given)))
    found = CALLS[node.op_type][1](attributes, [next(values) if g else None for g in given])
    if len(found) < len(node.output):
        return "%d outputs, not %d" % (len(found), len(node.output))
    wanted = [i for i, name in enumerate(node.output) if name != ""]
    for i, expected in zip(wanted, tensors(folder, "output", len(wanted))):
        wrong = difference(np.asarray(found[i]), expected, COARSE.get(name, TOLERANCE.get(str(expected.dtype))))
        if wrong:
            return "output %d: %s" % (i, wrong)


def main():
    counts = collections.Counter()
    for name, node, folders in tests():
        needs = CALLS.get(node.op_type, (None,))[0]
        if name in SUPERSEDED:
            verdict = "superseded"
        elif not hasattr(libsoftmax, needs or "no function"):
            verdict = "not covered"
        else:
            wrong = [w for w in (run(name, node, folder) for folder in folders) if w]
            verdict = "failed" if wrong else "passed"
            for w in wrong:
                print("%s: %s" % (name, w))
        counts[node.op_type, verdict] += 1
    verdicts = ("passed", "failed", "not covered", "superseded")
    print("%-26s" % ("onnx %s, node tests" % onnx.__version__) + "".join("%12s" % v for v in verdicts))
    for family in FAMILIES:
        print("%-26s" % family + "".join("%12d" % counts[family, v] for v in verdicts))
    total = {v: sum(n for (_, verdict), n in counts.items() if verdict == v) for v in verdicts}
    print("%-26s" % "all" + "".join("%12d" % total[v] for v in verdicts))
    return total["failed"] > 0 or total["passed"] == 0


if __name__ == "__main__":
    sys.exit(main())
