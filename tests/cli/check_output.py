"""Tests of the command: an output appears whole or not at all."""
import math
import os
import resource
import shutil
import signal
import subprocess
import time

import arrays as A
from harness import fails, get, nothing_left, path, put, REFUSED, run, S, SHAPE, test, UNWRITABLE, X


def big_file():
    """Zeros that take seconds to write as text."""
    header = A.npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2097152, 16)}")
    with open(put("big.npy", header), "r+b") as f:
        f.truncate(len(header) + 2097152 * 64)


SHIM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>
static int opened(const char *path, int flags, int mode) {
  if ((flags & O_TMPFILE) == O_TMPFILE) { errno = EOPNOTSUPP; return -1; }
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
#define OPEN(name) int name(const char *path, int flags, ...) { \
  va_list a; va_start(a, flags); int mode = va_arg(a, int); va_end(a); return opened(path, flags, mode); }
OPEN(open)
OPEN(open64)
"""


def ways():
    """Environments: of this file system, and of one that knows no files without a name."""
    with_unnamed = True
    try:
        os.close(os.open(S.directory, os.O_TMPFILE | os.O_RDWR))
    except OSError:
        with_unnamed = False
    found = [("here", with_unnamed, {})]
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler:
        with open(path("shim.c"), "w") as f:
            f.write(SHIM)
        shim = [compiler, "-w", "-fPIC", "-shared", path("shim.c"), "-o", path("shim.so")]
        subprocess.run(shim, check=True)
        found.append(("without O_TMPFILE", False, {"LD_PRELOAD": path("shim.so")}))
    return found


def writing(pid):
    """Whether a process holds a file in the folder of the test that it has yet to give its name."""
    for entry in os.scandir("/proc/%d/fd" % pid):
        try:
            name = os.readlink(entry.path)
        except FileNotFoundError:
            continue
        if name.startswith(S.directory + "/") and (name.endswith(" (deleted)") or "/.softmax-" in name):
            return True
    return False


def slow_run(output, environment):
    """Starts a run that takes a while and waits until it has begun its file."""
    big_file()
    p = subprocess.Popen([S.command, "big.npy", "-o", output], stderr=subprocess.PIPE, cwd=S.directory,
                         env=dict(os.environ, **environment))
    while not writing(p.pid):
        assert p.poll() is None
        time.sleep(0.005)
    return p


@test("output")
def signals_leave_nothing():
    for _, unnamed, environment in ways():
        numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
        for number in numbers + [signal.SIGKILL] if unnamed else numbers:
            p = slow_run("new.csv", environment)
            p.send_signal(number)
            assert p.wait(60) == -number
            nothing_left()
            assert not os.path.exists(path("new.csv"))


@test("output")
def signals_leave_the_old_file():
    put("old.csv", b"1,2\n")
    for _, unnamed, environment in ways():
        for number in (signal.SIGINT, signal.SIGKILL) if unnamed else (signal.SIGINT,):
            p = slow_run("old.csv", environment)
            p.send_signal(number)
            assert p.wait(60) == -number
            nothing_left()
            assert get("old.csv") == b"1,2\n"


@test("output")
def a_shell_sees_143():
    big_file()
    begun = "ls -l /proc/$pid/fd | grep -qE 'deleted|/[.]softmax-'"
    wait_for_it = "until %s; do kill -0 $pid || exit 9; sleep 0.02; done" % begun
    script = '"$0" big.npy -o new.csv & pid=$!; %s; kill -TERM $pid; wait $pid' % wait_for_it
    p = subprocess.run(["bash", "-c", script, S.command], cwd=S.directory, stderr=subprocess.DEVNULL,
                       timeout=60)
    assert p.returncode == 143
    nothing_left()


@test("output")
def every_way_writes_the_same():
    put("a.npy", A.npy("f32", *X))
    for _, _, environment in ways():
        for name in ("new.npy", "new.npy", "new.npz", "new.csv"):  # the first is made, the second replaced
            run("a.npy", "-o", name, environment=environment)
            nothing_left()
        assert A.read_npy(get("new.npy")) == A.read_npz(get("new.npz"))["y"]
        assert os.stat(path("new.csv")).st_nlink == 1
        os.remove(path("new.npy"))


@test("output")
def links_survive_and_lead_somewhere():
    put("a.npy", A.npy("f32", *X))
    os.makedirs(path("deep/er"))
    os.symlink("deep/to.npy", path("dangling.npy"))
    os.symlink("er/end.npy", path("deep/to.npy"))
    os.symlink(path("missing/o.npy"), path("nowhere.npy"))
    os.symlink("round.npy", path("round.npy"))
    for _, _, environment in ways():
        for _ in range(2):  # its target is made, then replaced
            run("a.npy", "-o", "dangling.npy", environment=environment)
            assert os.path.islink(path("dangling.npy")) and os.path.islink(path("deep/to.npy"))
            assert A.read_npy(get("deep/er/end.npy"))[1] == SHAPE
        os.remove(path("deep/er/end.npy"))
        for name, why in (("nowhere.npy", "No such file"), ("round.npy", "symbolic links")):
            fails(UNWRITABLE, "a.npy", "-o", name, says=[name, why], environment=environment)


def refused_rows():
    """A file whose rows the operator refuses: what comes before that refusal has been looked at first."""
    put("nothing.npy", A.npy("f32", (2, 12), [-math.inf] * 24))
    return ["nothing.npy", "--on-empty", "error"]


@test("output")
def bad_names_fail_before_the_work():
    os.symlink("y" * 256 + ".npy", path("far.npy"))
    rows = refused_rows()
    fails(REFUSED, *rows, "-o", "o.npy")
    deep = "d/" * 2040 + "o" * 30 + ".npy"
    for name in ("x" * 252 + ".npy", "far.npy", "far/" * 1100 + "o.npy", deep, "missing/o.npy",
                 "nothing.npy/o.npy"):
        for verb in ([], ["top-k"], ["run", "logsumexp"]):
            fails(UNWRITABLE, *verb, *rows, "-o", name, says="cannot")
    run(put("a.npy", A.npy("f32", *X)), "-o", "x" * 251 + ".npy")


@test("output")
def inherited_descriptors_are_written_where_they_stand():
    put("a.npy", A.npy("f32", *X))
    csv, npz = (run("a.npy", "-o", "-", "--out-format", form)[0] for form in ("csv", "npz"))
    os.symlink("/dev/stdout", path("link.csv"))
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/proc/thread-self/fd/1", "/dev/../dev/fd/1",
                 "link.csv", "-", "/dev/fd/7"):
        for form, data in (("csv", csv), ("npz", npz)):
            for mode in ("ab", "r+b"):
                put("app.log", b"before\n")
                with open(path("app.log"), mode) as log:
                    log.seek(7)
                    number = 7 if name.endswith("7") else 1
                    script = 'exec 3>&1 >&2; "$0" a.npy -o "$1" --out-format "$2" %d>&3; echo after >&3' % number
                    subprocess.run(["bash", "-c", script, S.command, name, form], stdout=log, cwd=S.directory,
                                   check=True)
                assert get("app.log") == b"before\n" + data + b"after\n", (name, form, mode, get("app.log"))
    nothing_left()
    rows = refused_rows()
    for name in ("/dev/fd/63", "/dev/stdin"):
        fails(UNWRITABLE, *rows, "-o", name, "--out-format", "csv", says=[name, "Bad file descriptor"])


def through_a_slow_pipe(arguments):
    """Standard output through a pipe that does not block, read with pauses."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    p = subprocess.Popen([S.command, *arguments], stdout=writer, stderr=subprocess.PIPE, cwd=S.directory)
    os.close(writer)
    time.sleep(0.2)
    data = b""
    with open(reader, "rb") as f:
        for part in iter(lambda: f.read1(1 << 16), b""):
            data += part
            time.sleep(0.001)
    error = p.stderr.read()
    assert p.wait(60) == 0 and error == b"", (p.returncode, error)
    return data


