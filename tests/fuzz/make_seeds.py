"""Writes the seeds of the fuzz targets: make_seeds.py [FOLDER]. Standard library only; the result is committed."""
import os
import random
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
import arrays as A  # noqa: E402

V = [0.5, -1, 2, 3, 4, 5]


def npy_seeds():
    for dtype in ("f16", "bf16", "f32", "f64", "i32", "i64", "u8", "bool"):
        values = V if dtype[0] not in "iu" and dtype != "bool" else [0, 1, 1, 0, 1, 1]
        yield dtype, A.npy(dtype, (2, 3), values)
    yield "big_endian", A.npy("f32", (2, 3), V, ">")
    yield "fortran", A.npy("f32", (2, 3), V, fortran=True)
    yield "version2", A.npy("f32", (6,), V, version=2)
    yield "version3", A.npy("f32", (), V[:1], version=3)
    yield "empty", A.npy("f64", (0, 7), [])
    yield "by_hand", A.npy_header('{"shape":(3L,2L,),"descr":"<f4","fortran_order":False}') + A.pack("f32", V)
    yield "named", A.npy_header("{'descr': 'bfloat16', 'fortran_order': False, 'shape': (6,)}") + A.pack("bf16", V)


def npz_seeds():
    one, two = {"a": ("f32", (2, 3), V)}, {"a": ("f32", (2, 3), V), "b": ("u8", (2,), [0, 1])}
    yield "stored", A.npz(one)
    yield "deflated", A.npz(one, zipfile.ZIP_DEFLATED)
    yield "two", A.npz(two, zipfile.ZIP_DEFLATED)
    yield "none", A.npz({})


def png_seeds():
    yield "grey", A.png(3, 2, 8, 0, bytes(range(6)))
    yield "colours", A.png(2, 2, 16, 2, bytes(range(24)))
    yield "opaque", A.png(2, 1, 8, 6, bytes(range(8)))
    yield "bits", A.png(9, 2, 1, 0, b"\xaa\x80\x55\x00")
    yield "palette", A.png(2, 1, 8, 3, b"\1\0", (b"PLTE", b"\1\2\3\4\5\6"), (b"tRNS", b"\x80"))
    yield "cut", A.png(3, 2, 8, 0, bytes(6))[:60]
    yield "interlaced", A.png(9, 5, 8, 2, bytes(range(135)), interlaced=True)
    yield "transparent", A.png(2, 2, 16, 0, bytes(range(8)), (b"tRNS", b"\2\3"))
    yield "outside", A.png(2, 1, 8, 3, b"\1\2", (b"PLTE", b"\1\2\3\4\5\6"))
    yield "short", A.png(3, 3, 8, 0, bytes(6))
    yield "large", A.png(60000, 60000, 8, 2, b"")


def safetensors_seeds():
    yield "one", A.safetensors({"a": ("f32", (2, 3), V)})
    yield "two", A.safetensors({"a": ("bf16", (2, 3), V), "b": ("bool", (1,), [1])}, {"format": "pt"})
    yield "none", A.safetensors({})
    yield "empty", A.safetensors({"a": ("f64", (0, 3), [])})
    yield "other_types", A.safetensors_header({"a": {"dtype": "F4", "shape": [3, 2], "data_offsets": [0, 3]}}, b"abc")
    yield "hole", A.safetensors_header({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}}, b"ab")


def csv_seeds():
    yield "plain", b"1,2,3\n4,5,6\n"
    yield "header", b'"a","b"\r\n"1",-2.5e-3\r\n'
    yield "special", b"\xef\xbb\xbf# note\n\n inf , -nan \n 1e400,.5"
    yield "ragged", b"1,2\n3\n"
    yield "empty_field", b"1,,2\n"


def shape_seeds():
    yield "plain", b"2,3\0" + b"x" * 24
    yield "scalar", b"\0" + b"x" * 4
    yield "zero", b"0,5"
    yield "overflow", b"4294967296,4294967296,2"
    yield "nine", b"1,1,1,1,1,1,1,1,1"
    yield "number", b"-1.5e3"


def sample_number(v):
    return bytes([0]) + (int(v * 1024) + 32768).to_bytes(2, "big")


def sample_seed(steps, logits, draw=0):
    """steps: (kind, a, b, c, tokens)."""
    data = bytes([1, len(logits), len(steps)])
    for kind, a, b, c, tokens in steps:
        data += bytes([kind]) + sample_number(a) + sample_number(b) + bytes([c, 0, len(tokens)])
        data += b"".join(bytes([t]) + sample_number(1) for t in tokens)
    return data + bytes([draw]) + b"seed" + b"strm" + sample_number(0) + b"".join(map(sample_number, logits))


def sample_seeds():
    z = [3, 2, 1, 0, -1, 0.5, 2]
    yield "top_p", sample_seed([(0, 0.8, 0, 0, []), (2, 0.9, 0, 0, [])], z)
    yield "sharpened", sample_seed([(15, 1, 0.5, 1, []), (16, 0.3, 1.5, 0, []), (17, 0.9, 0, 0, []), (19, 3, 0, 0, [])], z, 1)
    yield "text", sample_seed([(20, 2, 0, 0, [0, 1, 2, 0, 1]), (21, 0.8, 1.75, 2, [0, 1, 2, 0, 1]), (10, 1.5, 0, 0, [0, 0, 3])], z, 1)
    yield "banned", sample_seed([(13, 0, 0, 0, [0, 1, 2]), (18, 0.5, 0, 0, [])], z[:3], 2)


def call_seeds():
    """Of the targets of the API, which take bytes as they come."""
    source = random.Random(20)
    for i in range(8):
        yield f"{i:02}", bytes(source.randrange(256) for _ in range(100 + 20 * i))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "corpus")
    makers = {"npy": npy_seeds, "npz": npz_seeds, "png": png_seeds, "safetensors": safetensors_seeds, "csv": csv_seeds, "shape": shape_seeds,
              "sample": sample_seeds}
    makers |= dict.fromkeys(("attention", "operator", "loss", "function"), call_seeds)
    for target, seeds in makers.items():
        os.makedirs(os.path.join(folder, target), exist_ok=True)
        for name, data in seeds():
            with open(os.path.join(folder, target, name), "wb") as f:
                f.write(data)


if __name__ == "__main__":
    main()
