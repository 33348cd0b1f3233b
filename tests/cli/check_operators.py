"""Tests of the command: every operator of the table, whole and in blocks."""
import os
import random
import re

import arrays as A
from harness import close, fails, get, operators, path, put, REFUSED, row_operators, run, scores, SHAPE, softmax, test, USAGE, X


COUNT = 2  # what every parameter that counts elements is set to


def named_array(port, sizes, otherwise):
    """Of a port whose dimensions have names: sizes of some, the size of the others; s* are two."""
    names, _, bound = port["dims"].partition("|")
    size = lambda name: int(name) if name.isdigit() else sizes.get(name, otherwise)  # noqa: E731
    want = [size(name.partition("+")[0].rstrip("*")) + ("+" in name) for name in names.split() if name != "..." for _ in range(1 + ("*" in name))]
    n = A.count(want)
    if port["mask"]:
        return "u8", tuple(want), [int(random.random() < 0.8) for _ in range(n)]
    if port["name"] == "parent":  # of a tree, leaves first, whose nodes go together two by two
        return "i64", tuple(want), [(n + 1) // 2 + i // 2 for i in range(n - 1)] + [-1]
    if bound.startswith(" <= "):
        return "i64", tuple(want), [size(bound[4:]) * (i % want[-1]) // (want[-1] - 1) for i in range(n)]
    if port["integer"]:
        return "i64", tuple(want), [i % size(bound[3:]) if bound else 1 for i in range(n)]
    return "f32", tuple(want), [round(random.uniform(0.1, 1), 2) for _ in range(n)]


def port_array(port, shape, axis, sizes={}):
    if port["shape"] == "dims":
        return named_array(port, {"k": shape[axis], **sizes}, shape[axis])
    if port["shape"] == "offsets":
        n = shape[axis]
        return "i64", (4,), [0, n // 2, n // 2, n]
    want = result_shape(port, shape, axis)
    if port["mask"]:
        return "u8", tuple(want), [int(random.random() < 0.8) for _ in range(A.count(want))]
    if port["integer"]:
        return "i64", tuple(want), [1] * A.count(want)
    low = -4 if port["shape"] == "full" else 0.5
    return "f32", tuple(want), [round(random.uniform(low, 4), 2) for _ in range(A.count(want))]


def operator_inputs(op, shape, axis, optional):
    arguments = []
    either = [port["name"] for port in op["inputs"] if port["either"]]
    for port in op["inputs"]:
        if port["either"] and port["name"] != either[int(optional)]:
            continue
        if port["optional"] and not port["either"] and not optional:
            continue
        name = "in-%s.npy" % port["name"]
        put(name, A.npy(*port_array(port, shape, axis)))
        arguments += [name] if port is op["inputs"][0] else ["--" + port["name"], name]
    for p in op["params"]:  # counts of elements may be limited by the length of a row
        if p["integer"] and not p.get("choices"):
            arguments += ["--" + p["name"], str(COUNT)]
    return arguments


def result_shape(port, shape, axis):
    if port["shape"] == "column":
        return (shape[axis],)
    if port["shape"] == "scalar":
        return ()
    along = {"full": (shape[axis],), "k": (COUNT,), "row": ()}[port["shape"]]
    return shape[:axis] + along + shape[axis + 1:]


@test("operators")
def every_operator_runs():
    """Each along two of three axes, once with all its inputs; the process is what takes time."""
    shape = (2, 3, 8)
    for turn, op in enumerate(row_operators()):
        for optional in (False, True):
            axis = (turn + optional) % 3
            arguments = ["run", op["name"], *operator_inputs(op, shape, axis, optional), "--axis", str(axis)]
            run(*arguments, "-o", "o.safetensors")
            got = A.read_safetensors(get("o.safetensors"))
            assert list(got) == [p["name"] for p in op["outputs"]]
            for port in op["outputs"]:
                assert got[port["name"]][:2] == ("i64" if port["integer"] else "f32", result_shape(port, shape, axis)), op["name"]


@test("operators")
def every_operator_prints_a_table():
    for op in row_operators():
        arguments = ["run", op["name"], *operator_inputs(op, (2, 3, 8), 2, True)]
        run(*arguments)
        run(*arguments, "-o", "o.npy")


def without(arguments, option):
    """An option may be given once: the arguments without it and its value."""
    at = arguments.index(option) if option in arguments else len(arguments)
    return [*arguments[:at], *arguments[at + 2:]]


@test("operators")
def every_parameter_is_an_option():
    for op in row_operators():
        inputs = operator_inputs(op, (2, 8), 1, False)
        for p in op["params"]:
            arguments = without(inputs, "--" + p["name"])
            for value in p.get("choices") or [p["default"] if not p["integer"] or p["even"] else COUNT if p["name"] == "k" else 1]:
                run("run", op["name"], *arguments, "--" + p["name"], str(value))
            if p["min"] != "-inf":
                fails(USAGE, "run", op["name"], *arguments, "--" + p["name"], str(p["min"] - (abs(p["min"]) + 1)), says="--" + p["name"])


@test("operators")
def every_gradient_is_written():
    shape = (2, 3, 8)
    for op in row_operators():
        if not op["backward"]:
            continue
        arguments = ["run", op["name"], *operator_inputs(op, shape, 2, True), "--backward"]
        for port in (p for p in op["outputs"][:4] if not p["integer"] and not p["dx"] and p["shape"] != "scalar"):
            put("d%s.npy" % port["name"], A.npy(*port_array(port, shape, 2)))
            arguments += ["--dout", "d%s.npy" % port["name"]]
        run(*arguments, "-o", "whole.npz")
        run(*arguments, "-o", "parts.npz", "--block", "64")
        got = A.read_npz(get("whole.npz"))
        assert repr(got) == repr(A.read_npz(get("parts.npz"))), op["name"]  # as text: a NaN is one there too
        assert sorted(got) == sorted("d" + p["name"] for p in op["inputs"] if p["gradient"]), op["name"]
        for port in op["inputs"]:
            assert not port["gradient"] or got["d" + port["name"]][1] == result_shape(port, shape, 2)
        run(*arguments)


@test("operators")
def gradient_from_text():
    put("x.csv", b"1,2,3\n")
    put("d.csv", b"1,0,0\n")
    y = softmax([1, 2, 3])
    out = run("run", "softmax", "x.csv", "--backward", "--dout", "d.csv", "-o", "-", "--out-format", "csv")[0]
    close(A.read_text(out)[0], [y[0] * (1 - y[0]), -y[0] * y[1], -y[0] * y[2]])
    put("d.csv", b"2\n")
    out = run("run", "logsumexp", "x.csv", "--backward", "--dout", "d.csv", "-o", "-", "--out-format", "csv")[0]
    close(A.read_text(out)[0], [2 * v for v in y])


@test("operators")
def inputs_are_converted_to_their_ports():
    put("x.npy", A.npy("f32", *X))
    mask = [1, 0, 1, 1, 0] * 3
    put("u8.npy", A.npy("u8", SHAPE, mask))
    want = run("run", "masked_softmax", "x.npy", "u8.npy", "-o", "-")[0]
    masks = {"bool.npy": A.npy("bool", SHAPE, mask), "i64.npy": A.npy("i64", SHAPE, mask, ">"), "m.csv": A.text(SHAPE, mask)}
    for name, data in masks.items():
        put(name, data)
        assert run("run", "masked_softmax", "x.npy", name, "-o", "-")[0] == want, name
    put("offsets.npy", A.npy("i32", (3,), [0, 2, 5]))
    put("offsets.csv", b"0,2,5\n")
    put("offsets.tsv", b"0\n2\n5\n")
    outs = {run("run", "segment_softmax", "x.npy", "offsets" + e, "-o", "-")[0] for e in (".npy", ".csv", ".tsv")}
    assert len(outs) == 1


@test("operators")
def names_do_not_collide():
    settings = set(re.findall(r"--([a-z-]+)", run("help")[0].decode().split("Options of a run")[1].split("Formats")[0]))
    for op in operators():
        for name in [p["name"] for p in op["params"]] + [p["name"] for p in op["inputs"][1:]]:
            assert name not in settings, (op["name"], name)


@test("blocks")
def blocks_do_not_matter():
    shape = (3, 4, 5)
    for turn, op in enumerate(row_operators()):
        axis = turn % 3
        arguments = ["run", op["name"], *operator_inputs(op, shape, axis, True), "--axis", str(axis), "-o", "-"]
        whole = run(*arguments)[0]
        for block in (40, 100) if axis else (1,):
            assert run(*arguments, "--block", str(block))[0] == whole, (op["name"], axis, block)


@test("blocks")
def blocks_of_broadcast_converted_and_fortran_inputs():
    shape = (4, 3, 5)
    x = scores(shape)
    put("x.npy", A.npy("f32", shape, x))
    for bias_shape in ((5,), (3, 1), (4, 1, 1), (1, 3, 5), shape):
        put("bias.npy", A.npy("f16", bias_shape, scores(bias_shape), "<>"[len(bias_shape) % 2]))
        put("sink.npy", A.npy("f32", (4, 1), scores((4,))))
        arguments = ["bias.npy", "--sink", "sink.npy", "-o", "-"]
        whole = run("run", "scaled_masked_softmax", "x.npy", *arguments)[0]
        for order, fortran in (("<", False), ("<", True), (">", True)):
            put("y.npy", A.npy("f32", shape, x, order, 1, fortran))
            for block in ("1", "25", "70"):
                out = run("run", "scaled_masked_softmax", "y.npy", *arguments, "--block", block)[0]
                assert out == whole, (bias_shape, order, fortran, block)


@test("blocks")
def a_file_larger_than_a_block():
    rows = 1300000
    header = A.npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 16)}" % rows)
    part = A.pack("f32", scores((1300, 16)))
    put("big.npy", header + part * (rows // 1300))
    assert os.path.getsize(path("big.npy")) > 64 << 20
    run("big.npy", "-o", "parts.npy")
    run("big.npy", "-o", "whole.npy", "--block", str(1 << 40))
    assert get("parts.npy") == get("whole.npy")
    for name in ("big.npy", "parts.npy", "whole.npy"):
        os.remove(path(name))


@test("blocks")
def faults_say_where_the_block_starts():
    put("a.csv", b"1,2\n" * 6 + b"-inf,-inf\n")
    fails(REFUSED, "a.csv", "--on-empty", "error", "--block", "32", says=["a.csv", "from row 6"])


@test("blocks")
def threads_do_not_matter():
    put("a.npy", A.npy("f32", (200, 50), scores((200, 50))))
    want = run("a.npy", "-o", "-")[0]
    for threads in ("1", "2", "7", "all"):
        assert run("a.npy", "-o", "-", "--threads", threads)[0] == want
