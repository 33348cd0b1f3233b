"""Tests of the command: help, list, manual page, completion."""
import re
import shutil
import subprocess

import arrays as A
from check_operators import port_array
from harness import operators, put, run, S, Skip, test


@test("docs")
def help_tells_everything():
    for op in operators():
        out = run("help", op["name"])[0].decode()
        assert run("run", op["name"], "--help")[0].decode() == out
        flat = " ".join(out.split())
        for p in op["params"]:
            assert "--" + p["name"] in out and " ".join(p["help"].split()) in flat, (op["name"], p["name"])
        facts = [op[key] for key in ("title", "formula", "about", "source", "example")]
        for text in facts + [p["help"] for p in op["inputs"] + op["outputs"]]:
            assert " ".join(text.split()) in flat, (op["name"], text)
        assert all(len(line) <= 80 for line in out.splitlines()[1:]), out
    listed = [line.split()[0] for line in run("list")[0].decode().splitlines()]
    assert listed == [op["name"] for op in operators()]
    out = run("help")[0].decode()
    assert out == run("--help")[0].decode() == run("-h")[0].decode()
    assert all(len(line) <= 80 for line in out.splitlines()), out
    for word in (".npy", ".safetensors", "--axis", "130", "143"):
        assert word in out


@test("docs")
def examples_name_their_operator():
    for op in operators():
        words = op["example"].split()
        assert words[:3] == ["softmax", "run", op["name"]], words
        options = [w[2:] for w in words if w.startswith("--")]
        assert set(options) <= {"axis"} | {p["name"] for p in op["params"] + op["inputs"]}, words


VERBS = ("run", "loss", "top-k", "sample", "attention", "plot")


@test("docs")
def verbs_explain_themselves():
    whole, page = run("help")[0].decode(), run("--man")[0].decode().replace("\\-", "-")
    for verb in VERBS:
        out = run("help", verb)[0].decode()
        assert out == run(verb, "--help")[0].decode() and "  softmax %s " % verb in whole, verb
        assert all(len(line) <= 80 for line in out.splitlines()), out
        options = re.findall(r"^  (?:-., )?--([a-z0-9-]+)", out, re.M)
        assert "help" in options and {"--" + o for o in options} <= set(complete(verb, "x", "--")), (verb, options)
        own = re.findall(r"^  --([a-z0-9-]+)", out.split("Options of its own")[1].split("\n\n")[0], re.M) if "of its own" in out else []
        for option in own:
            assert re.search(r"^\.It Fl -%s\b" % option, page.split(".Ss Options of %s\n" % verb)[1], re.M), (verb, option)
    assert set(complete("loss", "")) == {op["name"] for op in operators() if op["family"] == "loss"}
    assert complete("sample", "x.npy", "--method", "g") == ["gumbel", "greedy"]
    assert complete("attention", "q.npy", "--layout", "") == ["bhld", "blhd"]
    assert complete("plot", "softmax", "softmi") == ["softmin"] and "--alpha" not in complete("plot", "entmax", "--")
    assert "--label_smoothing" in complete("loss", "cross_entropy", "--")


@test("docs")
def version():
    assert re.match(r"softmax \d+\.\d+\.\d+ \(\w+\)\n$", run("--version")[0].decode())


@test("docs")
def manual_is_clean():
    page = put("softmax.1", run("--man")[0])
    for op in operators():
        assert (".Ss %s: " % op["name"]).encode() in run("--man")[0]
    if not shutil.which("mandoc"):
        raise Skip("mandoc is not installed")
    p = subprocess.run(["mandoc", "-Tlint", "-Wwarning", page], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert p.returncode == 0 and not p.stdout, p.stdout.decode()


def complete(*words):
    script = 'source /dev/stdin; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _softmax; printf "%s\\n" "${COMPREPLY[@]}"'
    p = subprocess.run(["bash", "-uc", script, "bash", "softmax", *words], input=run("--bash-completion")[0], stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, cwd=S.directory)
    assert p.returncode == 0 and not p.stderr, p.stderr.decode()
    return p.stdout.decode().split()


@test("docs")
def completion():
    put("logits.npy", b"")
    assert {"run", "help", "--version"} <= set(complete(""))
    assert "logits.npy" in complete("log")
    assert set(complete("run", "")) == {op["name"] for op in operators()}
    for op in operators():
        offered = set(complete("run", op["name"], "--"))
        assert {"--" + p["name"] for p in op["params"] + op["inputs"][1:]} | {"--axis", "--output"} <= offered, op["name"]
        for p in op["params"]:
            if p.get("choices"):
                assert complete("run", op["name"], "--" + p["name"], "") == p["choices"]
    assert "--temperature" in complete("logits.npy", "--t")
    assert complete("logits.npy", "--dtype", "b") == ["bf16"]


@test("docs")
def examples_run():
    """Each as it stands in the help, on files that its inputs could be: square, for matrices, and with room for the k best; votes are classes."""
    put("votes.csv", b"0,0,1\n1,1,1\n0,0,-1\n3,0,1\n")
    for op in operators():
        words = op["example"].split()[1:]
        n = int(words[words.index("--k") + 1]) if "--k" in words else 16
        shape = (16, max(n, 16))
        axis = int(words[words.index("--axis") + 1]) % 2 if "--axis" in words else 1
        by_name = {w[2:]: words[i + 1] for i, w in enumerate(words) if w.startswith("--")}
        first = next((i for i, w in enumerate(words) if w.startswith("-")), len(words))
        files = iter(words[2:first])
        for port in op["inputs"]:
            name = by_name.get(port["name"]) or next(files, None)
            if name and name.endswith(".npy"):
                put(name, A.npy(*port_array(port, shape, axis)))
        assert next(files, None) is None, op["example"]
        run(*words)
