"""Tests of the command: the verb sample."""
import math

import arrays as A
from harness import fails, get, nothing_left, put, REFUSED, run, scores, softmax, test, UNREADABLE, USAGE


def draws_of(*arguments):
    """The draws of a file of one array, as a list."""
    run("sample", *arguments, "-o", "draws.npy")
    return A.read_npy(get("draws.npy"))[2]


def kept_by(*arguments, draws=400):
    """Which elements of x.npy are ever drawn."""
    return sorted(set(draws_of("x.npy", "--draws", str(draws), "--seed", "7", *arguments)))


@test("sample")
def frequencies_are_the_probabilities():
    x = [0.5, 2, -1, 1, 0]
    put("x.npy", A.npy("f32", (5,), x))
    for method in ("gumbel", "cdf"):
        lines = run("sample", "x.npy", "--draws", "4000", "--seed", "3", "--method", method)[0].decode().splitlines()
        assert lines[0].split() == ["row", "index", "count", "share", "probability"], lines
        p, rows = softmax(x), [line.split() for line in lines[1:-1]]
        assert [int(row[0]) for row in rows] == [1, 3, 0, 4, 2] and sum(int(row[1]) for row in rows) == 4000, lines
        for index, count, share, probability in rows:
            q = p[int(index)]
            assert abs(float(probability) - q) < 1e-5 and abs(float(share) - int(count) / 4000) < 1e-4, lines
            assert abs(int(count) - 4000 * q) < 5 * math.sqrt(4000 * q * (1 - q)), lines
        assert lines[-1].startswith("1 row of 5 classes, f32; 4000 draws each, %s, seed 3; mean surprise" % method), lines


@test("sample")
def every_step():
    x = [3, 2, 1, 0, -1, -2]  # p = 0.6337 0.2331 0.0858 0.0315 0.0116 0.0043
    put("x.npy", A.npy("f64", (6,), x))
    put("tokens.npy", A.npy("i32", (3,), [0, 2, 0]))
    everything = list(range(6))
    for arguments, want in (
            (["--temperature", "0"], [0]), (["--method", "greedy"], [0]), (["--top-k", "2"], [0, 1]), (["--top-p", "0.8"], [0, 1]),
            (["--top-p", "1"], everything), (["--min-p", "0.1"], [0, 1, 2]), (["--epsilon", "0.05"], [0, 1, 2]),
            (["--typical", "0.2"], [1]), (["--eta", "0.9"], [0]), (["--top-n-sigma", "0.9"], [0, 1]),
            (["--top-n-sigma", "0.5,1"], [0]), (["--surprise", "1"], [0]), (["--xtc", "1,0.05"], [2, 3, 4, 5]),
            (["--ban", "0,1", "--top-k", "1"], [2]), (["--allow", "4,5"], [4, 5]), (["--allow", "tokens.npy"], [0, 2]),
            (["--bias", "5=100,4=-1"], [5]), (["--bias", "5=50,5=50"], [5]), (["--repetition", "1e4:0,1", "--top-k", "1"], [2]),
            (["--frequency", "1:tokens.npy", "--top-k", "1"], [1]), (["--frequency", "0,100:tokens.npy", "--top-k", "1"], [1]),
            (["--dynamic-temperature", "0,0"], [0]), (["--dynamic-temperature", "1,0.5,2"], everything), (["--quadratic", "100"], [0]),
            (["--quadratic", "0,2"], everything), (["--tail-free", "0.1"], [0]), (["--tail-free", "0.95"], [0, 1]), (["--top-h", "0.5"], [0]),
            (["--top-h", "0.7"], [0, 1]), (["--mirostat", "0"], [0]), (["--mirostat", "9"], everything),
            (["--no-repeat", "2:0,1,2,0"], [0, 2, 3, 4, 5]), (["--no-repeat", "1:0,1"], [2, 3, 4, 5]),
            (["--no-repeat", "3:0,1,-1,0,1"], everything), (["--no-repeat", "2:tokens.npy"], [0, 1, 3, 4, 5]),
            (["--dry", "100:1,2,3,0,1,2"], [0, 1, 2, 4, 5]), (["--dry", "100,1,3:1,2,3,0,1,2"], everything),
            (["--dry", "1,100:3,1,2,3,0,3,1,2"], [0, 1, 2, 4, 5]), (["--top-k", "2", "--bias", "0=-100"], [1]), (["--bias", "0=-100", "--top-k", "2"], [1, 2])):
        assert kept_by(*arguments, "--temperature", "3") == want, arguments
    assert kept_by("--frequency", "1:tokens.npy", "--top-k", "2", "--temperature", "9") == [0, 1]
    assert kept_by("--frequency", "2:0,0,0", "--temperature", "0") == [1]
    assert kept_by("--top-p", "0.64", "--temperature", "9") == [0, 1] and kept_by("--temperature", "9", "--top-p", "0.64") == [0, 1, 2, 3]


