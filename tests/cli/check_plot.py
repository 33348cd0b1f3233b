"""Tests of the command: the verb plot."""
import math
import os
import re
import xml.etree.ElementTree as Tree

import arrays as A
from harness import close, fails, get, nothing_left, operators, path, put, REFUSED, run, scores, softmax, test, UNREADABLE, UNWRITABLE, USAGE

NAMESPACE = "{http://www.w3.org/2000/svg}"


class Drawing:
    def __init__(self, data):
        tree = Tree.fromstring(data)
        self.texts = list(tree.iter(NAMESPACE + "text"))
        self.words = [t.text for t in self.texts]
        self.curves = [p for p in tree.iter(NAMESPACE + "path") if p.get("class") == "curve"]
        self.cells = [r for r in tree.iter(NAMESPACE + "rect") if r.get("x")]

    def scale(self, anchor, place, low, high):
        """From a pixel to a number, by the first and the last tick between two heights."""
        ticks = [(float(t.get(place)), float(t.text)) for t in self.texts
                 if t.get("text-anchor") == anchor and re.fullmatch(r"-?[\d.]+(e-?\d+)?", t.text) and low < float(t.get("y")) < high]
        (p, a), (q, b) = ticks[0], ticks[-1]
        return lambda pixel: a + (pixel - p) * (b - a) / (q - p)

    def points(self, curve, low=0, high=390):
        x, y = self.scale("middle", "x", low, high), self.scale("end", "y", low, high)
        pairs = [pair.split() for pair in re.split("[ML]", self.curves[curve].get("d"))[1:]]
        return [(x(float(a)), y(float(b) + 4)) for a, b in pairs]  # text stands 4 below its tick


@test("plot")
def curves_are_the_weights():
    run("plot", "softmax", "sparsemax", "softmax:temperature=2", "-o", "o.svg")
    d = Drawing(get("o.svg"))
    for curve, t in ((0, 1), (2, 2)):
        points = d.points(curve)
        assert len(points) == 241 and abs(points[0][0] + 6) < 0.02 and abs(points[-1][0] - 6) < 0.02, points[:2]
        for x, y in points[::20]:
            assert abs(y - softmax([v / t for v in (x, 1, 0, -1)])[0]) < 0.01, (curve, x, y)
    assert d.points(1)[0][1] < 0.005 and d.points(1)[-1][1] > 0.99
    assert {"softmax", "sparsemax", "softmax:temperature=2", "weight", "score of the element; the others have 1, 0, -1"} <= set(d.words)
    assert len({c.get("stroke-dasharray") for c in d.curves}) == 3 and len(d.curves) == 6  # those of the legend too
    assert run("plot", "softmax", "sparsemax", "softmax:temperature=2")[0] == get("o.svg")
    run("plot", "softmax", "--from", "-1", "--to", "1", "--others", "0", "-o", "o.svg")
    for x, y in Drawing(get("o.svg")).points(0)[::20]:
        assert abs(y - 1 / (1 + math.exp(-x))) < 0.01, (x, y)


@test("plot")
def a_row_of_a_file():
    x = scores((2, 3, 40))
    put("x.npy", A.npy("f16", (2, 3, 40), x, ">", 1, True))
    run("plot", "softmax", "entmax15", "--row", "x.npy", "--number", "4", "--best", "10", "-o", "o.svg")
    d = Drawing(get("o.svg"))
    assert len(d.curves) == 6 and any(w.startswith("elements of row 4 of x.npy (40 in all)") for w in d.words), d.words
    want = sorted(softmax([A.unpack("f16", A.pack("f16", [v]))[0] for v in x[160:200]]), reverse=True)[:10]
    close([y for _, y in d.points(2, 390, 800)], want, 0.01)


