"""Tests of the command: wrong usage, refused data, and how options find their place."""

import arrays as A
from harness import fails, operators, put, REFUSED, run, test, UNREADABLE, USAGE, X


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
def given_twice():
    """Neither value is taken for the other; what is repeated on purpose stays."""
    put("a.npy", A.npy("f32", *X))
    fails(USAGE, "a.npy", "-o", "one.npy", "-o", "two.npy", says=["--output two.npy", "one.npy"])
    fails(USAGE, "a.npy", "--axis", "0", "--axis", "1", says=["--axis 1", "given before, as 0"])
    fails(USAGE, "a.npy", "--temperature", "2", "--temperature", "3", says=["--temperature 3", "2"])
    fails(USAGE, "sample", "a.npy", "--seed", "1", "--seed", "2", says=["--seed 2", "1"])
    fails(USAGE, "plot", "softmax", "--from", "0", "--from", "1", "-o", "p.svg", says=["--from 1", "0"])
    run("a.npy", "--axis", "0", "--axis", "0")
    run("sample", "a.npy", "--temperature", "2", "--temperature", "3")


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
    for arguments in (["--temperature", "t.npy"], ["--temperature", "t.csv"]):
        assert run("x.npy", *arguments, "-o", "-")[0] == want, arguments
    fails(USAGE, "x.npy", "--temperature", "t.npy", "--temperature", "t.npy", says="twice")


@test("usage")
def files_of_another_meaning():
    """A file that stands where scores or a required input do not is refused: labels are no temperatures."""
    put("x.npy", A.npy("f32", *X))
    put("labels.npy", A.npy("i64", (3,), [1, 2, 3]))
    fails(USAGE, "x.npy", "labels.npy",
          says=["labels.npy", "softmax loss cross_entropy x.npy --targets labels.npy", "--temperature",
                "--labels"])
    for op in operators():
        params = {p["name"] for p in op["params"]}
        some = [p["name"] for p in op["inputs"] if p["either"]]
        places = [p["name"] for p in op["inputs"] if p["name"] not in params | set(some[1:])]
        others = [p["name"] for p in op["inputs"] if p["optional"]]
        says = ["odd.npy: one input too many", *["--%s FILE" % name for name in others]]
        fails(USAGE, "run", op["name"], *["labels.npy"] * len(places), "odd.npy", says=says)
        if some:
            fails(USAGE, "run", op["name"], *["labels.npy"] * places.index(some[0]),
                  says=["--%s FILE" % name for name in some])


@test("usage")
def words_that_are_nearly_right():
    put("x.npy", A.npy("f32", *X))
    for words, says in (("entmax x.npy", "`softmax run entmax`"), ("entmx", "`softmax run entmax`"),
                        ("topk x.npy", "`softmax top-k`"),
                        ("smaple x.npy", "`softmax sample`"), ("hlep", "`softmax help`"),
                        ("version", "`softmax --version`"),
                        ("cross_entropy x.npy", "`softmax loss cross_entropy`")):
        fails(USAGE, *words.split(), says=[words.split()[0] + ": no such file", "did you mean " + says])
    put("entmax", A.npy("f32", *X))
    run("entmax")  # a file of that name goes before
    for words, says in (("x.npy --temprature 2", "--temprature: no such option; did you mean --temperature?"),
                        ("x.npy --temprature=2", "did you mean --temperature?"),
                        ("x.npy -temperature 2", "did you mean --temperature?"),
                        ("sample x.npy --topp 0.9", "did you mean --top-p?"),
                        ("x.npy --top-p 0.9", "not an option here, but one of softmax sample"),
                        ("attention x.npy --casual", "did you mean --causal?"),
                        ("x.npy --zzzzzzzz", "no such option; --help lists them"),
                        ("top-k x.npy -q", "-q: no such option"), ("--verison", "did you mean --version?"),
                        ("help topk", "did you mean `softmax help top-k`?"), ("help entmx", "is it entmax"),
                        ("run entmax x.npy --temperature 2", "but these: --alpha")):
        fails(USAGE, *words.split(), says=says)
    fails(UNREADABLE, "gone.npy", says="gone.npy: cannot be read")
    assert run("top-k", "x.npy", "-k", "2") == run("top-k", "x.npy", "--k", "2") == run("top-k", "x.npy", "-k2")


@test("usage")
def losses_without_targets():
    put("x.npy", A.npy("f32", *X))
    put("t.npy", A.npy("i64", (3,), [1, 2, 3]))
    for op in operators():
        if op["family"] == "loss" and any(p["name"] == "target" and (p["either"] or not p["optional"]) for p in op["inputs"]) and any(
                p["name"] == "reduced" for p in op["outputs"]):
            fails(USAGE, "loss", op["name"], "x.npy",
                  says=["loss %s: the targets are missing: --targets FILE" % op["name"]])
    run("loss", "cross_entropy", "x.npy", "t.npy")


@test("usage")
def options_anywhere():
    put("x.npy", A.npy("f32", *X))
    want = run("run", "softcap", "x.npy", "--cap", "2")
    assert run("run", "--cap", "2", "softcap", "x.npy") == want
    assert run("run", "softcap", "--cap=2", "--", "x.npy") == want
