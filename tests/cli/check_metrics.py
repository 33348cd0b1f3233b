"""Tests of the command: the verb metrics."""
import json
import math
import os
import random

import arrays as A
from harness import close, fails, get, nothing_left, path, put, REFUSED, run, softmax, test, UNREADABLE, UNWRITABLE, USAGE

INF = math.inf


def put_rows(name, rows, dtype="f64"):
    put(name, A.npy(dtype, (len(rows), len(rows[0])), [v for r in rows for v in r]))


def put_classes(name, classes):
    put(name, A.npy("i64", (len(classes),), classes))


def numbers(*arguments):
    return json.loads(run("metrics", *arguments, "--json")[0])


def two_classes(confidence, correct):
    """Probabilities of two classes, the first with the confidence; it is true where the row is correct."""
    put_rows("p.npy", [[c, 1 - c] for c in confidence])
    put_classes("t.npy", [int(not v) for v in correct])


def metrics_of(*arguments):
    return numbers("p.npy", "--targets", "t.npy", "--probabilities", *arguments)["metrics"]


def random_set(rows, classes, seed=5):
    source = random.Random(seed)
    x = [[round(source.gauss(0, 2), 2) for _ in range(classes)] for _ in range(rows)]
    y = [max(range(classes), key=lambda k: r[k] + source.gauss(0, 1.5)) for r in x]
    return x, y


@test("metrics")
def losses_known_by_hand():
    put_rows("p.npy", [[.7, .2, .1], [.1, .6, .3], [.3, .3, .4], [.2, .5, .3]])
    put_classes("t.npy", [0, 1, 0, 2])
    m = metrics_of("-k", "2")
    close([m["brier"], m["log_loss"], m["accuracy"], m["top_k_accuracy"]], [.48, .8188615440891487, .5, 1], 1e-12)
    close([m["macro_f1"], m["balanced_accuracy"]], [4 / 9, .5], 1e-12)
    assert m["confidence"] == (.7 + .6 + .4 + .5) / 4


@test("metrics")
def calibration_known_by_hand():
    two_classes([.95, .9, .85, .75, .7, .65, .6, .55, 1, .5], [1, 1, 0, 1, 0, 1, 0, 1, 1, 0])
    whole = numbers("p.npy", "--targets", "t.npy", "--probabilities", "--bins", "5")
    m, bins = whole["metrics"], whole["bins"]
    close([m["ece"], m["mce"], m["rms_ce"], m["adaptive_ece"], m["ks"]], [.145, .2166666667, .1632993162, .155, .16], 1e-9)
    assert bins["count"] == [0, 0, 3, 3, 4] and bins["accuracy"][:2] == [None, None]
    close(bins["accuracy"][2:] + bins["confidence"][2:], [1 / 3, 2 / 3, .75, .55, .7, .925], 1e-12)
    m = metrics_of("--bins", "10")
    close([m["ece"], m["mce"]], [.205, .5], 1e-9)


@test("metrics")
def classes_and_parts_known_by_hand():
    put_rows("p.npy", [[.7, .2, .1], [.1, .6, .3], [.3, .3, .4], [.2, .5, .3]])
    put_classes("t.npy", [0, 1, 0, 2])
    close([metrics_of("--bins", "5")["classwise_ece"]], [.1666666667], 1e-9)
    two_classes([.9, .9, .6, .6, .6] + 5 * [.8], [1, 1, 1, 0, 1, 1, 1, 1, 0, 1])
    m = metrics_of("--bins", "10")
    close([m["reliability"], m["resolution"], m["uncertainty"]], [.2 * .01 + .3 * (1 / 15) ** 2, .2 * .04 + .3 * (2 / 15) ** 2, .16], 1e-9)
    confidence, correct = [.95, .8, .6], [1, 0, 1]
    two_classes(confidence, correct)
    rows = list(zip(confidence, correct))
    pairs = [(a - c) * (b - d) * math.exp(-abs(c - d) / .4) for c, a in rows for d, b in rows]
    close([metrics_of()["mmce"]], [math.sqrt(sum(pairs)) / 3], 1e-12)


