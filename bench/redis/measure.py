"""One Redis, and reserves on it that are counted in it: ours, redis-benchmark's, and both behind a delay."""

import contextlib
import json
import os
import resource
import subprocess
import time

import need
import servers

PROGRAM = os.path.join(need.RELEASE, "weir-redis")
STOCK = 4_194_304
# The key whose length is the number of grants, and the one that says so itself.
ORDERS, SKU = "{a1:s1}:orders", "{a1:s1}:sku"
# Each __rand_int__ is drawn anew from so many: hardly one comes twice, and one that does is no grant.
DRAWN_FROM = 2_000_000_000
RUN_S = 120
CALL_S = 30
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """What was asked for was not done."""


class Stage:
    """The server on its core; clients run on the other one. A context: what was started is ended with it."""

    def __init__(self, server_core, client_core):
        self.server_core, self.client_core = server_core, client_core

    def __enter__(self):
        home, port = servers.empty_dir("redis"), servers.free_port()
        command = [
            "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", home, "--save", "",
            "--appendonly", "no", "--daemonize", "no",
        ]
        self.server = servers.Server("redis", command, self.server_core, port, home)
        try:
            self.words = self.fresh()
            self.program("reserve", "--count", "1")  # loads the script
        except BaseException:
            self.server.stop()
            raise
        return self

    def __exit__(self, *_):
        self.server.stop()

    def call(self, *words):
        command = ["redis-cli", "-p", str(self.server.port), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S)
        return done.stdout.strip()

    def version(self):
        lines = self.call("INFO", "server").splitlines()
        return next((line.split(":")[1] for line in lines if line.startswith("redis_version:")), "unknown")

    def program(self, verb, *words, port=None):
        command = ["taskset", "-c", str(self.client_core), PROGRAM, verb,
                   "--server", f"127.0.0.1:{port or self.server.port}", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S)
        if done.returncode != 0:
            raise Failed(f"{verb}: {done.stderr.strip()[-300:]}")
        return json.loads(done.stdout)

    def fresh(self):
        """Nothing in it but a SKU on sale; the words of a reserve."""
        if self.call("FLUSHALL") != "OK":
            raise Failed("redis does not forget what it holds")
        return self.program("open", "--stock", str(STOCK))["words"]

    @contextlib.contextmanager
    def delay(self, delay_us):
        """A port behind which Redis is so far away, each way; with the process that does it."""
        command = ["taskset", "-c", str(self.client_core), PROGRAM, "delay",
                   "--server", f"127.0.0.1:{self.server.port}", "--delay-us", str(delay_us)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            line = process.stdout.readline()
            if not line:
                raise Failed("the delay did not start: see above")
            yield Delayed(json.loads(line)["port"], process.pid)
        finally:
            process.stdin.close()
            process.stdout.close()
            try:
                process.wait(CALL_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def ours(self, count, under_way, delayed=None):
        def client():
            told = self.program("reserve", "--count", str(count), "--under-way", str(under_way),
                                port=delayed and delayed.port)
            return told["took_ns"] / 1e9, told["cpu_ns"] / 1e9, told["granted"]

        figure = self.measured(client, delayed, f"{under_way} under way")
        if figure["grants"] != count:
            raise Failed(f"weir asked for {count} reserves and redis made {figure['grants']}")
        return figure

    def benchmark(self, count, connections, pipeline, delayed=None):
        def client():
            port = delayed.port if delayed else self.server.port
            command = [
                "taskset", "-c", str(self.client_core), "redis-benchmark", "-p", str(port), "-c", str(connections),
                "-n", str(count), "-P", str(pipeline), "-r", str(DRAWN_FROM), "--csv", *self.words,
            ]
            before = children_s()
            done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S)
            spent = children_s() - before
            try:
                # --csv: "test","rps",…
                rate = float(done.stdout.strip().splitlines()[-1].split('","')[1])
            except (IndexError, ValueError):
                raise Failed(f"redis-benchmark: {(done.stderr or done.stdout).strip()[-300:]}") from None
            return count / rate, spent, None

        figure = self.measured(client, delayed, f"-c {connections} -P {pipeline}")
        if figure["grants"] < 0.999 * count:
            raise Failed(f"redis-benchmark made {count} calls and redis {figure['grants']} grants")
        return figure

    def measured(self, client, delayed, shape):
        """`client` returns the seconds of its run, the seconds of CPU, and the grants it believes in, if it knows."""
        self.fresh()
        pids = self.server.pids()
        forwarder = [delayed.pid] if delayed else []
        begin, busy, server, between, started = time.monotonic(), busy_s(), cpu_s(pids), cpu_s(forwarder), children_s()
        took, spent, believed = client()
        span, server, between = time.monotonic() - begin, cpu_s(pids) - server, cpu_s(forwarder) - between
        others = busy_s() - busy - server - between - (children_s() - started)
        grants, numbered = int(self.call("XLEN", ORDERS)), int(self.call("HGET", SKU, "reservations"))
        if grants != numbered or believed not in (None, grants) or grants == 0:
            raise Failed(f"redis has {grants} orders and {numbered} reservations, the client saw {believed}")
        return {
            "grants": grants, "grants_per_s": grants / took, "shape": shape,
            "client_cpu_us": spent / grants * 1e6, "client_busy": spent / took,
            "server_cpu_us": server / grants * 1e6, "server_busy": server / took,
            "others_ppm": round(max(others, 0) / span * 1e6),
        }


class Delayed:
    """A port and the process behind it."""

    def __init__(self, port, pid):
        self.port, self.pid = port, pid


def children_s():
    """CPU time of children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_s(pids):
    """CPU time of all threads: what utime and stime are made of, not rounded to ticks."""
    total = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/schedstat") as stat:
                total += int(stat.read().split()[0])
    return total / 1e9


def busy_s():
    """What all cores were busy with since the start of the machine; time that the host stole counts."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) * TICK_S
