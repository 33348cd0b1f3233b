"""Tests of the command: the verb report, and its page in a browser."""
import html.parser
import json
import math
import os
import re

import arrays as A
from browser import Browser
from check_metrics import put_classes, put_rows, random_set
from harness import close, fails, get, nothing_left, path, put, REFUSED, run, Skip, softmax, test, UNREADABLE, UNWRITABLE, USAGE
from pictures import CHROMIUM, look

NAMES = ["zero", "</script><script>document.title='broken'</script>", "<!--two & \"2\"", "d\xe4r \u4e03", "\u2028\x1b[31m", ""]


def put_set(rows=300, classes=6):
    x, y = random_set(rows, classes)
    put_rows("x.npy", x, "f32")
    put_classes("t.npy", y)
    put_rows("second.npy", [[v / 2 for v in r] for r in random_set(rows, classes, 8)[0]], "f32")
    put_rows("ood.npy", [[v / 3 for v in r] for r in random_set(50, classes, 9)[0]], "f32")
    put("names.txt", "\n".join(NAMES).encode())
    return x, y


EVERYTHING = ("x.npy", "--targets", "t.npy", "--compare", "second.npy", "--ood", "ood.npy", "--labels", "names.txt")


class Page(html.parser.HTMLParser):
    """The JSON block of a page, as HTML has it, and the scripts."""
    def __init__(self, text):
        super().__init__()
        self.kind, self.data, self.scripts, self.links = None, "", 0, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.kind = dict(attributes).get("type", tag) if tag == "script" else tag
        self.scripts += tag == "script"
        self.links += [v for k, v in attributes if k in ("src", "href", "action", "data", "srcset")]

    def handle_endtag(self, tag):
        self.kind = None

    def handle_data(self, text):
        if self.kind == "application/json":
            self.data += text


def page_of(name):
    text = get(name).decode("ascii")
    page = Page(text)
    assert page.scripts == 2 and page.links == ["data:,"], (page.scripts, page.links)
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", text), "an address in the page"
    return json.loads(page.data)


@test("report")
def page_holds_its_numbers():
    put_set()
    run("report", *EVERYTHING, "-o", "page.html")
    inside, told = page_of("page.html"), json.loads(run("report", *EVERYTHING, "--json")[0])
    assert sorted(inside) == sorted(told) and len(inside["model"]["per_class"]) == 6
    close([inside["model"]["metrics"][key] for key in told["model"]["metrics"]], list(told["model"]["metrics"].values()), 1e-4)
    assert inside["model"]["per_class"][1]["name"] == NAMES[1] and "?[31m" in inside["model"]["per_class"][4]["name"]
    assert "name" not in inside["model"]["per_class"][5]
    alone = json.loads(run("metrics", *EVERYTHING[:7], "--json")[0])
    assert told["model"]["metrics"] == alone["metrics"] and told["comparison"] == alone["comparison"]
    assert told["ood"]["scores"] == alone["ood"]["scores"]
    assert [d["key"] for d in told["definitions"]] == list(alone["metrics"])
    assert run("report", *EVERYTHING, "-o", "-", "--threads", "1")[0] == get("page.html")
    run("report", *EVERYTHING, "-o", "two.html", "--threads", "2", "--title", "A \xff <b>")
    assert page_of("two.html")["title"] == "A \xff <b>"
    a, b = page_of("page.html"), page_of("two.html")
    del b["title"]
    assert a == b


