"""Tests of the command: the verb calibrate."""
import json
import math

import arrays as A
from harness import close, fails, get, put, REFUSED, run, softmax, test, UNREADABLE, USAGE

Z = [2, 1, 0, 1, 2, 0, 0, 1, 2, 3, 0, 0, 0, 3, 1, 1, 0, 2, 1, 1.5, 0, 2, 0, 1.5, .5, 0, 1]
Y = [0, 1, 2, 0, 1, 2, 0, 2, 1]


def put_set(dtype="f64"):
    put("z.npy", A.npy(dtype, (9, 3), Z))
    put("y.npy", A.npy("i64", (9,), Y))


def fit(method, x="z.npy", y="y.npy", *settings):
    told = run("calibrate", "fit", method, x, "--targets", y, "-o", method + ".json", *settings)[0].decode()
    return json.loads(get(method + ".json")), told


def apply(method, x="z.npy", *settings):
    run("calibrate", "apply", method + ".json", x, "-o", "o.csv", *settings)
    return [[float(v) for v in line.split(",")] for line in get("o.csv").decode().split()]


def rows(x=Z):
    return [x[3 * i:3 * i + 3] for i in range(9)]


def loss(p):
    return -sum(math.log(row[y]) for row, y in zip(p, Y)) / 9


@test("calibrate")
def maps_of_logits():
    put_set()
    kept, told = fit("temperature")
    assert kept["format"] == "softmax-fit" and kept["version"] == 1 and kept["method"] == "temperature"
    t = kept["fitted"]["temperature"]
    close([t], [0.6788285293588364], 1e-14)
    close([v for row in apply("temperature") for v in row], [v for row in rows() for v in softmax([x / t for x in row])], 1e-12)
    close([v for row in apply("temperature", "z.npy", "--logits") for v in row], [v / t for v in Z], 1e-12)
    before = loss([softmax(row) for row in rows()])
    for method in ("vector", "matrix", "dirichlet"):
        kept, told = fit(method)
        after = loss(apply(method))
        assert after < before and told.endswith(f"log loss {before:g} before, {after:g} after\n"), told
    kept, _ = fit("vector", "z.npy", "y.npy", "--l2", "0.03", "--l2_bias", "0.03")
    assert kept["settings"] == {"l2": 0.03, "l2_bias": 0.03}
    assert json.loads(run("calibrate", "fit", "temperature", "z.npy", "--targets", "y.npy", "-o", "-")[0])["fitted"] == {"temperature": t}
    close(kept["fitted"]["scale"], [1.404146934494, .739155093373, 2.662291034999], 1e-6)


@test("calibrate")
def maps_of_one_number():
    put("x.csv", b"-2\n-1\n-.5\n.3\n.8\n1\n2.5\n3\n")
    put("y.csv", b"0\n0\n1\n0\n1\n1\n1\n1\n")
    kept, _ = fit("platt", "x.csv", "y.csv")
    close([kept["fitted"]["slope"], kept["fitted"]["offset"]], [-.7010188622835906, -.2239006798873402], 1e-6)
    close([row[0] for row in apply("platt", "x.csv")][:1], [1 / (1 + math.exp(.7010188622835906 * 2 - .2239006798873402))], 1e-6)
    kept, _ = fit("isotonic", "x.csv", "y.csv")
    assert kept["fitted"]["y"] == [0, 0, .5, .5, 1, 1], kept
    assert [row[0] for row in apply("isotonic", "x.csv")] == [0, 0, .5, .5, 1, 1, 1, 1]
    put("p.csv", b".5\n.55\n.9\n.95\n")
    put("right.csv", b"1\n0\n1\n1\n")
    kept, _ = fit("histogram", "p.csv", "right.csv", "--bins", "5")
    assert kept["fitted"]["accuracy"] == [None, None, .5, None, 1] and kept["settings"]["closed"] == "right", kept
    close([row[0] for row in apply("histogram", "p.csv")], [.5, .5, 1, 1], 1e-12)
    fit("beta", "p.csv", "right.csv")
    assert sorted(row[0] for row in apply("beta", "p.csv")) == [row[0] for row in apply("beta", "p.csv")]


