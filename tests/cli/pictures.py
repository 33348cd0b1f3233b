"""SVG files as other programs draw them, and what is on the picture: for the tests. Standard library only."""
import collections
import os
import shutil
import struct
import subprocess
import xml.etree.ElementTree as Tree
import zlib

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
                None)
WIDTH = 425  # of a picture, or a little more: enough to see whether it is empty


def size_of(svg):
    root = Tree.parse(svg).getroot()
    return float(root.get("width")), float(root.get("height"))


def by_librsvg(svg, png):
    subprocess.run(["rsvg-convert", "-w", str(WIDTH), svg, "-o", png], check=True, capture_output=True,
                   timeout=120)


def by_chromium(svg, png):
    width, height = size_of(svg)
    with open(svg, "rb") as f:
        page = b"<!doctype html><body style='margin:0'>" + f.read()
    with open(svg + ".html", "wb") as f:
        f.write(page)
    home = os.path.dirname(os.path.abspath(png))
    subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                    "--no-first-run", "--user-data-dir=" + home + "/chromium",
                    "--force-device-scale-factor=%g" % (WIDTH / width),
                    "--window-size=%d,%d" % (width, height), "--screenshot=" + png,
                    "file://" + os.path.abspath(svg) + ".html"], check=True, capture_output=True, timeout=300)


RENDERERS = {name: draw for name, draw, found in (("librsvg", by_librsvg, shutil.which("rsvg-convert")),
                                                  ("chromium", by_chromium, CHROMIUM)) if found}


def predict(kind, left, up, corner):
    if kind < 4:
        return (0, left, up, (left + up) // 2)[kind]
    p = left + up - corner
    return min((left, up, corner), key=lambda v: abs(p - v))


def rows_of(data):
    """The channels of a PNG of 8 bits, and its rows: bytes, channel by channel of each pixel."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", data[at + 8:at + 18])
        packed += data[at + 8:at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    channels = {0: 1, 2: 3, 6: 4}[color]
    assert depth == 8
    flat, size, rows = zlib.decompress(packed), width * channels, []
    before = bytes(size)
    for r in range(height):
        kind, line = flat[r * (size + 1)], bytearray(flat[r * (size + 1) + 1:(r + 1) * (size + 1)])
        for i in range(size if kind else 0):
            left, corner = (line[i - channels], before[i - channels]) if i >= channels else (0, 0)
            line[i] = (line[i] + predict(kind, left, before[i], corner)) & 255
        before = line
        rows.append(line)
    return channels, rows


def grey_rows(png):
    """The rows of a PNG in grey: 0 is black, what is transparent is black too."""
    with open(png, "rb") as f:
        channels, rows = rows_of(f.read())
    return [[sum(row[i:i + 3]) // 3 if channels == 3 or row[i + 3] else 0 for i in range(0, len(row), channels)] for row in rows]


def look(png):
    """How much of the picture has the color of its paper, that color in grey, and how many greys cover a place."""
    counts = collections.Counter(v for row in grey_rows(png) for v in row)
    total = sum(counts.values())
    (paper, most), = counts.most_common(1)
    return most / total, paper, len([v for v, n in counts.items() if n > total / 5000])
