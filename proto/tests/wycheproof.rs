//! Wycheproof's HMAC-SHA256, JWS, JWK and JSON crypto rows and BLAKE3's own vectors, through weir's verify path.
//!
//! weir is an HS256-only verifier of the compact serialization, with raw secrets of 32..=64 bytes in key files. A row's
//! payload is no ticket of ours, so `authenticate` ends either at the claims (the MAC fits: Wycheproof's "valid") or at
//! an earlier stage (its "invalid"); `verified` below is that line. Rows that cannot apply are counted by reason and
//! still sent through `authenticate`, which must refuse each of them:
//! - JWS file, 401 rows: 40 have an HS256 key and are judged (372 and 373 as invalid: the MAC over the bytes as stored
//!   does not fit; 367 and 370 as row 357, which they equal byte for byte: the file has lost the padding that they are
//!   about, and a test puts it back); 361 have an RSA or EC key.
//! - JWK file, 26 rows: 6 are judged (two keys of one ring, keys of one id, keys that are too short, empty, too long);
//!   11 have RSA or EC keys, 6 are HS384 or HS512, 2 say in JWK metadata that the key is for something else and 1 mixes
//!   key types in one set: a file of raw bytes has neither metadata nor types.
//! - Crypto file, 83 rows: 19 judged, 29 RSA or EC, 1 mixed set, 34 JWE.
//! - HMAC file, 174 rows: 162 judged; 12 have keys of 16 or 65 bytes, which no `TicketKey` can be made of.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

#[path = "../../tests/support/say.rs"]
mod say;
mod vectors;

use serde_json::Value;
use std::collections::BTreeMap;
use vectors::shared_data;
use weir_proto::ids::{ActivityId, SkuId, UserId};
use weir_proto::ticket::{
    Claims, DeviceClaim, KeyError, KeyRing, NonceClaim, TicketKey, TicketReject, authenticate,
    base64url, mint_compact, mint_jws, path_id,
};

fn read(name: &str) -> Value {
    serde_json::from_str(&shared_data(name)).unwrap()
}

/// Every row with its group, in the order of the file.
fn rows(file: &Value) -> Vec<(&Value, &Value)> {
    let groups = file["testGroups"].as_array().unwrap().iter();
    groups
        .flat_map(|group| {
            let tests = group["tests"].as_array().unwrap();
            tests.iter().map(move |row| (group, row))
        })
        .collect()
}

fn base64url_bytes(text: &str) -> Vec<u8> {
    let mut out = vec![0; text.len()];
    base64url::decode(text.as_bytes(), &mut out)
        .unwrap()
        .to_vec()
}

fn hex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap().as_bytes();
    text.chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// The token of a row as a client would send it; other serializations are sent as their JSON text.
