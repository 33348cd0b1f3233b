"""Tests of the command: operators on matrices, whose blocks hold whole matrices."""
import arrays as A
from harness import close, fails, get, operators, put, REFUSED, run, scores, test, USAGE

SHAPE = (4, 3, 3)
A32, B, POINT, V = [1, 2, 0, -1, 3, 1], [0.5, 0, 1], [0.2, -0.1], [1, -2]


def affine():
    """Files of a matrix of 3 x 2 and its vectors; the tests of the library have the same."""
    for name, shape, values in (("a", (3, 2), A32), ("b", (3,), B), ("p", (2,), POINT), ("v", (2,), V), ("t", (3,), [0.2, 0.3, 0.5])):
        put(name + ".npy", A.npy("f64", shape, values))
    return ["a.npy", "b.npy", "p.npy"]


@test("matrices")
def all_of_them_run():
    put("x.npy", A.npy("f32", SHAPE, scores(SHAPE)))
    affine()
    put("votes.npy", A.npy("f32", (3, 4), [0, 1, 1, -1, 0, 0, 1, 0, 1, -1, 1, 1]))
    for op in operators():
        if op["name"] == "basis_aware_accept":
            continue  # takes tokens: below
        if op["family"] == "matrix":
            files = ["a.npy", "b.npy", "p.npy", "v.npy"][:len(op["inputs"])]
            if len(op["inputs"]) == 1:
                files = ["votes.npy" if "votes" in op["inputs"][0]["help"] else "x.npy"]
            run("run", op["name"], *files)
            run("run", op["name"], *files, "-o", "o.safetensors")
            assert list(A.read_safetensors(get("o.safetensors"))) == [p["name"] for p in op["outputs"]]


@test("matrices")
def rows_and_columns_sum_to_one():
    put("x.npy", A.npy("f32", SHAPE, scores(SHAPE)))
    for arguments in (("sinkhorn", "--steps", "401"), ("orthostochastic",)):
        run("run", arguments[0], "x.npy", *arguments[1:], "-o", "y.npy")
        y = A.read_npy(get("y.npy"))[2]
        for m in range(0, 36, 9):
            close([sum(y[m + 3 * i:m + 3 * i + 3]) for i in range(3)] + [sum(y[m + i:m + 9:3]) for i in range(3)], [1] * 6, 1e-5)
    run("run", "sinkhorn", "x.npy", "--steps", "1", "-o", "one.npy")
    run("x.npy", "-o", "softmax.npy")
    assert get("one.npy") == get("softmax.npy")


@test("matrices")
def blocks_and_gradients():
    put("x.npy", A.npy("f32", SHAPE, scores(SHAPE)))
    put("dy.npy", A.npy("f32", SHAPE, scores(SHAPE)))
    for arguments in (["sinkhorn"], ["sinkhorn", "--gradient", "limit", "--steps", "401"], ["orthostochastic"]):
        for more in ([], ["--backward", "--dout", "dy.npy"]):
            call = ["run", arguments[0], "x.npy", *arguments[1:], *more, "-o", "-"]
            whole = run(*call)[0]
            assert run(*call, "--block", "1")[0] == whole == run(*call, "--block", "80")[0], call


@test("matrices")
def tokens_that_a_basis_proves():
    put("p.npy", A.npy("f64", (3,), [0.3, 0.4, 0.3]))
    put("w.npy", A.npy("f64", (3, 1), [1, 0, -1]))
    put("t.npy", A.npy("i64", (4,), [1, 0, -1, 3]))
    for eta, accepted, index in (("0.05", [1, 1, 0, 0], [1]), ("0.5", [0, 1, 0, 0], [0])):
        run("run", "basis_aware_accept", "p.npy", "--basis", "w.npy", "--token", "t.npy", "--eta", eta, "-o", "o.npz")
        got = A.read_npz(get("o.npz"))
        assert got["accepted"][2] == accepted and got["index"][2] == index, got


@test("matrices")
def objectives():
    run("run", "logsumexp_objective", *affine(), "v.npy", "--mu", "0.5", "-o", "o.npz")
    got = A.read_npz(get("o.npz"))
    close(got["f"][2], [0.335747640535019], 1e-14)
    close(got["gradient"][2], [0.751863174830844, -0.0601710314614451], 1e-14)
    close(got["third_vv"][2], [0.43774185636448, 20.25416775635], 1e-11)
    run("run", "softmax_regression", "a.npy", "t.npy", "p.npy", "-o", "o.npz")
    got = A.read_npz(get("o.npz"))
    close(got["f"][2], [0.00406759890069769], 1e-15)
    assert got["hessian_v"][2] == [0, 0]


@test("matrices")
def distributions():
    put("x.npy", A.npy("f64", (3, 4), [2, 1, 0.1, -1, 0.5, -0.3, 1.2, 0, 0, 3, -2, 0.5]))
    put("mix.npy", A.npy("f64", (3,), [0.5, -1, 0.25]))
    run("run", "jensen_shannon_divergence", "x.npy", "mix.npy", "-o", "o.npz")
    got = A.read_npz(get("o.npz"))
    close(got["loss"][2], [0.32996048072879394], 1e-15)
    close(got["dx"][2][:2], [0.126633517156539, -0.10122176056873], 1e-10)
    run("run", "jensen_shannon_centroid", "x.npy", "mix.npy", "-o", "y.npy")
    close(A.read_npy(get("y.npy"))[2], [0.3567273730062621, 0.4922408579865097, 0.08511268405975726, 0.06591908494747096], 1e-9)
    put("votes.csv", b"0,0,1\n1,1,1\n0,0,-1\n1,0,1\n")
    run("run", "worker_agreement", "votes.csv", "-o", "y.npy")
    close(A.read_npy(get("y.npy"))[2], [21 / 29, 8 / 29, 0, 1, 1, 0, 9 / 29, 20 / 29], 1e-12)
    run("run", "dawid_skene", "votes.csv", "--k", "3", "-o", "y.npy")
    assert A.read_npy(get("y.npy"))[1] == (4, 3)


@test("matrices")
def wrong_matrices():
    put("x.npy", A.npy("f32", (2, 3), scores((2, 3))))
    put("n.npy", A.npy("f32", (3,), [1, 2, 3]))
    affine()
    for arguments, status, says in ((("sinkhorn", "n.npy"), REFUSED, ["n.npy: ", "1 dimensions, not 2 or more"]),
                                    (("sinkhorn", "x.npy", "--axis", "0"), REFUSED, ["axis is 0", "there is none"]),
                                    (("sinkhorn", "x.npy", "--steps", "0"), USAGE, "--steps 0"),
                                    (("orthostochastic", "x.npy"), REFUSED, ["x.npy: x: shape[1] is 3, not 2"]),
                                    (("logsumexp_objective", "a.npy", "p.npy", "p.npy"), REFUSED, ["p.npy: b: "]),
                                    (("logsumexp_objective", "a.npy", "b.npy"), USAGE, "'x' is missing"),
                                    (("softmax_regression", "a.npy", "b.npy", "b.npy"), REFUSED, ["b.npy: x: shape[0] is 3"]),
                                    (("jensen_shannon_divergence", "x.npy", "b.npy"), REFUSED, ["mix: ", "3", "2"]),
                                    (("dawid_skene", "x.npy"), REFUSED, ["x.npy: x: [0, ", "no class of 0..1"]),
                                    (("worker_agreement", "x.npy", "--k", "0"), USAGE, "--k 0")):
        fails(status, "run", *arguments, says=says)
