//! Signed requests (B8) against vectors computed without weir: what is covered, the window to the millisecond, two keys.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

use serde_json::Value;
use weir_proto::signature::{
    SignatureKey, SignatureKeys, SignatureReject, Signed, sign_request, verify_request,
};
use weir_proto::ticket::KeyError;

#[path = "../../tests/support/counting.rs"]
mod counting;

const NOW_MS: u64 = 1_796_040_000_000;
const SKEW_MS: u64 = 30_000;

fn bytes_of_base64(text: &str) -> Vec<u8> {
    let digits = text
        .trim_end_matches('=')
        .replace('+', "-")
        .replace('/', "_");
    let mut out = vec![0; digits.len()];
    weir_proto::ticket::base64url::decode(digits.as_bytes(), &mut out)
        .unwrap()
        .to_vec()
}

fn bytes_of_hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn key(kid: &[u8], secret: &[u8]) -> SignatureKey {
    SignatureKey::new(kid, secret).unwrap()
}

#[test]
fn every_vector_has_its_verdict_and_allocates_nothing() {
    let rows: Vec<Value> = include_str!("signature-vectors.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let meta = &rows[0];
    let secret = |kid: &str| bytes_of_hex(meta["secrets_hex"][kid].as_str().unwrap());
    let [first, second] = ["app-1", "app-2"].map(|kid| key(kid.as_bytes(), &secret(kid)));
    let keys = SignatureKeys::new(first, Some(second)).unwrap();
    let number = |name: &str| meta[name].as_u64().unwrap();
    let mut counts = [0; 5];
    for row in &rows[1..] {
        let text = |name: &str| row[name].as_str().unwrap();
        let body = bytes_of_base64(text("body_base64"));
        let signed = Signed {
            method: text("method").as_bytes(),
            target: text("target").as_bytes(),
            body: &body,
        };
        let header = Some(text("header").as_bytes());
        let before = counting::allocations();
        let verdict = verify_request(signed, header, &keys, number("now_ms"), number("skew_ms"));
        assert_eq!(counting::allocations(), before, "{}", row["id"]);
        let (index, expected) = match text("expect") {
            "ok" => (0, Ok(())),
            "shape" => (1, Err(SignatureReject::Shape)),
            "key" => (2, Err(SignatureReject::Key)),
            "stale" => (3, Err(SignatureReject::Stale)),
            "mac" => (4, Err(SignatureReject::Mac)),
            other => panic!("{}: {other}", row["id"]),
        };
        assert_eq!(verdict, expected, "{}", row["id"]);
        counts[index] += 1;
    }
    assert_eq!(counts, [10, 19, 4, 4, 11]);
}

fn submit(body: &[u8]) -> Signed<'_> {
    Signed {
        method: b"POST",
        target: b"/v1/seckill/p_7vKh2P",
        body,
    }
}

#[test]
fn what_weir_signs_verifies_until_any_bit_of_it_changes() {
    let ours = key(b"app-1", &[7; 32]);
    let keys = SignatureKeys::new(ours.clone(), None).unwrap();
    let verify = |body: &[u8], header: &[u8]| {
        verify_request(submit(body), Some(header), &keys, NOW_MS, SKEW_MS)
    };
    let mut body = br#"{"request_id":"req_0001"}"#.to_vec();
    let mut header = Vec::new();
    sign_request(submit(&body), &ours, NOW_MS, &mut header);
    assert_eq!(verify(&body, &header), Ok(()));
    for bit in 0..header.len() * 8 {
        header[bit / 8] ^= 1 << (bit % 8);
        assert!(verify(&body, &header).is_err(), "bit {bit} of the header");
        header[bit / 8] ^= 1 << (bit % 8);
    }
    for bit in 0..body.len() * 8 {
        body[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(
            verify(&body, &header),
            Err(SignatureReject::Mac),
            "bit {bit} of the body"
        );
        body[bit / 8] ^= 1 << (bit % 8);
    }
    let missing = verify_request(submit(&body), None, &keys, NOW_MS, SKEW_MS);
    assert_eq!(missing, Err(SignatureReject::Missing));
}

#[test]
fn the_window_does_not_overflow() {
    let ours = key(b"app-1", &[7; 32]);
    let keys = SignatureKeys::new(ours.clone(), None).unwrap();
    for (time_ms, wall_ms, skew_ms, expected) in [
        (0, u64::MAX, u64::MAX, Ok(())),
        (u64::MAX, 0, u64::MAX, Ok(())),
        (u64::MAX, 0, u64::MAX - 1, Err(SignatureReject::Stale)),
        (5, 5, 0, Ok(())),
        (5, 6, 0, Err(SignatureReject::Stale)),
    ] {
        let mut header = Vec::new();
        sign_request(submit(b"{}"), &ours, time_ms, &mut header);
        let verdict = verify_request(submit(b"{}"), Some(&header), &keys, wall_ms, skew_ms);
        assert_eq!(verdict, expected, "signed at {time_ms}, now {wall_ms}");
    }
}

#[test]
fn two_keys_live_during_a_rotation_and_no_third() {
    let [old, new, next] = [(b"2026-06", 1), (b"2026-07", 2), (b"2026-08", 3)]
        .map(|(kid, byte)| key(kid, &[byte; 32]));
    let header = |key: &SignatureKey| {
        let mut header = Vec::new();
        sign_request(submit(b"{}"), key, NOW_MS, &mut header);
        header
    };
    let verify = |keys: &SignatureKeys, key: &SignatureKey| {
        verify_request(submit(b"{}"), Some(&header(key)), keys, NOW_MS, SKEW_MS)
    };
    let during = SignatureKeys::new(new.clone(), Some(old.clone())).unwrap();
    let after = SignatureKeys::new(next.clone(), Some(new.clone())).unwrap();
    assert_eq!(verify(&during, &old), Ok(()));
    assert_eq!(verify(&during, &new), Ok(()));
    assert_eq!(verify(&during, &next), Err(SignatureReject::Key));
    assert_eq!(verify(&after, &old), Err(SignatureReject::Key));
    assert_eq!(
        SignatureKeys::new(old.clone(), Some(old)).unwrap_err(),
        KeyError::SameKid
    );
}

#[test]
fn secrets_are_held_to_the_rules_of_keys_and_never_shown() {
    assert_eq!(
        SignatureKey::new(b"a", &[1; 31]).unwrap_err(),
        KeyError::SecretBytes(31)
    );
    assert_eq!(
        SignatureKey::new(b"a b", &[1; 32]).unwrap_err(),
        KeyError::Kid
    );
    let keys = SignatureKeys::new(key(b"shown", b"secretsecretsecretsecretsecretse"), None);
    let shown = format!("{keys:?}");
    assert!(
        shown.contains("shown") && !shown.contains("secret") && !shown.contains("115"),
        "{shown}"
    );
}
