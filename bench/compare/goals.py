"""Our goals as ratios of one run, each from the rounds in which both sides were measured."""

from stats import ratio


class Rounds:
    """Figures by (candidate, scenario, round)."""

    def __init__(self):
        self.seen = {}
        self.mac_us = {}

    def put(self, candidate, scenario, number, figure):
        self.seen.setdefault((candidate, scenario), {})[number] = figure

    def of(self, candidate, scenario):
        return self.seen.get((candidate, scenario), {})

    def paired(self, left, right, combine):
        """`combine(l, r)` for each round in which both were what was asked for and nothing disturbed them; left and
        right: (candidate, scenario)."""
        is_valid = lambda figure: not figure["void_because"] and not figure.get("disturbed")
        valid = lambda figures: {n: figure for n, figure in figures.items() if is_valid(figure)}
        ours, theirs = valid(self.of(*left)), valid(self.of(*right))
        return [combine(ours[n], theirs[n]) for n in sorted(ours.keys() & theirs.keys())]


def cpu_ratio(left, right):
    return left["server_cpu_us"] / right["server_cpu_us"]


def rps_ratio(left, right):
    return left["rps"] / right["rps"]


def p99_ratio(left, right):
    return left["latency_us"]["p99"] / right["latency_us"]["p99"]


def cpu_more(left, right):
    return left["server_cpu_us"] - right["server_cpu_us"]


# name, (candidate, scenario), (candidate, scenario), how they are combined, goal, sense
PAIRS = [
    ("1 compact/null c64", ("weir-compact", "c64"), ("null-compact", "c64"), cpu_ratio, 1.10, "<="),
    ("1 compact/null c512", ("weir-compact", "c512"), ("null-compact", "c512"), cpu_ratio, 1.10, "<="),
    ("1 jws/null c64", ("weir-jws", "c64"), ("null-jws", "c64"), cpu_ratio, 1.20, "<="),
    ("1 jws/null c512", ("weir-jws", "c512"), ("null-jws", "c512"), cpu_ratio, 1.20, "<="),
    ("1 compact/nginx c512", ("weir-compact", "c512"), ("nginx", "c512"), cpu_ratio, 0.75, "<="),
    ("1 jws/nginx c512", ("weir-jws", "c512"), ("nginx", "c512"), cpu_ratio, 0.75, "<="),
    ("1 jws/nginx-lua c512", ("weir-jws", "c512"), ("nginx-lua", "c512"), cpu_ratio, 0.45, "<="),
    ("2 compact-null p16 us", ("weir-compact", "p16"), ("null-compact", "p16"), cpu_more, 0.30, "<="),
    ("2 compact/nginx rps p16", ("weir-compact", "p16"), ("nginx", "p16"), rps_ratio, 5.0, ">="),
    ("2 jws/nginx rps p16", ("weir-jws", "p16"), ("nginx", "p16"), rps_ratio, 5.0, ">="),
    ("4 compact/null p99 open c64", ("weir-compact", "open"), ("null-compact", "open"), p99_ratio, 1.25, "<="),
    ("4 jws/null p99 open c64", ("weir-jws", "open"), ("null-jws", "open"), p99_ratio, 1.25, "<="),
    ("4 compact/nginx p99 open c64", ("weir-compact", "open"), ("nginx", "open"), p99_ratio, 1.0, "<="),
    ("4 jws/nginx p99 open c64", ("weir-jws", "open"), ("nginx", "open"), p99_ratio, 1.0, "<="),
    ("5 compact/null conn", ("weir-compact", "conn"), ("null-compact", "conn"), cpu_ratio, 1.05, "<="),
    ("5 jws/null conn", ("weir-jws", "conn"), ("null-jws", "conn"), cpu_ratio, 1.05, "<="),
    ("5 compact c4096/c64", ("weir-compact", "c4096"), ("weir-compact", "c64"), cpu_ratio, 1.45, "<="),
    ("5 jws c4096/c64", ("weir-jws", "c4096"), ("weir-jws", "c64"), cpu_ratio, 1.45, "<="),
]
# Goals about figures of their own, one value per round (`Run.single`): name, goal, sense. A new one is a row here and
# a line in `Run.go` that measures it.
RESERVES = "6 ledger/redis reserves"
RSS = "7 rss beside tables c4096 MiB"
IDLE = "7 idle direct c50000 bytes each"
SINGLE = [(RESERVES, 5.0, ">="), (RSS, 32, "<="), (IDLE, 1024, "<=")]


def ratios(rounds, single):
    """Every goal that this run has figures for. `single`: values by round of the names in `SINGLE`."""
    found = {}
    for name, left, right, combine, goal, sense in PAIRS:
        values = rounds.paired(left, right, combine)
        if values:
            found[name] = ratio(values, goal, sense)
    jws, null = rounds.of("weir-jws", "p16"), rounds.of("null-jws", "p16")
    both = sorted(jws.keys() & null.keys() & rounds.mac_us.keys())
    if both:
        values = [cpu_more(jws[n], null[n]) - rounds.mac_us[n] for n in both]
        found["2 jws-null-mac p16 us"] = ratio(values, 0.25, "<=")
    for name, goal, sense in SINGLE:
        if name in single:
            found[name] = ratio(single[name], goal, sense)
    return found
