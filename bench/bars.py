"""The bars: what the plans must reach, as ratios within one run. Each bar is one line; a case fails when its value is below the mark."""
import re

ONE_ROW = r"softmax/f32/1x(4194304|67108864)/t\d"
BATCHES = r"softmax/f32/(4096x1024|1024x32768|64x151936)/t\d"
OTHERS = r"(log_softmax|logsumexp|softmax_backward)/f32/(1x4194304|1x67108864|4096x1024|1024x32768)/t\d"
LONG = r"\d+x(1024|4096)x.*"
HALF = r"softmax/(bf16|f16)/%s/t\d"
IN_CACHE, OUT_OF_CACHE = "1x(1024|16384)", "(1x4194304|1x67108864|4096x1024|1024x32768|64x151936)"


def of_bound(r, _):
    return r["fraction"]


def of_memcpy(r, _):
    return r["ours"] and r["ns"]["memcpy"] / r["ours"]


def of_best_peer(r, _):
    return r["ratio"]


def of_f32(r, cases):
    """Elements a second, of those of f32."""
    same = cases.get(re.sub("/b?f16/", "/f32/", r["case"]))
    return same and r["ours"] and same["ours"] / r["ours"]


def of_half_goal(r, cases):
    """Of the smaller of 1.6 times the rate of f32 and 0.9 times its own rate in cache."""
    own = cases.get(re.sub("/[^/]*/t.$", "/1x16384/t1", r["case"]))
    threads = int(r["case"][-1])
    goals = [goal for goal in ((of_f32(r, cases) or 0) / 1.6, own and r["ours"] and own["ours"] / threads / r["ours"] / 0.9) if goal]
    return max(goals, default=None)


def of_avx2_bound(r, _):
    ns = r["ns"]
    return r["arithmetic"] * ns["fma_avx2"] / ns["smx-avx2"] if "fma_avx2" in ns and "smx-avx2" in ns else None


def of_softmax_weights(r, cases):
    """The time of attention with softmax's weights, divided by this one's."""
    same = cases.get(re.sub("_(sigmoid|softpick)/", "_full/", r["case"]))
    return same and r["ours"] and same["ours"] / r["ours"]


def of_plain_attention(r, cases):
    """Its time, divided by that of softmax attention of the same size."""
    same = cases.get(re.sub("attention_[^/]*/", "attention_full/", r["case"]))
    return same and r["ours"] and same["ours"] / r["ours"]


def within(microseconds):
    """Of so many microseconds a row."""
    return lambda r, _: r["ours"] and microseconds * 1e3 / (r["ours"] * int(r["case"].split("/")[2].split("x")[1]))


def of_one_thread(r, cases):
    """How many times as fast as one thread."""
    same = cases.get(r["case"].replace("/t2", "/t1"))
    return same and r["ours"] and same["ours"] / r["ours"]


def of_logsumexp(r, cases):
    same = cases.get(r["case"].replace("scores_all", "logsumexp"))
    return same and r["ours"] and same["ours"] / r["ours"]


def of_avx512(r, _):
    ns = r["ns"]
    return ns["smx"] / ns["smx-avx2"] if "smx" in ns and "smx-avx2" in ns else None


