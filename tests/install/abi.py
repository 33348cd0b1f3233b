"""abi.py HEADER LIST SONAME COMPILER - what programs that are compiled already depend on: the functions and their types, the sizes
of structs and where their fields lie, the values of enumerations and macros, and the SONAME. They are those of LIST, line by line.

A line may be added freely. A line that changes or goes is a break: CONTRIBUTING.md ("ABI") says what follows. SMX_ABI_WRITE=1 writes LIST again."""
import difflib
import os
import re
import subprocess
import sys
import tempfile

header, committed, soname, compiler = sys.argv[1:5]

def read(path):
    with open(path) as f:
        return f.read()


# softmax.h, and its parts in the order in which it includes them
parts = re.findall(r'^#include [<"](softmax/\w+\.h)[>"]', read(header), flags=re.M)
text = "".join(read(os.path.join(os.path.dirname(header), part)) for part in ["softmax.h", *parts])
text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
plain = re.sub(r"\s+", " ", re.sub(r"^\s*#.*$", " ", text, flags=re.M))

lines = ["soname " + soname]
lines += sorted("function " + re.sub(r"\s+", " ", d).strip() for d in re.findall(r"\bSMX_API ([^;{}]*\([^;{}]*\));", plain))
lines += sorted("type " + t.strip() for t in re.findall(r"\btypedef ([^;{}]*);", plain))
asked = []  # pairs: what is printed, an expression for its number


def fields(body):
    """Names of the fields: the last word of each declarator, or the one in (*name)."""
    for declaration in filter(None, map(str.strip, body.split(";"))):
        pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", declaration)
        parts = [declaration] if pointer else declaration.split(",")
        for part in parts:
            yield pointer.group(1) if pointer else re.search(r"(\w+)\s*(\[[^]]*\]\s*)*$", part).group(1)


structs = 0
for body, name in re.findall(r"\btypedef struct \w+ \{((?:[^{}]|\{[^{}]*\})*)\} (\w+);", plain):
    structs += 1
    asked.append(("struct %s size" % name, "sizeof(%s)" % name))
    asked.append(("struct %s alignment" % name, "_Alignof(%s)" % name))
    for nested in re.findall(r"struct \{([^{}]*)\} (\w+)", body):
        asked += [("struct %s %s.%s" % (name, nested[1], f), "offsetof(%s, %s.%s)" % (name, nested[1], f)) for f in fields(nested[0])]
    for f in fields(re.sub(r"struct \{[^{}]*\}", "int", body)):
        asked.append(("struct %s %s at" % (name, f), "offsetof(%s, %s)" % (name, f)))
        asked.append(("struct %s %s size" % (name, f), "sizeof(((%s *)0)->%s)" % (name, f)))
for body in re.findall(r"\benum(?: \w+)? \{([^{}]*)\}", plain):
    asked += [("value " + m, m) for m in re.findall(r"(\w+)(?:\s*=[^,]*)?(?:,|\s*$)", body)]
asked += [("macro " + m, m) for m in re.findall(r"^#define (SMX_\w+) [(\d-]", text, flags=re.M) if "VERSION" not in m]
assert structs == plain.count("typedef struct") - len(re.findall(r"typedef struct \w+ \w+;", plain)), "a struct was not understood"

with tempfile.TemporaryDirectory() as work:
    program = "#include <softmax.h>\n#include <stdio.h>\n#define P(what, v) printf(\"%s %lld\\n\", what, (long long)(v));\nint main(void) {\n"
    program += "".join('P("%s", %s)\n' % pair for pair in asked) + "}\n"
    binary = os.path.join(work, "abi")
    subprocess.run([compiler, "-std=c11", "-I", os.path.dirname(header), "-x", "c", "-", "-o", binary], input=program, text=True, check=True)
    lines += subprocess.run([binary], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()

if os.environ.get("SMX_ABI_WRITE"):
    with open(committed, "w") as f:
        f.write("\n".join(lines) + "\n")
with open(committed) as f:
    expected = f.read().splitlines()
difference = [d for d in difflib.unified_diff(expected, lines, lineterm="", n=0) if d[0] in "+-" and d[:3] not in ("+++", "---")]
gone = [d for d in difference if d[0] == "-"]
if difference:
    print("\n".join(difference))
    print("FAIL: the ABI is not that of %s: %s" % (committed, "%d lines changed or went" % len(gone) if gone else "lines were added"))
    print("CONTRIBUTING.md (ABI) says what follows; SMX_ABI_WRITE=1 ./dev test -R install.abi writes the list again")
    sys.exit(1)
print("%d lines, as committed" % len(lines))
