"""bench/compare.sh: interleaved rounds over candidates and scenarios; see bench/README.md."""

import argparse
import fcntl
import json
import os
import platform
import signal
import subprocess
import sys
import time

import goals
import need
import reserve
import servers
from candidates import CANDIDATES, OPEN_LOOP, Stage
from load import REPEATS_MAX, SCENARIOS, WrongAnswers, measure
from stats import spread

OPEN_SHARE = 0.7
EXTRAS = ["open", "memory", "mac", "reserve", "idle"]
IDLE_S = 180


def arguments():
    names = [candidate.name for candidate in CANDIDATES]
    listed = lambda known: lambda text: [
        word if word in known else sys.exit(f"compare: {word}: must be one of {', '.join(known)}")
        for word in text.split(",")
    ]
    parser = argparse.ArgumentParser(prog="bench/compare.sh", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object per line instead of the table")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default 7)")
    parser.add_argument("--seconds", type=float, default=2.5, help="of each measurement (default 2.5)")
    parser.add_argument("--only", type=listed(names), default=names, help="candidates: " + ", ".join(names))
    parser.add_argument("--scenario", type=listed(list(SCENARIOS) + EXTRAS), default=list(SCENARIOS) + EXTRAS,
                        help="scenarios: " + ", ".join(list(SCENARIOS) + EXTRAS))
    cores = sorted(os.sched_getaffinity(0))
    parser.add_argument("--server-cpu", type=int, default=cores[-1], help="core of the server (default: the last)")
    parser.add_argument("--generator-cpu", type=int, default=cores[0], help="core of the load generator (default: the first)")
    parser.add_argument("--tries", type=int, default=REPEATS_MAX,
                        help=f"how often a disturbed measurement is made at most (default {REPEATS_MAX})")
    parser.add_argument("--open-rate", type=int, default=None,
                        help="requests a second of the open loop, for all the same (default: 70 %% of each one's own c64)")
    args = parser.parse_args()
    open_rate = 1 if args.open_rate is None else args.open_rate
    for name, value, least in (("--rounds", args.rounds, 1), ("--seconds", args.seconds, 1), ("--tries", args.tries, 1),
                               ("--open-rate", open_rate, 1)):
        if value < least:
            parser.error(f"{name} {value}: must be at least {least}")
    return args


class Run:
    """All of a comparison."""

    def __init__(self, args):
        self.args = args
        self.stage = Stage(args.server_cpu, args.generator_cpu)
        self.rounds = goals.Rounds()
        self.skipped, self.failed, self.single, self.reserves = {}, {}, {}, []

    def prepare(self):
        wanted = []
        for candidate in CANDIDATES:
            if candidate.name in self.args.only:
                why = need.missing(candidate.needs)
                if why:
                    self.skip(candidate, why)
                else:
                    wanted.append(candidate)
        need.build(any(c.server == "glommio" for c in wanted), "reserve" in self.args.scenario)
        return wanted

    def skip(self, candidate, why):
        self.skipped[candidate.name] = why
        need.say(f"SKIPPED {candidate.name}: {why}")

    def go(self):
        wanted = self.prepare()
        for number in range(self.args.rounds):
            # Each round begins elsewhere, so that nobody always follows the same neighbour.
            turn = number * 3 % max(len(wanted), 1)
            for scenario in SCENARIOS:
                if scenario in self.args.scenario:
                    for candidate in wanted[turn:] + wanted[:turn]:
                        self.one(candidate, scenario, number)
            if "open" in self.args.scenario:
                for candidate in wanted[turn:] + wanted[:turn]:
                    self.open_loop(candidate, number)
            if "memory" in self.args.scenario and "weir-compact" in self.args.only:
                resident = self.stage.resident(self.args.seconds)
                self.single.setdefault(goals.RSS, []).append(resident)
            if "mac" in self.args.scenario:
                self.rounds.mac_us[number] = self.mac()
            if "reserve" in self.args.scenario:
                self.reserve()
            need.say(f"round {number + 1} of {self.args.rounds} done")
        if "idle" in self.args.scenario and "weir-compact" in self.args.only:
            self.idle()

    def one(self, candidate, scenario, number, rate=None):
        out = candidate.name in self.skipped or candidate.name in self.failed
        if out or (rate is None and scenario not in candidate.scenarios):
            return
        stage, args = self.stage, self.args
        try:
            server = stage.renew(candidate.server) if candidate.fresh else stage.get(candidate.server)
            shape = "c64" if scenario == "open" else scenario
            figure = measure(stage.load(candidate), server, args.generator_cpu, shape, args.seconds,
                             candidate.expected, candidate.least, rate, args.tries)
        except servers.CannotRun as error:
            return self.skip(candidate, str(error))
        except WrongAnswers as error:
            self.failed[candidate.name] = str(error)
            return need.say(f"FAILED {candidate.name}: {error}")
        self.rounds.put(candidate.name, scenario, number, figure)
        note = " DISTURBED" if figure["disturbed"] else ""
        need.say(f"{candidate.name} {scenario}: {figure['rps']}/s, {figure['server_cpu_us']} us{note}")

    def open_loop(self, candidate, number):
        if candidate.name not in OPEN_LOOP:
            return
        maximum = self.rounds.of(candidate.name, "c64").get(number)
        rate = self.args.open_rate or (maximum and max(1, int(OPEN_SHARE * maximum["rps"])))
        if rate:
            self.one(candidate, "open", number, rate=rate)

    def mac(self):
        command = [os.path.join(need.RELEASE, "weir-null"), "mac", "--rounds", "1"]
        command = ["taskset", "-c", str(self.args.server_cpu)] + command
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return json.loads(done.stdout)["mac_ns"][0] / 1000

    def reserve(self):
        why = need.missing(["redis-server", "redis-benchmark"])
        if why:
            self.skipped["redis"] = why
            return need.say(f"SKIPPED redis: {why}")
        try:
            pair = reserve.both(self.args.server_cpu, self.args.generator_cpu)
        except (reserve.Failed, servers.CannotRun, subprocess.TimeoutExpired) as error:
            self.failed["reserves"] = str(error)
            return need.say(f"FAILED reserves: {error}")
        self.reserves.append(pair)
        self.single.setdefault(goals.RESERVES, []).append(pair[0] / pair[1])
        need.say(f"reserves: ledger {pair[0]}/s, redis {pair[1]}/s")

    def idle(self):
        """50,000 idle connections on three shards of their own; nothing else runs."""
        self.stage.stop()
        command = [os.path.join(need.ROOT, "bench", "idle.sh")]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=IDLE_S)
        except subprocess.TimeoutExpired as error:
            self.failed["idle"] = str(error)
            return need.say(f"FAILED idle: {error}")
        if done.returncode != 0:
            self.failed["idle"] = done.stderr.strip()[-300:]
            return need.say(f"FAILED idle: {self.failed['idle']}")
        self.single[goals.IDLE] = [json.loads(done.stdout)["bytes_each"]]
        need.say(f"idle: {done.stdout.strip()}")

    def objects(self):
        about = {
            "date": time.strftime("%Y-%m-%d"), "kernel": platform.release(), "cpu": need.cpu_name(),
            "command": " ".join(["bench/compare.sh"] + sys.argv[1:]), "rounds": self.args.rounds,
            "seconds": self.args.seconds, "commit": need.commit(),
        }
        yield {"about": about}
        for (name, scenario), figures in self.rounds.seen.items():
            yield row(name, scenario, list(figures.values()))
        for name, why in self.skipped.items():
            yield {"candidate": name, "skipped": why}
        for name, why in self.failed.items():
            yield {"candidate": name, "failed": why}
        if self.rounds.mac_us:
            yield {"mac_us": spread(list(self.rounds.mac_us.values()))}
        if self.reserves:
            yield {"reserves": {
                "ledger_per_s": spread([ledger for ledger, _ in self.reserves]),
                "redis_per_s": spread([redis for _, redis in self.reserves]),
            }}
        yield {"ratios": goals.ratios(self.rounds, self.single)}


