//! Tickets against the shared vectors, our own compact vectors, every flipped bit, and rotation.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

mod vectors;

use serde_json::Value;
use vectors::shared_data;
use weir_proto::ids::{ActivityId, SkuId, UserId};
use weir_proto::limits::TICKET_WINDOW_MS_MAX;
use weir_proto::ticket::{
    Binding, Claims, DeviceClaim, Expect, KeyError, KeyRing, MintError, NonceClaim, TicketKey,
    TicketReject, TicketStage, authenticate, base64url, mint_compact, mint_jws, path_id, verify,
};

const SALT: [u8; 32] = [7; 32];
const NOW_MS: u64 = 1_782_388_810_000;

fn decoded(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    let mut out = vec![0; text.len()];
    base64url::decode(text.as_bytes(), &mut out)
        .unwrap()
        .to_vec()
}

fn expect() -> Expect<'static> {
    Expect {
        activity: ActivityId(10001),
        sku: SkuId(90001),
        user: UserId(70000001),
        activity_version: 8,
        path_id: path_id(b"p_7vKh2P").unwrap(),
        device: None,
        device_salt: &SALT,
        wall_ms: NOW_MS,
        leeway_ms: 0,
    }
}

fn claims() -> Claims {
    Claims {
        activity: ActivityId(10001),
        sku: SkuId(90001),
        user: UserId(70000001),
        activity_version: 8,
        path_id: path_id(b"p_7vKh2P").unwrap(),
        nonce: NonceClaim::Raw(*b"0123456789abcdef"),
        device: DeviceClaim::of_device(&SALT, b"phone-1").unwrap(),
        not_before_ms: NOW_MS - 1_000,
        expires_at_ms: NOW_MS + 29_000,
    }
}

fn key(kid: &str, byte: u8) -> TicketKey {
    TicketKey::new(kid.as_bytes(), &[byte; 32]).unwrap()
}

type Mint = fn(&Claims, &TicketKey, &mut Vec<u8>) -> Result<(), MintError>;
const FORMS: [Mint; 2] = [mint_jws, mint_compact];

fn minted(mint: Mint, claims: &Claims, key: &TicketKey) -> Vec<u8> {
    let mut out = Vec::new();
    mint(claims, key, &mut out).unwrap();
    out
}

fn stage(name: &str) -> TicketStage {
    match name {
        "size" => TicketStage::Size,
        "shape" => TicketStage::Shape,
        "base64" => TicketStage::Base64,
        "header" => TicketStage::Header,
        "alg" => TicketStage::Alg,
        "kid" => TicketStage::Kid,
        "signature" => TicketStage::Signature,
        "claims" => TicketStage::Claims,
        "time" => TicketStage::Time,
        other => panic!("unknown stage {other}"),
    }
}

/// Everything but the device: the vectors' `sha256:ab` is no hash of ours.
fn check_all_but_device(claims: &Claims, expect: &Expect<'_>) -> Result<(), TicketReject> {
    claims.check_window(expect)?;
    claims.check_subject(expect)?;
    claims.check_route(expect)
}

