"""Tests of the command: the verb loss."""
import math
import os
import random

import arrays as A
from harness import close, fails, get, operators, put, REFUSED, run, scores, softmax, test, UNREADABLE, USAGE

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")


def example(name):
    return os.path.join(EXAMPLES, name)


def read_example(name):
    with open(example(name), "rb") as f:
        _, shape, values = A.read_npy(f.read())
    return shape, values


def log_loss(rows, targets):
    """What scikit-learn's log_loss gives for the softmax of the rows: the mean of -log p(target), in double precision."""
    return math.fsum(-math.log(softmax(row)[y]) for row, y in zip(rows, targets)) / len(rows)


def cut(shape, values):
    return [values[i:i + shape[-1]] for i in range(0, len(values), shape[-1])]


def told(*arguments):
    """The numbers on the screen by name, and the words after them."""
    numbers, words = {}, {}
    for line in run("loss", *arguments)[0].decode().splitlines():
        name, rest = line[:32].strip(), line[32:].split(None, 1)
        numbers[name], words[name] = float(rest[0]), rest[1]
    return numbers, words


@test("loss")
def the_digits_have_the_loss_of_scikit_learn():
    shape, values = read_example("digits_logits.npy")
    rows, targets = cut(shape, values), read_example("digits_labels.npy")[1]
    numbers, words = told("cross_entropy", example("digits_logits.npy"), "--targets", example("digits_labels.npy"))
    want = log_loss(rows, targets)
    assert abs(numbers["cross_entropy"] - want) <= 1e-6 * want, (numbers, want)
    right = sum(row.index(max(row)) == y for row, y in zip(rows, targets))
    assert abs(numbers["accuracy"] - right / len(rows)) < 1e-6 and words["accuracy"] == "%d of %d" % (right, len(rows))
    entropy = math.fsum(-sum(p * math.log(p) for p in softmax(row) if p) for row in rows) / len(rows)
    assert abs(numbers["mean entropy"] - entropy) < 1e-5, (numbers, entropy)
    assert words["cross_entropy"] == "mean of %d rows of %d classes" % shape, words


def small(n=4):
    """Rows of scores and targets; the second row is left out."""
    x = scores((5, n))
    targets = [0, -100, n - 1, 1, 0]
    put("x.npy", A.npy("f64", (5, n), x))
    put("t.npy", A.npy("i64", (5,), targets))
    return cut((5, n), x), targets


@test("loss")
def rows_that_are_left_out():
    rows, targets = small()
    kept = [(row, y) for row, y in zip(rows, targets) if y >= 0]
    numbers, words = told("cross_entropy", "x.npy", "--targets", "t.npy")
    assert abs(numbers["cross_entropy"] - log_loss(*zip(*kept))) < 1e-12, numbers
    assert words["cross_entropy"] == "mean of 4 of 5 rows of 4 classes" and words["accuracy"].endswith("of 4"), words
    assert told("cross_entropy", "x.npy", "t.npy")[0] == told("cross_entropy", "x.npy", "--target", "t.npy")[0] == numbers
    total = told("cross_entropy", "x.npy", "t.npy", "--reduction", "sum")[0]["cross_entropy"]
    assert abs(total - 4 * numbers["cross_entropy"]) < 1e-12


@test("loss")
def rows_without_an_entropy():
    put("n.npy", A.npy("f64", (2, 2), [float("nan"), 1, 0, 0]))
    put("soft.npy", A.npy("f64", (2, 2), [0.5] * 4))
    numbers, words = told("cross_entropy", "n.npy", "--soft_target", "soft.npy")
    assert abs(numbers["mean entropy"] - math.log(2)) < 1e-6 and words["mean entropy"].endswith("; 1 with NaN"), words
    assert math.isnan(numbers["cross_entropy"]) and "accuracy" not in numbers


@test("loss")
def losses_of_rows_and_gradients_are_written():
    rows, targets = small()
    p = [softmax(row) for row in rows]
    run("loss", "cross_entropy", "x.npy", "--targets", "t.npy", "-o", "loss.npy")
    _, shape, values = A.read_npy(get("loss.npy"))
    close(values, [-math.log(q[y]) if y >= 0 else 0 for q, y in zip(p, targets)])
    assert shape == (5,)
    run("loss", "cross_entropy", "x.npy", "--targets", "t.npy", "-o", "all.npz")
    assert sorted(A.read_npz(get("all.npz"))) == ["class", "entropy", "loss", "lse", "rank"]
    run("loss", "cross_entropy", "x.npy", "--targets", "t.npy", "--gradient", "-o", "dx.npy")
    want = [(q[j] - (j == y)) / 4 if y >= 0 else 0 for q, y in zip(p, targets) for j in range(4)]
    close(A.read_npy(get("dx.npy"))[2], want)
    out = run("loss", "cross_entropy", "x.npy", "--targets", "t.npy", "-o", "-", "--out-format", "csv")[0]
    assert len(A.read_text(out)) == 5  # nothing else on standard output
    fails(USAGE, "loss", "cross_entropy", "x.npy", "--targets", "t.npy", "--gradient", says="--gradient")


