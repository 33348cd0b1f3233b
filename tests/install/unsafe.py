"""unsafe.py CMAKE SOURCE COMPILER GENERATOR - no flag with which a compiler may change results gets past the build: each is refused when
the project configures, wherever it comes from, and each that has a macro by every source of the library."""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

cmake, source, compiler, generator = sys.argv[1:]
UNSAFE = ["-Ofast", "-ffast-math", "-ffinite-math-only",
          "-fassociative-math -fno-signed-zeros -fno-trapping-math",
          "-freciprocal-math", "-fno-signed-zeros", "-funsafe-math-optimizations", "-frounding-math",
          "-fno-honor-nans", "-fno-honor-infinities", "-fapprox-func", "-ffp-model=fast", "-fsingle-precision-constant",
          "-mfpmath=387",
          "-mrecip=all", "-fdenormal-fp-math=preserve-sign,preserve-sign"]
SAFE = ["-O3 -g -fno-math-errno -fno-trapping-math", "-O2 -march=native -ffp-contract=fast",
        "$<$<CONFIG:Release>:-O3>", ""]
MACROS = ["__FAST_MATH__", "__FINITE_MATH_ONLY__", "__ASSOCIATIVE_MATH__", "__RECIPROCAL_MATH__",
          "__NO_SIGNED_ZEROS__",
          "__ROUNDING_MATH__", "__FLT_EVAL_METHOD__"]


def call(*arguments, **options):
    p = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
                       **options)
    return p.returncode, re.sub(r"\s+", " ", p.stdout)


def named(flags):
    """Script mode: what the function says of a variable."""
    with tempfile.NamedTemporaryFile("w", suffix=".cmake") as f:
        f.write('cmake_minimum_required(VERSION 3.16)\ninclude(%s/cmake/arithmetic.cmake)\nset(HERE "%s")\nsmx_refuse_unsafe(HERE)\n' % (source, flags))
        f.flush()
        return call(cmake, "-P", f.name)


def by_name():
    for flags in UNSAFE:
        for text in (flags, "-g " + flags, flags.replace(" ", ";"),
                     "$<$<NOT:$<CONFIG:Debug>>:%s>" % flags.split()[0]):
            status, said = named(text)
            assert status and "does not build with -" in said and "HERE" in said, (text, status, said)
    for flags in SAFE:
        assert named(flags)[0] == 0, flags


def configure(folder, *options, where=source):
    return call(cmake, "-G", generator, "-S", where, "-B", folder, "-DCMAKE_C_COMPILER=" + compiler,
                "-DCMAKE_BUILD_TYPE=Release",
                "-DSMX_CLI=OFF", "-DSMX_TESTS=OFF", "-DSMX_ISAS=portable",
                "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *options)


def when_configured(work):
    for option in ("-DCMAKE_C_FLAGS_RELEASE=-Ofast", "-DCMAKE_C_FLAGS=-ffinite-math-only",
                   "-DSMX_KERNEL_OPTIMISE=-Ofast"):
        status, said = configure(os.path.join(work, "refused"), option)
        assert status and "libsoftmax does not build with -" in said, (option, said)
    around = os.path.join(work, "around")
    os.mkdir(around)
    with open(os.path.join(around, "CMakeLists.txt"), "w") as f:
        f.write("cmake_minimum_required(VERSION 3.16)\nproject(around C)\nadd_compile_options(-O2 -fassociative-math)\n"
                "add_subdirectory(%s softmax)\n" % source)
    status, said = configure(os.path.join(work, "within"), where=around)
    assert status and "does not build with -fassociative-math" in said, said


def macros(flags):
    status, said = call(compiler, "-std=c11", *flags, "-dM", "-E", "-x", "c", "/dev/null")
    values = dict(re.findall(r"#define (\w+) (\S+)", said))
    return None if status else {m: values.get(m) for m in MACROS}


def precompiled(name):
    with open(name) as f:
        return "base/arithmetic.h\"\n#include <immintrin.h>" in f.read()


def by_every_source(work):
    folder = os.path.join(work, "good")
    status, said = configure(folder)
    assert status == 0, said
    with open(os.path.join(folder, "compile_commands.json")) as f:
        commands = [shlex.split(c["command"]) for c in json.load(f) if "/src/" in c["file"]]
    assert len(commands) > 50
    usual = macros([])
    seen = [flags for flags in UNSAFE if macros(flags.split()) not in (None, usual)]
    assert {"-Ofast", "-ffinite-math-only"} <= set(seen), seen
    for at, command in enumerate(commands):
        included = [command[i + 1] for i, word in enumerate(command) if word == "-include"]
        assert "base/arithmetic.h" in " ".join(included) or all(map(precompiled, included)), command
        flags = seen[at % len(seen)]
        checked = command[:command.index("-o")] + command[command.index("-o") + 2:]
        if at < 2 * len(seen):  # compiled as it is, then with a flag after all others
            assert call(*checked, "-E", "-P", cwd=folder)[0] == 0, checked
            status, said = call(*checked, *flags.split(), "-E", "-P", cwd=folder)
            assert status and "libsoftmax does not build" in said, (flags, checked)
    print("%d flags by name, %d by macro, %d sources" % (len(UNSAFE), len(seen), len(commands)))


by_name()
with tempfile.TemporaryDirectory(prefix="softmax-unsafe-") as work:
    when_configured(work)
    by_every_source(work)
