"""One measurement: `weir bench` on the generator's core, with the server's CPU time read from /proc while it runs."""

import json
import os
import subprocess

import need

WARM_UP_MS = 500
# A run of `weir bench` beyond its duration: minting of tickets, connecting, the last answers.
SLACK_S = 60
# More than this beside server and generator, in millionths of one core, and the measurement is repeated.
OTHERS_PPM_MAX = 60_000
REPEATS_MAX = 3
# More than any cache of a server holds, few enough to be minted in a moment.
TICKETS = 200_000

SCENARIOS = {
    "c64": (64, 1),
    "c512": (512, 1),
    "c4096": (4096, 1),
    "p16": (64, 16),
    "conn": (64, 0),
}


class WrongAnswers(Exception):
    """The server did not give the answers that are measured."""


_seeds = [1 << 62]


def seed():
    """Another one each time. Bit 62 keeps user ids at 19 digits: all requests of a run are equally long."""
    _seeds[0] += (1 << 24) + 1
    return _seeds[0]


def mix_file(kind, form):
    path = os.path.join(need.WORK, f"mix-{kind}-{form}.toml")
    os.makedirs(need.WORK, exist_ok=True)
    with open(path, "w") as file:
        file.write(f'ticket = "{form}"\n[weights]\n{kind} = 1\n')
    return path


class Load:
    """What is sent to a server: the same bytes whoever it is."""

    def __init__(self, kind, form, config, activity=1, again=True):
        """`again`: tickets come again after `TICKETS`; a refusal is not remembered, so each is as good as a new one."""
        self.kind, self.form, self.config, self.activity, self.again = kind, form, config, activity, again

    def command(self, port, scenario, seconds, rate=None, requests=None):
        connections, pipeline = SCENARIOS[scenario]
        command = [
            os.path.join(need.RELEASE, "weir"), "bench", "--json", "--seed", str(seed()),
            "--url", f"http://127.0.0.1:{port}/", "--connections", str(connections),
            "--mix", mix_file(self.kind, self.form), "--config", self.config, "--activity", str(self.activity),
            "--duration", f"{WARM_UP_MS + int(seconds * 1000)}ms", "--warm-up", f"{WARM_UP_MS}ms",
        ]
        command += ["--pipeline", str(pipeline)] if pipeline else ["--close-each"]
        command += ["--tickets", str(TICKETS)] if self.again else []
        command += ["--rate", str(rate)] if rate else ["--max"]
        return command + (["--requests", str(requests)] if requests else [])


def run(load, server, core, scenario, seconds, rate=None, requests=None, watch=True):
    """The report of one run; the generator and whatever it starts stay on `core`."""
    command = load.command(server.port, scenario, seconds, rate, requests)
    if watch:
        for pid in server.pids():
            command += ["--watch", str(pid)]
    try:
        done = subprocess.run(
            ["taskset", "-c", str(core)] + command,
            capture_output=True, text=True, timeout=seconds + SLACK_S,
        )
    except subprocess.TimeoutExpired:
        raise WrongAnswers(f"{server.name}: the load did not end within {seconds + SLACK_S} s") from None
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        raise WrongAnswers(f"{server.name}: {done.stderr.strip()[-300:]}") from None


def check(report, server, expected, least=0.999):
    """Fewer than a share of `least` of the answers that the candidate is there for: nothing was measured."""
    kinds = report["answers"]
    right, answered = kinds.get(expected, 0), report["answered"]
    if answered == 0 or right < least * answered or report["transport_errors"] > answered / 1000:
        raise WrongAnswers(
            f"{server.name}: wanted {expected}, got {kinds} and {report['transport_errors']} without an answer "
            f"({report['failures']}); {server.words().strip()[-200:]}"
        )
    return round(right / answered, 4)


def rank(report):
    return bool(report["void_because"]), report["watched"]["others_ppm"]


def measure(load, server, core, scenario, seconds, expected, least, rate=None, tries=REPEATS_MAX):
    """The quietest of at most `tries` runs; the first quiet one ends the search."""
    best = None
    for repeats in range(tries):
        report = run(load, server, core, scenario, seconds, rate)
        share = check(report, server, expected, least)
        seen = report["watched"]
        if seen is None:
            raise WrongAnswers(f"{server.name}: {seconds} s are too short to measure")
        # A load that was not the one asked for is worse than any neighbour.
        if best is None or rank(report) < (bool(best["void_because"]), best["others_ppm"]):
            best = {
                "rps": seen["answered_per_s"],
                "server_cpu_us": seen["server_cpu_ns_per_request"] / 1000,
                "server_busy": round(seen["server_cpu_us"] / seen["span_us"], 3),
                "generator_busy": round(seen["generator_cpu_us"] / seen["span_us"], 3),
                "others_ppm": seen["others_ppm"],
                "rss_kib": seen["rss_kib"],
                "answer_bytes": round(report["connections_seen"]["received_bytes"] / report["answered"]),
                "expected_share": share,
                "minted_late": report["tickets_minted_late"],
                "latency_us": {name: report["latency_us"][name] for name in ("p50", "p99", "p999")},
                "void_because": report["void_because"],
            }
        best["repeats"] = repeats
        best["disturbed"] = best["others_ppm"] > OTHERS_PPM_MAX
        if not best["disturbed"] and not best["void_because"]:
            break
    return best
