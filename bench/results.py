"""What the samples of a case mean: times, the bound, ratios to the peers. Files of results."""
import json
import os
import statistics

NATIVE_PEERS = ("xnnpack", "onednn", "expf")  # measured beside smx, in softmax_bench
PYTHON_PEERS = ("numpy", "onnxruntime", "jax", "entmax", "torch")  # measured beside smx-python, in peers.py
CEILINGS = ("memcpy", "read", "write", "write_nt", "fma", "fma_avx2")
OURS = ("smx", "smx-tensor")


def spread(samples):
    """Half the distance between the quartiles, as a fraction of the median."""
    if len(samples) < 3:
        return 0.0
    low, middle, high = statistics.quantiles(samples, n=4)
    return (high - low) / 2 / middle


def summarise(case, counters, samples, errors, statistic):
    """counters: elements, reads, writes, arithmetic. samples: ns per element of each implementation."""
    r = {"case": case, **counters, "errors": errors}
    r["ns"] = {name: statistic(s) for name, s in samples.items()}
    r["spread"] = {name: spread(s) for name, s in samples.items()}
    return judge(r)


def bound(r):
    """The least time, and what sets it: a copy, the bytes, or the arithmetic."""
    ns, write = r["ns"], "write"
    if ns.get("write_nt", ns["write"]) < ns["write"]:
        write = "write_nt"
    if r["reads"] == 1 and r["writes"] == 1:
        candidates = {"copy": ns["memcpy"]}
    else:
        candidates = {"bytes": r["reads"] * ns["read"] + r["writes"] * ns[write]}
    candidates["fma"] = r["arithmetic"] * ns["fma"]
    limit = max(candidates, key=candidates.get)
    return candidates[limit], limit


def judge(r):
    """Adds the bound, the ratio to every peer, and the best of them. A peer is compared with the library in its own process."""
    ns, ours = r["ns"], min((r["ns"][name] for name in OURS if name in r["ns"]), default=None)
    beside = {**{peer: ours for peer in NATIVE_PEERS}, **{peer: ns.get("smx-python") for peer in PYTHON_PEERS}}
    ratios = {peer: ns[peer] / own for peer, own in beside.items() if peer in ns and own}
    best = min(ratios, key=ratios.get, default=None)
    least, limit = bound(r)
    r.update(ours=ours, bound=least, limit=limit, fraction=ours and least / ours, ratios=ratios, best_peer=best, ratio=ratios.get(best))
    return r


def main_spread(r):
    return max((r["spread"][name] for name in OURS if name in r["spread"]), default=0)


def save(report, path):
    """The whole file or the old one: never half of it."""
    with open(path + ".part", "w", encoding="utf-8") as f:
        json.dump(report, f, indent=1)
        f.write("\n")
    os.replace(path + ".part", path)


def load(path):
    with open(path, encoding="utf-8") as f:
        report = json.load(f)
    return report["context"], {r["case"]: r for r in report["cases"]}
