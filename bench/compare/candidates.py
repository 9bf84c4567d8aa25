"""Who is compared: what each is sent, what it must answer, and how its server is made."""

import os

import need
import servers
from load import Load, WrongAnswers, check, run

MAIN = ["c64", "c512", "c4096", "p16", "conn"]
FEW = ["c64", "c512", "p16"]
SOLD_OUT = "SECKILL_SOLD_OUT"
# Open loop at 70 % of their own maximum.
OPEN_LOOP = ["null-compact", "null-jws", "weir-compact", "weir-jws", "nginx"]
# More requests than the small stock has units, so that the sale is sold out afterwards.
BUYING = 4 * servers.SMALL_STOCK


class Candidate:
    """One row of the table."""

    def __init__(self, name, what, scenarios, kind="submit", form="compact", expected=SOLD_OUT, server="shop",
                 activity=1, fresh=False, needs=(), least=0.999):
        self.name, self.what, self.scenarios = name, what, scenarios
        self.kind, self.form, self.expected, self.activity = kind, form, expected, activity
        self.server, self.fresh, self.needs, self.least = server, fresh, needs, least


CANDIDATES = [
    Candidate("null-compact", "weir's uring driver, no parsing, a fixed answer; sent what weir-compact is sent", MAIN,
              server="null", fresh=True),
    Candidate("null-jws", "the same, sent what weir-jws is sent", MAIN, form="jws", server="null", fresh=True),
    Candidate("weir-compact", "sold out, a fresh compact ticket each", MAIN),
    Candidate("weir-jws", "sold out, a fresh JWS ticket each", MAIN, form="jws"),
    Candidate("nginx", "nginx `return 200`, one worker", MAIN, form="jws", server="nginx", needs=["nginx"]),
    Candidate("nginx-lua", "nginx and Lua, the same steps with HMAC-SHA1, one worker", MAIN, form="jws",
              server="nginx-lua", needs=["nginx", need.LUA_MODULE, need.CJSON]),
    Candidate("h2o", "h2o, a fixed answer from its mruby handler, one thread", MAIN, form="jws", server="h2o",
              needs=["h2o"]),
    Candidate("weir-rate-limited", "429, the address is above its rate", FEW, expected="RATE_LIMITED",
              server="limited"),
    Candidate("weir-bad-mac", "403, a JWS ticket whose MAC is wrong", FEW, kind="bad_mac", form="jws",
              expected="TOKEN_INVALID"),
    Candidate("weir-bad-path", "404, a path that no sale has", FEW, kind="bad_path", expected="NOT_FOUND"),
    Candidate("weir-malformed", "400, two lengths; weir closes the connection", ["conn"], kind="malformed",
              expected="INVALID_ARGUMENT"),
    Candidate("weir-not-open", "403, before the sale", FEW, expected="NOT_OPEN", activity=2),
    Candidate("weir-queued", "202, a unit held in the embedded ledger and synced to disk", ["c64", "c512", "p16"],
              expected="SECKILL_QUEUED", server="stocked", fresh=True, least=0.9),
    Candidate("null-epoll", "null on the epoll driver", FEW, server="null-epoll", fresh=True),
    Candidate("weir-epoll", "weir-compact on the epoll driver", FEW, server="epoll"),
    Candidate("weir-monoio", "weir-compact on monoio with io_uring", FEW, server="monoio"),
    Candidate("weir-glommio", "weir-compact on glommio", FEW, server="glommio"),
]


class Stage:
    """The servers of a run, started when first needed; each rests while others are measured."""

    def __init__(self, server_core, generator_core):
        self.server_core, self.generator_core = server_core, generator_core
        self.running = {}
        self.answer = None

    def shop(self):
        """The sold-out sale; every candidate's tickets are signed for it."""
        return self.get("shop")

    def load(self, candidate):
        config = self.get(candidate.server).config if self._is_weir(candidate) else self.shop().config
        return Load(candidate.kind, candidate.form, config, candidate.activity, again=candidate.server != "stocked")

    def _is_weir(self, candidate):
        return candidate.name.startswith("weir-")

    def get(self, server):
        if server not in self.running:
            self.running[server] = self._start(server)
        return self.running[server]

    def renew(self, server):
        if server in self.running:
            self.running.pop(server).stop()
        return self.get(server)

    def stop(self):
        for server in self.running.values():
            server.stop()
        self.running.clear()

    def _start(self, server):
        core = self.server_core
        if server.startswith("null"):
            driver = "epoll" if server == "null-epoll" else "uring"
            return servers.null(server, core, self._answer()["bytes"], driver)
        if server in ("nginx", "nginx-lua"):
            return servers.nginx(server, core, self._answer()["body"], server == "nginx-lua")
        if server == "h2o":
            return servers.h2o(server, core, self._answer()["body"])
        if server == "limited":
            return servers.Weir(server, core, ip_limit=True)
        if server == "stocked":
            return servers.Weir(server, core, stock=servers.LARGE_STOCK)
        driver = "uring" if server == "shop" else server
        program = os.path.join(need.GLOMMIO_TARGET, "release", "weir") if server == "glommio" else None
        weir = servers.Weir(server, core, driver=driver, program=program)
        self._sell_out(weir)
        return weir

    def resident(self, seconds):
        """MiB of a fresh server under 4,096 connections beside its tables.

        Tables take memory when they are touched, so what is printed at start cannot be subtracted. What is: all that
        was resident before the first connection, less a null server's (program, ring and buffers without tables).
        """
        null = self.renew("null")
        weir = servers.Weir("memory", self.server_core)
        self.running["memory"] = weir
        empty_kib, tables_kib = null.rss_kib(), weir.rss_kib()
        self._sell_out(weir)
        try:
            load = Load("submit", "compact", weir.config)
            report = run(load, weir, self.generator_core, "c4096", seconds)
            check(report, weir, SOLD_OUT)
            if report["watched"] is None:
                raise WrongAnswers(f"{weir.name}: {seconds} s are too short to measure")
            return (report["watched"]["rss_kib"] - tables_kib + empty_kib) / 1024
        finally:
            self.running.pop("memory").stop()

    def _sell_out(self, weir):
        load = Load("submit", "compact", weir.config, again=False)
        bought = run(load, weir, self.generator_core, "c64", 10, requests=BUYING, watch=False)
        queued, sold_out = (bought["answers"].get(code, 0) for code in ("SECKILL_QUEUED", SOLD_OUT))
        if sold_out == 0:
            raise servers.CannotRun(f"{weir.name} did not sell out: {queued} queued, {bought['answers']}")

    def _answer(self):
        """weir's sold-out answer: its length for null, and a body of that length for those who answer a fixed text."""
        if self.answer is None:
            load = Load("submit", "compact", self.shop().config)
            report = run(load, self.shop(), self.generator_core, "c64", 0.5, watch=False)
            check(report, self.shop(), SOLD_OUT)
            whole = round(report["connections_seen"]["received_bytes"] / report["answered"])
            open_, close = '{"code":"SECKILL_SOLD_OUT","message":"', '"}'
            head = 160  # what servers of this kind write before the body
            pad = "." * (whole - head - len(open_) - len(close))
            self.answer = {"bytes": whole, "body": open_ + pad + close}
        return self.answer