@test("metrics")
def bytes_are_those_of_the_whole():
    x, y = random_set(400, 6)
    put_rows("x.npy", x)
    put_classes("t.npy", y)
    whole = run("metrics", "x.npy", "--targets", "t.npy", "--json")[0]
    for block in ("1", "1000", "4096"):
        assert run("metrics", "x.npy", "--targets", "t.npy", "--json", "--block", block)[0] == whole, block
        assert run("metrics", "-", "--targets", "t.npy", "--json", "--block", block, stdin=get("x.npy"))[0] == whole, block
    for threads in ("1", "3"):
        assert run("metrics", "x.npy", "--targets", "t.npy", "--json", "--threads", threads)[0] == whole, threads


@test("metrics")
def intervals_by_draws():
    x, y = random_set(300, 4)
    put_rows("x.npy", x)
    put_rows("z.npy", [[v / 3 for v in r] for r in x])
    put_classes("t.npy", y)
    normal = numbers("x.npy", "--targets", "t.npy", "--compare", "z.npy")
    drawn = numbers("x.npy", "--targets", "t.npy", "--compare", "z.npy", "--draws", "2000", "--seed", "3")
    assert drawn["metrics"] == normal["metrics"] and drawn["draws"] == {"count": 2000, "seed": 3} and "draws" not in normal
    for key, ends in normal["intervals"].items():
        width = ends[1] - ends[0]
        assert drawn["intervals"][key] != ends
        close(drawn["intervals"][key], ends, .2 * width)
    assert 0 < drawn["comparison"]["log_loss"]["p_by_signs"] <= 1 and "p_by_signs" not in normal["comparison"]["log_loss"]
    other = numbers("x.npy", "--targets", "t.npy", "--draws", "2000", "--seed", "4")
    assert other["intervals"] != drawn["intervals"]
    text = run("metrics", "x.npy", "--targets", "t.npy", "--compare", "z.npy", "--draws", "2000")[0].decode()
    assert "; 2000 draws; 15 bins" in text and "log loss p, by signs" in text, text


@test("metrics")
def selection_known_by_hand():
    two_classes([.95, .9, .85, .8, .7, .6], [1, 1, 0, 1, 0, 1])
    m = metrics_of()
    close([m["aurc"], m["e_aurc"]], [.21944444444, .13055555556], 1e-9)
    two_classes([.9, .9, .8, .8, .8, .6], [1, 0, 1, 0, 1, 0])
    close([metrics_of()["aurc"]], [.4601851851851852], 1e-12)


@test("metrics")
def outliers_known_by_hand():
    inside, outside = [.9, .8, .7, .6, .6, .3], [.7, .5, .4, .2]
    put_rows("in.npy", [[v, 0, 0] for v in inside])
    put_rows("out.npy", [[0, 0, v] for v in outside])
    put_classes("t.npy", [0] * 6)
    ood = numbers("in.npy", "--targets", "t.npy", "--ood", "out.npy")["ood"]
    assert (ood["inside"], ood["outside"]) == (6, 4)
    for score in ("msp", "energy", "max_logit"):  # in the same order
        s = ood["scores"][score]
        close([s["auroc"], s["aupr_in"], s["aupr_out"], s["fpr95"], s["detection_error"]],
              [37 / 48, .8472222222222222, .7291666666666666, .75, .2083333333], 1e-9)
    text = run("metrics", "in.npy", "--targets", "t.npy", "--ood", "out.npy")[0].decode()
    assert "max_logit                0.770833" in text and text.endswith("6 rows inside, 4 outside\n"), text


