//! A payment of a shop's provider, as the bytes of its callback.
#![allow(clippy::unwrap_used)] // a helper of tests

use weir::config::{Host, Plan};
use weir_proto::payment::{PaymentKey, sign_callback};

/// For what `reservation` holds: a unit of the shop's first SKU.
pub fn payment(plan: &Plan, reservation: &str) -> Vec<u8> {
    let price = plan.sale.activities[0].skus[0].unit_price;
    let now = Host::read().wall_ms;
    let body = format!(
        "{{\"payment_id\":\"pay-{reservation}\",\"reservation_id\":\"{reservation}\",\"activity_id\":1,\"sku_id\":1,\
         \"amount_minor\":{},\"currency\":\"{}\",\"paid_at_ms\":{now}}}",
        price.minor,
        std::str::from_utf8(&price.currency).unwrap()
    );
    let key: &PaymentKey = plan.shard.payment_key.as_ref().unwrap();
    let mut signature = Vec::new();
    sign_callback(body.as_bytes(), key, now, &mut signature);
    let signature = String::from_utf8(signature).unwrap();
    format!(
        "POST /v1/payments/callback HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\n\
         X-Weir-Signature: {signature}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