fn token(row: &Value) -> String {
    let token = if row["jws"].is_null() {
        &row["jwe"]
    } else {
        &row["jws"]
    };
    match token {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The MAC stage: true when the MAC was right and only the claims are not ours.
fn verified(token: &str, ring: &KeyRing) -> bool {
    match authenticate(token.as_bytes(), ring) {
        Err(TicketReject::Claims) => true,
        Err(_) => false,
        Ok(_) => panic!("no row's payload is a ticket of ours"),
    }
}

/// The keys of a group, whether it names one or a set.
fn jwks(group: &Value) -> Vec<&Value> {
    let private = &group["private"];
    let key = if private.is_null() {
        &group["public"]
    } else {
        private
    };
    match key["keys"].as_array() {
        Some(keys) => keys.iter().collect(),
        None => vec![key],
    }
}

/// What an operator would make of a JWK by hand: its `k` as the content of a key file, its `kid` as the id.
fn key_of(jwk: &Value) -> Result<TicketKey, KeyError> {
    let secret = base64url_bytes(jwk["k"].as_str().unwrap());
    TicketKey::new(jwk["kid"].as_str().unwrap().as_bytes(), &secret)
}

/// A ring that knows the key id of the token, as far as it has a usable one, but no secret of the row.
fn ring_of_stranger(token: &str) -> KeyRing {
    let header = token.split('.').next().unwrap();
    let mut bytes = vec![0; header.len()];
    let kid = base64url::decode(header.as_bytes(), &mut bytes)
        .and_then(|json| serde_json::from_slice::<Value>(json).ok())
        .and_then(|json| json["kid"].as_str().map(str::to_string));
    let key = kid.and_then(|kid| TicketKey::new(kid.as_bytes(), &[9; 32]).ok());
    let key = key.unwrap_or_else(|| TicketKey::new(b"ours", &[9; 32]).unwrap());
    KeyRing::new(key, None).unwrap()
}

/// Rows by what became of them; printed and compared with what the header of this file says.
#[derive(Default)]
struct Tally(BTreeMap<&'static str, usize>);

impl Tally {
    fn add(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    fn check(&self, file: &str, expected: &[(&str, usize)]) {
        let sum: usize = self.0.values().sum();
        let parts: Vec<String> = self
            .0
            .iter()
            .map(|(what, n)| format!("{n} {what}"))
            .collect();
        say::say(&format!(
            "wycheproof {file}: {sum} rows: {}",
            parts.join(", ")
        ));
        let counted: Vec<_> = self.0.iter().map(|(what, n)| (*what, *n)).collect();
        assert_eq!(counted, expected);
    }
}

const JUDGED: &str = "judged, 0 wrong";
const ASYMMETRIC: &str = "cannot apply: RSA or EC key, weir has HS256 only (refused)";
const OTHER_HASH: &str = "cannot apply: HS384 or HS512 (refused)";
const JWE: &str = "cannot apply: JWE, weir reads no encryption (refused)";
const MIXED: &str = "cannot apply: a set of different key types, key files have no type (refused under another secret)";
const METADATA: &str = "cannot apply: `alg` of the JWK is for another use, key files have none (refused under another secret)";
const KEY_LENGTH: &str = "cannot apply: keys of 16 and 65 bytes (no key can be made)";

/// Why a row cannot be judged by an HS256-only verifier with raw keys.
fn cannot_apply(group: &Value, row: &Value) -> Option<&'static str> {
    if !row["jwe"].is_null() {
        return Some(JWE);
    }
    let keys = jwks(group);
    let oct = keys.iter().filter(|key| key["kty"] == "oct").count();
    match oct {
        0 => return Some(ASYMMETRIC),
        _ if oct < keys.len() => return Some(MIXED),
        _ => {}
    }
    match keys[0]["alg"].as_str() {
        Some("HS256") => None,
        Some("HS384" | "HS512") => Some(OTHER_HASH),
        _ => Some(METADATA),
    }
}

/// Sends a row that cannot apply through the verify path all the same.
fn must_be_refused(row: &Value) {
    let token = token(row);
    let ring = ring_of_stranger(&token);
    assert!(!verified(&token, &ring), "row {}", row["tcId"]);
}

/// Judges a row whose keys make a ring; gives the verdict.
fn judge(group: &Value, row: &Value) -> bool {
    let mut keys = jwks(group)
        .into_iter()
        .map(|jwk| key_of(jwk).expect("a key of HS256"));
    let ring = KeyRing::new(keys.next().unwrap(), keys.next()).unwrap();
    assert!(keys.next().is_none());
    verified(&token(row), &ring)
}

#[test]
fn jws_rows() {
    let file = read("json_web_signature_test.json");
    let mut tally = Tally::default();
    let mut valid_count = 0;
    for (group, row) in rows(&file) {
        if let Some(reason) = cannot_apply(group, row) {
            must_be_refused(row);
            tally.add(reason);
            continue;
        }
        let id = row["tcId"].as_u64().unwrap();
        let valid = match id {
            372 | 373 => false, // the data's own slip: a stray character in the text, so the MAC does not fit
            367 | 370 => true,  // another slip: the same bytes as row 357
            _ => row["result"] == "valid",
        };
        assert_eq!(judge(group, row), valid, "row {id}: {}", row["comment"]);
        valid_count += usize::from(valid);
        tally.add(JUDGED);
    }
    assert_eq!(valid_count, 8 + 2); // 367 and 370 among them
    tally.check("JWS", &[(ASYMMETRIC, 361), (JUDGED, 40)]);
}

#[test]
fn slips_of_the_data_are_what_we_say_they_are() {
    let file = read("json_web_signature_test.json");
    let rows = rows(&file);
    let row = |id: usize| {
        let (group, row) = rows[id - 1];
        assert_eq!(row["tcId"], id);
        (group, token(row))
    };
    let (group, good) = row(357);
    let ring = KeyRing::new(key_of(jwks(group)[0]).unwrap(), None).unwrap();
    let refused = |token: &str| authenticate(token.as_bytes(), &ring).unwrap_err();
    for id in [372, 373] {
        assert_eq!(refused(&row(id).1), TicketReject::Base64, "row {id}");
    }
    // What rows 367 and 370 are about: padding, which RFC 7515 §2 leaves out, after each of the three parts.
    for id in [367, 370] {
        assert_eq!(row(id).1, good, "row {id}");
    }
    let parts: Vec<&str> = good.split('.').collect();
    for padded in 0..3 {
        for padding in ["=", "=="] {
            let mut parts = parts.clone();
            let longer = format!("{}{padding}", parts[padded]);
            parts[padded] = &longer;
            let refused = refused(&parts.join("."));
            assert!(
                matches!(refused, TicketReject::Base64 | TicketReject::Shape),
                "{refused:?}"
            );
        }
    }
}

/// Row 31 signs with the bytes of an EC public key as if they were a secret. No key file can hold such a key, but the
/// header says HS256, so the row must fall at the MAC and not before.
#[test]
fn a_confused_key_type_falls_at_the_mac() {
    let file = read("json_web_signature_test.json");
    let (_, row) = rows(&file)[30];
    assert_eq!(row["tcId"], 31);
    let token = token(row);
    let refused = authenticate(token.as_bytes(), &ring_of_stranger(&token)).unwrap_err();
    assert_eq!(refused, TicketReject::Signature);
}

#[test]
fn jwk_rows() {
    let file = read("json_web_key_test.json");
    let mut tally = Tally::default();
    for (group, row) in rows(&file) {
        if let Some(reason) = cannot_apply(group, row) {
            must_be_refused(row);
            tally.add(reason);
            continue;
        }
        let keys: Vec<_> = jwks(group).into_iter().take(1).map(key_of).collect();
        match row["comment"].as_str().unwrap() {
            "key_too_short" => {
                assert_eq!(keys[0].as_ref().unwrap_err(), &KeyError::SecretBytes(31))
            }
            "empty_key" => assert_eq!(keys[0].as_ref().unwrap_err(), &KeyError::SecretBytes(0)),
            // Wycheproof takes 65 bytes. weir refuses at start, with the reason, what HMAC would hash down first.
            "long_key" => assert_eq!(keys[0].as_ref().unwrap_err(), &KeyError::SecretBytes(65)),
            "rejectsDuplicateKid" => {
                let one = keys[0].clone().unwrap();
                let two = TicketKey::new(one.kid().as_bytes(), &[7; 32]).unwrap();
                assert_eq!(KeyRing::new(one, Some(two)).unwrap_err(), KeyError::SameKid);
            }
            _ => assert_eq!(
                judge(group, row),
                row["result"] == "valid",
                "row {}",
                row["tcId"]
            ),
        }
        tally.add(JUDGED);
    }
    tally.check(
        "JWK",
        &[
            (OTHER_HASH, 6),
            (ASYMMETRIC, 11),
            (METADATA, 2),
            (MIXED, 1),
            (JUDGED, 6),
        ],
    );
}

#[test]
fn crypto_rows() {
    let file = read("json_web_crypto_test.json");
    let mut tally = Tally::default();
    for (group, row) in rows(&file) {
        if let Some(reason) = cannot_apply(group, row) {
            must_be_refused(row);
            tally.add(reason);
            continue;
        }
        assert_eq!(
            judge(group, row),
            row["result"] == "valid",
            "row {}",
            row["tcId"]
        );
        tally.add(JUDGED);
    }
    tally.check(
        "crypto",
        &[(JWE, 34), (ASYMMETRIC, 29), (MIXED, 1), (JUDGED, 19)],
    );
}

fn claims() -> Claims {
    Claims {
        activity: ActivityId(1),
        sku: SkuId(2),
        user: UserId(3),
        activity_version: 4,
        path_id: path_id(b"p_1").unwrap(),
        nonce: NonceClaim::Raw([5; 16]),
        device: DeviceClaim::Unbound,
        not_before_ms: 6,
        expires_at_ms: 7,
    }
}

/// A ticket of ours that is right but for its MAC, which is `mac`.
fn with_mac(key: &TicketKey, mac: &[u8]) -> Vec<u8> {
    let mut token = Vec::new();
    mint_jws(&claims(), key, &mut token).unwrap();
    let dot = token.iter().rposition(|&byte| byte == b'.').unwrap();
    token.truncate(dot + 1);
    base64url::append(mac, &mut token);
    token
}

#[test]
fn hmac_rows() {
    let file = read("hmac_sha256_test.json");
    let mut tally = Tally::default();
    for (group, row) in rows(&file) {
        let (secret, tag) = (hex(&row["key"]), hex(&row["tag"]));
        let Ok(key) = TicketKey::new(b"k1", &secret) else {
            assert!(matches!(secret.len(), 16 | 65), "row {}", row["tcId"]);
            tally.add(KEY_LENGTH);
            continue;
        };
        let mac = key.hs256(&hex(&row["msg"]));
        let tag_bytes = usize::try_from(group["tagSize"].as_u64().unwrap() / 8).unwrap();
        assert_eq!(tag.len(), tag_bytes);
        let valid = row["result"] == "valid";
        assert_eq!(mac[..tag_bytes] == tag, valid, "row {}", row["tcId"]);
        // A tag of another message, whole or cut to 16 bytes, never opens a ticket; the right one always does.
        let ring = KeyRing::new(key.clone(), None).unwrap();
        assert!(authenticate(&with_mac(&key, &tag), &ring).is_err());
        let mut good = Vec::new();
        mint_jws(&claims(), &key, &mut good).unwrap();
        assert!(authenticate(&good, &ring).is_ok());
        let cut = base64url::encoded_len(32) - base64url::encoded_len(16);
        assert_eq!(
            authenticate(&good[..good.len() - cut], &ring),
            Err(TicketReject::Shape),
            "HS256 has no short form (RFC 7518 §3.2)"
        );
        tally.add(JUDGED);
    }
    tally.check("HMAC-SHA256", &[(KEY_LENGTH, 12), (JUDGED, 162)]);
}

#[test]
fn blake3_rows() {
    let file = read("blake3_test_vectors.json");
    let key: [u8; 32] = file["key"].as_str().unwrap().as_bytes().try_into().unwrap();
    let context = file["context_string"].as_str().unwrap();
    let cases = file["cases"].as_array().unwrap();
    for case in cases {
        let len = usize::try_from(case["input_len"].as_u64().unwrap()).unwrap();
        let input: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        for (mode, mut hasher) in [
            ("hash", blake3::Hasher::new()),
            ("keyed_hash", blake3::Hasher::new_keyed(&key)),
            ("derive_key", blake3::Hasher::new_derive_key(context)),
        ] {
            let expected = hex(&case[mode]);
            let mut out = vec![0; expected.len()];
            hasher.update(&input).finalize_xof().fill(&mut out);
            assert_eq!(out, expected, "{mode} of {len} bytes");
        }
        // The one-call forms, which weir uses.
        assert_eq!(
            blake3::keyed_hash(&key, &input).as_bytes()[..],
            hex(&case["keyed_hash"])[..32]
        );
        assert_eq!(
            blake3::derive_key(context, &input)[..],
            hex(&case["derive_key"])[..32]
        );
    }
    say::say(&format!(
        "BLAKE3: {} rows x 3 modes judged, 0 wrong",
        cases.len()
    ));
    assert_eq!(cases.len(), 35);
}

/// The compact form's MAC is what its document says, made of the two functions that the vectors above judge.
#[test]
fn the_compact_mac_is_keyed_blake3_under_a_derived_key() {
    let secret = [0x42; 32];
    let key = TicketKey::new(b"2026-11", &secret).unwrap();
    let ring = KeyRing::new(key.clone(), None).unwrap();
    let mut token = Vec::new();
    mint_compact(&claims(), &key, &mut token).unwrap();
    let dot = token.iter().rposition(|&byte| byte == b'.').unwrap();
    let sealed = base64url_bytes(std::str::from_utf8(&token[dot + 1..]).unwrap());
    let (body, mac) = sealed.split_at(96);
    let derived = blake3::derive_key("weir 2026-11-30 compact ticket w1 MAC", &secret);
    let ours = blake3::keyed_hash(&derived, &[b"w1.2026-11.", body].concat());
    assert_eq!(ours.as_bytes()[..], *mac);
    assert_eq!(authenticate(&token, &ring), Ok(claims()));
}
