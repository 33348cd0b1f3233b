"""examples.py INCLUDE LIBRARY - every example in a comment of a public header compiles, as C11 and C++17, and gives what
it says. CC and CXX are the compilers.

A line of a comment that is indented by five spaces is code, and so is what is indented further right behind one.
`// y = 0.25 0.75` at its end says what the array y begins with then, `// y[1] = 0.75` what one number is; they are
compared as they are printed. Paragraphs of one comment go on with each other, so that the second may use what the first
declares. A line that looks like code and is indented in another way, a result that cannot be read, and a comment with
`*/` behind code are refused."""
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

COMMENT = re.compile(r"/\*.*?\*/", re.S)
CODE = re.compile(r"^ \*     (?=\S)(.*)$")
INNER = re.compile(r"^ \*     (\s+\S.*)$")
LIKE_CODE = re.compile(r"^ \*? *(smx_\w+\(|(const )?(double|float|u?int\d+_t|smx_\w+) \*?\w+(\[\w*\])*( = .*)?;).*(;|\{)( */[/*].*)?$")
RESULT = re.compile(r"^(.*?)\s*// (\S+) = ([-0-9. ]+)$")

PROGRAM = """#include <softmax.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
static void show(double v, const char *wanted) {
  const char *dot = strchr(wanted, '.');
  char text[64];
  snprintf(text, sizeof text, "%%.*f", dot ? (int)strlen(dot + 1) : 0, v);
  printf("%%s\\n", text);
}
int main(void) {
%s
  return 0;
}
"""


def code_of(comment):
    """(match or None, line) for each line; behind a line of code, one that is indented further is code too."""
    code = None
    for line in comment.splitlines():
        code = CODE.match(line) or (code and INNER.match(line))
        yield code, line


def examples(header):
    """(line, code) of each comment that has code."""
    text = header.read_text()
    for comment in COMMENT.finditer(text):
        lines = [m.group(1) for m, _ in code_of(comment.group(0)) if m]
        if lines:
            yield text.count("\n", 0, comment.start()) + 1, lines


def missed(header):
    """Lines of comments that look like code and would not be compiled, or not be compared."""
    text = header.read_text()
    for comment in COMMENT.finditer(text):
        first = text.count("\n", 0, comment.start()) + 1
        for i, (code, line) in enumerate(code_of(comment.group(0))):
            if (code and (line.endswith("*/") or ("=" in line.partition("//")[2] and not RESULT.match(code.group(1))))) or (
                not code and LIKE_CODE.match(line)
            ):
                yield first + i, line


def body(lines):
    """The statements with what shows the results, and the results that are wanted."""
    code, wanted = [], []
    for line in lines:
        m = RESULT.match(line)
        code.append(m.group(1) if m else line)
        numbers = m.group(3).split() if m else []
        for i, number in enumerate(numbers):
            code.append('show((double)%s%s, "%s");' % (m.group(2), "[%d]" % i if len(numbers) > 1 else "", number))
        wanted += numbers
    return "\n".join("  " + line for line in code), wanted


def run(compiler, flags, name, code, include, library, folder):
    source, program = Path(folder, name), Path(folder, "program")
    source.write_text(PROGRAM % code)
    subprocess.run([*compiler, *flags, "-Wall", "-Wextra", "-Werror", "-I", include, str(source), library, "-lm", "-pthread", "-o",
                    str(program)], check=True)
    return subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.split()


def main(include, library):
    compilers = [(shlex.split(os.environ.get("CC") or "cc"), ["-std=c11"], "example.c")]
    if os.environ.get("CXX"):
        compilers.append((shlex.split(os.environ["CXX"]), ["-std=c++17"], "example.cc"))
    failed = 0
    for header in sorted(Path(include).rglob("*.h")):
        if header.name == "mpi.h":  # needs MPI: tests/mpi/example.sh
            continue
        found = list(examples(header))
        if not found:
            failed += 1
            print("%s: no example" % header)
        lost = list(missed(header))
        for line, text in lost:
            print("%s:%d is no example that can be run: %s" % (header, line, text))
        if lost:
            failed += 1
            continue
        for line, lines in found:
            code, wanted = body(lines)
            for compiler, flags, name in compilers:
                with tempfile.TemporaryDirectory() as folder:
                    got = run(compiler, flags, name, code, include, library, folder)
                good = got == wanted and wanted
                failed += not good
                print("%s:%d, %s: %s%s" % (header, line, flags[0], " ".join(got), "" if good else ", not " + (" ".join(wanted) or "nothing")))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
