#!/usr/bin/env python3
"""Writes signature-vectors.jsonl: signed requests, good and bad, computed without weir.

    proto/tests/signature_vectors.py > proto/tests/signature-vectors.jsonl
"""
import base64
import hashlib
import hmac
import json

SECRET = bytes(range(32))
OTHER = bytes(range(64))
NOW = 1_796_040_000_000
SKEW = 30_000
TARGET = "/v1/seckill/p_7vKh2P"
BODY = b'{"request_id":"req_0001","activity_id":10001,"sku_id":90001,"user_id":7,"quantity":1}'


def mac(secret, time, method, target, body):
    key = hmac.digest(secret, b"weir signed request v1", "sha256")
    return hmac.digest(key, f"{time}\n{method}\n{target}\n".encode() + body, "sha256").hex()


def row(id, expect, time=NOW, method="POST", target=TARGET, body=BODY, kid="app-1", secret=SECRET, header=None):
    value = header if header is not None else f"k={kid},t={time},v1={mac(secret, time, method, target, body)}"
    sent = {"method": method, "target": target, "body_base64": base64.b64encode(body).decode()}
    print(json.dumps({"id": id, **sent, "header": value, "expect": expect}))


print(json.dumps({"secrets_hex": {"app-1": SECRET.hex(), "app-2": OTHER.hex()}, "now_ms": NOW, "skew_ms": SKEW}))
good = mac(SECRET, NOW, "POST", TARGET, BODY)
row("good", "ok")
row("good-second-key", "ok", kid="app-2", secret=OTHER)
row("good-query", "ok", target=TARGET + "?a=b&c=%0A")
row("good-empty-query", "ok", target=TARGET + "?")
row("good-empty-body", "ok", body=b"")
row("good-binary-body", "ok", body=bytes(range(256)))
row("good-longest-body", "ok", body=b"x" * 8192)
row("good-get", "ok", method="GET", body=b"")
row("early-edge", "ok", time=NOW - SKEW)
row("late-edge", "ok", time=NOW + SKEW)
row("early-by-one", "stale", time=NOW - SKEW - 1)
row("late-by-one", "stale", time=NOW + SKEW + 1)
row("time-zero", "stale", time=0)
row("time-max", "stale", time=2**64 - 1)
row("body-changed", "mac", header=f"k=app-1,t={NOW},v1={good}", body=BODY.replace(b"7", b"8"))
row("body-longer", "mac", header=f"k=app-1,t={NOW},v1={good}", body=BODY + b" ")
row("body-empty", "mac", header=f"k=app-1,t={NOW},v1={good}", body=b"")
row("target-changed", "mac", header=f"k=app-1,t={NOW},v1={good}", target=TARGET + "x")
row("query-added", "mac", header=f"k=app-1,t={NOW},v1={good}", target=TARGET + "?")
row("method-changed", "mac", header=f"k=app-1,t={NOW},v1={good}", method="PUT")
row("time-changed", "mac", header=f"k=app-1,t={NOW + 1},v1={good}")
row("time-respelled", "mac", header=f"k=app-1,t=0{NOW},v1={good}")
row("other-secret", "mac", secret=OTHER)
row("raw-secret", "mac", header="k=app-1,t=%d,v1=%s" % (NOW, hmac.digest(SECRET, f"{NOW}\nPOST\n{TARGET}\n".encode() + BODY, "sha256").hex()))
row("boundary-moved", "mac", header=f"k=app-1,t={NOW},v1={good}", target=TARGET[:-1], body=TARGET[-1:].encode() + b"\n" + BODY)
row("key-unknown", "key", kid="app-3")
row("key-other-case", "key", kid="APP-1")
row("key-empty", "key", kid="")
row("key-unknown-and-stale", "key", kid="app-3", time=0)
for name, header in {
    "empty": "",
    "payment-form": f"t={NOW},v1={good}",
    "no-time": f"k=app-1,v1={good}",
    "no-mac": f"k=app-1,t={NOW}",
    "time-empty": f"k=app-1,t=,v1={good}",
    "time-negative": f"k=app-1,t=-1,v1={good}",
    "time-plus": f"k=app-1,t=+{NOW},v1={good}",
    "time-fraction": f"k=app-1,t={NOW}.0,v1={good}",
    "time-over-u64": f"k=app-1,t={2**64},v1={good}",
    "mac-short": f"k=app-1,t={NOW},v1={good[:-2]}",
    "mac-half": f"k=app-1,t={NOW},v1={good[:32]}",
    "mac-long": f"k=app-1,t={NOW},v1={good}00",
    "mac-upper": f"k=app-1,t={NOW},v1={good.upper()}",
    "mac-not-hex": f"k=app-1,t={NOW},v1={good[:-1]}g",
    "order": f"t={NOW},k=app-1,v1={good}",
    "space": f"k=app-1, t={NOW}, v1={good}",
    "trailing-comma": f"k=app-1,t={NOW},v1={good},",
    "second-mac": f"k=app-1,t={NOW},v1={good},v1={good}",
    "too-long": f"k={'a' * 200},t={NOW},v1={good}",
}.items():
    row(name, "shape", header=header)
