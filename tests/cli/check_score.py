"""Tests of the command: the verb score."""
import math

import arrays as A
from harness import close, fails, get, put, REFUSED, run, scores, softmax, test, USAGE


def table(*arguments):
    """{score: (mean, least, most)} and the last line."""
    *lines, last = run("score", *arguments)[0].decode().splitlines()
    return {line.split()[0]: [float(v) for v in line.split()[1:4]] for line in lines[1:]}, last


@test("score")
def what_is_told_of_the_rows():
    x = scores((40, 7))
    put("x.npy", A.npy("f32", (40, 7), x))
    x = [A.unpack("f32", A.pack("f32", [v]))[0] for v in x]
    rows = [softmax(x[7 * i:7 * i + 7]) for i in range(40)]
    want = {"msp": [max(p) for p in rows], "entropy": [-sum(v * math.log(v) for v in p) for p in rows],
            "margin": [sorted(p)[-1] - sorted(p)[-2] for p in rows]}
    got, last = table("msp,entropy,margin", "x.npy")
    for name, values in want.items():
        close(got[name], [sum(values) / 40, min(values), max(values)], 1e-5)
    assert last == "40 rows of 7 classes, f32", last
    half, _ = table("entropy,msp,max_logit", "x.npy", "--temperature", "2", "--normalise", "yes")
    close(half["msp"][:1], [sum(max(softmax([v / 2 for v in x[7 * i:7 * i + 7]])) for i in range(40)) / 40], 1e-5)
    assert half["entropy"][2] <= 1, half
    close(half["max_logit"][2:], [max(x)], 1e-5)


@test("score")
def scores_in_a_file():
    x = scores((3, 5, 4))
    put("x.npy", A.npy("f32", (3, 5, 4), x))
    put("t.npy", A.npy("i64", (3, 4), [i % 5 for i in range(12)]))
    run("score", "msp,true_class_probability,energy", "x.npy", "--axis", "1", "--targets", "t.npy", "-o", "o.npz", "--block", "64")
    run("score", "msp,true_class_probability,energy", "x.npy", "--axis", "1", "--targets", "t.npy", "-o", "whole.npz")
    assert get("o.npz") == get("whole.npz")
    put("turned.npy", A.npy("f32", (3, 4, 5), [x[20 * a + 4 * c + b] for a in range(3) for b in range(4) for c in range(5)]))
    run("score", "msp,true_class_probability,energy", "turned.npy", "--targets", "t.npy", "-o", "turned.npz")
    assert get("turned.npz") == get("whole.npz")
    run("score", "msp", "turned.npy", "-o", "one.npy")
    run("run", "msp", "turned.npy", "-o", "same.npy")
    assert get("one.npy") == get("same.npy")


@test("score")
def rows_without_a_score():
    put("odd.csv", b"nan,1\n-inf,-inf\n1,2\n")
    lines = run("score", "msp,energy", "odd.csv")[0].decode().splitlines()
    assert lines[1].endswith("  2 without") and lines[2].split()[2] == "-inf" and lines[2].endswith("  1 without"), lines


@test("score")
def wrong_calls():
    put("x.npy", A.npy("f32", (2, 4), scores((2, 4))))
    put("t.npy", A.npy("i64", (3,), [0, 1, 2]))
    fails(USAGE, "score", says=["no scores"])
    fails(USAGE, "score", "msp", says=["no input file"])
    fails(USAGE, "score", "softmax", "x.npy", says=["softmax", "no score of a row"])
    fails(USAGE, "score", "msp,", "x.npy", says=["no such operator"])
    fails(USAGE, "score", "msp,entropi", "x.npy", says=["entropi", "entropy"])
    fails(USAGE, "score", "msp", "x.npy", "--order", "2", says=["--order", "msp"])
    fails(USAGE, "score", "msp", "x.npy", "--temperature", "0", says=["--temperature 0"])
    fails(USAGE, "score", "true_class_probability", "x.npy", says=["--targets FILE is missing"])
    fails(USAGE, "score", "msp", "x.npy", "x.npy", says=["takes 1"])
    fails(REFUSED, "score", "true_class_probability", "x.npy", "--targets", "t.npy", says=["t.npy", "a class for each row"])
    fails(REFUSED, "score", "msp", "x.npy", "--axis", "2", says=["axis is 2"])