def row(name, scenario, figures):
    what = next(candidate.what for candidate in CANDIDATES if candidate.name == name)
    of = lambda key: spread([figure[key] for figure in figures])
    shown = {
        "candidate": name, "scenario": scenario, "what": what, "rounds": len(figures),
        "rps": of("rps"), "server_cpu_us": of("server_cpu_us"), "rss_kib": of("rss_kib"),
        "server_busy": of("server_busy"), "generator_busy": of("generator_busy"),
        "expected": next(c.expected for c in CANDIDATES if c.name == name),
        "expected_share": min(figure["expected_share"] for figure in figures),
        "answer_bytes": figures[0]["answer_bytes"],
        "disturbed_rounds": sum(figure["disturbed"] for figure in figures),
        "repeats": sum(figure["repeats"] for figure in figures),
        "void_because": sorted({why for figure in figures for why in figure["void_because"]}),
    }
    if scenario == "open":
        shown["latency_us"] = {
            name: spread([figure["latency_us"][name] for figure in figures]) for name in ("p50", "p99", "p999")
        }
    return shown


def main():
    args = arguments()
    cores = os.sched_getaffinity(0)
    if args.server_cpu == args.generator_cpu or not {args.server_cpu, args.generator_cpu} <= cores:
        sys.exit(f"compare: server and generator need two of the cores {sorted(cores)}")
    os.makedirs(need.WORK, exist_ok=True)
    lock = open(os.path.join(need.WORK, "lock"), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"compare: another comparison runs in {need.WORK}; two would only measure each other")
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.default_int_handler)  # what was measured is still printed, servers are ended
    run = Run(args)
    try:
        run.go()
    except (WrongAnswers, servers.CannotRun) as error:
        run.failed["run"] = str(error)
        need.say(f"FAILED: {error}; what was measured before follows")
    except KeyboardInterrupt:
        run.failed["run"] = "ended by hand"
    finally:
        run.stage.stop()
    objects = list(run.objects())
    if args.json:
        for each in objects:
            print(json.dumps(each), flush=True)
    else:
        sys.path.insert(0, os.path.join(need.ROOT, "bench", "results"))
        import table
        print(table.markdown(objects))
    if not (run.rounds.seen or run.rounds.mac_us or run.single):
        sys.exit(f"compare: nothing was measured: {run.skipped}")
    sys.exit(1 if run.failed else 0)


if __name__ == "__main__":
    main()
