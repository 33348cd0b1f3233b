"""Tests of the command: help, list, manual page, completion."""
import re
import shutil
import subprocess

import arrays as A
from check_operators import port_array
from harness import operators, put, run, S, Skip, test, USAGE


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


VERBS = ("run", "loss", "top-k", "metrics", "report", "calibrate", "sample", "attention", "plot")


@test("docs")
def verbs_explain_themselves():
    whole, page = run("help")[0].decode(), run("--man")[0].decode().replace("\\-", "-")
    for verb in VERBS:
        out = run("help", verb)[0].decode()
        assert out == run(verb, "--help")[0].decode() and "  softmax %s " % verb in whole, verb
        assert all(len(line) <= 80 for line in out.splitlines()), out
        options = re.findall(r"^  (?:-., )?--([a-z0-9-]+)", out, re.M)
        assert "help" in options and {"--" + o for o in options} <= set(complete("bash", verb, "x", "--")), (verb, options)
        own = re.findall(r"^  --([a-z0-9-]+)", out.split("Options of its own")[1].split("\n\n")[0], re.M) if "of its own" in out else []
        for option in own:
            assert re.search(r"^\.It Fl -%s\b" % option, page.split(".Ss Options of %s\n" % verb)[1], re.M), (verb, option)
    assert set(complete("bash", "loss", "")) == {op["name"] for op in operators() if op["family"] == "loss"}
    assert complete("bash", "sample", "x.npy", "--method", "g") == ["gumbel", "greedy"]
    assert complete("bash", "attention", "q.npy", "--layout", "") == ["bhld", "blhd"]
    assert complete("bash", "plot", "softmax", "softmi") == ["softmin"] and "--alpha" not in complete("bash", "plot", "entmax", "--")
    assert "--label_smoothing" in complete("bash", "loss", "cross_entropy", "--")


@test("docs")
def kinds_and_steps_are_told():
    """Each with its formula and numbers, in the help and on the page; which there are, the command says in other places."""
    page = run("--man")[0].decode().replace("\\-", "-")
    kinds = run("attention", "x", "x", "x", "--weights", "x", status=USAGE)[1].split("nor one of ")[1].split()
    steps = re.findall(r"^  --([a-z-]+).*(?:\n {20})? *step: ", run("help", "sample")[0].decode(), re.M)
    assert len(kinds) >= 19 and len(steps) >= 22
    for verb, names in (("attention", kinds), ("sample", [s.replace("-", "_") for s in steps])):
        out = run("help", verb)[0].decode()
        for name in names:
            found = re.search(r"^  %s - (?:.|\n)*?\n      Source: " % name, out, re.M)
            assert found and found.group(0).count("\n") >= 3, (verb, name)
            assert ".It Cm %s\n" % name in page, (verb, name)
            alone = run("help", name)[0].decode()
            assert found.group(0) in alone or name in {op["name"] for op in operators()}, (verb, name)
    assert complete("bash", "attention", "q.npy", "--weights", "") == kinds
    assert "      norm: the divisor N: 1, n, the sum" in run("help", "attention")[0].decode()


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


# How each shell is asked what may stand in the place of the last word; a file named logits.npy is there.
SHELLS = {
    "bash": ["bash", "-uc", 'source /dev/stdin; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _softmax; '
             'printf "%s\\n" "${COMPREPLY[@]}"', "bash"],
    "zsh": ["zsh", "-fuc", 'compdef() { : }; compadd() { shift; print -l -- ${(M)@:#$cur*} }; _files() { print -l -- *(N) }; '
            'source /dev/stdin; words=("$@"); CURRENT=$#words; _softmax', "zsh"],
    "fish": ["fish", "--no-config", "-c", 'source -; complete -C "$argv" | string replace -r "\\t.*" ""; true'],
}


def complete(shell, *words):
    p = subprocess.run([*SHELLS[shell], "softmax", *words], input=run("--%s-completion" % shell)[0], stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, cwd=S.directory)
    assert p.returncode == 0 and not p.stderr, (shell, p.stderr.decode())
    return p.stdout.decode().split()


def completion_of(shell):
    put("logits.npy", b"")
    assert {"run", "help"} <= set(complete(shell, ""))
    assert "logits.npy" in complete(shell, "log")
    every = operators()
    assert set(complete(shell, "run", "")) - {"logits.npy"} == {op["name"] for op in every}
    assert set(complete(shell, "loss", "")) - {"logits.npy"} == {op["name"] for op in every if op["family"] == "loss"}
    for op in every if shell == "bash" else every[::9]:
        offered = set(complete(shell, "run", op["name"], "--"))
        assert {"--" + p["name"] for p in op["params"] + op["inputs"][1:]} | {"--axis", "--output"} <= offered, op["name"]
        for p in op["params"]:
            if p.get("choices"):
                assert sorted(complete(shell, "run", op["name"], "--" + p["name"], "")) == sorted(p["choices"])
    assert "--temperature" in complete(shell, "logits.npy", "--t")
    assert complete(shell, "logits.npy", "--dtype", "b") == ["bf16"]
    assert "--ties" not in complete(shell, "run", "softmax", "--")
    assert "--targets" in complete(shell, "loss", "cross_entropy", "--") and "--targets" not in complete(shell, "run", "softmax", "--")


@test("docs")
def completion_bash():
    completion_of("bash")


@test("docs")
def completion_zsh():
    if not shutil.which("zsh"):
        raise Skip("no zsh")
    completion_of("zsh")


@test("docs")
def completion_fish():
    if not shutil.which("fish"):
        raise Skip("no fish")
    completion_of("fish")


# Sizes that go together: the inner nodes of trees of 16 leaves, and all of them.
TREES = {"hierarchical_softmax": {"m": 15, "t": 31}, "hierarchical_log_softmax": {"m": 15, "t": 31}, "soft_decision_tree": {"m": 15},
         "tree_pool": {"g": 15}, "product_key_memory": {"m": 4, "e": 8},
         **dict.fromkeys(("adaptive_softmax", "adaptive_log_softmax"), {"k": 1, "s": 2, "p": 4, "q": 60}),
         **{"factored_spherical_" + name: {"r": 50} for name in ("head", "step", "weights")}}


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
                put(name, A.npy(*port_array(port, shape, axis, TREES.get(op["name"], {}))))
        assert next(files, None) is None, op["example"]
        run(*words)
