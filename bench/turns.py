"""Two builds of the benchmark, case by case and in turns: what a change costs on a machine that is never as fast twice."""
import math
import re
import statistics

from results import CEILINGS, spread

ROUNDS = 9  # a round is a process of each build
FUSED = re.compile(r"^(softmax|log_softmax|logsumexp|cross_entropy|softmax_topk|attention)")
IN_CACHE = 1 << 18  # elements: 1 MB of input


def allowed(case):
    """How much longer a case may take: 3 % where loops are fused; for other operators 20 % in cache, 5 % beyond it."""
    if FUSED.match(case):
        return 1.03
    return 1.20 if elements(case) <= IN_CACHE else 1.05


def elements(case):
    return math.prod(int(size) for size in case.split("/")[2].split("@")[0].split("x"))


def shared_cases(old, new, pattern):
    """{case: implementations of the library} that both builds have."""
    cases, others = new.cases(), old.cases()
    return {case: [n for n in names if n in others[case] and n.startswith("smx") and n not in CEILINGS]
            for case, names in cases.items() if case in others and re.search(pattern, case)}


def measure(old, new, case, names, repetitions, min_time):
    """{implementation: (old ns, new ns, ratio, its spread)}: the median over rounds of new / old, each from one round."""
    rounds = []
    for turn in range(ROUNDS):
        first, second = (old, new) if turn % 2 else (new, old)
        samples = {build: build.run(case, names, repetitions, min_time)[2] for build in (first, second)}
        rounds.append((samples[old], samples[new]))
    result = {}
    for name in names:
        pairs = [(min(a[name]), min(b[name])) for a, b in rounds if name in a and name in b]
        if pairs:
            ratios = [b / a for a, b in pairs]
            result[name] = (*(statistics.median(p[i] for p in pairs) for i in (0, 1)), statistics.median(ratios), spread(ratios))
    return result


def compare_builds(old, new, pattern, wanted, repetitions, min_time):
    """Prints a line for each case and implementation, and how many take longer than they may."""
    print("%-40s%-14s%10s%10s%9s%7s  %s" % ("case", "implementation", "old ns", "new ns", "change", "+-%", ""))
    beyond = lines = 0
    for case, names in shared_cases(old, new, pattern).items():
        names = [n for n in names if (n in wanted if wanted else n != "smx-portable")]
        for name, (a, b, ratio, noise) in measure(old, new, case, names, repetitions, min_time).items():
            slow = ratio > allowed(case)
            lines, beyond = lines + 1, beyond + slow
            print("%-40s%-14s%10.4f%10.4f%+8.1f%%%7.1f  %s" % (
                case, name, a, b, 100 * (ratio - 1), 100 * noise, "more than %g %%" % round(100 * (allowed(case) - 1)) if slow else ""),
                flush=True)
    print("\n%d of %d take longer than they may" % (beyond, lines))
