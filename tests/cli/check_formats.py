"""Tests of the command: every format, in and out."""
import os
import shutil
import struct
import zipfile

import arrays as A
from harness import close, fails, get, path, put, reference, run, SHAPE, softmax, test, UNREADABLE, USAGE, X


@test("formats")
def npy_values_are_right():
    dtype, shape, y = reference(X)
    assert (dtype, shape) == ("f32", SHAPE)
    close(y, sum((softmax(X[1][r * 5:r * 5 + 5]) for r in range(3)), []))


@test("formats")
def npy_versions_orders_types():
    for dtype in ("f16", "f32", "f64", "bf16", "i32", "i64"):
        values = X[1] if dtype[0] != "i" else [int(v) for v in X[1]]
        put("a.npy", A.npy(dtype, SHAPE, values))
        run("a.npy", "-o", "a-out.npy")
        plain = get("a-out.npy")
        assert A.read_npy(plain)[0] == (dtype if dtype[0] != "i" else "f64")
        for order, version, fortran in ((">", 1, False), ("<", 1, True), (">", 2, True), ("<", 3, False)):
            put("b.npy", A.npy(dtype, SHAPE, values, order, version, fortran))
            run("b.npy", "-o", "b-out.npy")
            assert get("b-out.npy") == plain, (dtype, order, version, fortran)


@test("formats")
def npy_of_ml_dtypes_name():
    data = A.npy("bf16", SHAPE, X[1])
    put("a.npy", data)
    put("b.npy", A.npy_header("{'descr': 'bfloat16', 'fortran_order': False, 'shape': (3, 5)}") + A.pack("bf16", X[1]))
    assert run("a.npy") == run("b.npy")
    assert b"bf16" in run("a.npy")[0]


@test("formats")
def npy_header_by_hand():
    for text in ("{'shape': (3, 5), 'fortran_order': False, 'descr': '<f4'}", '{"descr":"<f4","fortran_order":False,"shape":(3L,5L,),}'):
        put("a.npy", A.npy_header(text) + A.pack("f32", X[1]))
        run("a.npy", "-o", "b.npy")
        assert A.read_npy(get("b.npy")) == reference(X)


@test("formats")
def npz_members():
    want = reference(X)
    for method, stream in ((zipfile.ZIP_STORED, False), (zipfile.ZIP_DEFLATED, False), (zipfile.ZIP_DEFLATED, True)):
        put("one.npz", A.npz({"a": ("f32", *X)}, method, stream))
        put("two.npz", A.npz({"a": ("f32", *X), "b:c": ("f64", *X)}, method, stream))
        run("one.npz", "-o", "o.npz")
        assert A.read_npz(get("o.npz")) == {"y": want}
        run("two.npz:a", "-o", "o.npy")
        assert A.read_npy(get("o.npy")) == want
        assert b"f64" in run("two.npz:b:c")[0]
        fails(UNREADABLE, "two.npz", says=["two.npz: holds 2 arrays", "a, b:c"])
        fails(UNREADABLE, "two.npz:q", says="no array 'q'")
    run("o.npy", "-o", "again.npz")
    first = get("again.npz")
    run("o.npy", "-o", "again.npz")
    assert get("again.npz") == first


@test("formats")
def safetensors_members():
    want = reference(X)
    put("one.safetensors", A.safetensors({"a": ("f32", *X)}, {"format": "pt"}))
    put("two.safetensors", A.safetensors({"a": ("f32", *X), "b": ("bf16", *X), "c": ("u8", (1,), [1])}))
    run("one.safetensors", "-o", "o.safetensors")
    assert A.read_safetensors(get("o.safetensors")) == {"y": want}
    run("two.safetensors:a", "-o", "o.npy")
    assert A.read_npy(get("o.npy")) == want
    assert b"bf16" in run("two.safetensors:b")[0]
    fails(UNREADABLE, "two.safetensors", says="holds 3 arrays")


@test("formats")
def misaligned_data():
    header = b'{"a":{"dtype":"F32","shape":[3,5],"data_offsets":[0,60]}}'
    assert (8 + len(header)) % 4
    put("a.safetensors", A.safetensors_header(header, A.pack("f32", X[1])))
    run("a.safetensors", "-o", "o.npy")
    assert A.read_npy(get("o.npy")) == reference(X)


