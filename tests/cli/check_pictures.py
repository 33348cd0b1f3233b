"""Tests of the command: its drawings, and those of the documentation, as librsvg and a browser show them."""
import os
import random
import sys

import arrays as A
from harness import fails, get, path, put, run, Skip, test, USAGE
from pictures import grey_rows, look, RENDERERS

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "bench"))
import drawing  # noqa: E402


def rendered(name):
    """The picture by each program that is here."""
    if not RENDERERS:
        raise Skip("neither rsvg-convert nor chromium is installed")
    for program, draw in RENDERERS.items():
        png = path("%s.%s.png" % (os.path.basename(name), program))
        draw(path(name), png)
        yield program, png


def is_drawn(name):
    """Black on white paper, and neither empty nor full."""
    for program, png in rendered(name):
        part, paper, greys = look(png)
        assert paper >= 250 and 0.3 < part < 0.995 and greys >= 4, (name, program, part, paper, greys)


def cells(png):
    """The pixels of a map's square, between its sides: (110, 70) to (750, 710) of a drawing 850 wide."""
    rows = grey_rows(png)
    scale = len(rows[0]) / 850
    return [[v for v in row[int(114 * scale):int(746 * scale)]] for row in rows[int(74 * scale):int(706 * scale)]]


def put_heads(length, width, spread):
    source = random.Random(3)
    for name in ("q.npy", "k.npy"):
        put(name, A.npy("f32", (length, width), [source.gauss(0, spread) for _ in range(length * width)]))


@test("pictures")
def every_drawing_of_the_command():
    put_heads(700, 64, 1)
    put("x.npy", A.npy("f32", (2, 30), [random.Random(1).gauss(0, 3) for _ in range(60)]))
    run("plot", "softmax", "sparsemax", "entmax:alpha=1.5", "-o", "plot.svg")
    run("plot", *["softmax:temperature=%d" % t for t in range(1, 9)], "--row", "x.npy", "-o", "rows.svg")
    for name, arguments in (("small.svg", ["--causal", "--weights", "relu"]), ("big.svg", []), ("row.svg", ["--shades", "row"]), ("log.svg", ["--shades", "log"])):
        if name == "small.svg":
            put("few.npy", A.npy("f32", (5, 4), [random.Random(2).gauss(0, 1) for _ in range(20)]))
        run("attention", *(["few.npy"] * 2 if name == "small.svg" else ["q.npy", "k.npy"]), *arguments, "--map", name)
    run("route", "x.npy", "-o", "route.npz")
    run("plot", "--load", "route.npz:index", "-o", "load.svg")
    for name in ("plot.svg", "rows.svg", "small.svg", "load.svg"):
        is_drawn(name)


@test("pictures")
def a_long_map_shows_its_weights():
    """Of the keys that a query sees, most can be told from the paper and from each other, whatever the scores are."""
    for spread in (0.3, 1, 1.6):
        put_heads(700, 64, spread)
        run("attention", "q.npy", "k.npy", "--causal", "--map", "map.svg")
        for program, png in rendered("map.svg"):
            rows = cells(png)
            n = len(rows)
            seen = [rows[i][j] for i in range(n) for j in range(n * i // n - 8) if j < len(rows[i])]
            hidden = [rows[i][j] for i in range(n) for j in range(i + 12, len(rows[i]))]
            middle = sorted(seen)[len(seen) // 10:-len(seen) // 10]
            assert sum(v > 250 for v in hidden) > 0.99 * len(hidden), (spread, program)
            assert sum(v < 245 for v in seen) > 0.9 * len(seen) and middle[-1] - middle[0] > 25, (spread, program, middle[0], middle[-1])


@test("pictures")
def shades():
    put_heads(40, 8, 1)
    drawn = {}
    for words in ([], ["--shades", "linear"], ["--shades", "log"], ["--shades", "row"]):
        run("attention", "q.npy", "k.npy", *words, "--map", "map.svg")
        drawn[words[-1] if words else ""] = get("map.svg")
    assert drawn[""] in (drawn["linear"], drawn["log"]) and len(set(drawn.values())) == 3
    assert b"logarithmic shades" in drawn["log"] and b"shades of a row by its largest" in drawn["row"]
    black = [line for line in drawn["row"].splitlines() if b'fill="#000000"' in line and b"<rect" in line]
    assert len(black) >= 40, "each row has a black cell"
    fails(USAGE, "attention", "q.npy", "k.npy", "--shades", "grey", "--map", "no.svg", says="--shades grey: not one of linear, log, row")
    fails(USAGE, "attention", "q.npy", "k.npy", "k.npy", "--shades", "log", "-o", "no.npy", says="--map FILE")
    assert not os.path.exists(path("no.svg")) and not os.path.exists(path("no.npy"))


@test("pictures")
def drawings_of_the_documentation():
    names = [n for n in os.listdir(os.path.join(ROOT, "docs")) if n.endswith(".svg")]
    assert names
    for name in names:
        with open(os.path.join(ROOT, "docs", name), "rb") as f:
            put(name, f.read())
        is_drawn(name)
    smooth = {n: 40 + 0.3 * n for n in (1, 2, 5, 10, 100, 1000, 10000, 60000)}
    points = {(0, 0): smooth, (1, 0): {n: 1.2 * t for n, t in smooth.items()}}
    put("sweep.svg", drawing.draw({"softmax/f32": (points, [(100, (0, 0), 1.5)]), "logsumexp/f32": (points, [])}).encode())
    is_drawn("sweep.svg")