@test("report")
def what_the_slider_shows():
    """Every temperature, of every row, by the definitions; blocks of the file change nothing but roundings."""
    x, y = put_set()
    grid = json.loads(run("report", "x.npy", "--targets", "t.npy", "--json", "--bins", "10")[0])["model"]["temperatures"]
    x = [[A.unpack("f32", A.pack("f32", [v]))[0] for v in r] for r in x]
    assert len(grid["temperature"]) == 41 and grid["temperature"][::20] == [.25, 1, 4]
    for place in (0, 13, 20, 40):
        t = grid["temperature"][place]
        p = [softmax([v / t for v in r]) for r in x]
        close([grid["log_loss"][place]], [sum(-math.log(r[k]) for r, k in zip(p, y)) / 300], 1e-6)
        gaps, counts = [0] * 10, [0] * 10
        for r, k in zip(p, y):
            b = next(b for b in range(10) if max(r) <= (b + 1) / 10 or b == 9)
            gaps[b] += (r.index(max(r)) == k) - max(r)
            counts[b] += 1
        assert grid["bins"][place]["count"] == counts, place
        close([grid["ece"][place], grid["mce"][place]],
              [sum(map(abs, gaps)) / 300, max(abs(g) / c for g, c in zip(gaps, counts) if c)], 1e-6)
    cut = json.loads(run("report", "x.npy", "--targets", "t.npy", "--json", "--bins", "10", "--block", "100")[0])["model"]["temperatures"]
    assert cut["bins"][7]["right"] == grid["bins"][7]["right"]
    close(cut["ece"] + cut["log_loss"], grid["ece"] + grid["log_loss"], 1e-12)
    put("far.csv", b"900,0,0\n0,900,0\n")  # whose probability is below what a float holds
    put("far-t.csv", b"1\n1\n")
    far = json.loads(run("report", "far.csv", "--targets", "far-t.csv", "--json")[0])["model"]
    close(far["temperatures"]["log_loss"][::20], [1800, 450, 112.5], 1e-3)
    put("left.csv", b"900,0,0\n0,900,0\n1,2,3\nnan,0,0\n")
    put("left-t.csv", b"1\n1\n-100\n-100\n")
    left = json.loads(run("report", "left.csv", "--targets", "left-t.csv", "--json")[0])["model"]
    assert left["temperatures"] == far["temperatures"] and left["left_out"] == 2 and left["errors"][0]["row"] == 0


@test("report")
def lists_of_errors():
    put("x.csv", b"5,0,0\n4,0,0\n0,3,0\n0,3,0\n0,0,9\n2,0,0\n")
    put("t.csv", b"0\n1\n0\n0\n2\n1\n")
    model = json.loads(run("report", "x.csv", "--targets", "t.csv", "--json")[0])["model"]
    assert [(p["target"], p["predicted"], p["count"]) for p in model["confused"]] == [(0, 1, 2), (1, 0, 2)]
    close([p["share"] for p in model["confused"]], [2 / 3, 1], 1e-12)
    assert [e["row"] for e in model["errors"]] == [1, 2, 3, 5]
    close([e["probability"] for e in model["errors"][:1]], [1 / (2 + math.exp(4))], 1e-6)
    assert [(c["rows"], c["predicted"], c["recall"]) for c in model["per_class"]] == [(3, 3, 1 / 3), (2, 2, 0), (1, 1, 1)]
    assert model["risk_coverage"]["coverage"][-1] == 1 and model["risk_coverage"]["risk"][-1] == 4 / 6
    many = 3000  # classes: those with the most rows are listed
    put_rows("many.npy", [[float(k == i % many) for k in range(many)] for i in range(10)], "f32")
    put_classes("many-t.npy", list(range(10)))
    listed = json.loads(run("report", "many.npy", "--targets", "many-t.npy", "--json")[0])["model"]["per_class"]
    assert [c["class"] for c in listed] == list(range(10))


@test("report")
def wrong_reports():
    put_set(20)
    put("long.txt", b"a\n" * 7)
    fails(USAGE, "report", "x.npy", "--targets", "t.npy", says="-o OUT.html is missing")
    fails(USAGE, "report", "x.npy", "-o", "page.html", says="--targets FILE is missing")
    fails(UNWRITABLE, "report", *EVERYTHING, "-o", "no/page.html", says="no/page.html")
    fails(REFUSED, "report", "x.npy", "--targets", "t.npy", "--labels", "long.txt", "-o", "page.html", says=["long.txt", "7 names"])
    fails(REFUSED, "report", "x.npy", "--targets", "t.npy", "--ood", "t.npy", "-o", "page.html", says="t.npy")
    fails(UNREADABLE, "report", "x.npy", "--targets", "t.npy", "--labels", "x.npy", "-o", "page.html", says=["x.npy", "not a text"])
    assert not os.path.exists(path("page.html"))
    nothing_left()


