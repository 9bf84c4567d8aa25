#!/usr/bin/env python3
"""Writes compact-vectors.jsonl, independently of the Rust code: BLAKE3 here is the specification's (one chunk is enough).

Run it after a change of the format: python3 proto/tests/compact_vectors.py > proto/tests/compact-vectors.jsonl
"""
import base64, json, struct

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
CHUNK_START, CHUNK_END, ROOT, KEYED, CONTEXT, MATERIAL = 1, 2, 8, 16, 32, 64


def compress(chain, block, length, flags):
    m = list(struct.unpack("<16I", block.ljust(64, b"\0")))
    v = list(chain) + list(IV[:4]) + [0, 0, length, flags]

    def mix(a, b, c, d, x, y):
        for word, first, second in ((x, 16, 12), (y, 8, 7)):
            v[a] = (v[a] + v[b] + word) & 0xFFFFFFFF
            v[d] ^= v[a]
            v[d] = (v[d] >> first | v[d] << (32 - first)) & 0xFFFFFFFF
            v[c] = (v[c] + v[d]) & 0xFFFFFFFF
            v[b] ^= v[c]
            v[b] = (v[b] >> second | v[b] << (32 - second)) & 0xFFFFFFFF

    for _ in range(7):
        for i in range(4):
            mix(i, 4 + i, 8 + i, 12 + i, m[2 * i], m[2 * i + 1])
        for i in range(4):
            mix(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[8 + 2 * i], m[9 + 2 * i])
        m = [m[i] for i in PERMUTATION]
    return [v[i] ^ v[i + 8] for i in range(8)]


def blake3(data, key=IV, flags=0):
    assert len(data) <= 1024
    blocks = [data[i : i + 64] for i in range(0, len(data), 64)] or [b""]
    chain = list(key)
    for i, block in enumerate(blocks):
        start = CHUNK_START if i == 0 else 0
        end = CHUNK_END | ROOT if i == len(blocks) - 1 else 0
        chain = compress(chain, block, len(block), flags | start | end)
    return struct.pack("<8I", *chain)


def keyed(key, data):
    return blake3(data, struct.unpack("<8I", key), KEYED)


def derive(context, material):
    return blake3(material, struct.unpack("<8I", blake3(context, IV, CONTEXT)), MATERIAL)


# The first bytes of the official vectors for the empty input.
assert blake3(b"").hex().startswith("af1349b9f5f9a1a6a0404dea36dcc949")
assert keyed(b"whats the Elvish word for friend", b"").hex().startswith("92b2b75604ed3c761f9d6f62392c8a92")
assert derive(b"BLAKE3 2019-12-27 16:29:52 test vectors context", b"").hex().startswith("2cc39783c223154fea8dfb7c1b1660f2")


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


SECRET = bytes(range(32))
SALT = bytes(range(100, 132))
KID = b"k1"


def claims_bytes(c, device=None, path=None):
    hashed = keyed(SALT, device.encode())[:16] if device else bytes(16)
    numbers = [c[n] for n in ("activity_id", "sku_id", "user_id", "activity_version", "not_before_ms", "expires_at_ms")]
    nonce = base64.urlsafe_b64decode(c["nonce"][2:] + "==")
    path = c["path_id"].encode() if path is None else path
    return b"\x01" + bytes(7) + struct.pack(">6Q", *numbers) + nonce + hashed + path.ljust(8, b"\0")


def token(data, prefix=b"w1." + KID + b".", key=None):
    mac = keyed(key or derive(b"weir 2026-11-30 compact ticket w1 MAC", SECRET), prefix + data)
    return prefix.decode() + b64(data + mac)


base = dict(activity_id=10001, sku_id=90001, user_id=70000001, activity_version=8, path_id="p_7vKh2P",
            nonce="n_" + b64(bytes(range(16))), not_before_ms=1782388800000, expires_at_ms=1782388830000)
most = 2**63 - 1
rows = [{
    "_meta": True, "kid": KID.decode(), "secret_b64url": b64(SECRET), "device_salt_b64url": b64(SALT),
    "token": "w1.<kid>.<base64url without padding (96 bytes of claims + 32 bytes of MAC)>; 171 characters after the last dot",
    "claims": "big-endian; 0: version 1; 1..8: zero; 8..16: activity_id; 16..24: sku_id; 24..32: user_id; 32..40: activity_version; "
              "40..48: not_before_ms; 48..56: expires_at_ms; 56..72: nonce, its text is n_ + base64url; 72..88: device hash, zero binds "
              "none; 88..96: path_id, ASCII, padded with zeros",
    "mac": "BLAKE3 keyed_hash(K, 'w1.<kid>.' + claims), K = BLAKE3 derive_key('weir 2026-11-30 compact ticket w1 MAC', secret)",
    "device_hash": "first 16 bytes of BLAKE3 keyed_hash(device salt, raw X-Weir-Device)",
}]


def good(id, device=None, **changes):
    c = dict(base, **changes)
    data = claims_bytes(c, device)
    rows.append({"id": id, "expect": "valid", "device": device, "claims": c, "claims_hex": data.hex(), "token": token(data)})


def bad(id, stage, text):
    rows.append({"id": id, "expect": "reject", "stage": stage, "token": text})


good("unbound")
good("bound", device="phone-1")
good("short-path", path_id="p")
good("greatest", activity_id=most, sku_id=most, user_id=most, activity_version=most, not_before_ms=most - 3600000, expires_at_ms=most)
data = claims_bytes(base)
bad("version-2", "Claims", token(b"\x02" + data[1:]))
bad("reserved-not-zero", "Claims", token(data[:7] + b"\x01" + data[8:]))
bad("activity-zero", "Claims", token(claims_bytes(dict(base, activity_id=0))))
bad("user-negative-as-signed", "Claims", token(claims_bytes(dict(base, user_id=2**63))))
bad("window-over-an-hour", "Claims", token(claims_bytes(dict(base, expires_at_ms=base["not_before_ms"] + 3600001))))
bad("path-empty", "Claims", token(claims_bytes(base, path=b"")))
bad("path-goes-on-after-zero", "Claims", token(claims_bytes(base, path=b"p\0p")))
bad("mac-without-prefix", "Signature", token(data).replace(
    b64(data + keyed(derive(b"weir 2026-11-30 compact ticket w1 MAC", SECRET), b"w1.k1." + data)),
    b64(data + keyed(derive(b"weir 2026-11-30 compact ticket w1 MAC", SECRET), data))))
bad("mac-under-the-secret-itself", "Signature", token(data, key=SECRET))
bad("other-kid", "Kid", token(data, prefix=b"w1.k2."))
for row in rows:
    print(json.dumps(row))
