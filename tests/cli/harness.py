"""What the tests of the command share: running it, looking at what it says, files to run it on."""
import json
import math
import os
import random
import resource
import subprocess

import arrays as A

REFUSED, USAGE, UNREADABLE, UNWRITABLE = 1, 2, 3, 4
SHAPE = (3, 5)
TESTS = []
random.seed(1)


class S:
    """The command under test, and the folder of the test that runs."""
    command = ""
    directory = ""


class Skip(Exception):
    pass


def test(topic):
    def register(function):
        TESTS.append((topic, function))
        return function
    return register


def path(name):
    return os.path.join(S.directory, name)


def put(name, data):
    with open(path(name), "wb") as f:
        f.write(data)
    return path(name)


def get(name):
    with open(path(name), "rb") as f:
        return f.read()


def run(*arguments, status=0, stdin=b"", limits=None, environment=None):
    """Runs the command, checks the status and what every fault has to look like. Gives standard output and standard error."""
    def limit():
        for what, value in (limits or {}).items():
            resource.setrlimit(what, (value, value))
    env = dict(os.environ, NO_COLOR="1", **(environment or {}))
    p = subprocess.run([S.command, *arguments], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=S.directory,
                       preexec_fn=limit, timeout=120)
    error = p.stderr.decode(errors="replace")
    assert p.returncode == status, "status %d, not %d: %s: %s" % (p.returncode, status, arguments, error)
    if status:
        assert error.startswith("softmax: ") and error.endswith("\n") and error.count("\n") == 1, error
    else:
        assert error == "", error
    return p.stdout, error


def fails(status, *arguments, says="", **options):
    error = run(*arguments, status=status, **options)[1]
    for part in [says] if isinstance(says, str) else says:
        assert part in error, "%r is not in %r" % (part, error)


def scores(shape, spread=4):
    return [round(random.uniform(-spread, spread), 2) for _ in range(A.count(shape))]


def softmax(row):
    m = max(row)
    e = [math.exp(v - m) for v in row]
    return [v / sum(e) for v in e]


def close(a, b, tolerance=1e-6):
    assert len(a) == len(b) and all(abs(x - y) <= tolerance for x, y in zip(a, b)), (a[:9], b[:9])


def nothing_left():
    left = [n for n in os.listdir(S.directory) if n.startswith(".softmax")]
    assert not left, left


def operators():
    return json.loads(run("list", "--json")[0])


def row_operators():
    """Those that take rows; the others take tensors whose dimensions have names."""
    return [op for op in operators() if op["inputs"][0]["shape"] != "dims"]


def reference(x, *options):
    """What the command gives for an npy file of f32; the other formats must give the same."""
    put("reference.npy", A.npy("f32", *x))
    run("reference.npy", *options, "-o", "reference-out.npy")
    return A.read_npy(get("reference-out.npy"))


X = (SHAPE, scores(SHAPE))
