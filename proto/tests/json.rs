//! The JSON reader, the submit body and the payment callback: tables of cases, and agreement with serde_json.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

use proptest::prelude::*;
use weir_proto::ids::{ActivityId, ReservationId, SkuId, UserId};
use weir_proto::json::{JsonError, MemberFault, Object, Scan, Value, field};
use weir_proto::payment::{PaymentKey, PaymentReject, sign_callback, verify_callback};
use weir_proto::submit::{Submit, SubmitError};

const GOOD: &str =
    r#"{"request_id":"req_0001","activity_id":10001,"sku_id":90001,"user_id":7,"quantity":1}"#;

fn submit(body: &str) -> Result<Submit, SubmitError> {
    Submit::parse(body.as_bytes(), None)
}

#[test]
fn a_submit_is_read() {
    let expected = Submit {
        request_id: weir_proto::ids::RequestId::new(b"req_0001").unwrap(),
        activity: ActivityId(10001),
        sku: SkuId(90001),
        user: UserId(7),
        quantity: 1,
        attempt: 0,
    };
    assert_eq!(submit(GOOD), Ok(expected));
    // Another order, white space, escapes in a name and a value, an attempt.
    let other = "\r\n\t { \"quantity\" : 1 , \"attempt\":4294967295, \"user_id\":7,\n\"sku_id\":90001,\"activity_id\":10001,\
                 \"\\u0072equest_id\":\"r\\u0065q_0001\" } \n";
    assert_eq!(
        submit(other),
        Ok(Submit {
            attempt: u32::MAX,
            ..expected
        })
    );
}

