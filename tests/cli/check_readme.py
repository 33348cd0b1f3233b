"""Tests of the command: every line of README, the documentation and the help that begins with `softmax` runs and gives what stands below it; every
verb and option of ./dev that they name exists; every link leads somewhere."""
import glob
import os
import re
import subprocess

import arrays as A
from harness import path, put, run, S, scores, Skip, test

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PAGES = sorted(glob.glob(os.path.join(ROOT, "*.md")) + glob.glob(os.path.join(ROOT, "*", "*.md")) + glob.glob(os.path.join(ROOT, "docs", "*", "*.md")))


def pages():
    for name in PAGES:
        if os.path.relpath(name, ROOT).split(os.sep)[0] in ("build", "out"):
            continue
        with open(name, encoding="utf-8") as f:
            yield os.path.relpath(name, ROOT), f.read()


def shell(line):
    """A line of a shell, in the folder of the test, where `softmax` is the command: standard output."""
    tools = path("tools")
    if not os.path.isdir(tools):
        os.mkdir(tools)
        os.symlink(S.command, os.path.join(tools, "softmax"))
    environment = dict(os.environ, PATH=tools + os.pathsep + os.environ["PATH"], NO_COLOR="1")
    p = subprocess.run(["bash", "-euo", "pipefail", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=S.directory, env=environment, timeout=120)
    assert p.returncode == 0 and not p.stderr, (line, p.stderr.decode())
    return p.stdout.decode()


def examples_of(text):
    """(command, the lines below it) of blocks in which a line begins with "$ "."""
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.S | re.M):
        command, below = None, []
        for line in block.splitlines() + ["$ "]:
            if line.startswith("$ "):
                if command:
                    yield command, below
                command, below = line[2:], []
            else:
                below.append(line)


def matches(shown, printed):
    """Whether the lines stand there as they were printed; a line "..." is any number of them."""
    pattern = "".join(".*?" if line.strip() == "..." else re.escape(line.rstrip()) + r"\s*\n" for line in shown)
    return re.fullmatch(r"\s*" + pattern.lstrip() + r"\s*", "\n".join(line.rstrip() for line in printed.splitlines()) + "\n", re.S)


@test("readme")
def commands_of_the_pages():
    os.symlink(os.path.join(ROOT, "examples"), path("examples"))
    found = 0
    for name, text in pages():
        for command, below in examples_of(text):
            printed = shell(command)
            found += 1
            assert not below or matches([line for line in below if line.strip()], printed), (name, command, printed)
    assert found >= 6, found


@test("readme")
def examples_of_the_help():
    """On files of the names that they use."""
    for name in "qkv":
        put(name + ".npy", A.npy("f32", (1, 4, 40, 8), scores((1, 4, 40, 8))))
    logits = scores((6, 600))
    put("logits.npy", A.npy("f32", (6, 600), logits))
    put("logits.csv", A.text((6, 600), logits))
    put("labels.npy", A.npy("i64", (6,), range(6)))
    put("names.txt", b"".join(b"name %d\n" % i for i in range(600)))
    put("model.safetensors", A.safetensors({"head": ("f32", (6, 600), logits)}))
    lines = re.findall(r"^  (softmax .*)$", run("help")[0].decode().split("\nExamples:\n")[1].split("\n\n")[0], re.M)
    assert len(lines) >= 10, lines
    for line in lines:
        shell(line.replace("--keep 512", "--keep 36"))  # the example's cache is longer than forty keys
    written = [word for line in lines for word in re.findall(r"(?:-o|--map) (\S+)", line)]
    assert written and all(os.path.getsize(path(name)) for name in written)


@test("readme")
def words_of_the_script():
    with open(os.path.join(ROOT, "dev"), encoding="utf-8") as f:
        verbs = set(re.findall(r"^verb_([a-z0-9-]+)\(", f.read(), re.M))
    scripts = {"bench": "report.py", "sweep": "sweep.py"}
    help_of = {}
    for verb, script in scripts.items():
        p = subprocess.run(["python3", "-B", os.path.join(ROOT, "bench", script), "--help"], stdout=subprocess.PIPE, check=False)
        if p.returncode:
            raise Skip("python3 cannot run %s" % script)
        help_of[verb] = set(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", p.stdout.decode()))
    seen = set()
    for name, text in pages():
        if name == "CHANGELOG.md":  # what was so once
            continue
        for verb, rest in re.findall(r"\./dev ([a-z][a-z0-9-]*)([^\n`#]*)", text):
            assert verb in verbs, "%s names ./dev %s" % (name, verb)
            seen.add(verb)
            for option in re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", rest) if verb in help_of else ():
                assert option in help_of[verb], "%s names ./dev %s %s" % (name, verb, option)
    assert {"run", "test", "bench", "sweep"} <= seen


def anchor(heading):
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@test("readme")
def links_lead_somewhere():
    texts, found = dict(pages()), 0
    for name, text in texts.items():
        for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))):
            if "://" in link:
                continue
            file, _, part = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(name), file)) if file else name
            assert os.path.exists(os.path.join(ROOT, target)), "%s: %s" % (name, link)
            headings = {anchor(h) for h in re.findall(r"^#+ (.*)$", texts.get(target, ""), re.M)}
            assert not part or part in headings, "%s: %s" % (name, link)
            found += 1
    assert found > 15, found