#[test]
fn shared_vectors_are_judged_at_or_before_their_stage() {
    let text = shared_data("token-vectors.jsonl");
    let rows: Vec<Value> = text
        .lines()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    let keys = &rows[0]["keys_b64url"];
    let [k1, k2] =
        ["k1", "k2"].map(|kid| TicketKey::new(kid.as_bytes(), &decoded(&keys[kid])).unwrap());
    let ring = KeyRing::new(k1, Some(k2)).unwrap();
    for row in &rows[1..] {
        let id = row["id"].as_str().unwrap();
        let token = row["token"].as_str().unwrap().as_bytes();
        let expect = Expect {
            wall_ms: row["now_ms"].as_u64().unwrap(),
            leeway_ms: row["skew_ms"].as_u64().unwrap_or(0),
            ..expect()
        };
        let result = authenticate(token, &ring)
            .and_then(|claims| check_all_but_device(&claims, &expect).map(|()| claims));
        match row["expect"].as_str().unwrap() {
            "valid" => {
                let claims = result.unwrap_or_else(|reject| panic!("{id}: {reject:?}"));
                assert_eq!(claims.nonce().as_str(), "n_01JTEST", "{id}");
                assert_eq!(claims.device, DeviceClaim::Foreign, "{id}");
                assert_eq!(
                    verify(token, &ring, &expect),
                    Err(TicketReject::Device),
                    "{id}"
                );
            }
            // Our choice: an escaped name is the same name (RFC 8259 §7).
            "either" => assert!(result.is_ok(), "{id}"),
            // Another issuer's claims and no kid: only its MAC is ours to check.
            "signature-valid" => {
                let key = TicketKey::new(b"rfc", &decoded(&row["key_b64url"])).unwrap();
                let dot = token.iter().rposition(|&byte| byte == b'.').unwrap();
                let tag = decoded(&Value::from(
                    std::str::from_utf8(&token[dot + 1..]).unwrap(),
                ));
                assert_eq!(key.hs256(&token[..dot])[..], tag, "{id}");
                assert_eq!(authenticate(token, &ring), Err(TicketReject::Kid), "{id}");
            }
            "reject" => {
                let reject = result.expect_err(id);
                match id {
                    // The order of B4 looks at bindings after times; the rows say "claims" for both.
                    "claims-actver-old" => {
                        assert_eq!(reject, TicketReject::Binding(Binding::ActivityVersion));
                    }
                    "claims-sku-other" => assert_eq!(reject, TicketReject::Binding(Binding::Sku)),
                    _ => assert!(
                        reject.stage() <= stage(row["stage"].as_str().unwrap()),
                        "{id}: {reject:?}"
                    ),
                }
            }
            other => panic!("{id}: unknown expectation {other}"),
        }
    }
    assert_eq!(rows.len(), 1 + 111);
}

#[test]
fn own_compact_vectors() {
    let text = include_str!("compact-vectors.jsonl");
    let rows: Vec<Value> = text
        .lines()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    let meta = &rows[0];
    let secret = decoded(&meta["secret_b64url"]);
    let key = TicketKey::new(meta["kid"].as_str().unwrap().as_bytes(), &secret).unwrap();
    let salt: [u8; 32] = decoded(&meta["device_salt_b64url"]).try_into().unwrap();
    let ring = KeyRing::new(key.clone(), None).unwrap();
    for row in &rows[1..] {
        let id = row["id"].as_str().unwrap();
        let token = row["token"].as_str().unwrap().as_bytes();
        let result = authenticate(token, &ring);
        if row["expect"] == "reject" {
            assert_eq!(
                format!("{:?}", result.unwrap_err().stage()),
                row["stage"].as_str().unwrap(),
                "{id}"
            );
            continue;
        }
        let claims = result.unwrap_or_else(|reject| panic!("{id}: {reject:?}"));
        let number = |name: &str| row["claims"][name].as_u64().unwrap();
        let text = |name: &str| row["claims"][name].as_str().unwrap();
        assert_eq!(claims.activity.0, number("activity_id"), "{id}");
        assert_eq!(claims.sku.0, number("sku_id"), "{id}");
        assert_eq!(claims.user.0, number("user_id"), "{id}");
        assert_eq!(claims.activity_version, number("activity_version"), "{id}");
        assert_eq!(claims.not_before_ms, number("not_before_ms"), "{id}");
        assert_eq!(claims.expires_at_ms, number("expires_at_ms"), "{id}");
        assert_eq!(claims.path_id.as_str(), text("path_id"), "{id}");
        assert_eq!(claims.nonce().as_str(), text("nonce"), "{id}");
        let device = row["device"].as_str().map(str::as_bytes);
        assert!(claims.device.allows(device, &salt), "{id}");
        assert_eq!(claims.device.allows(None, &salt), device.is_none(), "{id}");
        assert_eq!(minted(mint_compact, &claims, &key), token, "{id}");
    }
    assert_eq!(rows.len(), 1 + 14);
}