@test("output")
def a_pipe_that_does_not_block_is_waited_for():
    put("a.npy", A.npy("f32", (4096, 64), [0.5] * (4096 * 64)))
    for arguments in (["a.npy", "-o", "-"], ["a.npy", "-o", "/dev/stdout", "--out-format", "csv"],
                      ["a.npy", "-o", "-", "--out-format", "npz"],
                      ["list", "--json"], ["--man"], ["--bash-completion"], ["a.npy"]):
        assert through_a_slow_pipe(arguments) == run(*arguments)[0], arguments


@test("output")
def an_input_that_does_not_block_is_waited_for():
    data = A.npy("f32", *X)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    p = subprocess.Popen([S.command, "-"], stdin=reader, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         cwd=S.directory)
    os.close(reader)
    for part in (data[:50], data[50:]):
        time.sleep(0.2)
        os.write(writer, part)
    os.close(writer)
    found, error = p.communicate(timeout=60)
    assert p.returncode == 0 and found == run("-", stdin=data)[0], error


@test("output")
def the_place_for_temporary_files_is_asked_for():
    put("a.npy", A.npy("f32", *X))
    arguments = ["run", "softmax_topk", "a.npy", "--k", "2", "-o", "-", "--out-format", "npz"]
    missing = {"TMPDIR": path("missing")}
    fails(UNWRITABLE, *arguments, says="temporary file", environment=missing)
    os.makedirs(path("mine"))
    for _, _, environment in ways():
        assert len(A.read_npz(run(*arguments, environment=dict(environment, TMPDIR=path("mine")))[0])) > 1
        assert os.listdir(path("mine")) == []
    run(*arguments[:-4], "-o", "o.npz", environment=missing)  # a file needs none


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