#[test]
fn a_wrong_submit_is_refused_and_the_answer_names_the_member() {
    let cases = [
        // (what to replace, by what, what the answer says)
        (
            "\"quantity\":1",
            "\"quantity\":0",
            "`quantity` must be a number from 1 to 1000",
        ),
        (
            "\"quantity\":1",
            "\"quantity\":1001",
            "`quantity` must be a number from 1 to 1000",
        ),
        (
            "\"quantity\":1",
            "\"quantity\":-1",
            "`quantity` must be a number from 1 to 1000",
        ),
        (
            "\"quantity\":1",
            "\"quantity\":-0",
            "`quantity` must be a number from 1 to 1000",
        ),
        (
            "\"quantity\":1",
            "\"quantity\":99999999999999999999999",
            "`quantity` must be a number from 1 to 1000",
        ),
        (
            "\"quantity\":1",
            "\"quantity\":1.0",
            "`quantity` must be a whole number in plain digits",
        ),
        (
            "\"quantity\":1",
            "\"quantity\":1e0",
            "`quantity` must be a whole number in plain digits",
        ),
        (
            "\"quantity\":1",
            "\"quantity\":\"1\"",
            "`quantity` must be a whole number in plain digits",
        ),
        (
            "\"quantity\":1",
            "\"quantity\":null",
            "`quantity` must be a whole number in plain digits",
        ),
        (
            "\"quantity\":1",
            "\"quantity\":[1]",
            "`quantity` must not be an object or an array",
        ),
        (
            "\"quantity\":1",
            "\"quantity\":{}",
            "`quantity` must not be an object or an array",
        ),
        (",\"quantity\":1", "", "`quantity` is missing"),
        ("\"activity_id\":10001,", "", "`activity_id` is missing"),
        (
            "\"sku_id\":90001",
            "\"sku_id\":9223372036854775808",
            "`sku_id` must be a number from 1 to 9223372036854775807",
        ),
        (
            "\"user_id\":7",
            "\"user_id\":7,\"user_id\":8",
            "`user_id` is given twice; give it once",
        ),
        (
            "\"user_id\":7",
            "\"user_id\":7,\"\\u0075ser_id\":8",
            "`user_id` is given twice; give it once",
        ),
        (
            "\"user_id\":7",
            "\"user_id\":7,\"price\":1",
            "`price` is not a member of this object; remove it",
        ),
        (
            "\"user_id\":7",
            "\"user_id\":7,\"price\":{\"a\":[1]}",
            "`price` is not a member of this object; remove it",
        ),
        (
            "\"user_id\":7",
            "\"user_id\":7,\"<b>\\n\\u00e9\\\"0123456789012345678901234567890\":1",
            "`?b????01234567890123456789012345` is not a member of this object; remove it",
        ),
        (
            "\"user_id\":7",
            "\"user_id\":7,\"\":1",
            "`` is not a member of this object; remove it",
        ),
        (
            "\"req_0001\"",
            "\"req_001\"",
            "`request_id` must have 8 to 64 bytes",
        ),
        (
            "\"req_0001\"",
            "\"\"",
            "`request_id` must have 8 to 64 bytes",
        ),
        (
            "\"req_0001\"",
            "\"req 0001\"",
            "`request_id` may hold only A-Z, a-z, 0-9, dot, underscore, colon and hyphen",
        ),
        (
            "\"req_0001\"",
            "\"req\\u00000001\"",
            "`request_id` may hold only A-Z, a-z, 0-9, dot, underscore, colon and hyphen",
        ),
        ("\"req_0001\"", "17", "`request_id` must be a string"),
        (
            "\"request_id\":\"req_0001\",",
            "",
            "`request_id` is missing; put it in the body or in Idempotency-Key",
        ),
        (
            "\"quantity\":1}",
            "\"quantity\":1}{",
            "the body goes on after its object at byte 85",
        ),
        (
            "{\"request_id\"",
            "\u{feff}{\"request_id\"",
            "the body starts with a byte order mark; remove it",
        ),
        (
            "{\"request_id\"",
            "[{\"request_id\"",
            "the body must be one JSON object",
        ),
        (
            "\"quantity\":1",
            "\"quantity\":01",
            "the body is not valid JSON at byte 84",
        ),
        (
            "\"quantity\":1",
            "\"quantity\":+1",
            "the body is not valid JSON at byte 83",
        ),
        (
            "\"quantity\":1",
            "\"quantity\":- 1",
            "the body is not valid JSON at byte 84",
        ),
        (
            "\"quantity\":1}",
            "\"quantity\":1,}",
            "the body is not valid JSON at byte 85",
        ),
        (
            "\"quantity\":1}",
            "\"quantity\":1",
            "the body is not valid JSON at byte 84",
        ),
        (
            "{\"request_id\"",
            "{,\"request_id\"",
            "the body is not valid JSON at byte 1",
        ),
    ];
    for (from, to, says) in cases {
        assert!(GOOD.contains(from), "{from}");
        let body = GOOD.replacen(from, to, 1);
        assert_eq!(submit(&body).unwrap_err().to_string(), says, "{body}");
    }
    let long = GOOD.replace("req_0001", &"x".repeat(65));
    assert_eq!(
        submit(&long).unwrap_err().to_string(),
        "`request_id` must have 8 to 64 bytes"
    );
    assert!(submit(&GOOD.replace("req_0001", &"x".repeat(64))).is_ok());
    let not_utf8 = [&GOOD.as_bytes()[..20], b"\xff", &GOOD.as_bytes()[20..]].concat();
    assert_eq!(
        Submit::parse(&not_utf8, None),
        Err(SubmitError::Json(JsonError::NotUtf8 { at: 20 }))
    );
    for len in 0..GOOD.len() {
        assert!(submit(&GOOD[..len]).is_err(), "{len}");
    }
}

