"""Tests of the command: files that are malformed, on purpose or not."""
import os
import random
import struct
import subprocess
import tempfile
import zipfile

import arrays as A
from harness import fails, get, path, put, REFUSED, run, S, test, UNREADABLE, X


def bad_npys():
    good = A.npy("f32", *X)
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 5), }"
    yield "empty header", A.npy_header("") + b""
    for n in (0, 3, 6, 8, 9, 10, 40, 127, 128, len(good) - 1):
        yield "first %d bytes" % n, good[:n]
    yield "a byte too many", good + b"x"
    yield "version", good[:6] + b"\x04" + good[7:]
    for old, new in (("(3, 5)", "(3, -5)"), ("(3, 5)", "(4294967296, 4294967296, 4294967296)"), ("(3, 5)", "(99999999999999999999,)"),
                     ("(3, 5)", "(1,1,1,1,1,1,1,1,15)"), ("(3, 5)", "3, 5"), ("(3, 5)", "(3; 5)"), ("(3, 5)", "(3, 5"), ("<f4", "<c8"),
                     ("<f4", "|O"), ("<f4", "f4"), ("<f4", ""), ("<f4", "<f4" * 30), ("'<f4'", "[('a', '<f4')]"), ("False", "Maybe"),
                     ("}", ""),
                     ("'shape': (3, 5), ", ""), (", }", ", 'shape': (3, 5)}"), (", }", ", 'x': 1}"), (", }", ", } junk"), ("{", "["),
                     ("(3, 5)", "(0, 99999999999, 99999999999)"), ("(3, 5)", "(4611686018427387904, 4)")):
        yield "%s -> %s" % (old, new), A.npy_header(header.replace(old, new)) + A.pack("f32", X[1])
    for old, new in (("<f4", "<f4\0"), ("<f4", "\0<f4"), ("<f4", "<f4\0x"), ("descr'", "descr\0'"),
                     ("shape'", "shape\0x'"), ("fortran_order'", "fortran_order\0'"), ("<f4", "<f4\n"),
                     ("<f4", "\x7f<f4"), (", }", ", }\0")):
        yield "%r -> %r" % (old, new), A.npy_header(header.replace(old, new)) + A.pack("f32", X[1])
    for shape in ("(1099511627776, 0)", "(4, 1099511627776, 0)", "(1099511627776, 0, 4)",
                  "(1099511627776, 4, 0)", "(16777217, 0)"):
        yield "shape " + shape, A.npy_header(header.replace("(3, 5)", shape))
    long = struct.pack("<I", 1000060) + header.encode().ljust(1000060)
    yield "a header of a million spaces", b"\x93NUMPY\x02\x00" + long + A.pack("f32", X[1])
    yield "header length", good[:8] + b"\xff\xff" + good[10:]
    yield "long header length", b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + good[10:]


