"""What `weir serve` asks of Redis: commands for a million requests after sold-out, and for leases by admitted request.

Redis counts both (`INFO commandstats`); of a script the call counts, not the commands inside it."""

import json
import os
import subprocess
import time

import need
import servers

from measure import CALL_S, Failed

WEIR = os.path.join(need.RELEASE, "weir")
# What the goal of leases is stated for.
ADMITTED_PER_S = 1_000
SMALL_STOCK = 500
# Commands that a weir sends by itself; whatever else is counted was called by its scripts.
SENT = ("evalsha", "script|load", "ping", "hello", "auth", "select", "client|setname", "info", "subscribe", "type",
        "config|get", "cluster|slots", "cluster|shards")
# More than are under way at once; each buyer comes again and again.
TICKETS = 100_000
# A climb, and the first batches: before this nothing is counted.
SETTLE_S = 2
GOALS = {"commands, after sold-out, by million requests": 100, "lease commands by admitted request": 1 / 500}


class Shop:
    """`weir serve` with its stock in `ledger` and, if there is one, its buckets in `limiter`. A context."""

    def __init__(self, core, stock, ledger, limiter=None):
        self.core, self.stock, self.ledger, self.limiter = core, stock, ledger, limiter

    def __enter__(self):
        home = os.path.join(servers.empty_dir("commands"), "shop")
        subprocess.run([WEIR, "init", home], check=True, stdout=subprocess.DEVNULL)
        port, ops_port = servers.free_port(), servers.free_port()
        one_sale = servers.weir_config(port, ops_port, self.stock, False)
        one_sale = one_sale[:one_sale.rindex("[[activity]]")]
        at = lambda server: f'servers = ["127.0.0.1:{server.port}"]\naccept_lua_holes = true\n'
        sections = f'[ledger]\nkind = "redis"\n[redis]\n{at(self.ledger)}'
        if self.limiter:
            sections += f"[limiter]\n{at(self.limiter)}"
        self.config = os.path.join(home, "weir.toml")
        with open(self.config, "w") as file:
            file.write(one_sale + sections)
        self.url = f"http://127.0.0.1:{port}/"
        command = [WEIR, "serve", "--config", self.config]
        self.server = servers.Server("weir", command, self.core, port, home, self.is_serving)
        return self

    def is_serving(self):
        with open(os.path.join(os.path.dirname(self.config), "stderr.log"), errors="replace") as log:
            return "weir: serving" in log.read()

    def __exit__(self, *_):
        self.server.stop()

    def load(self, core, *words):
        """The report of `weir bench` with submits of new users."""
        mix = os.path.join(os.path.dirname(self.config), "mix.toml")
        with open(mix, "w") as file:
            file.write('ticket = "compact"\n[weights]\nsubmit = 1\n')
        command = [WEIR, "bench", "--url", self.url, "--config", self.config, "--mix", mix, "--cpu", str(core), "--json", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * CALL_S)
        if done.returncode != 0:
            raise Failed(f"weir bench: {(done.stderr or done.stdout).strip()[-300:]}")
        return json.loads(done.stdout)


def call(server, *words):
    done = subprocess.run(["redis-cli", "-p", str(server.port), *words], capture_output=True, text=True, timeout=CALL_S)
    return done.stdout.strip()


def sent(server):
    """Commands of each name that came over connections; our own INFO, of which there was one more, is not in it."""
    counts = {}
    for line in call(server, "INFO", "commandstats").splitlines():
        name, _, rest = line.strip().partition(":")
        name = name.removeprefix("cmdstat_")
        if name in SENT:
            counts[name] = int(rest.split(",")[0].removeprefix("calls="))
    return counts


def difference(before, after):
    """What was sent between two looks; the first look's own INFO is counted by the second."""
    grown = {name: after[name] - before.get(name, 0) for name in after}
    grown["info"] = grown.get("info", 1) - 1
    return {name: count for name, count in grown.items() if count}


def private(name, core):
    home, port = servers.empty_dir(name), servers.free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", home, "--save", "", "--appendonly", "no"]
    return servers.Server(name, command, core, port, home)


def after_sold_out(ledger, server_core, client_core, seconds):
    call(ledger, "FLUSHALL")
    with Shop(server_core, SMALL_STOCK, ledger) as shop:
        fast = ("--max", "--connections", "64", "--pipeline", "16", "--tickets", str(TICKETS))
        # It sells out, and its last orders are made.
        end = time.monotonic() + CALL_S
        while call(ledger, "HGET", "{a1:s1}:sku", "sold_out") != "1" or call(ledger, "ZCARD", "{a1:s1}:pending") != "0":
            shop.load(client_core, *fast, "--duration", "1s")
            if time.monotonic() > end:
                raise Failed("it does not sell out")
        time.sleep(SETTLE_S)
        before = sent(ledger)
        report = shop.load(client_core, *fast, "--duration", f"{seconds}s")
        counts = difference(before, sent(ledger))
    requests = sum(kind["answered"] for kind in report["kinds"].values())
    return {"requests": requests, "commands": counts, "value": sum(counts.values()) * 1e6 / requests}


def leases(ledger, server_core, client_core, seconds):
    call(ledger, "FLUSHALL")
    limiter = private("limiter", client_core)
    try:
        stock = int(ADMITTED_PER_S * (seconds + SETTLE_S + 5))
        with Shop(server_core, stock, ledger, limiter) as shop:
            rate = ("--rate", str(ADMITTED_PER_S), "--connections", "64")
            shop.load(client_core, *rate, "--duration", f"{SETTLE_S}s")
            granted = lambda: int(call(ledger, "HGET", "{a1:s1}:sku", "reservations"))
            before, had = sent(limiter), granted()
            shop.load(client_core, *rate, "--duration", f"{seconds}s")
            counts, admitted = difference(before, sent(limiter)), granted() - had
    finally:
        limiter.stop()
    if admitted < 0.9 * ADMITTED_PER_S * seconds:
        raise Failed(f"{admitted} were admitted in {seconds} s, and {ADMITTED_PER_S} a second were offered")
    # Policies that keep the bucket alive are in it.
    return {"admitted": admitted, "commands": counts, "value": counts.get("evalsha", 0) / admitted}


def measured(ledger, server_core, client_core, seconds):
    """Both, with their goals."""
    found = {}
    for (name, goal), measure in zip(GOALS.items(), (after_sold_out, leases)):
        figure = measure(ledger, server_core, client_core, seconds)
        figure["value"] = round(figure["value"], 5)
        found[name] = {**figure, "goal": goal, "sense": "<=", "ok": figure["value"] <= goal}
    return found
