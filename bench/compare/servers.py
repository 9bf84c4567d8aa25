"""The servers: how each is configured, started on the server's core, and ended."""

import os
import shutil
import signal
import socket
import subprocess
import time

import need

HERE = os.path.dirname(os.path.abspath(__file__))
START_S = 60
STOP_S = 30
CONNECTIONS_MAX = 8192
# The unguessable part of the sale's path; the second activity opens in the far future.
PATHS = ("k3Jx0aQz", "m7Pw2bRs")
# Refusals answer with sold out only when the stock is gone: so many units, bought by a first run.
SMALL_STOCK = 500
LARGE_STOCK = 1_000_000


class CannotRun(Exception):
    """Why a candidate is skipped."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def empty_dir(name):
    path = os.path.join(need.WORK, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


class Server:
    """One running server: `port`, and the process ids whose CPU time and memory count."""

    def __init__(self, name, command, core, port, cwd, ready=None):
        self.port = port
        self.log = os.path.join(cwd, "stderr.log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["taskset", "-c", str(core)] + command,
                cwd=cwd, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )
        self.name = name
        self._wait(ready or self._accepts)

    def _accepts(self):
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def words(self):
        with open(self.log, errors="replace") as log:
            return log.read()

    def _wait(self, ready):
        until = time.monotonic() + START_S
        while not ready():
            if self.process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise CannotRun(f"{self.name} did not start: {self.words().strip()[-300:]}")
            time.sleep(0.05)

    def pids(self):
        """The process and its children (nginx's worker)."""
        found = [self.process.pid]
        for task in os.listdir(f"/proc/{self.process.pid}/task"):
            try:
                with open(f"/proc/{self.process.pid}/task/{task}/children") as children:
                    found += [int(pid) for pid in children.read().split()]
            except OSError:
                continue  # the thread has ended meanwhile
        return found

    def rss_kib(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def weir_config(port, ops_port, stock, ip_limit):
    """As `weir init` writes it, with one shard, and limits that never bite unless `ip_limit` says so."""
    wide = "3000000"
    now, day = time.time(), 86_400
    stamp = lambda at: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    lines = [
        "[server]", f'listen = "127.0.0.1:{port}"', "shards = 1",
        f"conns_max = {CONNECTIONS_MAX}", f"conns_per_source_max = {CONNECTIONS_MAX}", 'idle_timeout = "1h"',
        "[ops]", f'listen = "127.0.0.1:{ops_port}"',
        "[limits]", f'instance_rate = "{wide}/s"', f"instance_burst = {wide}",
        f'connect_rate = "{wide}/s"', f"connect_burst = {wide}",
        f'ip_rate = "{1 if ip_limit else wide}/s"', f"ip_burst = {1 if ip_limit else wide}",
        f'user_rate = "{wide}/s"', f"user_burst = {wide}",
        "[log]", 'path = "data/admission.jsonl"',
        "[keys]", 'ticket = ["keys/ticket-1.key"]', 'payment = "keys/payment.key"',
    ]
    for number, path in enumerate(PATHS, 1):
        opens = now - 60 if number == 1 else now + 2 * day
        lines += [
            "[[activity]]", f"id = {number}", f'path_id = "{path}"',
            f"opens_at = {stamp(opens)}", f"closes_at = {stamp(opens + day)}",
            "[[activity.sku]]", "id = 1", f"stock = {stock if number == 1 else 1}", 'price = "19.90 CNY"',
            'unpaid_timeout = "12h"', f'budget = "{wide}/s"',
        ]
    return "\n".join(lines) + "\n"


class Weir(Server):
    """`weir serve` in a directory of its own; `config` is what the load generator signs tickets with."""

    def __init__(self, name, core, driver="uring", stock=SMALL_STOCK, ip_limit=False, program=None):
        program = program or os.path.join(need.RELEASE, "weir")
        home = os.path.join(empty_dir(name), "shop")
        subprocess.run([program, "init", home], check=True, stdout=subprocess.DEVNULL)
        port, ops_port = free_port(), free_port()
        self.config = os.path.join(home, "weir.toml")
        with open(self.config, "w") as file:
            file.write(weir_config(port, ops_port, stock, ip_limit))
        command = [program, "serve", "--config", self.config, "--driver", driver]
        super().__init__(name, command, core, port, home, lambda: "weir: serving" in self.words())


def null(name, core, answer_bytes, driver="uring"):
    program = os.path.join(need.RELEASE, "weir-null")
    port = free_port()
    command = [
        program, "serve", "--listen", f"127.0.0.1:{port}", "--driver", driver,
        "--answer-bytes", str(answer_bytes), "--connections", str(CONNECTIONS_MAX),
    ]
    return Server(name, command, core, port, empty_dir(name))


def nginx(name, core, body, lua):
    """One worker, no access log, keep-alive without end; the same answer body as weir's refusal."""
    home, port = empty_dir(name), free_port()
    if lua:
        shutil.copy(os.path.join(HERE, "refuse.lua"), home)
        load = f"load_module {need.NDK_MODULE}; load_module {need.LUA_MODULE};"
        http = (
            "lua_package_path '/usr/share/lua/5.1/?.lua;;'; lua_package_cpath '/usr/lib/x86_64-linux-gnu/lua/5.1/?.so;;';\n"
            "lua_shared_dict limits 64m; lua_shared_dict sale 1m;\n"
            f"init_by_lua_block {{ ngx.shared.sale:set('sold_out:1:1', true) }}"
        )
        place = "client_body_buffer_size 16k; content_by_lua_file refuse.lua;"
    else:
        load, http = "", ""
        place = f"return 200 '{body}';"
    text = f"""{load}
daemon off; master_process on; worker_processes 1; pid nginx.pid; error_log stderr crit; worker_rlimit_nofile 20000;
events {{ worker_connections 16384; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 1h; default_type application/json;
  client_body_temp_path .; proxy_temp_path .; fastcgi_temp_path .; uwsgi_temp_path .; scgi_temp_path .;
  {http}
  server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ {place} }} }}
}}
"""
    with open(os.path.join(home, "nginx.conf"), "w") as file:
        file.write(text)
    command = ["nginx", "-p", home, "-c", "nginx.conf"]
    return Server(name, command, core, port, home)


def h2o(name, core, body):
    """One thread; a fixed answer from its own mruby handler: it has no cheaper one that takes a POST."""
    home, port = empty_dir(name), free_port()
    text = f"""num-threads: 1
max-connections: 16384
http1-request-timeout: 3600
user: root
listen: {{ host: 127.0.0.1, port: {port} }}
hosts:
  default:
    paths:
      /:
        mruby.handler: |
          Proc.new do |env|
            [200, {{"content-type" => "application/json"}}, ['{body}']]
          end
"""
    with open(os.path.join(home, "h2o.conf"), "w") as file:
        file.write(text)
    return Server(name, ["h2o", "-c", "h2o.conf"], core, port, home)
