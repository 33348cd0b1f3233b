"""ONNX Runtime beside libsoftmax: models of one node, on its CPU provider."""
import functools

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import libsoftmax
from peers import Difference, Comparison, main

TYPES = {np.dtype("float32"): TensorProto.FLOAT, np.dtype("float64"): TensorProto.DOUBLE}
onnxruntime.set_default_logger_severity(4)


@functools.cache
def session(op, dtype, attributes):
    x, y = (helper.make_tensor_value_info(name, TYPES[dtype], None) for name in "xy")
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], **dict(attributes))], op, [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def node(op, **attributes):
    return lambda x: session(op, x.dtype, tuple(attributes.items())).run(None, {"x": x})[0]


COMPARISONS = [
    Comparison("Softmax", libsoftmax.softmax, node("Softmax")),
    Comparison("Softmax along axis 0", lambda x: libsoftmax.softmax(x, axis=0), node("Softmax", axis=0)),
    Comparison("LogSoftmax", libsoftmax.log_softmax, node("LogSoftmax")),
    Comparison("Hardmax", libsoftmax.hardmax, node("Hardmax"), ("float32",)),
    Comparison("ReduceLogSumExp", libsoftmax.logsumexp, node("ReduceLogSumExp", axes=(-1,), keepdims=0)),
]

DIFFERENCES = [
    Difference(("Softmax", "Softmax along axis 0", "LogSoftmax"), ("-inf only",),
               "nothing is valid: weights are 0 and their logarithms -inf; ONNX Runtime gives NaN"),
    Difference(("LogSoftmax",), ("+inf once", "+inf twice", "NaN"),
               "a row with a NaN or +inf is NaN as a whole; ONNX Runtime gives -inf at some elements in f64"),
    Difference(("Hardmax",), ("-inf only",), "nothing is valid: no element is the largest; ONNX Runtime takes the first"),
    Difference(("Hardmax",), ("+inf once", "+inf twice", "NaN"), "a row with a NaN or +inf is NaN; ONNX Runtime gives a one-hot or 0"),
    Difference(("ReduceLogSumExp",), ("+inf once", "+inf twice"),
               "a row with +inf is NaN unless on_inf='limit'; ONNX Runtime always takes the limit"),
    Difference(("ReduceLogSumExp",), ("no elements",),
               "the sum over no elements is 0, its logarithm -inf, one a row; ONNX Runtime keeps the axis"),
]

if __name__ == "__main__":
    main("onnxruntime %s" % onnxruntime.__version__, COMPARISONS, DIFFERENCES)
