"""Tests of the command: the verbs head, pairs, pool and nms."""
import math
import struct
import subprocess

import arrays as A
from harness import S, REFUSED, close, fails, get, path, put, run, scores, test, UNREADABLE, UNWRITABLE, USAGE
from pictures import rows_of

ROWS, D, CLASSES = 6, 4, 5


def prepare():
    put("h.npy", A.npy("f64", (ROWS, D), scores((ROWS, D))))
    put("w.npy", A.npy("f64", (CLASSES, D), [math.sin(i) for i in range(CLASSES * D)]))
    put("t.npy", A.npy("i64", (ROWS,), [i % CLASSES for i in range(ROWS)]))
    put("e.npy", A.npy("f64", (2, 5, 3), scores((2, 5, 3))))
    put("m.npy", A.npy("f64", (3, 3), [math.cos(i) for i in range(9)]))
    put("y.npy", A.npy("i64", (2, 5), [i % 3 for i in range(10)]))


def told(*arguments):
    """The operator's name and the mean, least and most of its loss."""
    lines = run(*arguments)[0].decode().splitlines()
    assert lines[0].split() == ["loss", "mean", "least", "most"], lines
    name, *numbers = lines[1].split()
    return name, [float(v) for v in numbers]


@test("family")
def losses_are_those_of_the_operators():
    prepare()
    for words, operator in ((("head", "linear_cross_entropy", "h.npy", "w.npy", "--targets", "t.npy"), "linear_cross_entropy"),
                            (("head", "crf", "e.npy", "m.npy", "--targets", "y.npy"), "linear_chain_crf"),
                            (("head", "margin", "h.npy", "w.npy", "--targets", "t.npy"), "cosine_margin"),
                            (("pairs", "clip", "h.npy", "h.npy", "--temperature", "0.5"), "clip_loss"),
                            (("pairs", "supcon", "h.npy", "--targets", "t.npy"), "supervised_contrastive"),
                            (("pairs", "simclr", "h.npy"), "nt_xent")):
        label = ["--label" if w == "--targets" and operator == "supervised_contrastive" else "--target" if w == "--targets" else w
                 for w in words[2:]]
        run("run", operator, *label, "-o", "o.npz")
        loss = A.read_npz(get("o.npz"))["loss"][2]
        name, numbers = told(*words)
        assert name == operator, name
        close(numbers, [sum(loss) / len(loss), min(loss), max(loss)], 1e-3)
        run(*words, "-o", "same.npz")
        assert get("same.npz") == get("o.npz"), operator


@test("family")
def others_show_their_results():
    prepare()
    assert run("head", "viterbi", "e.npy", "m.npy") == run("run", "crf_viterbi", "e.npy", "m.npy")


@test("family")
def pooling():
    put("image.npy", A.npy("f64", (3, 4, 4), [float(i) for i in range(48)]))
    for said, name in (("soft_pool", "soft_pool"), ("soft", "soft_pool"), ("max", "max_pool"), ("gem", "gem_pool")):
        windows = [] if said == "gem" else ["--kernel", "2", "--stride", "2"]
        run("run", name, "image.npy", *windows, "-o", "o.npz")
        run("pool", said, "image.npy", *windows, "-o", "same.npz")
        assert get("same.npz") == get("o.npz"), said
    run("pool", "max_pool", "image.npy", "--kernel", "2", "--stride", "2", "-o", "o.npz")
    assert list(A.read_npz(get("o.npz"))["y"][2])[:4] == [5, 7, 13, 15]


def attempt(*arguments):
    """What it says, whether it fails or not."""
    return subprocess.run([S.command, *arguments], capture_output=True, cwd=S.directory, timeout=120).stderr.decode()


