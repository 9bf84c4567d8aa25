#!/usr/bin/env python3
"""Mints a weir ticket (JWS, HS256) in a shop's own backend. Standard library only.

usage: mint_ticket.py KEYFILE KID ACTIVITY_ID ACTIVITY_VERSION PATH_ID SKU_ID USER_ID [TTL_S]

KEYFILE holds the secret as `weir keygen` writes it (64 hexadecimal digits). The ticket goes to standard output.
"""
import base64
import hashlib
import hmac
import json
import secrets
import sys
import time


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def mint(secret, kid, activity_id, activity_version, path_id, sku_id, user_id, ttl_s=300, device_hash="none"):
    now_ms = time.time_ns() // 1_000_000
    claims = {
        "version": 1, "activity_id": activity_id, "sku_id": sku_id, "user_id": user_id,
        "device_hash": device_hash, "activity_version": activity_version, "path_id": path_id,
        "nonce": "n_" + b64(secrets.token_bytes(16)),
        "not_before_ms": now_ms, "expires_at_ms": now_ms + ttl_s * 1000,
    }
    parts = ({"alg": "HS256", "kid": kid}, claims)
    signing_input = ".".join(b64(json.dumps(part, separators=(",", ":")).encode()) for part in parts)
    return signing_input + "." + b64(hmac.new(secret, signing_input.encode(), hashlib.sha256).digest())


if __name__ == "__main__":
    key_file, kid, activity, version, path_id, sku, user, *rest = sys.argv[1:]
    secret = bytes.fromhex(open(key_file).read().strip())
    ttl_s = int(rest[0]) if rest else 300
    print(mint(secret, kid, int(activity), int(version), path_id, int(sku), int(user), ttl_s))
