"""Goal 6: reserves a second, durable at the ledger's owner, and as a Lua script on a Redis that keeps them in memory only.

The Redis of the goal writes nothing to its disk: that is how it is fastest."""

import json
import os
import subprocess

import need
import servers

HERE = os.path.dirname(os.path.abspath(__file__))
COUNT_LEDGER = 400_000
COUNT_REDIS = 60_000
REDIS_CONNECTIONS = 50


class Failed(Exception):
    """One of the two did not do its reserves."""


def both(server_core, generator_core):
    """(ledger, redis) reserves per second, one after the other."""
    return ledger(server_core, generator_core), redis(server_core, generator_core)


def ledger(server_core, generator_core):
    program = os.path.join(need.RELEASE, "examples", "reserve")
    home = servers.empty_dir("reserve")
    command = [program, home, str(COUNT_LEDGER), str(server_core), str(generator_core)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise Failed(f"reserve: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)["reserves_per_s"]


def redis(server_core, generator_core):
    home, port = servers.empty_dir("redis"), servers.free_port()
    command = [
        "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", home, "--save", "",
        "--appendonly", "no", "--daemonize", "no",
    ]
    server = servers.Server("redis", command, server_core, port, home)
    try:
        with open(os.path.join(HERE, "reserve.lua")) as file:
            script = file.read()
        call = lambda *words: subprocess.run(
            ["redis-cli", "-p", str(port), *words], capture_output=True, text=True, timeout=20
        ).stdout.strip()
        call("SET", "stock", str(10 * COUNT_REDIS))
        digest = call("SCRIPT", "LOAD", script)
        # Each __rand_int__ is drawn anew: nonce, request and user of their own for each reserve.
        keys = ["stock", "nonce:__rand_int__", "request:__rand_int__", "user:__rand_int__"]
        bench = [
            "taskset", "-c", str(generator_core), "redis-benchmark", "-p", str(port), "-c", str(REDIS_CONNECTIONS),
            "-n", str(COUNT_REDIS), "-P", "1", "-r", "1000000000", "--csv", "EVALSHA", digest, "4", *keys,
        ]
        out = subprocess.run(bench, capture_output=True, text=True, timeout=120).stdout
        held = 10 * COUNT_REDIS - int(call("GET", "stock"))
        if held < 0.99 * COUNT_REDIS:
            raise Failed(f"redis held {held} units for {COUNT_REDIS} reserves: {out[-300:]}")
        # --csv: "test","rps",…
        return float(out.strip().splitlines()[-1].split('","')[1])
    finally:
        server.stop()
