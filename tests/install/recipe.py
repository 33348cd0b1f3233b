#!/usr/bin/env python3
"""recipe.py CMAKE BUILD SOURCE WORK - README's own lines, in an empty home: installing the library, and building its example with pkg-config, with
the static library, by find_package, add_subdirectory and FetchContent; and the C that it shows. The library is installed from BUILD instead of
being built anew, and as a part of another project it is configured, its target linked and its header used, but not built: the rest is verbatim.
CC is the compiler, GENERATOR the generator of CMake. Standard library only."""
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

CMAKE, BUILD, SOURCE, WORK = sys.argv[1], *map(Path, sys.argv[2:5])
README = (SOURCE / "README.md").read_text(encoding="utf-8")
WANT = "0.0900 0.2447 0.6652"
TARGET = "softmax::softmax"


def recipe(name):
    found = re.search(r"<!-- recipe: %s -->\n```\w+\n(.*?)^```" % re.escape(name), README, re.S | re.M)
    assert found, "README has no recipe '%s'" % name
    return found[1]


def step(words):
    print("== " + words, flush=True)


def run(command, where, **more):
    """A command, or lines of a shell, in an environment of its own: an empty home, and nothing that helps."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(WORK / "home"), "CMAKE_GENERATOR": os.environ["GENERATOR"], "CC": os.environ["CC"], **more}
    if isinstance(command, str):
        command = ["bash", "-euo", "pipefail", "-c", command]
    p = subprocess.run(list(map(str, command)), cwd=where, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if p.returncode:
        sys.exit("FAIL: %s: status %d\n%s" % (command, p.returncode, p.stdout))
    return p.stdout


def shadow():
    """The sources without build folders: what somebody has who unpacks them."""
    tree = WORK / "libsoftmax"
    tree.mkdir()
    for entry in SOURCE.iterdir():
        if entry.name not in ("build", ".git"):
            (tree / entry.name).symlink_to(entry)
    return tree


def install(tree):
    for line in recipe("install").splitlines():
        if " --build " in line:
            continue
        line = line.replace("cmake ", CMAKE + " ", 1)
        run(line.replace("build/library", str(BUILD)) if " --install " in line else line, tree)
    home = WORK / "home/.local"
    if not (home / "lib/pkgconfig/softmax.pc").exists():
        print("skipped: this build installs into another folder than lib")
        sys.exit(77)
    return home


def example(name, recipe_name, edit=lambda text: text):
    """A project of README's example and the lines of a recipe."""
    project = WORK / name
    project.mkdir()
    (project / "example.c").write_text(EXAMPLE, encoding="utf-8")
    (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.16)\nproject(example C)\nadd_executable(example example.c)\n" +
                                            edit(recipe(recipe_name)), encoding="utf-8")
    return project


def as_part(project, *more):
    """Configured inside another project: the header is found, and the program would be linked to the library."""
    run([CMAKE, "-S", ".", "-B", "build", *more], project)
    cache = (project / "build/CMakeCache.txt").read_text(encoding="utf-8")
    assert "SMX_TESTS:BOOL=OFF" in cache and "SMX_CLI:BOOL=OFF" in cache, "tests or the command would be built as a part of another project"
    if "Ninja" in os.environ["GENERATOR"]:
        run([CMAKE, "--build", "build", "--target", "CMakeFiles/example.dir/example.c.o"], project)
        plan = (project / "build/build.ninja").read_text(encoding="utf-8")
        link = re.search(r"^build example: .*$", plan, re.M)
        assert link and "libsoftmax.so" in link[0], link


def pack(tree, archive):
    with tarfile.open(archive, "w:gz", compresslevel=1, dereference=True) as t:
        for entry in ("CMakeLists.txt", "cmake", "include", "src"):
            t.add(tree / entry, "libsoftmax/" + entry)


def main():
    tree = shadow()
    step("install")
    home = install(tree)
    cache = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
    if re.search(r"^SMX_(SHARED|STATIC):BOOL=(OFF|FALSE)$", cache, re.M):
        print("skipped: the recipe is about both libraries")
        return 77

    step("pkg-config, and the static library")
    place = WORK / "place"
    place.mkdir()
    (place / "example.c").write_text(EXAMPLE, encoding="utf-8")
    printed = run(recipe("pkg-config"), place).splitlines()
    assert printed == [WANT, WANT], printed
    needed = run(["readelf", "-d", "example"], place), run(["readelf", "-d", "example-static"], place)
    assert "libsoftmax.so.0" in needed[0] and "libsoftmax" not in needed[1]

    for name, edit in (("find_package", lambda text: text), ("find_static", lambda text: text.replace(TARGET, "softmax::static"))):
        step("find_package, %s" % name)
        project = example(name, "find_package", edit)
        run("%s -S . -B build -DCMAKE_PREFIX_PATH=$HOME/.local && %s --build build" % (CMAKE, CMAKE), project)
        assert run(["build/example"], project).strip() == WANT

    step("add_subdirectory")
    project = example("subdirectory", "add_subdirectory")
    (project / "libsoftmax").symlink_to(tree)
    as_part(project)

    step("FetchContent")
    project = example("fetch", "FetchContent")
    pack(tree, project / "libsoftmax.tar.gz")
    as_part(project)

    step("the other C of README")
    for block in re.findall(r"^```c\n(.*?)^```", README, re.S | re.M):
        if "int main" in block:
            continue
        program = ("#include <softmax.h>\n#include <stdio.h>\nvoid f(size_t batch, size_t vocabulary, const float *logits, int64_t *token, uint64_t position);\n"
                   "void f(size_t batch, size_t vocabulary, const float *logits, int64_t *token, uint64_t position) {\n%s}\n"
                   "int main(void) { float x[6] = {0, 9, 0, 0, 0, 9}; int64_t t[2]; f(2, 3, x, t, 7); return printf(\"%%d %%d\\n\", (int)t[0], (int)t[1]) < 0; }\n")
        (place / "block.c").write_text(program % block, encoding="utf-8")
        run("%s -std=c11 -Wall -Wextra -Werror block.c -I ~/.local/include ~/.local/lib/libsoftmax.a -lm -pthread -o block" % os.environ["CC"], place)
        assert run(["./block"], place).strip() == "1 2"
    print("all well; installed into %s" % home)
    return 0


EXAMPLE = next(b for b in re.findall(r"^```c\n(.*?)^```", README, re.S | re.M) if "int main" in b)

if __name__ == "__main__":
    subprocess.run(["rm", "-rf", WORK], check=True)
    (WORK / "home").mkdir(parents=True)
    sys.exit(main())
