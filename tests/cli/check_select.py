"""Tests of the command: the verb select."""
import math

import arrays as A
from harness import fails, get, put, REFUSED, run, scores, softmax, test, USAGE

ROWS, N = 30, 5


def logits():
    x = scores((ROWS, N))
    put("x.npy", A.npy("f64", (ROWS, N), x))
    return [softmax(x[N * i:N * i + N]) for i in range(ROWS)]


def chosen(*arguments):
    run("select", "x.npy", *arguments, "-o", "rows.npy")
    dtype, shape, rows = A.read_npy(get("rows.npy"))
    assert dtype == "i64" and shape == (len(rows),), (dtype, shape)
    return list(rows)


def entropy(p):
    return -sum(v * math.log(v) for v in p)


@test("select")
def the_most_uncertain_rows_first():
    p = logits()
    best = sorted(range(ROWS), key=lambda i: -entropy(p[i]))
    assert chosen() == best[:10]
    assert chosen("--budget", "4") == best[:4]
    assert chosen("--by", "entropy", "--block", "80", "--budget", "7") == best[:7]
    assert chosen("--by", "msp", "--least", "--budget", "5") == sorted(range(ROWS), key=lambda i: max(p[i]))[:5]
    assert chosen("--budget", "0") == []


@test("select")
def within_a_budget():
    p, cost = logits(), [1 + i % 4 for i in range(ROWS)]
    put("c.npy", A.npy("f32", (ROWS,), cost))
    left, want = 9, []
    for i in sorted(range(ROWS), key=lambda i: -entropy(p[i]) / cost[i]):
        if cost[i] <= left:
            want.append(i)
            left -= cost[i]
    assert chosen("--cost", "c.npy", "--budget", "9", "--rank", "ratio") == want
    lines = run("select", "x.npy", "--cost", "c.npy", "--budget", "9", "--rank", "ratio")[0].decode().splitlines()
    assert [int(line.split()[0]) for line in lines[1:-1]] == want
    assert lines[-1] == "%d of %d rows, which cost %d" % (len(want), ROWS, 9 - left), lines[-1]


@test("select")
def rows_whose_gradients_differ():
    p = logits()
    features = scores((ROWS, 3))
    put("f.npy", A.npy("f32", (ROWS, 3), features))
    rows = chosen("--by", "badge", "--features", "f.npy", "--budget", "6", "--seed", "4")
    assert len(set(rows)) == 6 and rows == chosen("--by", "badge", "--features", "f.npy", "--budget", "6", "--seed", "4")
    far = [sum(v * v for v in features[3 * i:3 * i + 3]) * sum((v - (k == p[i].index(max(p[i])))) ** 2 for k, v in enumerate(p[i]))
           for i in range(ROWS)]
    assert rows[0] == far.index(max(far)), (rows, far)
    lines = run("select", "x.npy", "--by", "badge", "--features", "f.npy", "--budget", "6", "--seed", "4")[0].decode().splitlines()
    assert lines[0].split() == ["row"] and [int(line) for line in lines[1:-1]] == rows and lines[-1] == "6 of %d rows" % ROWS, lines
    assert chosen("--by", "badge", "--features", "f.npy", "--budget", "6", "--seed", "5") != rows


@test("select")
def wrong_calls():
    logits()
    put("c.npy", A.npy("f32", (3,), [1, 2, 3]))
    fails(USAGE, "select", says=["no input file"])
    fails(USAGE, "select", "x.npy", "x.npy", says=["one input too many"])
    fails(USAGE, "select", "x.npy", "--by", "true_class_probability", says=["needs the class"])
    fails(USAGE, "select", "x.npy", "--by", "softmax", says=["no score of a row"])
    fails(USAGE, "select", "x.npy", "--alpha", "2", says=["--alpha"])
    fails(USAGE, "select", "x.npy", "--features", "c.npy", says=["--features"])
    fails(USAGE, "select", "x.npy", "--by", "badge", says=["needs --features"])
    fails(USAGE, "select", "x.npy", "--by", "badge", "--features", "c.npy", "--cost", "c.npy", says=["--cost", "badge"])
    fails(REFUSED, "select", "x.npy", "--by", "badge", "--features", "c.npy", says=["c.npy: ndim is 1, not 2"])
    put("f.npy", A.npy("f32", (3, 1), [1, 2, 3]))
    fails(REFUSED, "select", "x.npy", "--by", "badge", "--features", "f.npy", says=["f.npy: of 3 rows, not of 30"])
    fails(USAGE, "select", "x.npy", "--by", "badge", "--features", "c.npy", "--rank", "ratio", says=["--rank"])
    fails(USAGE, "select", "x.npy", "--budget", "-1", says=["--budget -1"])
    fails(REFUSED, "select", "x.npy", "--cost", "c.npy", says=["not a cost for each row"])