#[test]
fn both_forms_carry_the_same_claims() {
    let ring = KeyRing::new(key("k-1", 1), None).unwrap();
    for device in [claims().device, DeviceClaim::Unbound] {
        let claims = Claims { device, ..claims() };
        let expect = Expect {
            device: Some(b"phone-1"),
            ..expect()
        };
        for mint in FORMS {
            let token = minted(mint, &claims, ring.signing());
            assert_eq!(verify(&token, &ring, &expect), Ok(claims));
            assert_eq!(
                verify(&token, &ring, &expect).unwrap().nonce().as_str(),
                "n_MDEyMzQ1Njc4OWFiY2RlZg"
            );
        }
    }
}

/// Mints a thousand tickets and flips each of their bits; gives the number of flips, all refused.
fn flip_every_bit(mint: Mint) -> usize {
    let ring = KeyRing::new(key("k1", 1), Some(key("k2", 2))).unwrap();
    let mut flips = 0;
    for number in 0..1_000u64 {
        let claims = Claims {
            user: UserId(1 + number * 7_919),
            nonce: NonceClaim::Raw((u128::from(number) << 64 | 0x5eed).to_be_bytes()),
            ..claims()
        };
        let mut token = minted(mint, &claims, ring.signing());
        assert_eq!(authenticate(&token, &ring), Ok(claims));
        for bit in 0..token.len() * 8 {
            token[bit / 8] ^= 1 << (bit % 8);
            assert!(
                authenticate(&token, &ring).is_err(),
                "ticket {number}, bit {bit}"
            );
            token[bit / 8] ^= 1 << (bit % 8);
            flips += 1;
        }
    }
    flips
}

#[test]
fn every_single_bit_flip_of_a_thousand_jws_tickets_is_refused() {
    assert!(flip_every_bit(mint_jws) > 1_000 * 350 * 8);
}

#[test]
fn every_single_bit_flip_of_a_thousand_compact_tickets_is_refused() {
    assert_eq!(flip_every_bit(mint_compact), 1_000 * 177 * 8);
}

#[test]
fn cut_and_lengthened_tickets_are_refused() {
    let ring = KeyRing::new(key("k1", 1), None).unwrap();
    for mint in FORMS {
        let token = minted(mint, &claims(), ring.signing());
        for len in 0..token.len() {
            assert!(authenticate(&token[..len], &ring).is_err(), "{len}");
        }
        for tail in [&b"="[..], b"A", b".", b" ", b"\n", b"\0"] {
            assert!(
                authenticate(&[&token, tail].concat(), &ring).is_err(),
                "{tail:?}"
            );
            assert!(
                authenticate(&[tail, &token].concat(), &ring).is_err(),
                "{tail:?}"
            );
        }
    }
}

#[test]
fn two_keys_live_during_a_rotation_and_no_third() {
    let (old, new, next) = (key("2026-06", 1), key("2026-07", 2), key("2026-08", 3));
    let before = KeyRing::new(old.clone(), None).unwrap();
    let during = KeyRing::new(new.clone(), Some(old.clone())).unwrap();
    let after = KeyRing::new(next, Some(new.clone())).unwrap();
    for mint in FORMS {
        let old_ticket = minted(mint, &claims(), before.signing());
        let new_ticket = minted(mint, &claims(), during.signing());
        assert_eq!(authenticate(&new_ticket, &before), Err(TicketReject::Kid));
        assert!(authenticate(&old_ticket, &during).is_ok());
        assert!(authenticate(&new_ticket, &during).is_ok());
        assert_eq!(authenticate(&old_ticket, &after), Err(TicketReject::Kid));
        assert!(authenticate(&new_ticket, &after).is_ok());
        // The right id with another secret.
        let forged = minted(mint, &claims(), &key("2026-07", 9));
        assert_eq!(authenticate(&forged, &during), Err(TicketReject::Signature));
    }
    assert_eq!(
        KeyRing::new(old.clone(), Some(old)).unwrap_err(),
        KeyError::SameKid
    );
}