def expected(x, y, temperature, k):
    """The definitions, in plain Python."""
    p = [softmax([v / temperature for v in r]) for r in x]
    n, classes, taken = len(x), len(x[0]), [r.index(max(r)) for r in x]
    right = [a == b for a, b in zip(taken, y)]
    sure = [max(r) for r in p]
    f1 = []
    for c in range(classes):
        both = taken.count(c) + y.count(c)
        if both:
            f1.append(2 * sum(r and t == c for r, t in zip(right, y)) / both)
    bins = [[] for _ in range(15)]
    for s, r in zip(sure, right):
        bins[next(b for b in range(15) if s <= (b + 1) / 15 or b == 14)].append(r - s)
    pairs = [(a > b) + (a == b) / 2 for a, r in zip(sure, right) if r for b, q in zip(sure, right) if not q]
    order = sorted(range(n), key=lambda i: -sure[i])
    wrong, risks = 0, []
    for place, i in enumerate(order):
        wrong += not right[i]
        risks.append(wrong / (place + 1))
    accuracy = sum(right) / n
    z = 1.959963984540054
    middle = (accuracy + z * z / 2 / n) / (1 + z * z / n)
    half = z * math.sqrt(accuracy * (1 - accuracy) / n + z * z / 4 / n / n) / (1 + z * z / n)
    loss = [-math.log(r[t]) for r, t in zip(p, y)]
    mean = sum(loss) / n
    spread = z * math.sqrt(sum((v - mean) ** 2 for v in loss) / (n - 1) / n)
    return {"accuracy": accuracy, "log_loss": mean, "macro_f1": sum(f1) / len(f1), "ece": sum(abs(sum(b)) for b in bins) / n,
            "top_k_accuracy": sum(sum(v > r[t] for v in r) < k for r, t in zip(p, y)) / n,
            "brier": sum(sum((v - (c == t)) ** 2 for c, v in enumerate(r)) for r, t in zip(p, y)) / n,
            "entropy": -sum(v * math.log(v) for r in p for v in r) / n, "auroc": sum(pairs) / len(pairs), "aurc": sum(risks) / n,
            "confidence": sum(sure) / n}, {"accuracy": (middle - half, middle + half), "log_loss": (mean - spread, mean + spread)}


