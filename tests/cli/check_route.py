"""Tests of the command: the verb route."""
import math

import arrays as A
from harness import fails, get, put, REFUSED, run, scores, test, USAGE


def best(row, k):
    return sorted(range(len(row)), key=lambda e: (-row[e], e))[:k]


@test("route")
def the_load_of_the_experts():
    x = scores((50, 6))
    put("x.npy", A.npy("f32", (50, 6), x))
    want = [0] * 6
    for t in range(50):
        for e in best(x[6 * t:6 * t + 6], 2):
            want[e] += 1
    *lines, last = run("route", "x.npy", "-k", "2", "-o", "o.npz")[0].decode().splitlines()
    assert lines[0].split() == ["expert", "tokens", "share", "weight"], lines
    rows = [line.split() for line in lines[1:]]
    assert [(int(r[0]), int(r[1])) for r in rows] == sorted(enumerate(want), key=lambda p: (-p[1], p[0])), (rows, want)
    assert rows[0][2] == "%.2f%%" % max(want) and len(rows[0][4]) == 40, rows
    entropy = -sum(n / 100 * math.log(n / 100) for n in want if n)
    assert last.endswith("the entropy %.3f of %.3f nats" % (entropy, math.log(6))), last
    assert last.startswith("50 tokens, 2 of 6 experts each; the busiest has %.2f times the mean" % (max(want) / (100 / 6))), last
    run("run", "gate_topk", "x.npy", "-o", "same.npz")
    assert get("o.npz") == get("same.npz")


@test("route")
def groups_bias_and_both_spellings():
    put("x.npy", A.npy("f32", (2, 4), [1, 0, -1, -2, -3, 0, 1, 2]))
    put("b.npy", A.npy("f32", (4,), [0, 0, 0, 9]))
    given = ["x.npy", "-k", "1", "--score", "sigmoid", "--groups", "2", "--bias", "b.npy"]
    lines = [run("route", *given, name, "1")[0] for name in ("--top-groups", "--top_groups")]
    assert lines[0] == lines[1] and lines[0].split()[4:6] == [b"3", b"2"], lines
    put("odd.csv", b"nan,1\n-inf,-inf\n1,2\n")
    assert run("route", "odd.csv", "-k", "1")[0].endswith(b"; 1 with NaN; 1 without experts\n")
    fails(USAGE, "route", says=["no input file"])
    fails(REFUSED, "route", "x.npy", "-k", "5", says=["k is 5, but there are 4 experts"])
