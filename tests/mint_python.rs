//! What a shop may use in its own backend: the ticket that `deploy/mint_ticket.py` makes and the signatures that
//! `deploy/sign_request.py` and `deploy/sign_request.sh` make verify.

#![allow(clippy::unwrap_used, reason = "test code")]

#[path = "support/say.rs"]
mod say;

use say::skip;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_proto::ids::{ActivityId, PathId, SkuId, UserId};
use weir_proto::signature::{SignatureKey, SignatureKeys, Signed, sign_request, verify_request};
use weir_proto::ticket::{Expect, KeyRing, TicketKey, verify};

#[test]
fn a_ticket_made_by_the_python_snippet_verifies() {
    if Command::new("python3").arg("--version").output().is_err() {
        skip("python3 is not installed on this machine");
        return;
    }
    let dir = std::env::temp_dir().join(format!("weir-mint-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let key_file = dir.join("ticket.key");
    let secret: Vec<u8> = (0..32).map(|byte| byte * 7 + 1).collect();
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(&key_file, hex + "\n").unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/mint_ticket.py");
    let output = Command::new("python3")
        .arg(script)
        .arg(&key_file)
        .args(["k1", "10001", "8", "p_7vKh2P", "90001", "42", "60"])
        .output()
        .unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let ticket = output.stdout.trim_ascii();
    let ring = KeyRing::new(TicketKey::new(b"k1", &secret).unwrap(), None).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let expect = Expect {
        activity: ActivityId(10_001),
        sku: SkuId(90_001),
        user: UserId(42),
        activity_version: 8,
        path_id: PathId::new(b"p_7vKh2P").unwrap(),
        device: None,
        device_salt: &[0; 32],
        wall_ms: now.as_millis() as u64,
        leeway_ms: 5_000,
    };
    let claims = verify(ticket, &ring, &expect).unwrap();
    assert_eq!(claims.expires_at_ms - claims.not_before_ms, 60_000);
    assert!(
        claims.nonce.raw().is_some(),
        "a nonce that fits the compact form, too"
    );
    let other = KeyRing::new(TicketKey::new(b"k1", &[9; 32]).unwrap(), None).unwrap();
    assert!(verify(ticket, &other, &expect).is_err());
}

#[test]
fn signatures_made_by_the_python_and_the_shell_recipe_are_ours() {
    for program in ["python3", "openssl"] {
        if Command::new(program).arg("version").output().is_err() {
            skip(&format!("{program} is not installed on this machine"));
            return;
        }
    }
    let dir = std::env::temp_dir().join(format!("weir-sign-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let secret: Vec<u8> = (0..32).map(|byte| byte * 5 + 2).collect();
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let (key_file, body_file) = (dir.join("request-1.key"), dir.join("body"));
    std::fs::write(&key_file, hex + "\n").unwrap();
    let key = SignatureKey::new(b"request-1", &secret).unwrap();
    let keys = SignatureKeys::new(key.clone(), None).unwrap();
    for body in [
        &b"{\"quantity\":1}"[..],
        b"",
        b"line\nline\n\n",
        "\u{e9}\u{0}".as_bytes(),
    ] {
        std::fs::write(&body_file, body).unwrap();
        let signed = Signed {
            method: b"POST",
            target: b"/v1/seckill/p_7vKh2P?a=%20b",
            body,
        };
        for script in ["sign_request.py", "sign_request.sh"] {
            let run = |time: &[&str]| {
                let output =
                    Command::new(format!("{}/deploy/{script}", env!("CARGO_MANIFEST_DIR")))
                        .arg(&key_file)
                        .args(["request-1", "POST", "/v1/seckill/p_7vKh2P?a=%20b"])
                        .arg(&body_file)
                        .args(time)
                        .output()
                        .unwrap();
                let errors = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success(), "{script}: {errors}");
                output.stdout.trim_ascii().to_vec()
            };
            let mut ours = Vec::new();
            sign_request(signed, &key, 1_796_040_000_000, &mut ours);
            assert_eq!(run(&["1796040000000"]), ours, "{script}");
            let fresh = run(&[]);
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let verdict =
                verify_request(signed, Some(&fresh), &keys, now.as_millis() as u64, 300_000);
            assert_eq!(verdict, Ok(()), "{script}");
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
