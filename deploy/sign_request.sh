#!/bin/sh
# Signs a request as sign_request.py does, with openssl.
#
# usage: sign_request.sh KEYFILE KID METHOD TARGET BODYFILE [TIME_MS]
#
# The secret and the derived key stand on openssl's command line, where other users of the machine can see them for a
# moment: for trying things out, not for a shop's backend.
set -eu
key_file="$1" kid="$2" method="$3" target="$4" body_file="$5"
time_ms="${6:-$(date +%s%3N)}"
hmac() { openssl dgst -sha256 -mac HMAC -macopt "hexkey:$1" -r | cut -d ' ' -f 1; }
key="$(printf 'weir signed request v1' | hmac "$(tr -d ' \n' <"$key_file")")"
mac="$({ printf '%s\n%s\n%s\n' "$time_ms" "$method" "$target"; cat "$body_file"; } | hmac "$key")"
echo "k=$kid,t=$time_ms,v1=$mac"