@test("calibrate")
def conformal_sets():
    put_set()
    kept, _ = fit("conformal", "z.npy", "y.npy", "--method", "adaptive", "--coverage", "0.8")
    q = kept["fitted"]["threshold"]
    for row, got in zip(rows(), apply("conformal")):
        p, total = softmax(row), 0
        for k in sorted(range(3), key=lambda k: (-p[k], k)):
            total += p[k]
            assert abs(total - q) < 1e-9 or got[k] == (total < q), (row, got)
    kept, _ = fit("conformal", "z.npy", "y.npy", "--coverage", "1")
    assert kept["fitted"]["threshold"] == "inf" and all(v == 1 for row in apply("conformal") for v in row)


@test("calibrate")
def half_precision_and_threads():
    put_set("f16")
    for threads in ("1", "2"):
        fit("matrix", "z.npy", "y.npy", "--threads", threads)
        put(threads, get("matrix.json"))
    assert get("1") == get("2")
    run("calibrate", "apply", "matrix.json", "z.npy", "-o", "o.npy")
    assert b"<f4" in get("o.npy")[:80]


@test("calibrate")
def wrong_calls():
    put_set()
    put("x.csv", b"1\n2\n")
    fails(USAGE, "calibrate", says=["fit METHOD FILE, or apply FIT FILE"])
    fails(USAGE, "calibrate", "fit", "platt", says=["1 arguments, not 2"])
    fails(USAGE, "calibrate", "fit", "plat", "z.npy", "--targets", "y.npy", "-o", "f.json", says=["plat", "no such method"])
    fails(USAGE, "calibrate", "fit", "vector", "z.npy", "-o", "f.json", says=["--targets FILE is missing"])
    fails(USAGE, "calibrate", "fit", "vector", "z.npy", "--targets", "y.npy", says=["-o FILE is missing"])
    fails(USAGE, "calibrate", "fit", "temperature", "z.npy", "--targets", "y.npy", "-o", "f.json", "--l2", "1", says=["--l2"])
    fails(REFUSED, "calibrate", "fit", "vector", "x.csv", "--targets", "y.npy", "-o", "f.json", says=["x.csv"])
    fails(REFUSED, "calibrate", "fit", "platt", "z.npy", "--targets", "y.npy", "-o", "f.json", says=["2 dimensions"])
    put("none.npy", A.npy("i64", (9,), [-1] * 9))
    put("nan.csv", b"1,2,nan\n" * 9)
    for method, z, y in (("temperature", "z.npy", "none.npy"), ("vector", "nan.csv", "y.npy"), ("conformal", "nan.csv", "y.npy")):
        fails(REFUSED, "calibrate", "fit", method, z, "--targets", y, "-o", "f.json", says=[z, "there is no fit"])
    fit("vector")
    put("narrow.npy", A.npy("f64", (1, 2), [1, 2]))
    fails(REFUSED, "calibrate", "apply", "vector.json", "narrow.npy", "-o", "o.npy", says=["narrow.npy", "vector.json", "scale"])
    kept = json.loads(get("vector.json"))
    for name, value, says in (("version", 2, "version is 2"), ("method", "x", 'method is "x"'), ("format", "y", "no fit"),
                              ("fitted", {}, '"scale"'),
                              ("fitted", {"scale": [1, "two", 3], "bias": [0, 0, 0]}, '"scale"')):
        put("bad.json", json.dumps({**kept, name: value}).encode())
        fails(REFUSED, "calibrate", "apply", "bad.json", "z.npy", "-o", "o.npy", says=["bad.json", says])
    put("text.json", b"{")
    fails(UNREADABLE, "calibrate", "apply", "text.json", "z.npy", "-o", "o.npy", says=["text.json"])