#[test]
fn checks_run_in_the_order_of_the_seed() {
    let bound = claims();
    let good = Expect {
        device: Some(b"phone-1"),
        ..expect()
    };
    assert_eq!(bound.check(&good), Ok(()));
    // Each step breaks one thing more, later checks first, so the answer moves to the earlier one.
    let device = Expect {
        device: Some(b"phone-2"),
        ..good
    };
    assert_eq!(bound.check(&device), Err(TicketReject::Device));
    assert_eq!(
        bound.check(&Expect {
            device: None,
            ..good
        }),
        Err(TicketReject::Device)
    );
    let path = Expect {
        path_id: path_id(b"p_other").unwrap(),
        ..device
    };
    assert_eq!(
        bound.check(&path),
        Err(TicketReject::Binding(Binding::PathId))
    );
    let version = Expect {
        activity_version: 9,
        ..path
    };
    assert_eq!(
        bound.check(&version),
        Err(TicketReject::Binding(Binding::ActivityVersion))
    );
    let user = Expect {
        user: UserId(1),
        ..version
    };
    assert_eq!(
        bound.check(&user),
        Err(TicketReject::Binding(Binding::User))
    );
    let sku = Expect {
        sku: SkuId(1),
        ..user
    };
    assert_eq!(bound.check(&sku), Err(TicketReject::Binding(Binding::Sku)));
    let activity = Expect {
        activity: ActivityId(1),
        ..sku
    };
    assert_eq!(
        bound.check(&activity),
        Err(TicketReject::Binding(Binding::Activity))
    );
    let late = Expect {
        wall_ms: bound.expires_at_ms,
        ..activity
    };
    assert_eq!(bound.check(&late), Err(TicketReject::Expired));
    let early = Expect {
        wall_ms: bound.not_before_ms - 1,
        ..activity
    };
    assert_eq!(bound.check(&early), Err(TicketReject::NotYet));
}

#[test]
fn leeway_is_bounded_and_exact() {
    let bound = claims();
    let at = |wall_ms, leeway_ms| {
        bound.check_window(&Expect {
            wall_ms,
            leeway_ms,
            ..expect()
        })
    };
    assert_eq!(at(bound.not_before_ms - 2_000, 2_000), Ok(()));
    assert_eq!(
        at(bound.not_before_ms - 2_001, 2_000),
        Err(TicketReject::NotYet)
    );
    assert_eq!(at(bound.expires_at_ms + 1_999, 2_000), Ok(()));
    assert_eq!(
        at(bound.expires_at_ms + 2_000, 2_000),
        Err(TicketReject::Expired)
    );
    assert_eq!(
        at(bound.expires_at_ms + 5_000, u64::MAX),
        Err(TicketReject::Expired)
    );
    assert_eq!(at(bound.expires_at_ms + 4_999, u64::MAX), Ok(()));
    assert_eq!(at(u64::MAX, 5_000), Err(TicketReject::Expired));
    assert_eq!(at(0, 5_000), Err(TicketReject::NotYet));
}