@test("plot")
def every_operator_is_drawn_or_refused():
    names = [op["name"] for op in operators()]
    drawn = 0
    for op in operators():
        needs = [p for p in op["inputs"][1:] if not p["optional"] or p["either"]]
        fits = not needs and op["outputs"][0]["shape"] == "full" and not op["outputs"][0]["integer"]
        small = [p["name"] + "=2" for p in op["params"] if p["integer"] and not p.get("choices") and p["name"] == "k"]
        spec = op["name"] + (":" + ",".join(small) if small else "")
        if fits:
            run("plot", spec, "-o", "o.svg")
            drawn += 1
        else:
            fails(USAGE, "plot", spec, says="plot %s: " % op["name"])
    assert drawn > 10, names


@test("plot")
def wrong_plots():
    put("x.npy", A.npy("f32", (2, 4), scores((2, 4))))
    put("one.npy", A.npy("f32", (4, 1), scores((4, 1))))
    for arguments, says in ((("sofmax",), ["sofmax", "is it softmax"]), (("softmax:temperature",), "NAME=VALUE"),
                            (("softmax:temperature=-1",), ["temperature", "-1"]), (("softmax:heat=1",), "heat"), ((), "no operator"),
                            (("logsumexp",), "logsumexp"), (("masked_softmax",), "'mask'"), (["softmax"] * 9, "more than 8"),
                            (("softmax", "--from", "x"), "--from x"), (("softmax", "--to", "inf"), "--to inf"),
                            (("softmax", "--from", "7"), "--to 6"), (("softmax", "--others", "1,,2"), "--others 1,,2"),
                            (("softmax", "--best", "1", "--row", "x.npy"), "--best 1"), (("softmax", "--number", "1"), "--row FILE"),
                            (("softmax", "--temperature", "2"), "--temperature")):
        fails(USAGE, "plot", *arguments, "-o", "no.svg", says=says)
    fails(REFUSED, "plot", "softmax", "--row", "x.npy", "--number", "2", "-o", "no.svg", says=["--number 2", "x.npy", "2 rows"])
    fails(REFUSED, "plot", "softmax", "--row", "one.npy", "-o", "no.svg", says="one.npy")
    fails(UNREADABLE, "plot", "softmax", "--row", "gone.npy", "-o", "no.svg", says="gone.npy")
    fails(UNWRITABLE, "plot", "softmax", "-o", "missing/no.svg", says="missing/no.svg")
    assert not os.path.exists(path("no.svg"))
    nothing_left()


@test("plot")
def the_load_of_experts():
    put("x.npy", A.npy("f32", (50, 6), scores((50, 6))))
    run("route", "x.npy", "-k", "2", "-o", "o.npz")
    tokens = {int(line.split()[0]): int(line.split()[1]) for line in run("route", "x.npy", "-k", "2")[0].decode().splitlines()[1:-1]}
    run("plot", "--load", "o.npz:index", "--experts", "8", "-o", "o.svg")
    d = Drawing(get("o.svg"))
    base = d.scale("end", "y", 0, 1e9)
    bars = [(float(r.get("x")), base(float(r.get("y")) + 4)) for r in d.cells]
    close([n for _, n in bars], [tokens[e] for e in range(6) if tokens[e]], 0.3)
    assert bars == sorted(bars) and "mean 12.5" in d.words and any("50 tokens" in w and "2 of 8 have none" in w for w in d.words), d.words
    put("i.npy", A.npy("i64", (3,), [0, 7, -1]))
    assert b"of 8 have none" in run("plot", "--load", "i.npy")[0]
    fails(REFUSED, "plot", "--load", "i.npy", "--experts", "7", says=["i.npy", "element 1 is 7", "of 7"])
    put("odd.npy", A.npy("f32", (2,), [0.5, 1]))
    fails(REFUSED, "plot", "--load", "odd.npy", says="odd.npy")
    fails(USAGE, "plot", "softmax", "--load", "i.npy", says="softmax")
    fails(USAGE, "plot", "softmax", "--experts", "7", says="--load FILE")
