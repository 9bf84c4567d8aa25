"""bench/redis.sh: interleaved rounds of reserves on one Redis, ours and redis-benchmark's; see bench/README.md."""

import argparse
import fcntl
import json
import os
import platform
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "compare"))

import need
import servers
from load import OTHERS_PPM_MAX, REPEATS_MAX
from stats import ratio, spread

import commands
from measure import Failed, Stage

# Where redis-benchmark's best is looked for: connections and commands under way on each.
CONNECTIONS, PIPELINES = (1, 8, 50), (1, 16, 64, 256)
# The best of a short look at each of them are measured in each round.
FINALISTS = 3
PILOT_COUNT = 25_600
# With a delay, the most under way: what hides it best.
DELAYED = [(8, 256), (50, 64)]
DELAY_US = 2_000
# Most reserves of one measurement: what a SKU has room for, with some to spare.
COUNT_MAX = 4_000_000
GOAL = 0.9


def arguments():
    parser = argparse.ArgumentParser(prog="bench/redis.sh", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object per line instead of lines to read")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default 7)")
    parser.add_argument("--seconds", type=float, default=2.5, help="of each measurement, about (default 2.5)")
    parser.add_argument("--under-way", type=int, default=1024, help="our asks under way, 1..=4096 (default 1024)")
    parser.add_argument("--commands-seconds", type=int, default=10,
                        help="of each count of the commands of `weir serve`, 5 or more (default 10)")
    parser.add_argument("--commands-only", action="store_true", help="only those counts")
    parser.add_argument("--tries", type=int, default=REPEATS_MAX,
                        help=f"how often a disturbed measurement is made at most (default {REPEATS_MAX})")
    cores = sorted(os.sched_getaffinity(0))
    parser.add_argument("--server-cpu", type=int, default=cores[-1], help="core of Redis (default: the last)")
    parser.add_argument("--client-cpu", type=int, default=cores[0],
                        help="core of the client and of the delay (default: the first)")
    args = parser.parse_args()
    for name, value, least in (("--rounds", args.rounds, 1), ("--seconds", args.seconds, 0.1),
                               ("--under-way", args.under_way, 1), ("--tries", args.tries, 1),
                               ("--commands-seconds", args.commands_seconds, 5)):
        if value < least:
            parser.error(f"{name} {value}: must be at least {least}")
    if args.server_cpu == args.client_cpu or not {args.server_cpu, args.client_cpu} <= set(cores):
        sys.exit(f"redis: Redis and its client need two of the cores {cores}")
    return args