#[test]
fn mint_refuses_what_verify_would() {
    let key = key("k1", 1);
    let long = claims().not_before_ms + TICKET_WINDOW_MS_MAX;
    let cases = [
        (
            Claims {
                expires_at_ms: long + 1,
                ..claims()
            },
            MintError::Claims,
        ),
        (
            Claims {
                expires_at_ms: claims().not_before_ms,
                ..claims()
            },
            MintError::Claims,
        ),
        (
            Claims {
                user: UserId(0),
                ..claims()
            },
            MintError::Claims,
        ),
        (
            Claims {
                sku: SkuId(1 << 63),
                ..claims()
            },
            MintError::Claims,
        ),
        (
            Claims {
                device: DeviceClaim::Foreign,
                ..claims()
            },
            MintError::Device,
        ),
    ];
    for (claims, error) in cases {
        for mint in FORMS {
            let mut out = b"kept".to_vec();
            assert_eq!(mint(&claims, &key, &mut out), Err(error));
            assert_eq!(out, b"kept");
        }
    }
    let mut out = Vec::new();
    let path = Claims {
        path_id: path_id(b"ninebytes").unwrap(),
        ..claims()
    };
    assert_eq!(mint_compact(&path, &key, &mut out), Err(MintError::PathId));
    let ring = KeyRing::new(key.clone(), None).unwrap();
    assert_eq!(
        authenticate(&minted(mint_jws, &path, &key), &ring),
        Ok(path)
    );
    let nonce = NonceClaim::Text(weir_proto::ids::Nonce::new(br#"say"hi\"#).unwrap());
    let nonce = Claims {
        nonce,
        expires_at_ms: long,
        ..claims()
    };
    assert_eq!(mint_compact(&nonce, &key, &mut out), Err(MintError::Nonce));
    assert_eq!(
        authenticate(&minted(mint_jws, &nonce, &key), &ring),
        Ok(nonce)
    );
    assert!(out.is_empty());
}

#[test]
fn jws_header_and_claims_take_nothing_unknown() {
    let key = key("k1", 1);
    let ring = KeyRing::new(key.clone(), None).unwrap();
    let good = r#""version":1,"activity_id":10001,"sku_id":90001,"user_id":7,"device_hash":"","activity_version":8,"path_id":"p_1","nonce":"n","not_before_ms":0,"expires_at_ms":1"#;
    let sign = |header: &str, claims: &str| {
        let mut token = Vec::new();
        base64url::append(header.as_bytes(), &mut token);
        token.push(b'.');
        base64url::append(claims.as_bytes(), &mut token);
        let mac = key.hs256(&token);
        token.push(b'.');
        base64url::append(&mac, &mut token);
        authenticate(&token, &ring)
    };
    let header = r#"{"alg":"HS256","kid":"k1"}"#;
    assert!(sign(header, &format!("{{{good}}}")).is_ok());
    assert!(sign(header, &format!("{{{good},\"iat\":1782388800}}")).is_ok());
    for extra in [
        r#""exp":1"#,
        r#""key_id":"k1""#,
        r#""iat":"x""#,
        r#""\u006eonce":"m""#,
    ] {
        assert_eq!(
            sign(header, &format!("{{{good},{extra}}}")),
            Err(TicketReject::Claims),
            "{extra}"
        );
    }
    for (from, to) in [
        (r#""path_id":"p_1""#, r#""path_id":"""#),
        (r#""path_id":"p_1""#, r#""path_id":"p/1""#),
        (r#""path_id":"p_1""#, r#""path_id":"12345678901234567""#),
        (r#""nonce":"n""#, r#""nonce":"a b""#),
        (
            r#""nonce":"n""#,
            r#""nonce":"123456789012345678901234567890123""#,
        ),
        (r#""version":1"#, r#""version":01"#),
        (r#""user_id":7"#, r#""user_id":0"#),
        (r#""user_id":7"#, r#""user_id":9223372036854775808"#),
        (r#""expires_at_ms":1"#, r#""expires_at_ms":3600001"#),
    ] {
        let claims = format!("{{{}}}", good.replace(from, to));
        assert_eq!(sign(header, &claims), Err(TicketReject::Claims), "{to}");
    }
    for (extra, ok) in [
        (r#""typ":"jwt""#, true),
        (r#""typ":"JOSE""#, false),
        (r#""typ":null"#, false),
        (r#""cty":"JWT""#, false),
    ] {
        let header = format!(r#"{{"alg":"HS256","kid":"k1",{extra}}}"#);
        let result = sign(&header, &format!("{{{good}}}"));
        assert_eq!(result.is_ok(), ok, "{extra}");
        assert!(ok || result == Err(TicketReject::Header), "{extra}");
    }
}

#[test]
fn debug_and_errors_hide_what_must_not_be_logged() {
    let key = TicketKey::new(b"kid-shown", b"secretsecretsecretsecretsecretse").unwrap();
    let ring = KeyRing::new(key, None).unwrap();
    let shown = format!("{ring:?} {:?}", claims());
    assert!(shown.contains("kid-shown"));
    for hidden in ["secret", "70000001", "115, 101"] {
        assert!(!shown.contains(hidden), "{shown}");
    }
    assert_eq!(
        TicketKey::new(b"k", &[0; 31]).unwrap_err(),
        KeyError::SecretBytes(31)
    );
    assert_eq!(
        TicketKey::new(b"k", &[0; 65]).unwrap_err(),
        KeyError::SecretBytes(65)
    );
    assert_eq!(TicketKey::new(b"a/b", &[0; 32]).unwrap_err(), KeyError::Kid);
}
