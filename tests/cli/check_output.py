"""Tests of the command: an output appears whole or not at all."""
import os
import resource
import signal
import subprocess
import time

import arrays as A
from harness import fails, get, nothing_left, path, put, run, S, SHAPE, test, UNWRITABLE, X


def big_file():
    """Zeros that take seconds to write as text."""
    header = A.npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2097152, 16)}")
    with open(put("big.npy", header), "r+b") as f:
        f.truncate(len(header) + 2097152 * 64)


def temporary_there():
    return any(n.startswith(".softmax") for n in os.listdir(S.directory))


def slow_run(output):
    """Starts a run that takes a while and waits until its temporary file is there."""
    big_file()
    p = subprocess.Popen([S.command, "big.npy", "-o", output], stderr=subprocess.PIPE, cwd=S.directory)
    while not temporary_there():
        assert p.poll() is None
        time.sleep(0.005)
    return p


@test("output")
def signals_leave_nothing():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        p = slow_run("new.csv")
        p.send_signal(number)
        assert p.wait(60) == -number
        nothing_left()
        assert not os.path.exists(path("new.csv"))


@test("output")
def signals_leave_the_old_file():
    put("old.csv", b"1,2\n")
    p = slow_run("old.csv")
    p.send_signal(signal.SIGINT)
    assert p.wait(60) == -signal.SIGINT
    nothing_left()
    assert get("old.csv") == b"1,2\n"


@test("output")
def a_shell_sees_143():
    big_file()
    wait_for_it = "until ls .softmax-* >/dev/null 2>&1; do kill -0 $pid || exit 9; sleep 0.02; done"
    script = '"$0" big.npy -o new.csv & pid=$!; %s; kill -TERM $pid; wait $pid' % wait_for_it
    assert subprocess.run(["bash", "-c", script, S.command], cwd=S.directory, stderr=subprocess.DEVNULL, timeout=60).returncode == 143
    nothing_left()


@test("output")
def paths_that_cannot_be_written():
    put("a.npy", A.npy("f32", *X))
    os.makedirs(path("folder.npy"), exist_ok=True)
    fails(UNWRITABLE, "a.npy", "-o", "missing/o.npy", says="missing/o.npy")
    fails(UNWRITABLE, "a.npy", "-o", "folder.npy", says="folder.npy")
    fails(UNWRITABLE, "a.npy", "-o", "a.npy/o.npy", says="a.npy/o.npy")
    if os.getuid() != 0:
        os.makedirs(path("locked"), mode=0o500)
        fails(UNWRITABLE, "a.npy", "-o", "locked/o.npy", says="locked/o.npy")


@test("output")
def full_disks():
    big = A.npy("f32", (4096, 64), [0.5] * (4096 * 64))
    put("a.npy", big)
    put("old.npy", b"old")
    for form in ("npy", "csv", "safetensors", "npz", "raw"):
        fails(UNWRITABLE, "a.npy", "-o", "/dev/full", "--out-format", form, says=["/dev/full", "No space"])
        limits = {resource.RLIMIT_FSIZE: 100000}
        fails(UNWRITABLE, "a.npy", "-o", "old.npy", "--out-format", form, limits=limits, says=["old.npy", "too large"])
        assert get("old.npy") == b"old"
        nothing_left()
    for arguments in (["list"], ["help"], ["--man"], ["list", "--json"], ["a.npy"]):
        with open("/dev/full", "wb") as full:
            p = subprocess.run([S.command, *arguments], stdout=full, stderr=subprocess.PIPE, cwd=S.directory)
        assert p.returncode == UNWRITABLE and p.stderr.count(b"\n") == 1, (arguments, p)


@test("output")
def what_is_replaced():
    put("a.npy", A.npy("f32", *X))
    put("real.npy", b"old")
    os.chmod(path("real.npy"), 0o640)
    os.symlink("real.npy", path("link.npy"))
    run("a.npy", "-o", "link.npy")
    assert os.path.islink(path("link.npy")) and A.read_npy(get("real.npy"))[1] == SHAPE
    assert os.stat(path("real.npy")).st_mode & 0o777 == 0o640
    mask = os.umask(0o027)
    run("a.npy", "-o", "new.npy")
    os.umask(mask)
    assert os.stat(path("new.npy")).st_mode & 0o777 == 0o640
    run("a.npy", "-o", "a.npy")
    assert A.read_npy(get("a.npy"))[1] == SHAPE
    run("a.npy", "-o", "/dev/null", "--out-format", "npy")
    assert not os.path.isfile("/dev/null")
