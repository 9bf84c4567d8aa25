//! Verifying a ticket, reading a submit and verifying a payment callback allocate nothing.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

use weir_proto::ids::{ActivityId, SkuId, UserId};
use weir_proto::payment::{PaymentKey, sign_callback, verify_callback};
use weir_proto::submit::Submit;
use weir_proto::ticket::{
    Claims, DeviceClaim, Expect, KeyRing, NonceClaim, TicketKey, mint_compact, mint_jws, path_id,
    verify,
};

#[path = "../../tests/support/counting.rs"]
mod counting;

fn allocations_of<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = counting::allocations();
    let result = work();
    (counting::allocations() - before, result)
}

const SALT: [u8; 32] = [3; 32];

#[test]
fn verify_mint_into_room_submit_and_callback_allocate_nothing() {
    let (counted, _) = allocations_of(|| vec![0u8; 32]);
    assert_eq!(counted, 1, "the counter counts");

    let claims = Claims {
        activity: ActivityId(1),
        sku: SkuId(2),
        user: UserId(3),
        activity_version: 4,
        path_id: path_id(b"p_1").unwrap(),
        nonce: NonceClaim::Raw([9; 16]),
        device: DeviceClaim::of_device(&SALT, b"phone").unwrap(),
        not_before_ms: 1_000,
        expires_at_ms: 2_000,
    };
    let expect = Expect {
        activity: claims.activity,
        sku: claims.sku,
        user: claims.user,
        activity_version: 4,
        path_id: claims.path_id,
        device: Some(b"phone"),
        device_salt: &SALT,
        wall_ms: 1_500,
        leeway_ms: 0,
    };
    let ring = KeyRing::new(TicketKey::new(b"k1", &[1; 32]).unwrap(), None).unwrap();
    for mint in [mint_jws, mint_compact] {
        let mut token = Vec::with_capacity(1024);
        let (counted, _) = allocations_of(|| mint(&claims, ring.signing(), &mut token).unwrap());
        assert_eq!(counted, 0);
        let (counted, result) =
            allocations_of(|| verify(&token, &ring, &expect).map(|claims| claims.nonce()));
        assert_eq!(counted, 0);
        assert_eq!(result, Ok(claims.nonce()));
        *token.last_mut().unwrap() ^= 1;
        let (counted, result) = allocations_of(|| verify(&token, &ring, &expect));
        assert_eq!(counted, 0);
        assert!(result.is_err());
    }

    let body = br#"{"\u0072equest_id":"req_000\u0031","activity_id":1,"sku_id":2,"user_id":3,"quantity":1}"#;
    let (counted, result) = allocations_of(|| Submit::parse(body, Some(b"req_0001")));
    assert_eq!(counted, 0);
    assert!(result.is_ok());
    let (counted, result) = allocations_of(|| Submit::parse(&body[..60], None));
    assert_eq!(counted, 0);
    assert!(result.is_err());

    let key = PaymentKey::new(&[2; 32]).unwrap();
    let body = br#"{"payment_id":"p","reservation_id":"rsv_0000000000000001","activity_id":1,"sku_id":2,"amount_minor":3,"currency":"EUR","paid_at_ms":5}"#;
    let mut header = Vec::new();
    sign_callback(body, &key, 1_500, &mut header);
    let (counted, result) = allocations_of(|| verify_callback(body, Some(&header), &key, 1_500));
    assert_eq!(counted, 0);
    assert!(result.is_ok());
}
