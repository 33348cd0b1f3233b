#!/usr/bin/env python3
"""The command over ranks: command.py SOFTMAX MPIEXEC NUMPROC_FLAG. What it prints and writes on 2 and 3 ranks is what one process does,
byte for byte, and a fault of it is told once. Standard library only."""
import os
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
import arrays  # noqa: E402

SOFTMAX, MPIEXEC, FLAG = sys.argv[1:]
ROWS, N = 5, 20000


def write(name, dtype, shape, values):
    pathlib.Path(name).write_bytes(arrays.npy(dtype, shape, values))


def prepare():
    r = random.Random(1)
    write("x.npy", "f32", (ROWS, N), [r.gauss(0, 2) for _ in range(ROWS * N)])
    write("swapped.npy", "f64", (3, 9000, 2), [r.gauss(0, 2) for _ in range(54000)])
    pathlib.Path("big.npy").write_bytes(arrays.npy("f64", (3, 9000, 2), [r.gauss(0, 2) for _ in range(54000)], order=">"))
    write("t.npy", "i64", (ROWS,), [r.randrange(N) for _ in range(ROWS)])
    write("bad.npy", "i64", (ROWS,), [0, 1, N, 3, 4])
    write("w.npy", "f32", (N,), [r.random() for _ in range(N)])
    write("u.npy", "f32", (ROWS,), [0.5, 1, 2, 1, 0.7])
    write("short.npy", "f32", (4, 3), [1, 2, 3, 1, 2, 3, 0, 0, 0, 5, 1, 2])


# The words of a call; OUT is a file of its own.
CALLS = [
    "x.npy", "x.npy -o OUT.npy", "short.npy", "run softmax short.npy -o OUT.npy",
    "run softmax x.npy --temperature u.npy -o OUT.npy --block 100000",
    "run softmax x.npy --backward --dout x.npy -o OUT.npy",
    "run log_softmax big.npy --axis 1 -o OUT.npy", "run sparsemax swapped.npy --axis -2 --dtype f16 -o OUT.npy",
    "run logsumexp x.npy", "run entmax15 x.npy -o OUT.csv", "run softmax_topk x.npy --k 4 -o OUT.npz",
    "run cross_entropy x.npy t.npy -o OUT.safetensors", "top-k x.npy -k 3",
    "loss cross_entropy x.npy --targets t.npy", "loss cross_entropy x.npy --targets t.npy --class_weight w.npy --gradient -o OUT.npy",
    "loss focal_loss x.npy --targets t.npy", "loss focal_loss x.npy --targets t.npy --gradient -o OUT.npy",
]
# A call, its exit code, and a part of the line that it ends with.
FAULTS = [
    ("loss cross_entropy x.npy --targets bad.npy -o OUT.npy", 1, "target"), ("run softmax none.npy", 3, "none.npy"),
    ("sample x.npy", 2, "sample: not over ranks"), ("run sinkhorn x.npy", 2, "not over ranks"),
    ("run softmax x.npy -o none/OUT.npy", 4, "none/"), ("run softmax x.npy --temperature w.npy", 1, "w.npy"),
]


def run(words, ranks):
    for file in pathlib.Path().glob("OUT.*"):
        file.unlink()
    command = [SOFTMAX, *words.split()]
    if ranks:
        command = [MPIEXEC, FLAG, str(ranks), *command]
    # Open MPI gives its processes a terminal
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=120,
                       env={**os.environ, "NO_COLOR": "1"})
    return p.returncode, p.stdout, p.stderr.decode(), {f.name: f.read_bytes() for f in pathlib.Path().glob("OUT.*")}


def main():
    failures = 0

    def check(good, what):
        nonlocal failures
        failures += not good
        if not good:
            print("FAIL:", what)
    for words in CALLS:
        code, text, errors, files = run(words, 0)
        check(code == 0, "%s: %s" % (words, errors))
        for ranks in (2, 3):
            got = run(words, ranks)
            check(got[0] == 0, "%d ranks: %s: %s" % (ranks, words, got[2]))
            check(got[1] == text, "%d ranks: %s: prints something else" % (ranks, words))
            check(got[3] == files and bool(files) == ("-o" in words), "%d ranks: %s: writes something else" % (ranks, words))
    for words, code, part in FAULTS:
        got = run(words, 2)
        told = [line for line in got[2].splitlines() if line.startswith("softmax: ")]
        check(got[0] == code and len(told) == 1 and part in told[0], "2 ranks: %s: %d, %s" % (words, got[0], got[2]))
        check(not got[3] and not got[1], "2 ranks: %s: something was written" % words)
    print("%d calls, %d faults: %d failures" % (len(CALLS), len(FAULTS), failures))
    return failures > 0


if __name__ == "__main__":
    SOFTMAX = os.path.abspath(SOFTMAX)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        prepare()
        code = main()
        os.chdir("/")
    sys.exit(code)
