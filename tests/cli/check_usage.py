"""Tests of the command: wrong usage, refused data, and how options find their place."""

import arrays as A
from harness import fails, put, REFUSED, run, test, USAGE, X


@test("usage")
def wrong_usage():
    put("a.npy", A.npy("f32", *X))
    fails(USAGE, says="no input file")
    fails(USAGE, "run", says="no operator")
    fails(USAGE, "run", "sofmax", "a.npy", says=["sofmax", "is it softmax"])
    fails(USAGE, "run", "zzzzzzzz", "a.npy", says="softmax list")
    fails(USAGE, "help", "zzz", says="zzz")
    fails(USAGE, "list", "more", says="more")
    fails(USAGE, "--version", "more", says="more")
    fails(USAGE, "a.npy", "--frobnicate", says="--frobnicate")
    fails(USAGE, "a.npy", "--axis", says="--axis")
    fails(USAGE, "a.npy", "--axis", "x", says="--axis x")
    fails(USAGE, "a.npy", "--threads", "0", says="--threads 0")
    fails(USAGE, "a.npy", "--block", "0", says="--block 0")
    fails(USAGE, "a.npy", "--format", "xls", says="--format xls")
    fails(USAGE, "a.npy", "--on-inf", "x", says="--on-inf x")
    fails(USAGE, "a.npy", "a.npy", "a.npy", says="too many")
    fails(USAGE, "run", "masked_softmax", "a.npy", says="'mask' is missing")
    fails(USAGE, "a.npy", "-o", "o.xyz", says="o.xyz")
    for shape in ("x", "1,,2", "-1", "1,2,", "1 ", "1,1,1,1,1,1,1,1,1", "99999999999,99999999999", "99999999999999999999",
                  "0,99999999999,99999999999"):
        fails(USAGE, "a.npy", "--shape", shape, says="--shape")


@test("usage")
def wrong_parameters():
    put("a.npy", A.npy("f32", *X))
    fails(USAGE, "a.npy", "--temperature", "-1", says="--temperature -1")
    fails(USAGE, "run", "sparse_softmax", "a.npy", "--k", "1.5", says="--k 1.5")
    fails(USAGE, "run", "hardmax", "a.npy", "--ties", "maybe", says="--ties maybe")
    fails(USAGE, "a.npy", "--cap", "3", says=["--cap 3", "softmax"])
    fails(USAGE, "a.npy", "--backward", says="--dout")
    fails(USAGE, "a.npy", "--dout", "a.npy", says="--backward")
    run("run", "hardmax", "a.npy", "--ties", "split")
    run("run", "mellowmax", "a.npy", "--omega", "-5")


@test("usage")
def refused_data():
    put("a.npy", A.npy("f32", *X))
    fails(REFUSED, "a.npy", "--axis", "5", says=["a.npy", "axis"])
    put("mask.npy", A.npy("u8", (2, 5), [1] * 10))
    fails(REFUSED, "run", "masked_softmax", "a.npy", "mask.npy", says=["mask.npy", "mask"])
    fails(REFUSED, "a.npy", "--backward", "--dout", "mask.npy", says=["mask.npy", "(2, 5)", "(3, 5)"])
    put("offsets.csv", b"0,2.5,5\n")
    fails(REFUSED, "run", "segment_softmax", "a.npy", "offsets.csv", says=["offsets.csv", "2.5"])
    put("offsets.npy", A.npy("f32", (2,), [0, float("nan")], ">"))
    fails(REFUSED, "run", "segment_softmax", "a.npy", "offsets.npy", says=["offsets.npy", "nan"])
    put("scalar.npy", A.npy("f32", (), [1]))
    fails(REFUSED, "scalar.npy", says="scalar.npy")


@test("usage")
def one_name_for_parameter_and_input():
    put("x.npy", A.npy("f32", *X))
    put("t.npy", A.npy("f32", (3,), [0.5] * 3))
    put("t.csv", b"0.5\n0.5\n0.5\n")
    want = run("x.npy", "--temperature", "0.5", "-o", "-")[0]
    for arguments in (["--temperature", "t.npy"], ["--temperature", "t.csv"], ["t.npy"]):
        assert run("x.npy", *arguments, "-o", "-")[0] == want, arguments
    fails(USAGE, "x.npy", "--temperature", "t.npy", "--temperature", "t.npy", says="twice")


@test("usage")
def options_anywhere():
    put("x.npy", A.npy("f32", *X))
    want = run("run", "softcap", "x.npy", "--cap", "2")
    assert run("run", "--cap", "2", "softcap", "x.npy") == want
    assert run("run", "softcap", "--cap=2", "--", "x.npy") == want
