"""The picture of a sweep: ns per element over the length, one panel a series. Self-contained, readable on light and on dark."""
import math

PANEL_W, PANEL_H, GAP_X, GAP_Y, LEFT, TOP = 420, 210, 64, 62, 52, 98
X_MIN, X_MAX = 1, 70000
# The colors of each class: plain declarations, for librsvg and others know no variables.
COLORS = {
    ".back": ("fill", "#ffffff", "#0d1117"), ".grid": ("stroke", "#d8dee4", "#30363d"), "text": ("fill", "#656d76", "#9198a1"),
    ".title": ("fill", "#1f2328", "#e6edf3"), ".line": ("stroke", "#0b62c4", "#6cb6ff"), ".band": ("fill", "#b9d4f1", "#23466d"),
    ".mark": ("stroke", "#c4320a", "#ff9a5c")}


def colors(dark):
    return " ".join("%s { %s: %s }" % (of, what, both[dark]) for of, (what, *both) in COLORS.items())


STYLE = """\
<style>
  %s
  text { font: 12px system-ui, sans-serif } .title { font-size: 14px; font-weight: 600 } .head { font-size: 17px }
  .line, .grid, .mark { fill: none } .line, .mark { stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) { %s }
</style>
""" % (colors(False), colors(True))


class Panel:
    """One series: logarithmic in both directions."""

    def __init__(self, left, top, points):
        values = [t / n for ns in points.values() for n, t in ns.items()]
        self.left, self.top, self.low, self.high = left, top, min(values) * 0.8, max(values) * 1.2

    def x(self, n):
        return self.left + PANEL_W * math.log(n / X_MIN) / math.log(X_MAX / X_MIN)

    def y(self, value):
        return self.top + PANEL_H * (1 - math.log(value / self.low) / math.log(self.high / self.low))

    def column(self, values):
        """{x in pixels: [lowest, highest y]}: many lengths share a pixel."""
        out = {}
        for n, value in values:
            x, y = round(self.x(n)), self.y(value / n)
            low, high = out.get(x, (y, y))
            out[x] = min(low, y), max(high, y)
        return sorted(out.items())

    def line(self, ns):
        points = " ".join("%d,%.1f" % (x, y) for x, (low, high) in self.column(ns.items()) for y in sorted({round(low, 1), round(high, 1)}))
        return '<polyline class="line" points="%s"/>\n' % points

    def band(self, many):
        """From the fastest to the slowest."""
        columns = self.column((n, value) for ns in many for n, value in ns.items())
        edge = [(x, low) for x, (low, _) in columns] + [(x, high) for x, (_, high) in reversed(columns)]
        return '<polygon class="band" points="%s"/>\n' % " ".join("%d,%.1f" % point for point in edge)

    def grid(self):
        out = ""
        for n in (1, 10, 100, 1000, 10000):
            x = self.x(n)
            out += '<path class="grid" d="M%.1f %dV%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>\n' % (
                x, self.top, self.top + PANEL_H, x, self.top + PANEL_H + 16, "{:,}".format(n).replace(",", " "))
        for exponent in range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1):
            for value in (10 ** exponent, 3 * 10 ** exponent):
                if self.low <= value <= self.high:
                    y = self.y(value)
                    out += '<path class="grid" d="M%d %.1fH%d"/><text x="%d" y="%.1f" text-anchor="end">%g</text>\n' % (
                        self.left, y, self.left + PANEL_W, self.left - 6, y + 4, value)
        return out


def title_of(series):
    parts = series.split("/")
    return " ".join(parts[:2]) + (", rows of n, %s elements a call" % "{:,}".format(int(parts[2])).replace(",", " ") if len(parts) > 2 else ", one row of n")


def draw_panel(panel, series, points, found):
    out = '<text class="title" x="%d" y="%d">%s</text>\n' % (panel.left, panel.top - 10, title_of(series)) + panel.grid()
    out += panel.band(ns for start, ns in points.items() if start != (0, 0)) + panel.line(points[0, 0])
    for n in sorted({n for n, _, _ in found}):
        out += '<circle class="mark" cx="%.1f" cy="%.1f" r="4"/>\n' % (panel.x(n), panel.y(points[0, 0][n] / n))
    return out


def draw(result):
    """result: {series: (points, cliffs)}."""
    columns = min(2, len(result))
    width = LEFT + columns * PANEL_W + (columns - 1) * GAP_X + 20
    height = TOP + -(-len(result) // columns) * (PANEL_H + GAP_Y)
    body = ""
    for i, (series, (points, found)) in enumerate(result.items()):
        panel = Panel(LEFT + i % columns * (PANEL_W + GAP_X), TOP + i // columns * (PANEL_H + GAP_Y), points)
        body += draw_panel(panel, series, points, found)
    head = ('<text class="title head" x="12" y="28">Nanoseconds per element over the length of a row</text>\n'
            '<text x="12" y="50">Data in cache, fastest of many samples. Line: x and y start at a page. Band: six other starts. '
            'Ring: more than 1.3 times slower than the neighbours.</text>\n')
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">\n'
            '<title>Nanoseconds per element over the length of a row</title>\n' % (width, height, width, height)
            + STYLE + '<rect class="back" width="100%" height="100%"/>\n' + head + body + "</svg>\n")