#[test]
fn the_idempotency_key_may_stand_for_the_request_id() {
    let bare = GOOD.replace(r#""request_id":"req_0001","#, "");
    let with = |body: &str, key: &str| Submit::parse(body.as_bytes(), Some(key.as_bytes()));
    assert_eq!(with(&bare, "req_0001"), submit(GOOD));
    assert_eq!(with(&bare, "\"req_0001\""), submit(GOOD));
    assert_eq!(with(GOOD, "req_0001"), submit(GOOD));
    assert_eq!(with(GOOD, "req_0002"), Err(SubmitError::RequestIdsDiffer));
    for key in [
        "",
        "short",
        "\"req_0001",
        "req 0001",
        "req_0001;x",
        &"x".repeat(65),
    ] {
        assert_eq!(with(&bare, key), Err(SubmitError::IdempotencyKey), "{key}");
    }
    assert_eq!(submit(&bare), Err(SubmitError::NoRequestId));
}

#[test]
fn strings_decode_as_rfc_8259_says() {
    let decode = |literal: &str| {
        let object = format!("{{\"s\":{literal}}}");
        match field(object.as_bytes(), "s") {
            Ok(Some(Value::Text(text))) => {
                let mut out = [0; 64];
                Some(String::from_utf8(text.decode(&mut out).unwrap().to_owned()).unwrap())
            }
            _ => None,
        }
    };
    assert_eq!(
        decode(r#""\"\\\/\b\f\n\r\t""#).unwrap(),
        "\"\\/\u{8}\u{c}\n\r\t"
    );
    assert_eq!(decode(r#""\u00e9\uD83D\ude00é""#).unwrap(), "é😀é");
    for wrong in [
        r#""\x""#,
        r#""\u12""#,
        r#""\u12g4""#,
        r#""\ud800""#,
        r#""\ud800\u0041""#,
        r#""\ud800x""#,
        r#""\udc00""#,
        r#""\ud800\ud800""#,
        "\"\n\"",
        "\"\u{0}\"",
        "\"\t\"",
        r#""open"#,
        r#""\"#,
        "'a'",
    ] {
        assert_eq!(decode(wrong), None, "{wrong}");
    }
}

#[test]
fn field_reads_answers_with_members_it_does_not_know() {
    let answer =
        br#"{"code":"SECKILL_QUEUED","retryable":false,"next_poll_after_ms":500,"x":null,"x":1}"#;
    assert!(
        matches!(field(answer, "code"), Ok(Some(Value::Text(text))) if text.plain() == Some("SECKILL_QUEUED"))
    );
    assert!(matches!(
        field(answer, "retryable"),
        Ok(Some(Value::Bool(false)))
    ));
    assert!(matches!(
        field(answer, "next_poll_after_ms"),
        Ok(Some(Value::Integer(500)))
    ));
    assert!(matches!(field(answer, "absent"), Ok(None)));
    let twice = field(answer, "x").unwrap_err();
    assert_eq!(twice, JsonError::member("x", MemberFault::Duplicate));
    assert!(field(&answer[..answer.len() - 1], "code").is_err());
}

#[test]
fn a_boolean_is_read_and_an_empty_object_is_one() {
    let mut object = Object::open(br#"{"force":true}"#, &["force"]).unwrap();
    let member = object.next_member().unwrap().unwrap();
    assert_eq!((member.name, member.bool()), ("force", Ok(true)));
    assert!(member.integer(0..=1).is_err());
    assert!(object.next_member().unwrap().is_none());
    assert!(object.next_member().unwrap().is_none());
    assert!(
        Object::open(b" { } ", &[])
            .unwrap()
            .next_member()
            .unwrap()
            .is_none()
    );
}

/// All members as (name, value in serde_json's terms); `None` stands for an integer outside u64.
fn scanned(bytes: &[u8]) -> Option<Vec<(String, Option<serde_json::Value>)>> {
    let mut scan = Scan::open(bytes).ok()?;
    let mut members = Vec::new();
    while let Some((name, value)) = scan.next_member().ok()? {
        let value = match value {
            Value::Text(text) => Some(text.chars().collect::<String>().into()),
            Value::Integer(number) => Some(number.into()),
            Value::Bool(value) => Some(value.into()),
            Value::Null => Some(serde_json::Value::Null),
            Value::OutsideU64 => None,
        };
        members.push((name.chars().collect(), value));
    }
    Some(members)
}

/// What we accept, serde_json accepts and reads alike (the last of equal names counts there).
fn agrees(bytes: &[u8]) {
    let Some(ours) = scanned(bytes) else { return };
    let theirs: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{error}: {bytes:?}"));
    for (name, value) in &theirs {
        let (_, last) = ours.iter().rev().find(|(ours, _)| ours == name).unwrap();
        match last {
            Some(last) => assert_eq!(last, value, "{name}"),
            None => assert!(
                value.as_u64().is_none() && value.is_number(),
                "{name}: {value}"
            ),
        }
    }
    assert!(ours.iter().all(|(name, _)| theirs.contains_key(name)));
}

fn literal() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<u64>().prop_map(|n| n.to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<String>().prop_map(|s| serde_json::to_string(&s).unwrap()),
        "\"(\\\\u[0-9a-fA-F]{4}|\\\\[\"\\\\/bfnrt]|[a-z])*\"",
        Just("true".to_owned()),
        Just("false".to_owned()),
        Just("null".to_owned()),
        "-?[0-9]{1,25}",
        "-?[0-9]{1,3}(\\.[0-9]{0,3})?([eE][+-]?[0-9]{0,3})?",
        Just("{}".to_owned()),
        Just("[1]".to_owned()),
    ]
}

fn object_text() -> impl Strategy<Value = String> {
    let member = ("[a-c]|\\\\u006[1-3]|\\PC{0,3}", literal(), "[ \t\r\n]{0,2}");
    prop::collection::vec(member, 0..5).prop_map(|members| {
        let members: Vec<String> = members
            .iter()
            .map(|(name, value, space)| format!("{space}\"{name}\"{space}:{space}{value}{space}"))
            .collect();
        format!("{{{}}}", members.join(","))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn accepted_objects_read_as_serde_json_reads_them(text in object_text()) {
        agrees(text.as_bytes());
    }

    #[test]
    fn accepted_objects_read_alike_after_damage(text in object_text(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        agrees(&bytes);
        bytes.remove(at);
        agrees(&bytes);
    }

    #[test]
    fn flat_objects_of_serde_json_are_accepted(
        members in prop::collection::btree_map(any::<String>(), prop_oneof![
            any::<u64>().prop_map(serde_json::Value::from),
            any::<String>().prop_map(serde_json::Value::from),
            any::<bool>().prop_map(serde_json::Value::from),
        ], 0..6)
    ) {
        let text = serde_json::to_vec(&members).unwrap();
        let ours = scanned(&text).unwrap();
        prop_assert_eq!(ours.len(), members.len());
        for (name, value) in ours {
            prop_assert_eq!(value.as_ref(), members.get(&name));
        }
    }
}

const PAID: &str = r#"{"payment_id":"pay-1","reservation_id":"rsv_00000000000000ff","activity_id":10001,"sku_id":90001,"amount_minor":4990,"currency":"EUR","paid_at_ms":1782388810000}"#;
const NOW_MS: u64 = 1_782_388_810_000;

fn signed(body: &str, key: &PaymentKey, time_ms: u64) -> Vec<u8> {
    let mut header = Vec::new();
    sign_callback(body.as_bytes(), key, time_ms, &mut header);
    header
}

#[test]
fn a_signed_callback_is_read_and_only_within_five_minutes() {
    let key = PaymentKey::new(&[5; 32]).unwrap();
    let header = signed(PAID, &key, NOW_MS);
    let at = |wall_ms| verify_callback(PAID.as_bytes(), Some(&header), &key, wall_ms);
    let paid = at(NOW_MS).unwrap();
    assert_eq!(paid.payment_id.as_str(), "pay-1");
    assert_eq!(paid.reservation, ReservationId(255));
    assert_eq!(paid.reservation.to_string(), "rsv_00000000000000ff");
    assert_eq!((paid.activity, paid.sku), (ActivityId(10001), SkuId(90001)));
    assert_eq!(
        (paid.amount_minor, &paid.currency, paid.paid_at_ms),
        (4990, b"EUR", NOW_MS)
    );
    assert_eq!(at(NOW_MS + 300_000), Ok(paid));
    assert_eq!(at(NOW_MS - 300_000), Ok(paid));
    assert_eq!(at(NOW_MS + 300_001), Err(PaymentReject::Stale));
    assert_eq!(at(NOW_MS - 300_001), Err(PaymentReject::Stale));
}

#[test]
fn the_signature_is_what_the_documentation_says() {
    use hmac::{Hmac, Mac};
    let hmac = |key: &[u8], text: &[u8]| {
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(key).unwrap();
        mac.update(text);
        mac.finalize().into_bytes()
    };
    let derived = hmac(&[5; 32], b"weir payment callback v1");
    let tag = hmac(&derived, format!("{NOW_MS}.{PAID}").as_bytes());
    let header = format!("t={NOW_MS},v1={tag:x}");
    let key = PaymentKey::new(&[5; 32]).unwrap();
    assert_eq!(signed(PAID, &key, NOW_MS), header.as_bytes());
    assert_eq!(format!("{key:?}"), "PaymentKey(hidden)");
}

#[test]
fn a_callback_with_a_wrong_signature_is_refused_before_its_body_is_read() {
    let key = PaymentKey::new(&[5; 32]).unwrap();
    let header = signed(PAID, &key, NOW_MS);
    let verify =
        |body: &str, header: &[u8]| verify_callback(body.as_bytes(), Some(header), &key, NOW_MS);
    for bit in 0..header.len() * 8 {
        let mut flipped = header.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let reject = verify(PAID, &flipped).unwrap_err();
        assert!(
            matches!(reject, PaymentReject::Shape | PaymentReject::Signature),
            "bit {bit}: {reject:?}"
        );
    }
    for len in 0..header.len() {
        assert_eq!(
            verify(PAID, &header[..len]),
            Err(PaymentReject::Shape),
            "{len}"
        );
    }
    assert_eq!(verify("not json", &header), Err(PaymentReject::Signature));
    assert_eq!(
        verify(
            PAID,
            &signed(PAID, &PaymentKey::new(&[6; 32]).unwrap(), NOW_MS)
        ),
        Err(PaymentReject::Signature)
    );
    assert_eq!(
        verify_callback(PAID.as_bytes(), None, &key, NOW_MS),
        Err(PaymentReject::Missing)
    );
    let upper = String::from_utf8(header)
        .unwrap()
        .to_uppercase()
        .replace("T=", "t=")
        .replace("V1", "v1");
    assert_eq!(verify(PAID, upper.as_bytes()), Err(PaymentReject::Shape));
}

#[test]
fn a_signed_callback_with_a_wrong_body_names_the_member() {
    let key = PaymentKey::new(&[5; 32]).unwrap();
    for (from, to, says) in [
        ("\"pay-1\"", "\"\"", "`payment_id` must have 1 to 64 bytes"),
        (
            "\"pay-1\"",
            "\"pay 1\"",
            "`payment_id` may hold only visible ASCII",
        ),
        (
            "00ff\"",
            "00FF\"",
            "`reservation_id` must be rsv_ and 16 lower-case hex digits",
        ),
        (
            "00ff\"",
            "0ff\"",
            "`reservation_id` must be rsv_ and 16 lower-case hex digits",
        ),
        (
            "4990",
            "49.90",
            "`amount_minor` must be a whole number in plain digits",
        ),
        (
            "4990",
            "-1",
            "`amount_minor` must be a number from 0 to 9223372036854775807",
        ),
        (
            "EUR",
            "eur",
            "`currency` must be three letters A to Z (ISO 4217)",
        ),
        (
            "EUR",
            "EU",
            "`currency` must be three letters A to Z (ISO 4217)",
        ),
        (
            ",\"paid_at_ms\":1782388810000",
            "",
            "`paid_at_ms` is missing",
        ),
    ] {
        let body = PAID.replace(from, to);
        let header = signed(&body, &key, NOW_MS);
        let reject = verify_callback(body.as_bytes(), Some(&header), &key, NOW_MS).unwrap_err();
        assert!(matches!(reject, PaymentReject::Body(_)), "{body}");
        assert_eq!(reject.to_string(), says);
    }
}
