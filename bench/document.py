"""Writes what was measured into docs/performance.md, between markers: the machine, the targets, a table for each verb and dtype, the operators;
and what a sweep found."""
import os
import re

from bars import against_bars
from results import NATIVE_PEERS, PYTHON_PEERS, main_spread

DOCUMENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "performance.md")
MEASURED, SWEPT = "./dev bench --document", "./dev sweep"
PEER_NAMES = {"xnnpack": "XNNPACK", "onednn": "oneDNN", "expf": "expf loop", "numpy": "NumPy", "onnxruntime": "ONNX Runtime", "jax": "JAX",
              "entmax": "entmax", "torch": "PyTorch"}
LIMITS = {"copy": "copy", "bytes": "bytes", "fma": "arithmetic"}


def table(head, rows):
    lines = ["| %s |" % " | ".join(head), "|---|" + "--:|" * (len(head) - 1)]
    return "\n".join(lines + ["| %s |" % " | ".join(row) for row in rows]) + "\n"


def figure(value, form="%.2f"):
    return form % value if value is not None else ""


def percent(value):
    return figure(value and 100 * value, "%.0f %%")


def shape_of(case):
    sizes = case.split("/")[2].split("@")
    text = " x ".join("{:,}".format(int(size)).replace(",", " ") for size in sizes[0].split("x"))
    return text + (", axis %s" % sizes[1] if len(sizes) > 1 else "")


# ---- The parts -------------------------------------------------------------------------------------------------------------------------


def ceilings(cases):
    """Speeds at the longest row measured, of one thread and of two."""
    rows = []
    for threads in (1, 2):
        found = [r for name, r in cases.items() if re.fullmatch(r"softmax/f32/1x\d+/t%d" % threads, name)]
        if not found:
            continue
        r = max(found, key=lambda r: r["elements"])
        speeds = ["%.1f" % (4 / r["ns"][name]) if name in r["ns"] else "" for name in ("read", "write", "write_nt")]
        rows.append([str(threads), "%.0f MB" % (r["elements"] * 4e-6), *speeds, "%.1f" % (8 / r["ns"]["memcpy"]), "%.0f" % (2 / r["ns"]["fma"])])
    return table(["threads", "tensor", "read, GB/s", "write", "streaming stores", "memcpy, read and written", "f32 FMA, GFLOP/s"], rows)


def bars(cases):
    rows = []
    for words, mark, found in against_bars(cases):
        name, value = min(found, key=lambda each: each[1])
        met = sum(reached >= mark for _, reached in found)
        rows.append([words, "%.2f" % mark, "%d of %d" % (met, len(found)), "%.2f" % value, "`%s`" % name])
    return table(["target", "at least", "met", "lowest", "where"], rows)


def verb_table(cases):
    peers = [p for p in (*NATIVE_PEERS, *PYTHON_PEERS) if any(p in r["ratios"] for r in cases)]
    avx2 = any("smx-avx2" in r["ns"] for r in cases)
    rows = []
    for r in cases:
        if not r["ours"]:
            continue
        own = [shape_of(r["case"]), r["case"][-1], "%.3f" % r["ours"], "%.0f %%" % (100 * main_spread(r)), percent(r["fraction"]),
               LIMITS[r["limit"]]]
        slower = [figure("smx-avx2" in r["ns"] and r["ns"]["smx-avx2"] / r["ours"] or None)] if avx2 else []
        rows.append(own + slower + [figure(r["ratios"].get(peer)) for peer in peers])
    sizes = "heads x length x width" if cases[0]["case"].startswith("attention_") else "rows x n"
    head = [sizes, "threads", "ns", "+-", "of the bound", "set by"] + (["AVX2"] if avx2 else []) + [PEER_NAMES[p] for p in peers]
    return table(head, rows)


def operator_table(cases):
    """Operators of the table on one thread, forward and backward beside each other."""
    found = {}
    for r in cases.values():
        match = re.fullmatch(r"(op|grad):(\w+)/f32/4096x1024/t1", r["case"])
        if match and r["ours"]:
            found.setdefault(match[2], {})[match[1]] = r
    rows = []
    for name, ways in found.items():
        rows.append(["`%s`" % name] + [cell for way in ("op", "grad") for cell in (
            (figure(ways[way]["ours"], "%.3f"), percent(ways[way]["fraction"])) if way in ways else ("", ""))])
    return table(["operator", "forward, ns", "of the bound", "backward, ns", "of the bound"], rows) if rows else ""


# ---- The document ----------------------------------------------------------------------------------------------------------------------


def sections(context, cases):
    peers = ", ".join("%s %s" % (PEER_NAMES[name], version) for name, version in context.get("peers", {}).items())
    yield "%s, libsoftmax %s on %s; %s processors, shared with other programs; %s of the samples%s.\n" % (
        context["date"][:10], context["libsoftmax"], context["isa"], context["num_cpus"], context["statistic"], peers and "; " + peers)
    yield "### Ceilings\n"
    yield ceilings(cases)
    yield "### Targets\n"
    yield bars(cases)
    groups = {}
    for r in cases.values():
        verb, dtype, shape = r["case"].split("/")[:3]
        if ":" not in verb or shape != "4096x1024":
            groups.setdefault((verb, dtype), []).append(r)
    for (verb, dtype), group in groups.items():
        yield "### %s, %s\n" % (verb.removeprefix("op:"), dtype)
        yield verb_table(group)
    operators = operator_table(cases)
    if operators:
        yield "### Operators, f32, 4096 x 1024, one thread\n"
        yield operators


def put(who, text):
    """Puts the text between "<!-- WHO writes this -->" and "<!-- end -->"."""
    with open(DOCUMENT, encoding="utf-8") as f:
        old = f.read()
    marker = "<!-- %s writes this -->\n" % who
    begin = old.index(marker) + len(marker)
    with open(DOCUMENT, "w", encoding="utf-8") as f:
        f.write(old[:begin] + "\n" + text + "\n" + old[old.index("<!-- end -->", begin):])


def write_document(context, cases):
    put(MEASURED, "\n".join(sections(context, cases)))
    print("%d cases into %s" % (len(cases), os.path.relpath(DOCUMENT)))


def write_sweep(rows):
    """rows: (call, cliffs in words, the median cost of the worst start)."""
    put(SWEPT, table(["call", "cliffs", "slowest start, median from n = 1024 on"], [["`%s`" % call, words, "%.2f" % cost] for call, words, cost in rows]))