BARS = (
    ("one row of 4M or 67M elements: of the bound", ONE_ROW, of_bound, 0.80),
    ("batches whose rows fit L2: of memcpy", BATCHES, of_memcpy, 0.85),
    ("one row in cache: the best peer's time / ours", r"softmax/f32/1x(1024|16384|262144)/t1", of_best_peer, 1 / 1.05),
    ("batches of 8 to 128: the best peer's time / ours", r"softmax/f32/(128x64|65536x8|65536x16|65536x64|32768x128|4096x128)/t1",
     of_best_peer, 1.4),
    ("log_softmax, logsumexp, backward: of the bound", OTHERS, of_bound, 0.80),
    ("cross-entropy with its gradient: of memcpy", r"cross_entropy_dx/f32/.*", of_memcpy, 0.80),
    ("cross-entropy alone: of the bound", r"cross_entropy/f32/.*", of_bound, 0.70),
    ("f16 and bf16 in cache: of the f32 rate", HALF % IN_CACHE, of_f32, 0.85),
    ("f16 and bf16 out of cache: of the smaller of 1.6 f32 and 0.9 in cache", HALF % OUT_OF_CACHE, of_half_goal, 1.0),
    ("columns: of memcpy", r"softmax/f32/.*@\d/t\d", of_memcpy, 0.45),
    ("AVX2 in cache: of AVX-512", r"softmax/f32/1x(1024|16384)/t1", of_avx512, 0.70),
    ("AVX2 out of cache: of AVX-512", r"softmax/f32/(1x4194304|1x67108864|1024x32768)/t1", of_avx512, 0.95),
    ("attention: of the arithmetic", r"attention_full/f32/" + LONG, of_bound, 0.65),
    ("causal attention: of the arithmetic", r"attention_causal/f32/" + LONG, of_bound, 0.60),
    ("gradients of attention: of the arithmetic", r"attention_(full|causal)_dx/f32/.*", of_bound, 0.50),
    ("attention on AVX2: of its arithmetic", r"attention_(full|causal)/f32/" + LONG, of_avx2_bound, 0.60),
    ("attention, one query a head: of the reading", r"attention_decode/.*x8192x.*", of_bound, 0.85),
    ("attention of 4 to 49 rows: the best peer's time / ours", r"attention_(full|causal)/f32/\d+x(4|8|16|32|49)x\d+/t1", of_best_peer, 1 / 0.9),
    ("attention, one query a head, 16 to 256 keys: the best peer's time / ours", r"attention_decode/f32/\d+x(16|64|256)x\d+/t1", of_best_peer, 1 / 0.9),
    ("cross-entropy of a linear layer: of the arithmetic", r"linear_cross_entropy/f32/.*", of_bound, 0.65),
    ("the same with gradients: of the arithmetic", r"linear_cross_entropy_dx/f32/.*", of_bound, 0.60),
    ("clip_loss with gradients: PyTorch's time / ours", r"pairs_clip/f32/.*", of_best_peer, 0.75),
    ("a chain of tags with gradients: pytorch-crf's time / ours", r"pairs_chain/f32/.*", of_best_peer, 20),
    ("all scores of a row: logsumexp's time / theirs", r"scores_all/f32/.*/t1", of_logsumexp, 1 / 2.5),
    ("the choice of 8 of 256 experts: of one read", r"route_(softmax|groups)/f32/.*/t1", of_bound, 1 / 3),
    ("the same: the best peer's time / ours", r"route_(softmax|groups)/f32/.*/t1", of_best_peer, 5),
    ("maxima and means of windows: PyTorch's time / ours", r"pool_(max|mean|bins)(_last)?/f32/.*/t1", of_best_peer, 1.2),
    ("SoftPool, AdaPool: the time of their authors' formulas on PyTorch / ours", r"pool_(soft|ada)/f32/.*/t1", of_best_peer, 5),
    ("rows to experts and back: of their bytes", r"route_(dispatch|combine)/f32/.*/t1", of_bound, 0.80),
    ("attention by sigmoid and softpick: softmax's time / theirs", r"attention_(sigmoid|softpick)/f32/.*", of_softmax_weights, 1 / 1.1),
    ("attention with a dense bias: the time without / its", r"attention_bias/f32/.*", of_plain_attention, 1 / 1.2),
    ("attention with dropout: the time without / its", r"attention_dropout/f32/.*", of_plain_attention, 1 / 1.6),
    ("attention by sparsemax: softmax's time / its", r"attention_sparsemax/f32/.*", of_plain_attention, 1 / 2),
    ("attention by entmax15: softmax's time / its", r"attention_entmax15/f32/.*", of_plain_attention, 1 / 3),
    ("attention, four query heads of one cache: of the reading", r"attention_grouped/f32/.*/t1", of_bound, 0.90),
    ("attention on two threads: of one thread", r"attention_full/f32/8x1024x64/t2", of_one_thread, 1.85),
    ("one row of 262144 on two threads: of one thread", r"(softmax|log_softmax)/f32/1x262144/t2", of_one_thread, 1.0),
    ("softmax_backward of 4096 x 128 on two threads: the best peer's time / ours", r"softmax_backward/f32/4096x128/t2", of_best_peer, 1.0),
    ("softmax_backward of bf16: the best peer's time / ours", r"softmax_backward/bf16/.*/t1", of_best_peer, 1.0),
    ("softmax of one bf16 row of 4M: the best peer's time / ours", r"softmax/bf16/1x4194304/t1", of_best_peer, 1.3),
    ("log_softmax of bf16: the best peer's time / ours", r"log_softmax/bf16/4096x1024/t1", of_best_peer, 1.3),
) + tuple(
    ("smx_sample, %s of 151936: of %d us a row" % (name, us), "sample_%s/f32/1x151936/t1" % name, within(us), 1.0)
    for name, us in (("greedy", 12), ("typical", 120), ("sigma", 40), ("xtc", 60), ("top_p", 100), ("allow", 20))
)


def against_bars(cases):
    """(bar, mark, [(case, value), ...]) for every bar that some case was measured for."""
    for words, pattern, value, mark in BARS:
        found = [(name, value(r, cases)) for name, r in cases.items() if re.fullmatch(pattern, name)]
        found = [(name, reached) for name, reached in found if reached is not None]
        if found:
            yield words, mark, found


def print_bars(cases):
    for words, mark, found in against_bars(cases):
        met = sum(value >= mark for _, value in found)
        print("%s >= %.2f: %d of %d" % (words, mark, met, len(found)))
        for name, value in found:
            print("  %-40s%8.2f%s" % (name, value, "" if value >= mark else "  below"))