class Run:
    """All of it."""

    def __init__(self, args, stage):
        self.args, self.stage = args, stage
        self.seen, self.commands = {}, {}

    def count(self):
        args = self.args
        cores = (args.server_cpu, args.client_cpu)
        self.commands = commands.measured(self.stage.server, *cores, args.commands_seconds)

    def go(self):
        stage, args = self.stage, self.args
        looked = {}
        for shape in [(c, p) for c in CONNECTIONS for p in PIPELINES]:
            looked[shape] = stage.benchmark(PILOT_COUNT, *shape)["grants_per_s"]
        best = sorted(looked, key=looked.get, reverse=True)
        need.say(f"redis-benchmark, -c and -P: {[(shape, round(looked[shape])) for shape in best]}")
        # A multiple of the largest pipeline: redis-benchmark sends whole ones.
        count = min(int(looked[best[0]] * args.seconds) // 256 * 256 + 256, COUNT_MAX)
        ours = lambda port: stage.ours(count, args.under_way, port)
        theirs = lambda shapes, port: max(
            (stage.benchmark(count, *shape, port) for shape in shapes), key=lambda figure: figure["grants_per_s"])
        for number in range(args.rounds):
            with stage.delay(DELAY_US) as delayed:
                steps = [
                    ("weir", "plain", lambda: ours(None)),
                    ("redis-benchmark", "plain", lambda: theirs(best[:FINALISTS], None)),
                    ("weir", "delayed", lambda: ours(delayed)),
                    ("redis-benchmark", "delayed", lambda: theirs(DELAYED, delayed)),
                ]
                # Each round begins elsewhere, so that nobody always follows the same neighbour.
                turn = number % len(steps)
                for candidate, scenario, step in steps[turn:] + steps[:turn]:
                    self.put(candidate, scenario, number, step)
            need.say(f"round {number + 1} of {args.rounds} done")

    def put(self, candidate, scenario, number, step):
        """The quietest of at most `--tries`; the first quiet one ends the search."""
        figure = None
        for _ in range(self.args.tries):
            made = step()
            if figure is None or made["others_ppm"] < figure["others_ppm"]:
                figure = made
            if not is_disturbed(figure):
                break
        self.seen.setdefault((candidate, scenario), {})[number] = figure
        note = " DISTURBED" if is_disturbed(figure) else ""
        need.say(f"{candidate} {scenario}: {round(figure['grants_per_s'])}/s, {figure['client_cpu_us']:.2f} us "
                 f"of the client, {figure['server_cpu_us']:.2f} us of Redis{note}")

    def objects(self):
        args = self.args
        yield {"about": {
            "date": time.strftime("%Y-%m-%d"), "kernel": platform.release(), "cpu": need.cpu_name(),
            "redis": self.stage.version(), "command": " ".join(["bench/redis.sh"] + sys.argv[1:]),
            "rounds": args.rounds, "seconds": args.seconds, "delay_us": DELAY_US, "commit": need.commit(),
        }}
        for (candidate, scenario), figures in self.seen.items():
            figures = list(figures.values())
            of = lambda key: spread([figure[key] for figure in figures])
            yield {
                "candidate": candidate, "scenario": scenario, "rounds": len(figures),
                "grants_per_s": of("grants_per_s"), "client_cpu_us": of("client_cpu_us"),
                "server_cpu_us": of("server_cpu_us"), "server_busy": of("server_busy"),
                "client_busy": of("client_busy"), "grants": sum(figure["grants"] for figure in figures),
                "shapes": sorted({figure["shape"] for figure in figures}),
                "disturbed_rounds": sum(is_disturbed(figure) for figure in figures),
            }
        if self.commands:
            yield {"commands": self.commands}
        if self.seen:
            yield {"ratios": self.ratios()}

    def ratios(self):
        plain, delayed, bench = ("weir", "plain"), ("weir", "delayed"), ("redis-benchmark", "plain")
        rate = lambda left, right: left["grants_per_s"] / right["grants_per_s"]
        # What the rates come to where Redis is never idle: what it spends on one of theirs over one of ours.
        redis_cpu = lambda left, right: right["server_cpu_us"] / left["server_cpu_us"]
        found = {}
        for name, left, right, combine in [
            ("reserve", plain, bench, rate),
            ("reserve, by Redis' CPU time", plain, bench, redis_cpu),
            ("reserve, 2 ms of delay each way / none", delayed, plain, rate),
        ]:
            left, right = self.seen.get(left, {}), self.seen.get(right, {})
            both = sorted(left.keys() & right.keys())
            quiet = [n for n in both if not is_disturbed(left[n]) and not is_disturbed(right[n])]
            values = [combine(left[n], right[n]) for n in quiet or both]
            if values:
                found[name] = {**ratio(values, GOAL, ">="), "disturbed": not quiet}
        return found


def is_disturbed(figure):
    return figure["others_ppm"] > OTHERS_PPM_MAX


def show(each):
    if "about" in each:
        return
    if "commands" in each:
        for name, made in each["commands"].items():
            print(f"{name}: {made['value']}, goal {made['sense']} {made['goal']}: {'ok' if made['ok'] else 'MISSED'}")
        return
    if "ratios" in each:
        for name, made in each["ratios"].items():
            print(f"{name}: {made['value']} ({made['low']} to {made['high']}), goal {made['sense']} {made['goal']}: "
                  f"{'ok' if made['ok'] else 'MISSED'}{', disturbed' if made['disturbed'] else ''}")
        return
    rate = each["grants_per_s"]
    print(f"{each['candidate']} {each['scenario']}: {rate['median']:.0f}/s ({rate['low']:.0f} to {rate['high']:.0f}), "
          f"{each['client_cpu_us']['median']} us of the client, {each['server_cpu_us']['median']} us of Redis each")


def main():
    need.NAME = "redis"
    args = arguments()
    os.makedirs(need.WORK, exist_ok=True)
    # The lock of bench/compare.sh.
    lock = open(os.path.join(need.WORK, "lock"), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"redis: a comparison runs in {need.WORK}; two would only measure each other")
    need.WORK = os.path.join(need.TARGET, "redis")
    why = need.missing(["redis-server", "redis-benchmark"])
    if why:
        print(f"SKIPPED redis: {why}")
        return
    build = ["cargo", "build", "--release", "--locked", "-p", "weir-bench", "-p", "weir", "--bin", "weir-redis", "--bin", "weir"]
    if subprocess.run(build, cwd=need.ROOT, stdout=sys.stderr).returncode != 0:
        sys.exit("redis: the build failed: see above")
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.default_int_handler)  # what was started is ended
    failed = None
    try:
        with Stage(args.server_cpu, args.client_cpu) as stage:
            run = Run(args, stage)
            try:
                run.count()
                if not args.commands_only:
                    run.go()
            except (Failed, subprocess.TimeoutExpired, KeyboardInterrupt) as error:
                failed = str(error) or "ended by hand"
            for each in run.objects():
                print(json.dumps(each), flush=True) if args.json else show(each)
    except servers.CannotRun as error:
        failed = str(error)
    if failed:
        sys.exit(f"redis: {failed}")


if __name__ == "__main__":
    main()