@test("sample")
def draws_do_not_depend_on_how_they_are_made():
    shape = (4, 3, 50)
    x = scores(shape)
    put("x.npy", A.npy("f32", shape, x))
    put("fortran.npy", A.npy("f32", shape, x, ">", 1, True))
    flags = ["--temperature", "0.8", "--top-p", "0.95", "--seed", "1"]
    want = draws_of("x.npy", *flags, "--draws", "6")
    assert len(want) == 72 and A.read_npy(get("draws.npy"))[1] == (4, 3, 6) and all(0 <= i < 50 for i in want)
    for more in (["--block", "1"], ["--block", "500"], ["--threads", "1"], ["--threads", "3"]):
        assert draws_of("x.npy", *flags, "--draws", "6", *more) == want, more
    assert draws_of("fortran.npy", *flags, "--draws", "6") == want
    assert draws_of("x.npy", *flags, "--draws", "2") == [v for r in range(12) for v in want[6 * r:6 * r + 2]]
    turned = [x[(i * 3 + j) * 50 + k] for i in range(4) for k in range(50) for j in range(3)]
    put("turned.npy", A.npy("f32", (4, 50, 3), turned))
    assert draws_of("turned.npy", *flags, "--draws", "6", "--axis", "1") == want
    put("last.npy", A.npy("f32", (50,), x[-50:]))
    assert draws_of("last.npy", *flags, "--draws", "6", "--stream", "11") == want[-6:]
    assert draws_of("x.npy", *flags[:-1], "2", "--draws", "6") != want
    run("sample", "x.npy", *flags, "--draws", "6", "-o", "both.safetensors")
    both = A.read_safetensors(get("both.safetensors"))
    assert both["index"][2] == want and both["log"][:2] == ("f64", (4, 3, 6)) and all(v <= 0 for v in both["log"][2])
    put("half.npy", A.npy("f16", (2, 3), [1, 2, 3, 4, 5, 6]))
    put("full.npy", A.npy("f32", (2, 3), [1, 2, 3, 4, 5, 6]))
    assert draws_of("half.npy", "--draws", "20") == draws_of("full.npy", "--draws", "20")
    nothing_left()


@test("sample")
def names_and_rows_without_a_result():
    put("x.csv", b"0,9\nnan,1\n-inf,-inf\n")
    put("names.txt", b"tail\nhead\n")
    out = run("sample", "x.csv", "--draws", "3", "--labels", "names.txt", "--method", "greedy")[0].decode().splitlines()
    assert out[1].split() == ["0", "1", "head", "3", "1.0000", "%.6g" % softmax([0, 9])[1]], out
    assert out[2].split() == ["1", "not", "a", "number"] and out[3].split() == ["2", "nothing", "left"] and out[4].endswith("; 6 without a result"), out
    assert draws_of("x.csv", "--draws", "2", "--method", "greedy") == [1, 1, -1, -1, -1, -1]
    put("x.csv", b"0,9\n1,inf\n")
    out = run("sample", "x.csv", "--ban", "0,1")[0].decode().splitlines()
    assert out[1].split() == ["0", "nothing", "left"] and out[2].split() == ["1", "a", "score", "of", "+inf"] and out[-1].endswith("; 2 without a result"), out
    assert draws_of("x.csv", "--allow", "0", "--method", "greedy") == [0, -1] and draws_of("x.csv", "--method", "cdf")[1] == -1


@test("sample")
def wrong_samples():
    put("x.npy", A.npy("f32", (2, 4), scores((2, 4))))
    for name, value in (("temperature", "-1"), ("top-k", "-2"), ("top-k", "1.5"), ("top-p", "1.01"), ("top-p", "-0.1"), ("top-p", "x"),
                        ("min-p", "2"), ("xtc", "0.5"), ("xtc", "2,0.5"), ("top-n-sigma", "1,2"), ("top-p", "0.5,0.5"), ("ban", "4"),
                        ("ban", "1,"), ("allow", ""), ("bias", "1"), ("bias", "1=x"), ("bias", "x=1"), ("repetition", "1.2"),
                        ("repetition", "0:1"), ("repetition", "x:1"), ("frequency", "1:9"), ("seed", "-1"), ("seed", "x"), ("stream", "x"),
                        ("dynamic-temperature", "1"), ("dynamic-temperature", "-1,0"), ("quadratic", "1,0.5"), ("quadratic", "1,2,3"),
                        ("tail-free", "2"), ("top-h", "-1"), ("mirostat", "x"), ("no-repeat", "0:1"), ("no-repeat", "2"), ("no-repeat", "1.5:1"),
                        ("no-repeat", "2:-2"), ("dry", "1,0.5:1"), ("dry", "1,2,0:1"), ("dry", "1:9"), ("dry", "x:1"), ("draws", "0"),
                        ("draws", "x"), ("method", "best")):
        fails(USAGE, "sample", "x.npy", "--min-p", "0.1", "--" + name, value, "-o", "no.npy", says="--%s %s: " % (name, value))
    fails(UNREADABLE, "sample", "x.npy", "--ban", "gone.npy", says="gone.npy")
    put("halves.csv", b"0.5\n")
    fails(REFUSED, "sample", "x.npy", "--ban", "halves.csv", says=["halves.csv", "0.5"])
    fails(UNREADABLE, "sample", "gone.npy", says="gone.npy")
    fails(REFUSED, "sample", "x.npy", "--axis", "5", says=["x.npy", "axis is 5"])
    fails(USAGE, "sample", says="no input file")
    fails(USAGE, "sample", "x.npy", "x.npy", says="one input too many")
    fails(USAGE, "sample", "x.npy", "--dtype", "f64", says="--dtype")
    fails(USAGE, "sample", "x.npy", "--alpha", "1", says="--alpha")
    nothing_left()