def bad_safetensors():
    good = A.safetensors({"a": ("f32", *X)})
    entry = {"dtype": "F32", "shape": [3, 5], "data_offsets": [0, 60]}
    data = A.pack("f32", X[1])
    for n in (0, 7, 8, 20, len(good) - 1):
        yield "first %d bytes" % n, good[:n]
    yield "a byte too many", good + b"x"
    for key, value in (("dtype", "F33"), ("dtype", 1), ("shape", [3, 6]), ("shape", [3, -5]), ("shape", [2 ** 40, 2 ** 40]), ("shape", 15),
                       ("shape", ["3", 5]), ("shape", [3, 5.0]), ("data_offsets", [0, 61]), ("data_offsets", [60, 0]),
                       ("data_offsets", [4, 64]), ("data_offsets", [-4, 56]), ("data_offsets", [0]), ("data_offsets", "x"), ("extra", 1)):
        yield "%s %r" % (key, value), A.safetensors_header({"a": dict(entry, **{key: value})}, data)
    u8 = {"dtype": "U8", "shape": [30], "data_offsets": [0, 30]}
    yield "overlap", A.safetensors_header({"a": u8, "b": dict(u8, data_offsets=[20, 50])}, data[:50])
    yield "hole", A.safetensors_header({"a": u8, "b": dict(u8, data_offsets=[31, 61])}, data + b"x")
    yield "same range", A.safetensors_header({"a": u8, "b": u8}, data[:30])
    yield "metadata", A.safetensors_header({"__metadata__": {"a": 1}, "a": entry}, data)
    yield "not an object", A.safetensors_header(b"[1, 2]", b"")
    yield "entry", A.safetensors_header({"a": []}, b"")
    yield "nothing", A.safetensors_header({}, b"")
    yield "twice", A.safetensors_header(b'{"a":1,"a":2}', b"")
    yield "deep", A.safetensors_header(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", b"")
    yield "dense", A.safetensors_header(b'{"a":[' + b"0," * 100000 + b"0]}", b"")
    yield "length over the cap", struct.pack("<Q", 100000001) + b"{" + b" " * 100000000
    yield "huge length", struct.pack("<Q", 2 ** 63) + b"{}"
    yield "unreadable type", A.safetensors_header({"a": {"dtype": "F8_E4M3", "shape": [60], "data_offsets": [0, 60]}}, data)


def bad_npzs():
    good = A.npz({"a": ("f32", *X)})
    deflated = A.npz({"a": ("f32", (100,), [1.0] * 100)}, zipfile.ZIP_DEFLATED)
    for n in (0, 4, 30, len(good) // 2, len(good) - 1):
        yield "first %d bytes" % n, good[:n]
    at = good.index(b"NUMPY")
    yield "damaged data", good[:at + 130] + b"\xff" + good[at + 131:]
    yield "damaged stream", deflated[:60] + b"\xff\xff\xff" + deflated[63:]
    central = good.index(b"PK\x01\x02")
    for field in (20, 24):
        yield "claimed size", good[:central + field] + b"\xff\xff\xff\x7f" + good[central + field + 4:]
    yield "method", good[:central + 10] + b"\x0c\x00" + good[central + 12:]
    out = A.npz({})
    yield "no member", out
    bad = tempfile.SpooledTemporaryFile()
    with zipfile.ZipFile(bad, "w") as z:
        z.writestr("a.txt", "hello")
    bad.seek(0)
    yield "no npy", bad.read()
    bad = tempfile.SpooledTemporaryFile()
    with zipfile.ZipFile(bad, "w") as z:
        z.writestr("a.npy", "hello")
    bad.seek(0)
    yield "not an npy", bad.read()


def bad_texts():
    for data in (b"", b"\n\n", b"a,b\n", b"1,2\n3\n", b"1,2\n3,4,5\n", b"1,2\n3,x\n", b"1,2\n3,\n", b"1,2\n,\n", b"1,0x10\n", b"1,1e\n",
                 b"1,--2\n", b"1,2\x00\n", b"1," + b"9" * 600 + b"\n", b"1;2\n3;4;5\n", b'1,"2\n', b"\xff\xfe1\x00",
                 b"1,2\n" + b"," * 100000 + b"\n", b"1,nan(3)\n"):
        yield repr(data[:20]), data


@test("hostile")
def malformed_files():
    for extension, files in ((".npy", bad_npys), (".safetensors", bad_safetensors), (".npz", bad_npzs), (".csv", bad_texts)):
        for what, data in files():
            put("bad" + extension, data)
            try:
                fails(UNREADABLE, "bad" + extension, says="bad" + extension)
                if what.startswith("first"):
                    run("-", "--format", extension[1:], stdin=data, status=UNREADABLE)
            except AssertionError as e:
                raise AssertionError("%s: %s: %s" % (extension, what, e))


@test("hostile")
def text_faults_name_line_and_column():
    for data, says in ((b"1,2\n3,x\n", "line 2, column 2: 'x'"), (b"1,2\n\n3\n", "line 3, column 2"), (b"1,2\n3,4,5\n", "line 2, column 3"),
                       (b"1,a\n", "line 1, column 2: 'a'")):
        put("bad.csv", data)
        fails(UNREADABLE, "bad.csv", says=["bad.csv", says])


@test("hostile")
def files_that_cannot_be_read():
    fails(UNREADABLE, "missing.npy", says=["missing.npy", "No such file"])
    os.mkdir(path("folder.npy"))
    fails(UNREADABLE, "folder.npy", says="folder.npy")
    fails(UNREADABLE, "new\nline.npy", says="new?line.npy")
    for c in [*range(1, 0x20), *range(0x7f, 0xa0), 0x2028, 0x2029, 0x202e, 0x2066]:
        fails(UNREADABLE, "a%sb.npy" % chr(c), says="softmax: a?b.npy: ")
    fails(UNREADABLE, b"a\x9b\xe9\xc3b.npy", says="softmax: a???b.npy: ")
    fails(UNREADABLE, "\u00fc\u4e2d.npy", says="softmax: \u00fc\u4e2d.npy: ")
    put("a.npy", A.npy("f32", *X))
    fails(UNREADABLE, "run", "masked_softmax", "a.npy", "missing.npy", says="missing.npy")


def bomb(name, start, rest):
    """An npz of 260 000 bytes whose array has 268 millions, made piece by piece: peak memory is inherited."""
    with zipfile.ZipFile(path(name), "w", zipfile.ZIP_DEFLATED) as z, z.open("a.npy", "w") as f:
        f.write(start)
        for _ in range(1 << 12):
            f.write(rest * (1 << 16))
    return get(name)


def peak_memory(*arguments):
    p = subprocess.Popen([S.command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=S.directory)
    return os.wait4(p.pid, 0)[2].ru_maxrss


@test("hostile")
def memory_stays_near_the_size_of_the_file():
    base = peak_memory("--version")
    claims = {
        "a.npy": A.npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000)}"),
        "b.npy": b"\x93NUMPY\x02\x00\xff\xff\xff\x7f",
        "a.safetensors": A.safetensors_header(b'{"a":{"dtype":"F32","shape":[1000000,1000000],"data_offsets":[0,4000000000000]}}', b""),
        "b.safetensors": A.safetensors_header(b'{"a":[' + b"{}," * 2000000 + b"{}]}", b""),
        "c.safetensors": A.safetensors_header(b'{"a":[' + b"0," * 2000000 + b"0]}", b""),
    }
    good = A.npz({"a": ("f32", (100,), [1.0] * 100)}, zipfile.ZIP_DEFLATED)
    central = good.index(b"PK\x01\x02")
    claims["a.npz"] = good[:central + 24] + b"\xff\xff\xff\x7f" + good[central + 28:]
    little = A.npy("f32", (6,), [0.5] * 6)
    header = b"\x93NUMPY\x02\x00\xff\xff\xff\x0f"
    for name, start, rest in (("b.npz", little, b"\0"), ("c.npz", header, b" "), ("d.npz", b"", b"\0")):
        claims[name] = bomb(name, start, rest)
    for name, data in claims.items():
        put(name, data)
        assert peak_memory(name) - base < 64 << 10, name


@test("hostile")
def random_damage():
    one = {"a": ("f32", *X)}
    goods = {"npy": A.npy("f32", *X), "npz": A.npz(one, zipfile.ZIP_DEFLATED), "safetensors": A.safetensors(one),
             "csv": A.text(*X)}
    for extension, good in goods.items():
        for _ in range(40):
            data = bytearray(good)
            for _ in range(random.randint(1, 4)):
                data[random.randrange(len(data))] = random.randrange(256)
            put("bad." + extension, bytes(data))
            p = subprocess.run([S.command, "bad." + extension], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=S.directory, timeout=60)
            assert p.returncode in (0, REFUSED, UNREADABLE), (p, bytes(data))


@test("hostile")
def a_file_that_shrinks():
    rows = 1 << 18
    header = A.npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 16)}" % rows)
    with open(put("big.npy", header), "r+b") as f:
        f.truncate(len(header) + rows * 64)
    arguments = [S.command, "big.npy", "-o", "-", "--block", "65536"]
    p = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=S.directory)
    p.stdout.read(1000)
    os.truncate(path("big.npy"), 4096)
    _, error = p.communicate(timeout=60)
    assert p.returncode == UNREADABLE and b"big.npy" in error and b"truncated" in error, (p.returncode, error)
