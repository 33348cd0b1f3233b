"""Tests of the command: the verb top-k."""
import math

import arrays as A
from harness import close, fails, get, nothing_left, put, REFUSED, run, scores, softmax, test, UNREADABLE, USAGE


def lines_of(*arguments):
    """The table as lists of words, and the line below it."""
    lines = run("top-k", *arguments)[0].decode().splitlines()
    return [line.split() for line in lines[:-1]], lines[-1]


@test("topk")
def the_best_of_each_row():
    x = [1, 3, 2, 0, -1, 5, 5, 0]
    put("x.npy", A.npy("f64", (2, 4), x))
    lines, last = lines_of("x.npy", "--k", "2")
    assert lines[0] == ["row", "rank", "index", "probability", "log-probability"], lines
    want, mass = [], 0
    for r, best in ((0, (1, 2)), (1, (1, 2))):
        p = softmax(x[4 * r:4 * r + 4])
        mass += sum(p[i] for i in best) / 2
        want += [([str(r)] if n == 0 else []) + [str(n + 1), str(i), "%.6g" % p[i], "%.6g" % math.log(p[i])] for n, i in enumerate(best)]
    assert lines[1:] == want, (lines, want)
    assert last == "2 rows of 4 classes, f64; the best 2 have %.4f of the mass on average" % mass, last
    by_index = lines_of("x.npy", "--k", "2", "--order", "index")[0]
    assert [line[-4] for line in by_index[1:]] == ["1", "2", "1", "2"], by_index
    assert [line[-4:-2] for line in lines_of("x.npy", "--k", "3", "--order", "index")[0][1:4]] == [["3", "0"], ["1", "1"], ["2", "2"]]


@test("topk")
def names_and_long_tables():
    put("x.npy", A.npy("f32", (40, 64), scores((40, 64))))
    put("names.txt", b"".join(b"name %d\n" % i for i in range(64)))
    lines, last = lines_of("x.npy", "--k", "30", "--labels", "names.txt")
    assert lines[0][:4] == ["row", "rank", "index", "label"] and last.startswith("40 rows of 64 classes")
    assert all(line[-4:-2] == ["name", line[-5]] for line in lines[1:] if line[-1] != "more" and line != ["..."]), lines
    assert lines[21] == ["...", "10", "more"] and ["..."] in lines and len(lines) == 1 + 15 * 21 + 1, len(lines)
    assert all(len(line) <= 80 for line in run("top-k", "x.npy", "--labels", "names.txt")[0].decode().splitlines())
    put("cube.npy", A.npy("f32", (2, 5, 3), scores((2, 5, 3))))
    lines, last = lines_of("cube.npy", "--k", "1", "--axis", "1")
    assert [line[0] for line in lines[1:]] == ["0,0", "0,1", "0,2", "1,0", "1,1", "1,2"] and "6 rows of 5" in last, lines
    assert lines_of("cube.npy", "--k", "1", "--block", "1") == lines_of("cube.npy", "--k", "1")


@test("topk")
def rows_without_enough():
    put("x.csv", b"nan,1,2\n-inf,-inf,-inf\n1,-inf,0\n")
    lines, last = lines_of("x.csv", "--k", "3")
    assert lines[1][1:] == ["not", "a", "number"] and lines[2][1:] == ["nothing", "valid"] and len(lines) == 5, lines
    assert last.endswith("1.0000 of the mass on average; 1 with NaN; 1 with nothing valid"), last


@test("topk")
def written_as_a_file():
    x = scores((3, 6))
    put("x.npy", A.npy("f32", (3, 6), x))
    run("top-k", "x.npy", "--k", "2", "-o", "o.npz")
    run("run", "softmax_topk", "x.npy", "--k", "2", "-o", "same.npz")
    got = A.read_npz(get("o.npz"))
    assert got == A.read_npz(get("same.npz")) and sorted(got) == ["index", "log", "lse", "rank", "value"], sorted(got)
    close(got["value"][2], [v for r in range(3) for v in sorted(softmax(x[6 * r:6 * r + 6]))[:-3:-1]])
    nothing_left()


@test("topk")
def wrong_top_k():
    put("x.npy", A.npy("f32", (1, 3), [1, 2, 3]))
    fails(USAGE, "top-k", says="no input file")
    fails(USAGE, "top-k", "x.npy", "--k", "0", says="--k 0")
    fails(USAGE, "top-k", "x.npy", "--k", "1.5", says="--k 1.5")
    fails(USAGE, "top-k", "x.npy", "--alpha", "2", says=["--alpha 2", "softmax_topk"])
    fails(USAGE, "top-k", "x.npy", "--backward", says="--backward")
    fails(REFUSED, "top-k", "x.npy", "--k", "4", "-o", "no.npy", says=["x.npy", "k", "4"])
    fails(UNREADABLE, "top-k", "gone.npy", says="gone.npy")
    put("names.txt", b"a\nb\nc\nd\n")
    fails(REFUSED, "top-k", "x.npy", "--k", "1", "--labels", "names.txt", says=["names.txt", "4 names"])
    nothing_left()
