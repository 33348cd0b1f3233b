"""Tests of the command: the verb attention."""
import math
import os
import xml.etree.ElementTree as Tree

import arrays as A
from harness import close, fails, get, nothing_left, path, put, REFUSED, run, scores, softmax, test, UNREADABLE, UNWRITABLE, USAGE

B, H, KV, LQ, LK, D, E = 2, 4, 2, 3, 5, 4, 2


def weights_of(q, k, batch, head, visible, kv=KV):
    """The rows of softmax weights of one head; visible(i, j)."""
    rows = []
    for i in range(LQ):
        a = q[((batch * H + head) * LQ + i) * D:][:D]
        z = [sum(x * y for x, y in zip(a, k[((batch * kv + head * kv // H) * LK + j) * D:][:D])) / math.sqrt(D) for j in range(LK)]
        seen = [j for j in range(LK) if visible(i, j)]
        p = dict(zip(seen, softmax([z[j] for j in seen]))) if seen else {}
        rows.append([p.get(j, 0) for j in range(LK)])
    return rows


def attention(q, k, v, visible=lambda i, j: True):
    o = []
    for b in range(B):
        for h in range(H):
            for row in weights_of(q, k, b, h, visible):
                o += [sum(row[j] * v[((b * KV + h * KV // H) * LK + j) * E + e] for j in range(LK)) for e in range(E)]
    return o


def files(dtype="f32"):
    q, k, v = scores((B, H, LQ, D), 1), scores((B, KV, LK, D), 1), scores((B, KV, LK, E), 1)
    put("q.npy", A.npy(dtype, (B, H, LQ, D), q))
    put("k.npy", A.npy(dtype, (B, KV, LK, D), k))
    put("v.npy", A.npy(dtype, (B, KV, LK, E), v))
    return q, k, v


def written(*arguments):
    run("attention", *(arguments if arguments[0][0] != "-" else ("q.npy", "k.npy", "v.npy", *arguments)), "-o", "o.npz")
    return A.read_npz(get("o.npz"))


@test("attention")
def masks_and_windows():
    q, k, v = files()
    start = LK - LQ
    mask = [(i * 7 + j) % 3 != 0 for i in range(LQ) for j in range(LK)]
    put("mask.npy", A.npy("bool", (LQ, LK), [int(m) for m in mask]))
    put("bias.npy", A.npy("f32", (1, 1, LQ, LK), [0.0 if m else float("-inf") for m in mask]))
    put("lengths.npy", A.npy("i64", (B,), [4, 4]))
    for arguments, visible in (([], lambda i, j: True), (["--causal"], lambda i, j: j <= i + start),
                               (["--causal", "--query-start", "0"], lambda i, j: j <= i),
                               (["--window", "1"], lambda i, j: j >= i + start - 1),
                               (["--window", "1,0"], lambda i, j: i + start - 1 <= j <= i + start),
                               (["--mask", "mask.npy"], lambda i, j: mask[i * LK + j]), (["--bias", "bias.npy"], lambda i, j: mask[i * LK + j]),
                               (["--lengths", "lengths.npy"], lambda i, j: j < 4)):
        got = written(*(arguments or ["--threads", "2"]))
        assert got["o"][:2] == ("f32", (B, H, LQ, E)) and got["lse"][:2] == ("f32", (B, H, LQ)), arguments
        close(got["o"][2], attention(q, k, v, visible))


@test("attention")
def layouts_types_and_files():
    q, k, v = files("f16")
    want = written("--causal", "--dtype", "f64")
    assert written("--causal")["o"][0] == "f16"
    for name, x, heads, length, size in (("q", q, H, LQ, D), ("k", k, KV, LK, D), ("v", v, KV, LK, E)):
        turned = [x[((b * heads + h) * length + i) * size + d] for b in range(B) for i in range(length) for h in range(heads) for d in range(size)]
        put(name + "t.npy", A.npy("f16", (B, length, heads, size), turned))
    got = written("qt.npy", "kt.npy", "vt.npy", "--causal", "--layout", "blhd", "--dtype", "f64")
    assert got["o"][1] == (B, LQ, H, E) and got["lse"][1] == (B, LQ, H)
    assert got["o"][2] == [want["o"][2][((b * H + h) * LQ + i) * E + e] for b in range(B) for i in range(LQ) for h in range(H) for e in range(E)]
    put("all.safetensors", A.safetensors({"q": ("f16", (B, H, LQ, D), q), "k": ("f16", (B, KV, LK, D), k), "v": ("f16", (B, KV, LK, E), v)}))
    assert written(*["all.safetensors:" + n for n in "qkv"], "--causal", "--dtype", "f64") == want
    put("q1.csv", A.text((LQ, D), q[:LQ * D]))
    put("k1.csv", A.text((LK, D), k[:LK * D]))
    put("v1.csv", A.text((LK, E), v[:LK * E]))
    one = written("q1.csv", "k1.csv", "v1.csv", "--causal")
    assert one["o"][:2] == ("f64", (LQ, E)) and one["lse"][1] == (LQ,)
    close(one["o"][2], want["o"][2][:LQ * E], 1e-3)
    out = run("attention", "q1.csv", "k1.csv", "v1.csv")[0].decode().splitlines()
    assert out[0].split() == ["row", "o"] and len(out) == LQ + 2 and out[-1].startswith("3 rows of 2 values, f64"), out
    nothing_left()


@test("attention")
def every_kind_of_weights():
    files("f64")
    kinds = run("attention", "--weights", "x", status=USAGE)[1].split("not one of ")[1].split()
    assert {"softmax", "sigmoid", "softpick", "centred"} <= set(kinds)
    seen = {repr(written("--weights", kind)["o"][2]) for kind in kinds}
    assert len(seen) == len(kinds)
    assert written("--weights", "softmax_n", "--param", "0")["o"] == written("--causal", "--query-start", "9")["o"]
    put("sinks.npy", A.npy("f64", (H,), [0.0] * H))
    close(written("--weights", "softmax_n")["o"][2], written("--sinks", "sinks.npy")["o"][2], 1e-12)
    assert written("--scale", "0.5")["o"] == written("--threads", "1")["o"] != written("--softcap", "1")["o"]


def texts(name):
    tree = Tree.fromstring(get(name))
    return [t.text for t in tree.iter("{http://www.w3.org/2000/svg}text")]


@test("attention")
def the_map_of_a_head():
    q, k, _ = files()
    put("names.txt", b"<a>\nb&c\n\033d\ne\nf\n")
    run("attention", "q.npy", "k.npy", "--causal", "--batch", "1", "--head", "3", "--labels", "names.txt", "--map", "map.svg")
    found = texts("map.svg")
    want = ["%.2g" % w if w >= 0.001 else "~0" for row in weights_of(q, k, 1, 3, lambda i, j: j <= i + LK - LQ) for w in row if w]
    assert [t for t in found if t in want][:len(want)] == want, (found, want)
    assert "Attention weights: softmax, causal, sequence 1, head 3" in found and "key" in found and "query" in found
    assert {"<a>", "b&c", "?d", "e", "f"} <= set(found), found
    run("attention", "q.npy", "k.npy", "v.npy", "--map", "map.svg", "-o", "both.npy")  # with the result beside it
    assert A.read_npy(get("both.npy"))[1] == (B, H, LQ, E)
    put("long.npy", A.npy("f32", (300, 4), scores((300, 4))))
    run("attention", "long.npy", "long.npy", "--causal", "--weights", "softpick", "--map", "long.svg")
    assert any("the sum over 4 keys, the mean over 4 queries" in t for t in texts("long.svg"))
    assert os.path.getsize(path("long.svg")) < 1 << 20
    nothing_left()


def turned(x, heads, rows, start, interleaved, base, scale):
    """Every row turned by its position."""
    y = list(x)
    for r in range(len(x) // D):
        for t in range(D // 2):
            w = scale * (start(r // heads // rows) + r % rows) * base ** (-2 * t / D)
            a, b = (r * D + 2 * t, r * D + 2 * t + 1) if interleaved else (r * D + t, r * D + t + D // 2)
            y[a], y[b] = x[a] * math.cos(w) - x[b] * math.sin(w), x[a] * math.sin(w) + x[b] * math.cos(w)
    return y


@test("attention")
def rotary_positions():
    q, k, v = files()
    put("lengths.npy", A.npy("i64", (B,), [5, 4]))
    end = LK - LQ
    for arguments, start, visible, interleaved, base, scale in (
            (["--rope", "half"], lambda b: end, lambda i, j: True, False, 10000, 1),
            (["--rope", "interleaved", "--rope-base", "50", "--rope-scale", "0.25"], lambda b: end, lambda i, j: True, True, 50, 0.25),
            (["--rope", "half", "--query-start", "1", "--causal"], lambda b: 1, lambda i, j: j <= i + 1, False, 10000, 1)):
        got = written(*arguments)
        p, r = turned(q, H, LQ, start, interleaved, base, scale), turned(k, KV, LK, lambda b: 0, interleaved, base, scale)
        close(got["o"][2], attention(p, r, v, visible))
    got = written("--rope", "half", "--lengths", "lengths.npy")["o"][2]
    p = turned(q, H, LQ, lambda b: (5, 4)[b] - LQ, False, 10000, 1)
    want = attention(p, turned(k, KV, LK, lambda b: 0, False, 10000, 1), v), attention(p, turned(k, KV, LK, lambda b: 0, False, 10000, 1), v, lambda i, j: j < 4)
    half = len(want[0]) // 2
    close(got, want[0][:half] + want[1][half:])


@test("attention")
def dropped_weights():
    q, k, v = files()
    plain, first, again, other = written("--causal"), *(written("--causal", "--dropout", "0.5", "--seed", seed) for seed in ("1", "1", "2"))
    assert first["lse"] == plain["lse"] and first["o"] == again["o"]
    assert first["o"] != plain["o"] and first["o"] != other["o"]
    assert written("--causal", "--dropout", "0")["o"] == plain["o"]


@test("attention")
def wrong_attention():
    files()
    three = ("attention", "q.npy", "k.npy", "v.npy")
    put("odd.npy", A.npy("f32", (B, 3, LK, D), [0] * (B * 3 * LK * D)))
    put("wide.npy", A.npy("f32", (B, KV, LK, D + 1), [0] * (B * KV * LK * (D + 1))))
    put("five.npy", A.npy("f32", (1, 1, 1, 1, 1), [0]))
    put("mask.npy", A.npy("u8", (LQ, LK + 1), [1] * (LQ * (LK + 1))))
    put("offsets.npy", A.npy("i64", (2,), [1, 0]))
    for arguments, says in ((("q.npy", "odd.npy", "odd.npy"), "not a multiple of the 3 heads of k"), (("q.npy", "wide.npy", "v.npy"), ["wide.npy", "k"]),
                            (("q.npy", "k.npy", "five.npy"), ["five.npy", "v: 5 dimensions"]),
                            (("q.npy", "k.npy", "v.npy", "--mask", "mask.npy"), ["mask.npy", "mask"]),
                            (("q.npy", "k.npy", "v.npy", "--query-offsets", "offsets.npy"), "offsets"),
                            (("q.npy", "odd.npy", "--map", "m.svg"), "odd.npy")):
        fails(REFUSED, "attention", *arguments, *([] if "--map" in arguments else ["-o", "no.npy"]), says=says)
    for name, value in (("window", "-2"), ("window", "1,2,3"), ("window", "x"), ("window", "0.5"), ("weights", "best"), ("param", "x"),
                        ("scale", "x"), ("dropout", "1"), ("dropout", "-0.5"), ("seed", "-1"), ("rope", "neox"), ("softcap", "-1"), ("query-start", "-1"), ("layout", "lbhd")):
        fails(USAGE, *three, "--" + name, value, "-o", "no.npy", says="--%s %s: " % (name, value))
    for name, value in (("rope-base", "0"), ("rope-base", "x"), ("rope-scale", "-1")):
        fails(USAGE, *three, "--rope", "half", "--" + name, value, "-o", "no.npy", says="--%s %s: " % (name, value))
    fails(USAGE, *three, "--rope-base", "10", says="--rope-base: says how --rope turns")
    put("odd_head.npy", A.npy("f32", (1, 1, 2, 3), [0] * 6))
    fails(REFUSED, "attention", *["odd_head.npy"] * 3, "--rope", "half", "-o", "no.npy", says=["odd_head.npy", "shape[3] is 3, not an even number"])
    fails(USAGE, *three, "--weights", "clipped", "--param", "1,1", says="--param 1,1: ")
    fails(USAGE, "attention", "q.npy", "k.npy", says="'v' is missing")
    fails(USAGE, *three, "v.npy", says="one input too many")
    fails(USAGE, *three, "--head", "1", says="--map")
    fails(USAGE, *three, "--map", "m.svg", "--head", "4", says=["--head 4", "q.npy has 4 heads"])
    fails(USAGE, *three, "--map", "m.svg", "--batch", "2", says="--batch 2")
    fails(UNREADABLE, "attention", "q.npy", "gone.npy", "v.npy", says="gone.npy")
    fails(UNWRITABLE, *three, "--map", "missing/m.svg", says="missing/m.svg")
    assert not os.path.exists(path("no.npy")) and not os.path.exists(path("m.svg"))
    nothing_left()
