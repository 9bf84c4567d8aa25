#!/usr/bin/env python3
"""Writes COUNT lines `USER TICKET`, each a user of its own, for refuse.lua: tickets.py WEIR_TOML COUNT > tickets.txt

The first activity and SKU of a file as `weir init` writes it; tickets hold for an hour. Standard library only.
"""
import os
import sys
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "deploy"))
from mint_ticket import mint  # noqa: E402: the path above must come first

FIRST_USER = 1_000_000_000


def main():
    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        sys.exit(__doc__)
    config_path, count = sys.argv[1], int(sys.argv[2])
    with open(config_path, "rb") as file:
        config = tomllib.load(file)
    activity = config["activity"][0]
    key_file = config["keys"]["ticket"][0].split("=", 1)[-1]
    kid = config["keys"]["ticket"][0].split("=", 1)[0]
    kid = os.path.splitext(os.path.basename(kid))[0]
    with open(os.path.join(os.path.dirname(config_path), key_file)) as file:
        secret = bytes.fromhex(file.read().strip())
    about = (activity["id"], activity.get("version", 1), activity["path_id"], activity["sku"][0]["id"])
    for user in range(FIRST_USER, FIRST_USER + count):
        print(user, mint(secret, kid, *about, user, ttl_s=3600))


if __name__ == "__main__":
    main()