@test("family")
def previews():
    put("image.npy", A.npy("f64", (2, 4, 6), [float(i) for i in range(48)]))
    put("colours.npy", A.npy("f64", (3, 1, 2), [0, 4, -4, math.nan, math.inf, 2]))
    words = ["pool", "max", "image.npy", "--kernel", "2", "--stride", "2"]
    if "without libpng" in attempt(*words, "--preview", "a.png"):
        return fails(USAGE, *words, "--preview", "a.png", says=["built without libpng"])
    assert run(*words, "--preview", "a.png", "-o", "o.npy")[0] == b"a.png: 3 x 2, grey; black is 7, white 23\n"
    assert list(A.read_npy(get("o.npy"))[2])[:6] == [7, 9, 11, 19, 21, 23]
    channels, rows = rows_of(get("a.png"))
    assert channels == 1 and [list(row) for row in rows] == [[0, 32, 64], [191, 223, 255]], rows
    out = run("pool", "avg", "colours.npy", "--kernel", "1", "--preview", "a.png")[0]
    assert out == b"a.png: 2 x 1, colours; black is -4, white 4\n", out
    channels, rows = rows_of(get("a.png"))
    assert channels == 3 and [list(row) for row in rows] == [[128, 0, 255, 255, 0, 191]], rows
    fails(USAGE, *words, "--preview", "a.png", "--backward", "--dout", "image.npy", says=["--preview: draws results"])
    fails(USAGE, *words, "--preview", "o.npy", "-o", "o.npy", says=["--preview o.npy", "file of the result"])
    put("rows.npy", A.npy("f64", (70, 32), [float(i % 9) for i in range(70 * 32)]))
    put("none.npy", A.npy("f64", (0, 4, 6), []))
    out = run("pool", "triangle", "rows.npy", "--block", "4096", "--preview", "a.png")[0]
    assert out.startswith(b"a.png: 32 x 70, grey") and len(rows_of(get("a.png"))[1]) == 70, out
    fails(REFUSED, "pool", "max", "none.npy", "--kernel", "2", "--preview", "a.png", says=["--preview: the result has no cells"])
    fails(UNWRITABLE, *words, "--preview", "nowhere/a.png", says=["nowhere"])


