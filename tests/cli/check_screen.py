"""Tests of the command: pipes, the terminal, and the tables it prints."""
import os
import pty
import re
import signal
import subprocess
import time

import arrays as A
from harness import fails, get, put, reference, REFUSED, run, S, scores, test, UNREADABLE, USAGE, X


@test("streams")
def pipe_through():
    want = reference(X)
    out, _ = run("-", "-o", "-", stdin=A.npy("f32", *X))
    assert A.read_npy(out) == want
    out, _ = run("reference.npy", "-o", "-", "--out-format", "csv")
    assert len(A.read_text(out)) == 3
    for form, read in (("npz", A.read_npz), ("safetensors", A.read_safetensors)):
        assert read(run("reference.npy", "-o", "-", "--out-format", form)[0]) == {"y": want}


@test("streams")
def two_inputs_from_standard_input():
    fails(USAGE, "run", "masked_softmax", "-", "-", stdin=A.npy("f32", *X), says="standard input")


@test("streams")
def several_results_to_a_pipe():
    put("x.npy", A.npy("f32", *X))
    put("t.npy", A.npy("f32", (3,), [1, 2, 3]))
    arguments = ("run", "softmax", "x.npy", "--temperature", "t.npy", "--backward", "--dout", "x.npy")
    out, _ = run(*arguments, "-o", "-", "--out-format", "safetensors", "--block", "20")
    run(*arguments, "-o", "o.safetensors")
    assert sorted(A.read_safetensors(out)) == ["dtemperature", "dx"]
    assert A.read_safetensors(out) == A.read_safetensors(get("o.safetensors"))
    assert A.read_npz(run(*arguments, "-o", "-", "--out-format", "npz")[0]) == A.read_safetensors(out)


@test("streams")
def a_reader_that_goes_away():
    put("big.npy", A.npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (65536, 16)}") + bytes(4 * 65536 * 16))
    p = subprocess.Popen([S.command, "big.npy", "-o", "-"], stdout=subprocess.PIPE, cwd=S.directory)
    p.stdout.read(10)
    p.stdout.close()
    assert p.wait(60) == -signal.SIGPIPE


def on_a_terminal(stream, *arguments, wait=0):
    """Runs the command with one of its streams on a terminal: its status, and what the terminal shows; the other stream is read late."""
    master, slave = pty.openpty()
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: slave}
    p = subprocess.Popen([S.command, *arguments], cwd=S.directory, env=dict(os.environ, TERM="xterm", NO_COLOR="1"), **streams)
    os.close(slave)
    time.sleep(wait)
    other = (p.stdout or p.stderr).read()
    status, shown = p.wait(60), b""
    try:
        while part := os.read(master, 65536):
            shown += part
    except OSError:  # the end of a terminal
        pass
    os.close(master)
    return status, shown.decode(), other.decode(errors="replace")


@test("streams")
def progress_on_a_terminal_only():
    put("big.npy", A.npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (65536, 16)}") + bytes(4 * 65536 * 16))
    status, shown, _ = on_a_terminal("stderr", "big.npy", "-o", "-", "--block", "65536", wait=1.2)
    steps = re.findall(r"\r[#.]{40} +(\d+) %, (\d+):(\d\d) left", shown)
    assert status == 0 and steps and steps[-1] == ("100", "0", "00"), shown
    assert shown.rpartition("left")[2].strip() == "", "the line is not wiped"
    assert all(len(line) < 80 for line in shown.split("\r")), shown


@test("streams")
def no_bytes_to_a_terminal():
    put("x.npy", A.npy("f32", *X))
    for form in ("npy", "npz", "safetensors", "raw"):
        status, shown, error = on_a_terminal("stdout", "x.npy", "-o", "-", "--out-format", form)
        assert status == USAGE and not shown and "terminal" in error and "--out-format csv" in error, (form, shown, error)
    assert on_a_terminal("stdout", "x.npy", "-o", "-")[0] == USAGE
    for arguments in (("x.npy", "-o", "-", "--out-format", "csv"), ("x.npy",), ("plot", "softmax")):
        status, shown, error = on_a_terminal("stdout", *arguments)
        assert status == 0 and shown and not error, (arguments, error)