@test("metrics")
def numbers_of_the_definitions():
    x, y = random_set(300, 7)
    put_rows("x.npy", x)
    put_classes("t.npy", y)
    for temperature in (1, 1.7):
        got = numbers("x.npy", "--targets", "t.npy", "--temperature", str(temperature), "-k", "3")
        values, intervals = expected(x, y, temperature, 3)
        close([got["metrics"][key] for key in values], list(values.values()), 1e-9)
        for key, ends in intervals.items():
            close(got["intervals"][key], ends, 1e-9)
        assert (got["rows"], got["classes"], got["left_out"], got["k"], got["temperature"]) == (300, 7, 0, 3, temperature)
    mixed = [x[i // 2] if i % 2 else [math.nan] * 7 for i in range(600)]
    put_rows("mixed.npy", mixed)
    for options, none in (([], -100), (["--ignore-index", "7"], 7)):
        put_classes("mixed-t.npy", [y[i // 2] if i % 2 else none for i in range(600)])
        half = numbers("mixed.npy", "--targets", "mixed-t.npy", "--temperature", "1.7", "-k", "3", *options)
        assert half["left_out"] == 300 and half["metrics"] == got["metrics"], half


@test("metrics")
def two_models():
    x, y = random_set(200, 4)
    z, _ = random_set(200, 4, 9)
    z = [[a + b / 2 for a, b in zip(r, s)] for r, s in zip(x, z)]
    for name, rows in (("a.npy", x), ("b.npy", z)):
        put_rows(name, rows)
    put_classes("t.npy", y)
    whole = numbers("a.npy", "--targets", "t.npy", "--compare", "b.npy")
    c, alone = whole["comparison"], numbers("b.npy", "--targets", "t.npy")
    a, b = [[r.index(max(r)) == t for r, t in zip(rows, y)] for rows in (x, z)]
    first, second = [sum(u and not v for u, v in zip(*pair)) for pair in ((a, b), (b, a))]
    assert c["right"] == {"both": sum(u and v for u, v in zip(a, b)), "first": first, "second": second,
                          "neither": sum(not u and not v for u, v in zip(a, b))} and first != second
    n = first + second
    close([c["p"]], [min(1, 2 * sum(math.comb(n, i) for i in range(min(first, second) + 1)) / 2 ** n)], 1e-12)
    assert whole["second"]["metrics"] == alone["metrics"]
    close([c["log_loss"]["difference"], c["accuracy"]["difference"]],
          [alone["metrics"][key] - whole["metrics"][key] for key in ("log_loss", "accuracy")], 1e-12)
    low, high = c["log_loss"]["interval"]
    assert low < c["log_loss"]["difference"] < high
    same = numbers("a.npy", "--targets", "t.npy", "--compare", "a.npy")["comparison"]
    assert same["p"] == 1 and same["log_loss"]["interval"] == [0, 0]
    text = run("metrics", "a.npy", "--targets", "t.npy", "--compare", "b.npy")[0].decode()
    assert "McNemar" in text and "first alone %d, second alone %d" % (first, second) in text, text


@test("metrics")
def every_format_and_thread():
    x, y = random_set(40, 5)
    x = [[float(round(v * 4) / 4) for v in r] for r in x]  # that bf16 holds
    flat = [v for r in x for v in r]
    put_classes("t.npy", y)
    put("t.csv", "".join("%d\n" % t for t in y).encode())
    put_rows("x.npy", x, "f32")
    want = run("metrics", "x.npy", "--targets", "t.npy", "--json")[0]
    put("x.csv", "".join(",".join(map(str, r)) + "\n" for r in x).encode())
    put("x.safetensors", A.safetensors({"head": ("bf16", (40, 5), flat)}))
    put("x.npz", A.npz({"a": ("f32", (40, 5), flat), "b": ("f32", (1,), [0.0])}))
    for name in ("x.csv", "x.safetensors:head", "x.npz:a"):
        assert run("metrics", name, "--targets", "t.npy", "--json", "--dtype-in", "f32")[0] == want, name
    assert run("metrics", "x.npy", "--targets", "t.csv", "--json", "--threads", "2", "--block", "64")[0] == want
    assert run("metrics", "-", "--targets", "t.npy", "--json", stdin=get("x.npy"))[0] == want
    put("turned.npy", A.npy("f32", (5, 40), [x[i][k] for k in range(5) for i in range(40)]))
    assert run("metrics", "turned.npy", "--axis", "0", "--targets", "t.npy", "--json")[0] == want
    run("metrics", "x.npy", "--targets", "t.npy", "--json", "-o", "out.json")
    assert get("out.json") == want


@test("metrics")
def sets_at_the_edge():
    put("one.csv", b"3,1,0\n")
    put("t.csv", b"0\n")
    one = numbers("one.csv", "--targets", "t.csv")
    m = one["metrics"]
    assert m["accuracy"] == 1 and m["auroc"] is None and m["aurc"] == 0 and one["intervals"]["log_loss"] == [None, None], one
    assert "AUROC                           -" in run("metrics", "one.csv", "--targets", "t.csv")[0].decode()
    put("wrong.csv", b"3,1,0\n0,5,0\n")
    put("wrong-t.csv", b"2\n2\n")
    wrong = numbers("wrong.csv", "--targets", "wrong-t.csv")
    m = wrong["metrics"]
    assert wrong["intervals"]["accuracy"][0] == 0 and one["intervals"]["accuracy"][1] == 1
    assert m["accuracy"] == m["macro_f1"] == 0 and m["aurc"] == 1 and m["e_aurc"] == 0 and m["auroc"] is None, m
    put("flat.csv", b"0,0\n0,0\n0,0\n0,0\n")
    put("flat-t.csv", b"0\n1\n0\n1\n")
    m = numbers("flat.csv", "--targets", "flat-t.csv")["metrics"]
    assert m["accuracy"] == m["confidence"] == m["auroc"] == m["aurc"] == .5 and m["ece"] == 0 and m["matthews"] == 0, m
    put("masked.csv", b"1,-inf,0\n-inf,2,-inf\n")
    put("masked-t.csv", b"0\n1\n")
    m = numbers("masked.csv", "--targets", "masked-t.csv")["metrics"]
    close([m["log_loss"], m["confidence"]], [math.log(1 + math.exp(-1)) / 2, (1 + 1 / (1 + math.exp(-1))) / 2], 1e-6)
    put("lost-t.csv", b"1\n1\n")
    lost = numbers("masked.csv", "--targets", "lost-t.csv")
    assert lost["metrics"]["log_loss"] == "inf" and lost["intervals"]["log_loss"] == [None, None], lost


@test("metrics")
def weights_of_the_rows():
    """Whole numbers are copies of a row, 0 leaves it out whatever it holds, and 1 changes nothing."""
    x, y = random_set(90, 4)
    times = [i * i % 4 for i in range(90)]
    rows = [i for i in range(90) for _ in range(times[i])]
    put_rows("x.npy", [[math.nan] * 4 if t == 0 else r for r, t in zip(x, times)])
    put_rows("copies.npy", [x[i] for i in rows])
    put_rows("plain.npy", x)
    put_rows("ood.npy", random_set(30, 4, 6)[0])
    put_classes("y.npy", y)
    put_classes("copies-y.npy", [y[i] for i in rows])
    put("w.csv", "".join(f"{t}\n" for t in times).encode())
    put("one.csv", b"1\n" * 90)
    got = numbers("x.npy", "--targets", "y.npy", "--weights", "w.csv", "--ood", "ood.npy")
    wanted = numbers("copies.npy", "--targets", "copies-y.npy", "--ood", "ood.npy")
    close([got["metrics"][k] for k in wanted["metrics"]], list(wanted["metrics"].values()), 1e-12)
    close(list(got["ood"]["scores"]["energy"].values()), list(wanted["ood"]["scores"]["energy"].values()), 1e-12)
    assert got["weight"] == wanted["rows"] and got["rows"] + got["left_out"] == 90
    assert sum(got["bins"]["count"]) == got["rows"] and got["intervals"]["accuracy"] == [None, None]
    same = numbers("plain.npy", "--targets", "y.npy")["metrics"]
    assert numbers("plain.npy", "--targets", "y.npy", "--weights", "one.csv")["metrics"] == same
    for weight in ("1e300", "1e-300"):  # whose squares are no doubles
        put("far.csv", f"{weight}\n".encode() * 90)
        far = numbers("plain.npy", "--targets", "y.npy", "--weights", "far.csv")["metrics"]
        close([far[k] for k in same], list(same.values()), 1e-12)
    low, high = numbers("x.npy", "--targets", "y.npy", "--weights", "w.csv", "--draws", "50")["intervals"]["accuracy"]
    assert low < got["metrics"]["accuracy"] < high
    for name, text in (("minus.csv", "-2"), ("nan.csv", "nan"), ("inf.csv", "inf")):
        put(name, f"1\n1\n{text}\n".encode() + b"1\n" * 87)
        fails(REFUSED, "metrics", "plain.npy", "--targets", "y.npy", "--weights", name, says=[name, "row 2", f"{text} is no weight"])
    put("none.csv", b"0\n" * 90)
    fails(REFUSED, "metrics", "x.npy", "--targets", "y.npy", "--weights", "none.csv", says="no row that counts has a weight")
    fails(REFUSED, "metrics", "x.npy", "--targets", "y.npy", "--weights", "ood.npy", says="a weight for each row of")
    fails(USAGE, "metrics", "x.npy", "--targets", "y.npy", "--weights", "w.csv", "--compare", "x.npy", says="not with --compare")
    fails(USAGE, "report", "x.npy", "--targets", "y.npy", "--weights", "w.csv", says="one of softmax metrics")


@test("metrics")
def wrong_calls():
    put("x.csv", b"1,2\n3,1\n2,2\n")
    put("t.csv", b"0\n1\n0\n")
    for name, text in (("two.csv", b"0\n1\n"), ("far.csv", b"0\n2\n0\n"), ("low.csv", b"0\n-1\n0\n"), ("half.csv", b"0\n0.5\n0\n"),
                       ("none.csv", b"-100\n-100\n-100\n"), ("nan.csv", b"1,2\n3,nan\n2,2\n"), ("inf.csv", b"1,2\n3,inf\n2,2\n"),
                       ("empty.csv", b"1,2\n-inf,-inf\n2,2\n"), ("single.csv", b"1\n3\n2\n"), ("three.csv", b"1,2,3\n3,1,3\n2,2,3\n"),
                       ("p.csv", b".5,.5\n.2,.7\n1,0\n"), ("minus.csv", b".5,.5\n1.2,-.2\n1,0\n")):
        put(name, text)
    put("left.csv", b"0\n-100\n0\n")
    run("metrics", "p.csv", "--targets", "left.csv", "--probabilities")
    run("report", "p.csv", "--targets", "left.csv", "--probabilities", "-o", "p.html")
    put("rows.npy", A.npy("f32", (0, 3), []))
    put("no-t.npy", A.npy("i64", (0,), []))

    def refused(status, logits, targets, *options, says):
        fails(status, "metrics", logits, "--targets", targets, *options, says=says)
    fails(USAGE, "metrics", says="no input file")
    fails(USAGE, "metrics", "x.csv", says="--targets FILE is missing")
    fails(USAGE, "metrics", "x.csv", "--targets", "t.csv", "--seed", "1", says=["--seed", "without --draws"])
    fails(USAGE, "metrics", "x.csv", "--targets", "t.csv", "--draws", "0", says="--draws 0")
    fails(USAGE, "metrics", "-", "--targets", "-", says="only one of the inputs")
    fails(USAGE, "metrics", "x.csv", "t.csv", says=["t.csv", "one input too many"])
    refused(USAGE, "x.csv", "t.csv", "--bins", "0", says="--bins 0")
    refused(USAGE, "x.csv", "t.csv", "--temperature", "0", says="--temperature 0")
    for temperature in ("nan", "-1", "1e21"):
        refused(USAGE, "x.csv", "t.csv", "--temperature", temperature, says="--temperature " + temperature)
    refused(USAGE, "x.csv", "t.csv", "-k", "0", says="--k 0")
    refused(UNREADABLE, "missing.npy", "t.csv", says="missing.npy")
    refused(REFUSED, "x.csv", "two.csv", says=["two.csv", "a class for each row of x.csv"])
    refused(REFUSED, "x.csv", "far.csv", says=["far.csv", "row 1", "target 2", "2 classes"])
    refused(REFUSED, "x.csv", "low.csv", says="target -1")
    refused(REFUSED, "x.csv", "half.csv", says="not a whole number")
    refused(REFUSED, "x.csv", "none.csv", says="every row has the target -100")
    for name in ("nan.csv", "inf.csv", "empty.csv"):
        refused(REFUSED, name, "t.csv", says=[name, "row 1"])
        fails(REFUSED, "metrics", "x.csv", "--targets", "t.csv", "--ood", name, says=[name, "row 1"])
    refused(REFUSED, "single.csv", "t.csv", says=["single.csv", "1 class"])
    refused(REFUSED, "rows.npy", "no-t.npy", says=["rows.npy", "no rows"])
    refused(REFUSED, "x.csv", "t.csv", "--compare", "three.csv", says=["three.csv", "3 classes", "x.csv"])
    refused(REFUSED, "p.csv", "t.csv", "--probabilities", says=["p.csv", "row 1", "0.9"])
    refused(REFUSED, "minus.csv", "t.csv", "--probabilities", says=["row 1", "-0.2"])
    refused(UNWRITABLE, "x.csv", "t.csv", "-o", "no/such/folder", says="no/such/folder")
    run("metrics", "inf.csv", "--targets", "t.csv", "--on-inf", "limit")
    nothing_left()
    assert not os.path.exists(path("no"))