def loss_files(op, shape):
    """An array for each input that the loss needs, given by name."""
    arguments, either = ["x.npy"], False
    put("x.npy", A.npy("f32", shape, scores(shape)))
    for port in op["inputs"][1:]:
        if (port["optional"] and not port["either"]) or (port["either"] and either):
            continue
        either |= port["either"]
        sizes = {"full": shape, "row": shape[:-1], "column": shape[-1:]}[port["shape"]]
        n = A.count(sizes)
        values = [random.randrange(2) for _ in range(n)] if port["integer"] else [random.uniform(0.1, 0.9) for _ in range(n)]
        put(port["name"] + ".npy", A.npy("i64" if port["integer"] else "f32", sizes, values))
        arguments += ["--targets" if port["name"] == "target" else "--" + port["name"], port["name"] + ".npy"]
    return arguments


@test("loss")
def every_loss_is_told():
    shape = (3, 4, 6)
    for op in operators():
        if op["family"] != "loss" or "reduced" not in [p["name"] for p in op["outputs"]]:
            continue
        arguments = loss_files(op, shape)
        numbers, words = told(op["name"], *arguments)
        assert ("accuracy" in numbers) == ("--targets" in arguments), (op["name"], numbers)
        flat = ["--reduction", "mean", "-o", "o.npz"]
        run("run", op["name"], *[a.replace("--targets", "--target") for a in arguments], *flat)
        reduced = A.read_npz(get("o.npz"))["reduced"][2][0]
        both_nan = numbers[op["name"]] != numbers[op["name"]] and reduced != reduced
        assert both_nan or abs(numbers[op["name"]] - reduced) <= 1e-8 * max(1, abs(reduced)), (op["name"], numbers, reduced)
        assert words["mean entropy"] == "nats of at most 1.79176", words
        if "accuracy" in numbers:
            hits = told("cross_entropy", "x.npy", "--targets", "target.npy")[0]
            assert hits["accuracy"] == numbers["accuracy"] and hits["mean entropy"] == numbers["mean entropy"], op["name"]


@test("loss")
def one_number_of_half_precision_logits_has_its_digits():
    put("h.npy", A.npy("f16", (3, 2), [0.5, 1, -1, 2, 0.25, 0]))
    put("t.npy", A.npy("i32", (3,), [0, 1, 1]))
    numbers = told("cross_entropy", "h.npy", "--targets", "t.npy")[0]
    assert abs(numbers["cross_entropy"] - log_loss([[0.5, 1], [-1, 2], [0.25, 0]], [0, 1, 1])) < 1e-6, numbers


@test("loss")
def wrong_losses():
    small()
    put("bad.npy", A.npy("i64", (5,), [0, 1, 2, 4, 0]))
    put("short.npy", A.npy("i64", (4,), [0, 1, 2, 3]))
    put("half.csv", b"0\n1\n0.5\n1\n1\n")
    fails(REFUSED, "loss", "cross_entropy", "x.npy", "--targets", "bad.npy", "-o", "no.npy", says=["bad.npy", "row 3", "target 4"])
    fails(REFUSED, "loss", "cross_entropy", "x.npy", "--targets", "short.npy", says=["short.npy", "target"])
    fails(REFUSED, "loss", "cross_entropy", "x.npy", "--targets", "half.csv", says=["half.csv", "0.5"])
    fails(USAGE, "loss", "cross_entropy", "x.npy", says="--targets FILE")
    fails(UNREADABLE, "loss", "cross_entropy", "x.npy", "--targets", "gone.npy", says="gone.npy")
    fails(USAGE, "loss", says="no loss")
    fails(USAGE, "loss", "softmax", "x.npy", says=["softmax", "not a loss"])
    fails(USAGE, "loss", "cross_entropi", "x.npy", says="is it cross_entropy")
    fails(USAGE, "loss", "cross_entropy", "x.npy", "t.npy", "--targets", "t.npy", "--targets", "t.npy", says="twice")
    fails(USAGE, "loss", "cross_entropy", "x.npy", "--targets", "t.npy", "--reduction", "median", says="--reduction median")
    fails(USAGE, "loss", "cross_entropy", "x.npy", "--targets", "t.npy", "--backward", says="--backward")
    assert "no.npy" not in os.listdir(os.path.dirname(put("y", b"")))