@test("tables")
def classes_and_entropy():
    put("a.csv", b"1,2,3\n0,0,0\n")
    out = run("a.csv")[0].decode().splitlines()
    assert re.match(r" *0 +2 +0\.6652 +1 +0\.2447 +0 +0\.0900 +0\.8324$", out[1]), out
    assert re.match(r" *1 +0 +0\.3333 .* 1\.0986$", out[2]), out
    assert "2 rows of 3 classes, f64; mean entropy 0.9655 nats of at most 1.0986; mean top probability 0.4993" in out[3], out


@test("tables")
def long_inputs_are_cut():
    put("a.npy", A.npy("f32", (1000, 20), scores((1000, 20))))
    for arguments in (["a.npy"], ["run", "softmax", "a.npy"], ["run", "logsumexp", "a.npy"]):
        out = run(*arguments)[0].decode().splitlines()
        assert len(out) == 18 and all(len(line) <= 100 for line in out[:-1]), out
        assert out[11].strip() == "..." and out[16].split()[0] == "999", out
        assert "1000 rows" in out[17]
    for rows in (1, 9, 10, 11, 15, 16):
        put("a.npy", A.npy("f32", (rows, 2), scores((rows, 2))))
        labels = [line.split()[0] for line in run("a.npy")[0].decode().splitlines()[1:-1]]
        want = [str(r) for r in range(rows)]
        assert labels == (want if rows <= 15 else want[:10] + ["..."] + want[-5:]), labels


@test("tables")
def rows_of_any_axis():
    shape = (2, 3, 4)
    put("a.npy", A.npy("f32", shape, scores(shape)))
    out = run("a.npy", "--axis", "1")[0].decode()
    assert "8 rows of 3 classes" in out and "\n       1,3 " in out, out
    run("a.npy", "-a", "-2", "-o", "o.npy")
    assert run("a.npy", "--axis", "1", "-o", "-")[0] == get("o.npy")


@test("tables")
def rows_without_a_result():
    put("a.csv", b"nan,1\n-inf,-inf\n1,2\n")
    out = run("a.csv")[0].decode()
    lines = out.splitlines()
    assert lines[1].split(None, 1) == ["0", "not a number"] and lines[2].split(None, 1) == ["1", "nothing valid"], out
    assert "1 with NaN; 1 with nothing valid" in out, out
    fails(REFUSED, "a.csv", "--on-empty", "error", says="a.csv")
    put("b.csv", b"inf,1,inf\n")
    assert "1 with NaN" in run("b.csv")[0].decode()
    assert run("b.csv", "--on-inf", "limit", "-o", "-", "--out-format", "csv")[0] == b"0.5,0,0.5\n"


@test("tables")
def no_color_in_a_pipe():
    put("a.csv", b"1,2\n")
    assert b"\033" not in run("a.csv", environment={"TERM": "xterm"})[0]
    for no_color, want in (("", True), ("1", False)):
        master, slave = pty.openpty()
        environment = dict(os.environ, NO_COLOR=no_color, TERM="xterm")
        subprocess.run([S.command, "a.csv"], stdout=slave, cwd=S.directory, check=True, env=environment)
        os.close(slave)
        assert (b"\033" in os.read(master, 4096)) == want
        os.close(master)


@test("tables")
def names_beside_the_classes():
    put("a.csv", b"1,2,3\n0,0,0\n")
    put("names.txt", b"ant\r\nb\xc3\xa9e, with a long name\nc\033[1m\xff\xe2\x80\xae")
    lines = run("a.csv", "--labels", "names.txt")[0].decode().splitlines()
    assert lines[0].split()[:4] == ["row", "class", "name", "weight"], lines
    assert re.match(r" *0 +2 c\?\[1m\?\? +0\.6652 +1 b\u00e9e, with a +0\.2447 +0\.8324$", lines[1]), lines
    assert all(len(line) <= 80 for line in lines[:-1]), lines
    put("two.txt", b"ant\nbee\n")  # a vocabulary may be padded
    assert " 2 " + " " * 12 in run("a.csv", "--labels", "two.txt")[0].decode()
    put("four.txt", b"a\nb\nc\nd\n")
    fails(REFUSED, "a.csv", "--labels", "four.txt", says=["four.txt", "4 names", "3 classes", "a.csv"])
    put("none.txt", b"")
    fails(UNREADABLE, "a.csv", "--labels", "none.txt", says=["none.txt", "no names"])
    fails(UNREADABLE, "a.csv", "--labels", "gone.txt", says="gone.txt")
    fails(USAGE, "a.csv", "--labels", "-", says="--labels -")
    fails(USAGE, "run", "softmax", "a.csv", "--labels", "names.txt", says="--labels")