@test("family")
def pictures_are_inputs():
    put("a.png", A.png(3, 2, 8, 0, bytes([0, 51, 102, 255, 204, 153])))
    words = ["pool", "max", "a.png", "--kernel", "2", "--stride", "1", "-o"]
    if "without libpng" in attempt(*words, "o.npy"):
        return fails(USAGE, *words, "o.npy", says=["a.png: this command was built without libpng"])
    run(*words, "o.npy")
    dtype, shape, values = A.read_npy(get("o.npy"))
    assert (dtype, shape) == ("f32", (1, 2)), (dtype, shape)
    close(values, [1, 0.8])
    with open(path("a.png"), "rb") as picture:
        assert run("pool", "max", "-", *words[3:], "same.npy", stdin=picture.read()) and get("same.npy") == get("o.npy")
    palette, clear = (b"PLTE", b"\0\1\2\3\4\5"), (b"tRNS", b"\x80")
    for depth, color, pixels, shape, want, *chunks in (
            (16, 0, struct.pack(">4H", 0, 1, 65535, 32768), (2, 2), [0, 1 / 65535, 1, 32768 / 65535]),
            (8, 2, bytes(range(12)), (3, 2, 2), [v / 255 for c in range(3) for v in range(c, 12, 3)]),
            (8, 4, bytes(range(8)), (2, 2, 2), [v / 255 for c in range(2) for v in range(c, 8, 2)]),
            (16, 6, struct.pack(">16H", *range(16)), (4, 2, 2), [v / 65535 for c in range(4) for v in range(c, 16, 4)]),
            (1, 0, b"\x40\x80", (2, 2), [0, 1, 1, 0]),
            (16, 0, struct.pack(">4H", 515, 1, 65535, 515), (2, 2, 2), [515 / 65535, 1 / 65535, 1, 515 / 65535, 0, 1, 1, 0],
             (b"tRNS", b"\2\3")),
            (1, 3, b"\x40\x80", (3, 2, 2), [v / 255 for c in range(3) for v in (c, c + 3, c + 3, c)], palette),
            (8, 3, bytes([0, 1, 1, 0]), (4, 2, 2), [v / 255 for c in range(3) for v in (c, c + 3, c + 3, c)] + [128 / 255, 1, 1, 128 / 255],
             palette, clear)):
        put("a.png", A.png(2, 2, depth, color, pixels, *chunks))
        run("pool", "max", "a.png", "--kernel", "1", "-o", "o.npy")
        dtype, there, values = A.read_npy(get("o.npy"))
        assert (dtype, there) == ("f32", shape), (depth, color, there)
        close(values, want, 1e-7)
    for width, height, depth, color, size in ((1, 1, 8, 0, 1), (3, 1, 16, 2, 6), (9, 17, 8, 6, 4), (9, 17, 16, 4, 4), (9, 17, 8, 3, 1)):
        pixels, chunks = bytes(v * 7 % 251 for v in range(width * height * size)), ((b"PLTE", bytes(range(251)) * 3),) if color == 3 else ()
        for name in ("plain", "interlaced"):
            put(name + ".png", A.png(width, height, depth, color, pixels, *chunks, interlaced=name == "interlaced"))
            run("pool", "max", name + ".png", "--kernel", "1", "-o", name + ".npy")
        assert get("interlaced.npy") == get("plain.npy"), (width, height, depth, color)
    whole = A.png(2, 2, 8, 0, bytes(4))
    for name, data, says in (("cut", whole[:-20], "the file ends"), ("broken", whole[:20] + b"x" + whole[21:], "CRC"), ("none", b"GIF89a" * 20, "Not a PNG"),
                             ("short", A.png(3, 3, 8, 0, bytes(6)), "Not enough image data"),
                             ("outside", A.png(2, 1, 8, 3, b"\1\2", palette, clear), "colour 2 of a palette of 2"),
                             ("large", A.png(60000, 60000, 8, 2, b""), "60000 x 60000 pixels are more than"),
                             ("wide", A.png(1000, 100, 16, 6, b""), "1000 x 100 pixels are more than")):
        put(name + ".png", data)
        put("kept.npy", b"as it was")
        fails(UNREADABLE, "pool", "max", name + ".png", "--kernel", "1", "-o", "kept.npy", says=[name + ".png: png: ", says])
        assert get("kept.npy") == b"as it was"
    fails(USAGE, "pool", "max", "a.png", "--kernel", "1", "-o", "o.png", says=["o.png: format png is only read", "--preview"])


@test("family")
def boxes():
    put("boxes.npy", A.npy("f64", (4, 4), [0, 0, 9, 9, 1, 1, 10, 10, 20, 20, 29, 29, 5, 0, 14, 9]))
    put("s.npy", A.npy("f64", (4,), [.9, .8, .7, .6]))
    run("nms", "boxes.npy", "--scores", "s.npy", "--threshold", "0.3", "-o", "o.npz")
    assert list(A.read_npz(get("o.npz"))["index"][2]) == [0, 2, 3, -1]
    assert run("nms", "boxes.npy", "s.npy", "--method", "gaussian") == run("run", "soft_nms", "boxes.npy", "s.npy", "--method", "gaussian")
    assert run("nms", "boxes.npy", "--scores", "s.npy") == run("run", "nms", "boxes.npy", "s.npy")


@test("family")
def wrong_calls():
    prepare()
    fails(USAGE, "head", says=["no operator"])
    fails(USAGE, "head", "sparsemax", "h.npy", says=["family row, not head"])
    fails(USAGE, "pairs", "crf", "h.npy", says=["crf: no such operator"])
    fails(USAGE, "pairs", "clip", "h.npy", "--targets", "t.npy", says=["clip_loss has no classes"])
    fails(USAGE, "pool", "clip_loss", "h.npy", says=["family pairwise, not pool"])
    fails(USAGE, "nms", "h.npy", says=["'score' is missing"])
    fails(USAGE, "head", "crf", "e.npy", "m.npy", says=["'target' is missing"])
