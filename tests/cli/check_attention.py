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
    run("attention", *(arguments if arguments and arguments[0][0] != "-" else ("q.npy", "k.npy", "v.npy", *arguments)), "-o", "o.npz")
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
    kinds = run("attention", "--weights", "x", status=USAGE)[1].split("nor one of ")[1].split()
    assert {"softmax", "sigmoid", "softpick", "centred"} <= set(kinds)
    seen = {repr(written("--weights", kind)["o"][2]) for kind in kinds}
    assert len(seen) == len(kinds) - 1  # unified is softmax
    assert written("--weights", "softmax_n:n=0")["o"] == written("--weights", "softmax_n", "--param", "0")["o"]
    assert written("--weights", "taylor:terms=5,norm=clamp")["o"] == written("--weights", "taylor", "--param", "3,5")["o"]
    assert written("--weights", "sigmoid")["o"] == written("--weights", "sigmoid:shift=%.17g" % -math.log(LK))["o"] != written("--weights", "sigmoid:shift=0")["o"]
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


def matrix(q, k, visible=lambda i, j: True):
    return [w for b in range(B) for h in range(H) for row in weights_of(q, k, b, h, visible) for w in row]


@test("attention")
def operators_on_rows():
    q, k, v = files()
    want = written()["o"][2]
    got = written("--weights", "entmax:alpha=1", "--dtype", "f64")
    assert list(got) == ["o"]
    close(got["o"][2], want)
    assert written("--weights", "sparsemax")["o"] == written("--weights", "entmax:alpha=2")["o"] != written()["o"]
    run("attention", "q.npy", "k.npy", "--weights", "sparsemax", "--map", "map.svg")
    assert "Attention weights: sparsemax, sequence 0, head 0" in texts("map.svg")
    put("row.npy", A.npy("f32", (H, 1), [1, 2] * (H // 2)))  # alpha of each head
    alphas, softmax_, sparsemax = (written(*x)["o"][2] for x in (("--weights", "entmax", "--row", "row.npy"), ("--weights", "entmax:alpha=1"),
                                                                ("--weights", "sparsemax")))
    rows = LQ * E
    assert alphas == [x for h in range(B * H) for x in (sparsemax if h % 2 else softmax_)[h * rows:(h + 1) * rows]]
    for head in (0, 1):
        run("attention", "q.npy", "k.npy", "--weights", "entmax", "--row", "row.npy", "--map", "rows.svg", "--head", str(head))
        run("attention", "q.npy", "k.npy", "--weights", f"entmax:alpha={head + 1}", "--map", "whole.svg", "--head", str(head))
        assert get("rows.svg") == get("whole.svg").replace(b":alpha=%d" % (head + 1), b"")


@test("attention")
def scores_and_weights():
    q, k, v = files("f64")
    for layout in ([], ["--layout", "blhd"]):
        if layout:
            for name, x, heads, length in (("q", q, H, LQ), ("k", k, KV, LK)):
                put(name + ".npy", A.npy("f64", (B, length, heads, D), [x[((b * heads + h) * length + i) * D + d] for b in range(B)
                                                                        for i in range(length) for h in range(heads) for d in range(D)]))
        w = written("q.npy", "k.npy", "--causal", "--result", "weights", *layout)
        assert list(w) == ["weights"] and w["weights"][:2] == ("f64", (B, H, LQ, LK))
        close(w["weights"][2], matrix(q, k, lambda i, j: j <= i + LK - LQ), 1e-12)
    files("f64")
    z = {stage: written("q.npy", "k.npy", "--causal", "--softcap", "2", "--result", stage)[stage][2] for stage in ("products", "capped", "scores")}
    close(z["capped"], [2 * math.tanh(x / 2) for x in z["products"]], 1e-12)
    hidden = [x for x in z["scores"] if x == -math.inf]
    assert len(hidden) == B * H * 3 and all(x in (y, -math.inf) for x, y in zip(z["scores"], z["capped"]))
    run("attention", "q.npy", "k.npy", "--causal", "--result", "weights", "-o", "w.npy")
    close(written("w.npy", "v.npy", "--result", "applied")["o"][2], written("--causal")["o"][2], 1e-12)


@test("attention")
def masses_and_keys():
    q, k, v = files("f64")
    put("rows.npy", A.npy("f64", (LQ,), [0.0, 1.0, 2.0]))
    rows = matrix(q, k)
    want = [sum(rows[((b * H + h) * LQ + i) * LK + j] * i for h in range(g * H // KV, (g + 1) * H // KV) for i in range(LQ))
            for b in range(B) for g in range(KV) for j in range(LK)]
    mass = written("q.npy", "k.npy", "--result", "mass", "--row-weights", "rows.npy")
    assert list(mass) == ["mass"] and mass["mass"][1] == (B, KV, LK)
    close(mass["mass"][2], want, 1e-12)
    got = written("q.npy", "k.npy", "--result", "keys", "--row-weights", "rows.npy", "--keep", "3", "--first", "1")
    assert got["keys"][:2] == ("i32", (B, KV, 3)) and got["kept"][2] == [3] * (B * KV)
    for r in range(B * KV):
        row = want[r * LK:(r + 1) * LK]
        best = sorted(range(1, LK), key=lambda j: -row[j])[:2]
        assert got["keys"][2][3 * r:3 * r + 3] == [0] + sorted(best), (r, row, got)
    put("budgets.npy", A.npy("i64", (B, 1), [2, 3]))
    one = written("q.npy", "k.npy", "--result", "keys", "--row-weights", "rows.npy", "--keep", "2", "--kernel", "1,3")["keys"][2]
    for r in range(B * KV):
        row = want[r * LK:(r + 1) * LK]
        best = max(range(LK), key=lambda j: row[j])
        wide = [sum(row[max(j - 1, 0):j + 2]) for j in range(LK)]
        assert one[2 * r:2 * r + 2] == sorted([best, max((j for j in range(LK) if j != best), key=lambda j: wide[j])])
    got = written("q.npy", "k.npy", "--result", "keys", "--keep", "4", "--last", "1", "--kernel", "3", "--pool", "max", "--shared", "--budgets", "budgets.npy")
    assert got["keys"][1] == (B, 1, 4) and got["kept"][2] == [2, 3] and got["keys"][2][1:4] == [4, -1, -1]


@test("attention")
def paged_caches_states_and_streams():
    q, k, v = files()
    page = 2
    for name, x, size in (("k", k, D), ("v", v, E)):  # pages in the order of the table, the last one half full
        pages = []
        for b in range(B):
            for p in range(3):
                pages += [x[((b * KV + h) * LK + p * page + i) * size + d] if p * page + i < LK else 9e9
                          for h in range(KV) for i in range(page) for d in range(size)]
        put(name + "p.npy", A.npy("f32", (B * 3, KV, page, size), pages))
    put("table.npy", A.npy("i64", (B, 3), range(B * 3)))
    put("lengths.npy", A.npy("i64", (B,), [LK] * B))
    assert written("q.npy", "kp.npy", "vp.npy", "--block-table", "table.npy", "--lengths", "lengths.npy", "--causal") == written("--causal")
    paged = written("q.npy", "kp.npy", "vp.npy", "--block-table", "table.npy", "--lengths", "lengths.npy", "--weights", "sigmoid")
    assert paged["o"] == written("--weights", "sigmoid", "--param", repr(-math.log(3 * page)))["o"]
    run("attention", "q.npy", "k.npy", "v.npy", "--query-start", "2", "--result", "states", "-o", "states.npy")
    run("attention", "states.npy", "--result", "merged", "--size", str(E), "-o", "merged.npz")
    assert A.read_npz(get("merged.npz")) == written()
    put("streams.npy", A.npy("i64", (B,), [7, 11]))
    dropped = written("--dropout", "0.5", "--stream", "7")["o"][2]
    assert written("--dropout", "0.5", "--streams", "streams.npy")["o"][2] == dropped != written("--dropout", "0.5")["o"][2]


@test("attention")
def the_max_plus_semiring():
    q, k, v = files("f64")
    for mode, metric in (("symmetric", lambda t: max(t) - min(t)), ("one-sided", lambda t: sum(t) - D * min(t))):
        want = []
        for b in range(B):
            for h in range(H):
                for i in range(LQ):
                    s = [metric([q[((b * H + h) * LQ + i) * D + d] - k[((b * KV + h * KV // H) * LK + j) * D + d] for d in range(D)]) for j in range(LK)]
                    want += [max(v[((b * KV + h * KV // H) * LK + j) * E + e] - s[j] for j in range(LK)) for e in range(E)]
        got = written("--tropical", mode)
        close(got["o"][2], want, 1e-12)
        assert got["winners"][0] == "i32"


@test("attention")
def gradients():
    q, k, v = files("f64")
    put("do.npy", A.npy("f64", (B, H, LQ, E), scores((B, H, LQ, E), 1)))
    put("dlse.npy", A.npy("f64", (B, H, LQ), scores((B, H, LQ), 1)))
    put("bias.npy", A.npy("f64", (LQ, LK), scores((LQ, LK), 1)))
    put("r.npy", A.npy("f64", (B, H, LQ, D), scores((B, H, LQ, D), 1)))
    put("u.npy", A.npy("f64", (B, H, D), scores((B, H, D), 1)))
    put("row.npy", A.npy("f64", (H, 1), [1.2 + h / 4 for h in range(H)]))
    for arguments in (["--causal", "--bias", "bias.npy", "--rope", "half", "--rope-dims", "2", "--dout", "dlse.npy"], ["--tropical", "symmetric"],
                      ["--weights", "entmax15"], ["--weights", "entmax", "--row", "row.npy", "--bias", "bias.npy"], ["--rope", "interleaved", "--softcap", "2"], ["--parallax", "r.npy", "--causal"],
                      ["--local-linear", "0.5"], ["--additive", "u.npy", "--causal"]):
        got = written("--backward", "--dout", "do.npy", *arguments)
        forward = [x for x in arguments if x != "--dout" and x != "dlse.npy"]
        assert list(got) == ["dq", "dk", "dv"] + [name for name, option in (("dbias", "--bias"), ("drow", "--row"), ("dr", "--parallax"), ("du", "--additive"))
                                                          if option in arguments]

        def loss():
            out = written(*forward) if forward else written()
            sums = [x * y for x, y in zip(A.read_npy(get("do.npy"))[2], out["o"][2])]
            if "dlse.npy" in arguments:
                sums += [x * y for x, y in zip(A.read_npy(get("dlse.npy"))[2], out["lse"][2])]
            return math.fsum(sums)
        for name in list(got):
            kind, shape, values = A.read_npy(get(name[1:] + ".npy"))
            assert got[name][:2] == (kind, shape)
            for i in (0, len(values) // 2, len(values) - 1):
                sides = []
                for step in (1e-6, -1e-6):
                    put(name[1:] + ".npy", A.npy(kind, shape, [x + step * (j == i) for j, x in enumerate(values)]))
                    sides.append(loss())
                put(name[1:] + ".npy", A.npy(kind, shape, values))
                assert abs((sides[0] - sides[1]) / 2e-6 - got[name][2][i]) < 1e-6, (arguments, name, i)


@test("attention")
def other_scores_and_weights():
    q, k, v = files("f64")
    r, u = scores((B, H, LQ, D), 1), scores((H, D), 1)
    put("r.npy", A.npy("f64", (B, H, LQ, D), r))
    put("u.npy", A.npy("f64", (H, D), u))
    plain, want, added = written("--causal")["o"][2], [], []
    for b in range(B):
        for h in range(H):
            keys = [k[((b * KV + h * KV // H) * LK + j) * D:][:D] for j in range(LK)]
            values = [v[((b * KV + h * KV // H) * LK + j) * E:][:E] for j in range(LK)]
            for i, w in enumerate(weights_of(q, k, b, h, lambda i, j: j <= i + LK - LQ)):
                y = [sum(x * z for x, z in zip(r[((b * H + h) * LQ + i) * D:][:D], key)) for key in keys]
                mean = sum(x * z for x, z in zip(w, y))
                want += [sum(w[j] * (1 + mean - y[j]) * values[j][e] for j in range(LK)) for e in range(E)]
                row = q[((b * H + h) * LQ + i) * D:][:D]
                p = softmax([sum(u[h * D + d] * math.tanh(row[d] + key[d]) for d in range(D)) for key in keys[:i + LK - LQ + 1]])
                added += [sum(x * values[j][e] for j, x in enumerate(p)) for e in range(E)]
    got = written("--parallax", "r.npy", "--causal")
    assert list(got) == ["o"]
    close(got["o"][2], want, 1e-12)
    close(written("--additive", "u.npy", "--causal")["o"][2], added, 1e-12)
    close(written("--local-linear", "1e12", "--causal")["o"][2], plain, 1e-9)
    run("attention", "q.npy", "k.npy", "--parallax", "r.npy", "--head", "2", "--map", "map.svg")
    assert "Attention weights: parallax, sequence 0, head 2" in texts("map.svg")
    run("attention", "q.npy", "k.npy", "--additive", "u.npy", "--head", "1", "--batch", "1", "--map", "map.svg")
    nothing_left()


@test("attention")
def rope_of_packed_sequences():
    q, k, v = files("f64")
    end = LK - LQ
    put("q2.npy", A.npy("f64", (1, H, B * LQ, D), [q[((b * H + h) * LQ + i) * D + d] for h in range(H) for b in range(B) for i in range(LQ) for d in range(D)]))
    for name, x, size in (("k2", k, D), ("v2", v, E)):
        put(name + ".npy", A.npy("f64", (1, KV, B * LK, size), [x[((b * KV + h) * LK + i) * size + d] for h in range(KV) for b in range(B)
                                                                 for i in range(LK) for d in range(size)]))
    put("qo.npy", A.npy("i64", (B + 1,), [0, LQ, 2 * LQ]))
    put("ko.npy", A.npy("i64", (B + 1,), [0, LK, 2 * LK]))
    put("frequencies.npy", A.npy("f64", (2,), [1.0, 0.01]))
    settings = ["--causal", "--rope", "half", "--rope-frequencies", "frequencies.npy"]
    got = written("q2.npy", "k2.npy", "v2.npy", "--query-offsets", "qo.npy", "--key-offsets", "ko.npy", *settings)["o"][2]
    want = written(*settings)["o"][2]
    close(want, written("--causal", "--rope", "half")["o"][2], 1e-12)
    assert got == [want[((b * H + h) * LQ + i) * E + e] for h in range(H) for b in range(B) for i in range(LQ) for e in range(E)]


@test("attention")
def given_positions():
    files("f64")
    for name, positions, arguments in (("p.npy", [float(j) for j in range(LK)], []), ("i.npy", list(range(LK)), []),
                                       ("p2.npy", [2.0 * j for j in range(LK)], ["--rope-scale", "2"])):
        put(name, A.npy("i64" if name == "i.npy" else "f64", (LK, 1), positions))
        for more in ([], ["--query-start", "1", "--causal"]):
            assert written("--rope", "half", "--rope-positions", name, *more)["o"] == written("--rope", "half", *arguments, *more)["o"]
    put("pairs.npy", A.npy("f64", (LK, D // 2), [j * f for j in range(LK) for f in (1.0, 3.0)]))
    put("frequencies.npy", A.npy("f64", (2,), [1.0, 0.03]))
    close(written("--rope", "half", "--rope-positions", "pairs.npy")["o"][2], written("--rope", "half", "--rope-frequencies", "frequencies.npy")["o"][2], 1e-12)
    put("lengths.npy", A.npy("i64", (B,), [LK] * B))
    put("few.npy", A.npy("f64", (LK - 1, 1), [0.0] * (LK - 1)))
    put("list.npy", A.npy("f64", (LK,), [0.0] * LK))
    three = ("attention", "q.npy", "k.npy", "v.npy", "--rope", "half", "-o", "no.npy", "--rope-positions")
    fails(USAGE, *three, "p.npy", "--lengths", "lengths.npy", says="--rope-positions p.npy: not of packed sequences")
    fails(REFUSED, *three, "few.npy", says=["few.npy", "positions: 4 of them, but queries stand at 2 to 4"])
    fails(REFUSED, *three, "few.npy", "--query-start", "0", says=["few.npy", "positions: shape"])
    fails(REFUSED, *three, "list.npy", says="positions: 1 dimensions, not 2 to 4")
    fails(USAGE, "attention", "q.npy", "k.npy", "v.npy", "--rope-positions", "p.npy", says="says how --rope turns")
    nothing_left()


@test("attention")
def wrong_results():
    files()
    three, two = ("attention", "q.npy", "k.npy", "v.npy"), ("attention", "q.npy", "k.npy")
    put("do.npy", A.npy("f32", (B, H, LQ, E + 1), [0] * (B * H * LQ * (E + 1))))
    put("table.npy", A.npy("i64", (B, 1), [0, 2]))
    put("lengths.npy", A.npy("i64", (B,), [LK] * B))
    put("less.npy", A.npy("i64", (B,), [LK, LK + 1]))
    put("offsets.npy", A.npy("i64", (3,), [0, 3, 2]))
    for arguments, says in ((two + ("--result", "x"), "--result x: not one of products capped"), (three + ("--keep", "1"), "--keep: not with this --result"),
                            (two + ("--result", "keys"), "--keep N is missing"), (two + ("--result", "merged"), "--size N is missing"),
                            (two + ("--result", "keys", "--keep", "2", "--first", "3"), "--first 3: first + options.last is 3 + 0"),
                            (two + ("--result", "keys", "--keep", "2", "--kernel", "2"), "--kernel 2: kernels is 2, not an odd number"),
                            (two + ("--result", "weights", "--weights", "sparsemax"), "--weights sparsemax: not with --result weights"),
                            (three + ("--tropical", "max"), "--tropical max: not one of symmetric, one-sided"),
                            (three + ("--tropical", "symmetric", "--weights", "relu"), "--weights: not with --tropical"),
                            (three + ("--tropical", "symmetric", "--scale", "2"), "--scale: not with --tropical"),
                            (("attention", "q.npy", "v.npy", "--result", "applied", "--bias", "q.npy"), "--bias: not with --result applied"),
                            (three + ("--additive", "q.npy", "--scale", "2"), "--scale 2: "),
                            (three + ("--local-linear", "1", "--tropical", "symmetric"), "--local-linear: not with --tropical"),
                            (three + ("--local-linear", "-1"), "--local-linear -1: ridge is -1"), (three + ("--local-linear", "x"), "--local-linear x: "),
                            (two + ("--result", "mass", "--additive", "q.npy"), "--additive: not with --result mass"),
                            (two + ("--result", "keys", "--keep", "2", "--kernel", "3,4"), "--kernel 3,4: kernels is 4, not an odd number"),
                            (three + ("--row", "q.npy"), "--row: --weights OPERATOR is missing"),
                            (three + ("--row", "q.npy", "--weights", "relu"), "--row: --weights OPERATOR is missing"),
                            (three + ("--weights", "entmax:alpha"), "'alpha' is not NAME=VALUE"), (three + ("--weights", "entmax:alpha=99"), "alpha: 99 is out of range"),
                            (three + ("--weights", "entmax", "--param", "1"), "follow its name"), (three + ("--backward",), "--dout FILE is missing"),
                            (three + ("--dout", "do.npy"), "only with --backward"), (three + ("--key-start", "5"), "--key-start 5: key_start is 5, not a multiple"),
                            (three + ("--block-table", "table.npy"), "--lengths FILE is missing"), (three + ("--rope-dims", "2"), "says how --rope turns"),
                            (three + ("--result", "weights"), "v.npy: one input too many"), (three + ("--tropical", "symmetric", "--map", "m.svg"), "no weights"),
                            (three + ("--backward", "--dout", "do.npy", "--map", "m.svg"), "--map m.svg: not with --backward")):
        fails(USAGE, *arguments, *([] if "--map" in arguments else ["-o", "no.npy"]), says=says)
    for arguments, says in ((three + ("--backward", "--dout", "do.npy"), ["do.npy", "d_o: shape[3] is 3, not 2"]),
                            (three + ("--block-table", "table.npy", "--lengths", "lengths.npy"), ["table.npy", "page 0 of sequence 1 is 2, not 0..1"]),
                            (three + ("--lengths", "less.npy"), ["less.npy", "number 1 is 6, not 0..5"]),
                            (("attention", "q.npy", "--result", "merged", "--size", "2"), "4 dimensions, not the 5 of states"),
                            (three + ("--parallax", "k.npy"), ["k.npy", "r: shape[1] is 2, not 4"]), (three + ("--additive", "do.npy"), ["do.npy", "u: "]),
                            (three + ("--weights", "logsumexp"), "does not make a row of weights")):
        fails(REFUSED, *arguments, "-o", "no.npy", says=says)
    put("one.npy", A.npy("f32", (1, H, LQ, D), [0] * (H * LQ * D)))
    put("keys.npy", A.npy("f32", (1, KV, LK, D), [0] * (KV * LK * D)))
    fails(REFUSED, "attention", "one.npy", "keys.npy", "keys.npy", "--query-offsets", "offsets.npy", "-o", "no.npy", says=["offsets.npy", "number 2 is 2, not 3..3"])
    assert not os.path.exists(path("no.npy"))
    nothing_left()


@test("attention")
def wrong_attention():
    files()
    three = ("attention", "q.npy", "k.npy", "v.npy")
    put("odd.npy", A.npy("f32", (B, 3, LK, D), [0] * (B * 3 * LK * D)))
    put("wide.npy", A.npy("f32", (B, KV, LK, D + 1), [0] * (B * KV * LK * (D + 1))))
    put("five.npy", A.npy("f32", (1, 1, 1, 1, 1), [0]))
    put("mask.npy", A.npy("u8", (LQ, LK + 1), [1] * (LQ * (LK + 1))))
    put("offsets.npy", A.npy("i64", (2,), [1, 0]))
    put("row.npy", A.npy("f32", (3, 1), [1, 1, 1]))
    for arguments, says in ((("q.npy", "odd.npy", "odd.npy"), "not a multiple of the 3 heads of k"), (("q.npy", "wide.npy", "v.npy"), ["wide.npy", "k"]),
                            (("q.npy", "k.npy", "five.npy"), ["five.npy", "v: 5 dimensions"]),
                            (("q.npy", "k.npy", "v.npy", "--mask", "mask.npy"), ["mask.npy", "mask"]),
                            (("q.npy", "k.npy", "v.npy", "--query-offsets", "offsets.npy"), "offsets"),
                            (("q.npy", "k.npy", "v.npy", "--weights", "sparsemax", "--row", "row.npy"), "row.npy: row is given, but op is sparsemax"),
                            (("q.npy", "k.npy", "v.npy", "--weights", "entmax", "--row", "five.npy"), "five.npy: row"),
                            (("q.npy", "k.npy", "--weights", "entmax", "--row", "row.npy", "--map", "m.svg", "--head", "3"), ["row.npy: row", "broadcast"]),
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
    fails(USAGE, *three, "--weights", "clipped", "--param", "1,1", says=["--param 1,1: ", "low of clipped"])
    for text, says in (("taylor:terms", "not NAME=VALUE"), ("taylor:degree=2", "no parameter of that name"), ("taylor:terms=x", "is no number"),
                       ("taylor:terms=2.5", "terms of taylor"), ("taylor:norm=l3", "is no number"), ("clipped:low=1", "low of clipped")):
        fails(USAGE, *three, "--weights", text, "-o", "no.npy", says=["--weights %s: " % text, says])
    fails(USAGE, "attention", "q.npy", "k.npy", says="'v' is missing")
    fails(USAGE, *three, "v.npy", says="one input too many")
    fails(USAGE, *three, "--head", "1", says="--map")
    fails(USAGE, *three, "--map", "m.svg", "--head", "4", says=["--head 4", "q.npy has 4 heads"])
    fails(USAGE, *three, "--map", "m.svg", "--batch", "2", says="--batch 2")
    fails(UNREADABLE, "attention", "q.npy", "gone.npy", "v.npy", says="gone.npy")
    fails(UNWRITABLE, *three, "--map", "missing/m.svg", says="missing/m.svg")
    assert not os.path.exists(path("no.npy")) and not os.path.exists(path("m.svg"))
    nothing_left()
