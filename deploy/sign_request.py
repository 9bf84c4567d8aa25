#!/usr/bin/env python3
"""Signs a request for a weir that asks for signatures (keys.request). Standard library only.

usage: sign_request.py KEYFILE KID METHOD TARGET [BODYFILE [TIME_MS]]

KEYFILE holds the secret as `weir keygen` writes it (64 hexadecimal digits). TARGET is the path with its query, as sent.
BODYFILE holds the body byte by byte as sent; - reads standard input, and without it the body is empty. TIME_MS is Unix time
in milliseconds, now if not given. Standard output gets the value of the header X-Weir-Signature:

    k=KID,t=TIME_MS,v1=HEX    HEX = HMAC-SHA256(K, TIME_MS "\\n" METHOD "\\n" TARGET "\\n" BODY), in lower case
                              K   = HMAC-SHA256(secret, "weir signed request v1")
"""
import hashlib
import hmac
import sys
import time


def sign(secret, kid, method, target, body, time_ms=None):
    time_ms = time.time_ns() // 1_000_000 if time_ms is None else time_ms
    key = hmac.digest(secret, b"weir signed request v1", hashlib.sha256)
    covered = f"{time_ms}\n{method}\n{target}\n".encode() + body
    return f"k={kid},t={time_ms},v1={hmac.new(key, covered, hashlib.sha256).hexdigest()}"


if __name__ == "__main__":
    key_file, kid, method, target, *rest = sys.argv[1:]
    secret = bytes.fromhex(open(key_file).read().strip())
    body = b"" if not rest else sys.stdin.buffer.read() if rest[0] == "-" else open(rest[0], "rb").read()
    print(sign(secret, kid, method, target, body, int(rest[1]) if len(rest) > 1 else None))