@test("formats")
def a_file_whose_name_has_a_colon():
    shutil.copy(put("a.npz", A.npz({"a": ("f32", *X)})), path("b.npz:a"))
    os.remove(path("a.npz"))
    run("b.npz:a", "--format", "npz")


@test("formats")
def text_files():
    want = A.read_npy(get("reference-out.npy")) if reference(X) else None
    for name, separator in (("a.csv", ","), ("a.tsv", "\t")):
        put(name, A.text(*X, separator))
        run(name, "--dtype-in", "f32", "-o", "o.npy")
        assert A.read_npy(get("o.npy")) == want
        run("reference.npy", "-o", "o" + name[1:])
        rows = A.read_text(get("o" + name[1:]), separator)
        assert [struct.unpack("f", struct.pack("f", v))[0] for row in rows for v in row] == want[2]
    assert b"f64" in run("a.csv")[0]


@test("formats")
def text_digits_survive():
    values = [0.1, 1 / 3, 1e-300, 123456789.123456789, -2.5, 1e300]
    put("a.npy", A.npy("f64", (6, 1), values))
    run("run", "logsumexp", "a.npy", "-o", "o.csv")  # of one element: that element
    assert [row[0] for row in A.read_text(get("o.csv"))] == values
    put("b.csv", b"0.1\n0.33333333333333333333333333333333\n1e-300\n123456789.123456789\n-2.5\n1.0000000000000000525e300\n")
    run("run", "logsumexp", "b.csv", "-o", "o.npy")
    assert A.read_npy(get("o.npy"))[2] == values


@test("formats")
def text_shapes():
    want = run("reference.npy")[0] if reference(X, "--dtype", "f64") else None
    body = A.text(*X)
    for data in (b"a,b,c,d,e\n" + body, b"\xef\xbb\xbf" + body, body.replace(b"\n", b"\r\n"), body[:-1], b"\n# note\n" + body + b"\n\n",
                 body.replace(b",", b" , "), body.replace(b"-", b'"-').replace(b'"-', b"-")):
        put("a.csv", data)
        assert run("a.csv", "--dtype-in", "f32")[0] == want, data
    put("a.csv", b"1,2\n3,4\n")
    assert b"1 row of 2" in run("a.csv", "--header")[0]
    put("a.csv", b'"1","2"\ninf,-Infinity\n')
    assert b"2 rows of 2" in run("a.csv")[0]
    put("column.csv", b"1\n2\n")
    assert b"2 rows of 1" in run("column.csv")[0]


@test("formats")
def text_of_one_value_a_row():
    put("a.npy", A.npy("f32", *X))
    run("run", "logsumexp", "a.npy", "-o", "o.csv")
    assert [len(r) for r in A.read_text(get("o.csv"))] == [1, 1, 1]


@test("formats")
def raw_files():
    want = reference(X)
    for name in ("a.raw", "a.bin", "strange"):
        put(name, A.pack("f32", X[1]))
        run(name, "--shape", "3,5", "--dtype-in", "f32", "-o", "o.raw")
        assert A.unpack("f32", get("o.raw")) == want[2]
    fails(USAGE, "a.raw", says=["a.raw", "--shape"])
    fails(UNREADABLE, "a.raw", "--shape", "3,6", "--dtype-in", "f32", says=["a.raw", "(3, 6)", "72", "60"])


@test("formats")
def dtype_converts():
    for dtype in ("f16", "bf16", "f32", "f64"):
        assert reference(X, "--dtype", dtype)[0] == dtype
    fails(USAGE, "reference.npy", "--dtype", "i32", says="--dtype i32")


@test("formats")
def magic_decides_without_extension():
    want = run("reference.npy")[0] if reference(X) else None
    for data in (A.npy("f32", *X), A.npz({"a": ("f32", *X)}), A.safetensors({"a": ("f32", *X)})):
        put("noname", data)
        assert run("noname")[0] == want
        assert run("-", stdin=data)[0] == want
    assert run("-", "--dtype-in", "f32", stdin=A.text(*X))[0] == want
    assert run("-", "--dtype-in", "f32", "--format", "tsv", stdin=A.text(*X, "\t"))[0] == want


@test("formats")
def empty_arrays():
    for shape in ((0, 4), (4, 0), (0,)):
        put("a.npy", A.npy("f32", shape, []))
        run("a.npy", "-o", "o.npy")
        assert A.read_npy(get("o.npy"))[1] == shape
        run("a.npy", "-o", "o.csv")
        run("a.npy")
