#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: one file per vector, from tests/data and proto/tests, into DIR/TARGET/.

    tests/fuzz/seed.py DIR

`tests/fuzz/run.sh minimise` keeps of them what adds coverage, in tests/fuzz/corpus/. Standard library only.
"""
import base64
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data"


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def unpadded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def http():
    for row in lines(DATA / "http1-vectors.jsonl"):
        yield base64.b64decode(row["raw_base64"])


def tickets():
    for path in (DATA / "token-vectors.jsonl", ROOT / "proto/tests/compact-vectors.jsonl"):
        for row in lines(path)[1:]:
            token = row["token"].encode()
            yield b"\x00" + token
            parts = row["token"].split(".")
            try:
                if parts[0] == "w1":
                    sealed = unpadded(parts[2])
                    yield b"\x02" + sealed[:96]
                    yield b"\x03" + sealed[8:56] + b"\x02" + sealed[72:88] + b"\x00" + sealed[56:72] + sealed[88:96].rstrip(b"\x00")
                elif len(parts) == 3:
                    yield b"\x01" + unpadded(parts[1])
                    yield b"\x01" + unpadded(parts[0]) + b"\x00" + unpadded(parts[1])
            except (ValueError, IndexError):
                pass
    for name in ("json_web_signature_test.json", "json_web_crypto_test.json"):
        for group in json.loads((DATA / name).read_text())["testGroups"]:
            if "HS256" in json.dumps(group):
                for row in group["tests"]:
                    if isinstance(row.get("jws"), str):
                        yield b"\x00" + row["jws"].encode()


def bodies():
    """The submits of the vectors, the payloads of the tickets, and the strings of proto/tests/json.rs."""
    for row in lines(DATA / "token-vectors.jsonl")[1:]:
        for part in row["token"].split(".")[:2]:
            try:
                yield unpadded(part)
            except ValueError:
                pass
    good = '{"request_id":"req_0001","activity_id":10001,"sku_id":90001,"user_id":7,"quantity":1}'
    yield good.encode()
    tests = (ROOT / "proto/tests/json.rs").read_text()
    texts = [json.loads(text) for text in re.findall(r'^ +("(?:\\"|[^"\n\\{])+"),?$', tests, re.M) if "\\u{" not in text]
    for old, new in zip(texts, texts[1:]):
        if old in good:
            yield good.replace(old, new, 1).encode()
    for text in (
        '{"a":-0}', '{"a":1.5}', '{"a":1e9}', '{"a":18446744073709551616}', '{"a":' + "9" * 400 + "}", '{"a":[1]}',
        '{"a":{"b":1}}', '{"\\u0061":1,"a":2}', '{"a":"\\ud83d\\ude00"}', '{"a":"\\ud83d"}', '{"a":"\\udc00"}',
        '{"a":true,"b":false,"c":null}', '{"a":nul}', "[]", "1", '"a"', "", "{", "{}", "{} x", '\ufeff{"a":1}',
        '{"a":"\\/\\b\\f\\n\\r\\t\\"\\\\"}', '{"a" : "\x7f" ,\r\n\t"b":01}', '{"a":"é"}', "{,}", '{"a":1,}', '{"a"}',
    ):
        yield text.encode()
    yield b'{"a":"\xff"}'


def addresses():
    for row in lines(DATA / "forwarded-vectors.jsonl"):
        text = "\n".join(value for _, value in row["headers"]).encode("utf-8", "surrogateescape")
        yield b"\x00" + text
        yield b"\x01" + text
    for row in lines(DATA / "proxy-protocol-vectors.jsonl"):
        yield b"\x02" + base64.b64decode(row["raw_base64"])
    for text in (
        "10.0.0.0/8\n10.1.2.3", "10.1.2.3/8", "::/0\n::1", "2001:db8::/32\n2001:db8:1::", "::ffff:10.0.0.0/104\n10.9.9.9",
        "0.0.0.0/0\n1.2.3.4", "10.0.0.1", "1.2.3.4/33", "1.2.3.4/08", "::1/129", "01.2.3.4", "::ffff:1.2.3.4/95",
    ):
        yield b"\x03" + text.encode()
    for text in (
        'for="[2001:db8::9]:_p";proto=https, for=10.0.0.9', 'for="a\\"b", for=1.1.1.1', 'for=1.1.1.1;by=2.2.2.2 ; host="a,b;c"',
        'for="1.1.1.1, for=198.51.100.7', "for=unknown, for=_hidden", "For=1.2.3.4:80", 'for="1.2.3.4:80"',
    ):
        yield b"\x01" + text.encode()


def configs():
    """A sale as `weir init` makes it, whole and in parts, and one mistake of each kind."""
    with tempfile.TemporaryDirectory() as place:
        shop = pathlib.Path(place) / "shop"
        subprocess.run(["cargo", "run", "-q", "--locked", "--", "init", shop], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        text = (shop / "weir.toml").read_text()
    yield text.encode()
    bare = "".join(line for line in text.splitlines(True) if line.strip() and not line.startswith("#"))
    yield bare.encode()
    rows = bare.splitlines(True)
    for at, row in enumerate(rows):
        before, after = rows[:at], rows[at + 1:]
        yield "".join(before + after).encode()
        name, equals, value = row.partition(" = ")
        if equals:
            for wrong in ('""', "-1", "9223372036854775808", "[]", "{}", "1.5", "true", "2026-11-30T20:00:00Z", '"\\u0000"'):
                yield "".join(before + [f"{name} = {wrong}\n"] + after).encode()
            yield "".join(before + [f'"{name}x" = {value}'] + after).encode()
            yield "".join(before + [row, row] + after).encode()
    for text in ("a", "[server", "[[server]]\n", "server = 1\n", "[server]\nlisten = '''\n", "[\"a\\nb\"]\n", "[server]\n\"x\\ty\" = 1\n"):
        yield text.encode()


def replies():
    """The replies of the vectors that are no longer than a fuzzer's input, one breach of each kind, and keys with tags."""
    for row in lines(DATA / "resp-vectors.jsonl"):
        raw = base64.b64decode(row["raw_base64"])
        if len(raw) <= 4096:
            yield raw
    for text in (
        # what redis-protocol accepts and weir refuses
        "+a\rb\r\n", "+a\nb\r\n", ":01\r\n", "$+1\r\na\r\n", "*01\r\n:1\r\n", "$1\r\naXX", "_x\r\n", ",.5\r\n", ",5.\r\n",
        ",+inf\r\n", ",NaN\r\n", "(1.5\r\n", "(\r\n", "=5\r\ntxt;a\r\n", "*1\r\n>1\r\n+a\r\n", ".\r\n", ";1\r\na\r\n", "HELLO 3\r\n",
        # and the other way round
        "%1\r\n*0\r\n:1\r\n", "~1\r\n~0\r\n", "=5\r\nabc:d\r\n", "|1\r\n+a\r\n:1\r\n_\r\n", "|0\r\n|1\r\n+a\r\n+b\r\n:1\r\n",
        "|1\r\n%0\r\n:1\r\n:2\r\n", "|1\r\n+a\r\n:1\r\n$-1\r\n", "*2\r\n$-1\r\n*-1\r\n",
        # what both must see alike
        ":-0\r\n", ":+0\r\n", ",-nan\r\n", ",-0\r\n", ",1e400\r\n", ",00.5E-7\r\n", "(+0\r\n", "!0\r\n\r\n", "=4\r\ntxt:\r\n", "-\r\n",
        "*?\r\n:1\r\n.\r\n", "%?\r\n.\r\n", ">?\r\n", ">-1\r\n", ">0\r\n", "%0\r\n", "~0\r\n", "|0\r\n:1\r\n",
        "%2\r\n+a\r\n:1\r\n+a\r\n:2\r\n", "%2\r\n:1\r\n:1\r\n:1\r\n:2\r\n", "~3\r\n:1\r\n:1\r\n_\r\n", "~2\r\n,nan\r\n,nan\r\n",
        "|1\r\n+a\r\n>1\r\n+b\r\n+c\r\n", "|1\r\n+a\r\n%1\r\n$1\r\na\r\n,0.1923\r\n*2\r\n:2039123\r\n:9543892\r\n",
        "*1\r\n" * 8 + ":1\r\n", "*1\r\n" * 9 + ":1\r\n", "|1\r\n:1\r\n" * 8 + ":1\r\n" * 9, "*65537\r\n", "*2\r\n:1\r\n*65535\r\n",
        "%32769\r\n", "$65537\r\n", "$65536\r\n", "$99999999999999999999999999999999999999999\r\n", "x", "+OK\r", "$1\r\na\r", "*2\r\n+a\r\n",
        # CLUSTER SHARDS and SLOTS, a redirection, an invalidation
        "*1\r\n%2\r\n$5\r\nslots\r\n*2\r\n:0\r\n:16383\r\n$5\r\nnodes\r\n*1\r\n%3\r\n$4\r\nport\r\n:6379\r\n$8\r\nendpoint\r\n_\r\n$6\r\nhealth\r\n$6\r\nonline\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$9\r\n127.0.0.1\r\n:6379\r\n$2\r\nid\r\n*0\r\n", "-MOVED 3999 :6381\r\n",
        ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n",
        # keys and commands
        "{user1000}.following", "foo{}{bar}", "foo{{bar}}zap", "foo{bar}{zap}", "foo{bar", "{", "}{", "123456789", "SET a  b", " ",
    ):
        yield text.encode()


def main():
    out = pathlib.Path(sys.argv[1])
    makers = {"http": http, "ticket": tickets, "json": bodies, "forwarded": addresses, "config": configs, "resp": replies}
    for target, maker in makers.items():
        folder = out / target
        folder.mkdir(parents=True, exist_ok=True)
        seeds = sorted(set(maker()))
        for seed in seeds:
            (folder / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
        print(f"{target}: {len(seeds)} seeds")


main()