# ---- In a browser ----

def column(browser, table, place):
    return browser.run("[...document.querySelectorAll('#%s tbody tr')].map(r => r.children[%d].textContent)" % (table, place))


def sorts(browser):
    """By a click, and back; and by the keyboard."""
    head = "document.querySelectorAll('#classes thead th')[1]"
    browser.run(head + ".firstChild.click()")
    down = column(browser, "classes", 1)
    assert down == sorted(down, key=int, reverse=True) and browser.run(head + ".getAttribute('aria-sort')") == "descending", down
    browser.run(head + ".firstChild.focus()")
    browser.press("Enter", "\r")
    assert column(browser, "classes", 1) == sorted(down, key=int)
    browser.run("document.querySelectorAll('#classes thead th')[0].firstChild.click()")
    assert browser.run(head + ".getAttribute('aria-sort')") == "none"


def slides(browser, grid):
    def shown():
        return [browser.run("document.getElementById('%s').textContent" % i) for i in ("at-temperature", "at-log_loss", "at-ece")]

    def says(place):
        got = [float(v.split(";")[0]) for v in shown()]
        close(got, [grid[key][place] for key in ("temperature", "log_loss", "ece")], 1e-2)
    says(20)
    bars = browser.run("document.getElementById('reliability').innerHTML")
    browser.run("document.getElementById('temperature').focus()")
    for _ in range(3):
        browser.press("ArrowRight")
    says(23)
    assert browser.run("document.getElementById('reliability').innerHTML") != bars
    browser.run("document.getElementById('least').click()")
    says(grid["log_loss"].index(min(grid["log_loss"])))
    browser.run("document.getElementById('usual').click()")
    says(20)
    assert browser.run("document.getElementById('reliability').innerHTML") == bars


def accessible(browser):
    for what, none in (("svg:not([aria-label]):not([aria-hidden])", "a drawing without a name"),
                       ("th:not([scope])", "a heading of nothing"),
                       ("table:not(:has(caption))", "a table without a caption"),
                       ("section:not([aria-label]):not([aria-labelledby])", "a section")):
        assert browser.run("document.querySelectorAll('%s').length" % what) == 0, none
    assert browser.run("document.documentElement.lang") == "en" and browser.run("document.querySelectorAll('h1').length") == 1


@test("report")
def page_in_a_browser():
    if not CHROMIUM:
        raise Skip("chromium is not installed")
    put_set()
    run("report", *EVERYTHING, "-o", "page.html")
    run("report", "x.npy", "--targets", "t.npy", "-o", "plain.html")
    put("right.csv", b"3,1\n")
    put("right-t.csv", b"0\n")
    run("report", "right.csv", "--targets", "right-t.csv", "-o", "right.html")
    with Browser(path("")) as b:
        for name in ("plain.html", "right.html", "page.html"):
            b.open(path(name))
            assert not b.complaints() and not b.requests(), (name, b.complaints(), b.requests())
            assert b.run("document.getElementById('ood').hidden") is (name != "page.html")
            assert not b.run("document.body.textContent.includes('undefined') || document.body.textContent.includes('NaN')"), name
        assert b.run("document.title") == "Report on x.npy" and NAMES[1] in column(b, "classes", 0)[1]
        sorts(b)
        slides(b, page_of("page.html")["model"]["temperatures"])
        accessible(b)
        for scheme, media, width in (("light", "", 1000), ("dark", "", 1000), ("dark", "print", 760), ("light", "", 380)):
            b.open(path("page.html"), scheme, media, width)
            b.picture(path("page.png"), 0.25)
            part, paper, greys = look(path("page.png"))
            dark = scheme == "dark" and not media
            assert (paper < 40 if dark else paper > 250) and .3 < part < .99 and greys >= 4, (scheme, media, part, paper, greys)
            assert b.run("document.documentElement.scrollWidth") <= width, (scheme, media, width)
        assert not b.complaints(), b.complaints()
