//! No ask is written to Redis and no answer read with an allocation, once the buffer has room: counted by this binary's
//! own allocator.

use weir_core::ask::{LedgerAnswer, LedgerOp, Lookup, ReservationRef, Reserve};
use weir_core::order::contract::Money;
use weir_core::redis::link::greeting::HomeId;
use weir_core::redis::reply::{Asked, answer};
use weir_core::redis::step::{SkuSteps, StepPlan};
use weir_core::time::WallMs;
use weir_proto::ids::{ActivityId, Nonce, RequestId, ReservationId, SkuId, SkuKey, UserId};
use weir_proto::resp::{Scan, Scanner, read};

#[path = "../../../tests/support/counting.rs"]
mod counting;

const ROUNDS: u64 = 100_000;

fn main() {
    let sku = SkuKey {
        activity: ActivityId(i64::MAX as u64),
        sku: SkuId(i64::MAX as u64),
    };
    let steps = SkuSteps::new(StepPlan {
        sku,
        reservations_max: 1_000_000,
        unit_price: Money {
            minor: u64::MAX,
            currency: *b"CNY",
        },
        keep_until: WallMs(1_900_000_000_000),
        policy: 1,
        ids_above: 1 << 32,
    });
    let request_id = RequestId::new(&[b'r'; 64]).expect("visible ASCII");
    let nonce = Nonce::new(&[b'n'; 32]).expect("visible ASCII");
    let home = HomeId::new(&[b'h'; 81]).expect("visible ASCII");
    let mut out = Vec::with_capacity(4096);
    let mut granted = 0;
    let before = counting::allocations();
    for round in 0..ROUNDS {
        let user = UserId(i64::MAX as u64 - round);
        out.clear();
        let reserve = LedgerOp::Reserve(Reserve {
            sku,
            user,
            request_id,
            nonce,
            nonce_until: WallMs(0),
            quantity: 1,
        });
        steps.push(&reserve, &home, &mut out);
        let lookup = LedgerOp::Lookup(Lookup {
            sku,
            user,
            request_id,
            tombstone: true,
        });
        steps.push(&lookup, &home, &mut out);
        let settle = LedgerOp::Settle(ReservationRef {
            sku,
            reservation: ReservationId((1 << 32) + 7),
        });
        steps.push(&settle, &home, &mut out);

        let reply = b"*7\r\n:0\r\n:7\r\n:0\r\n:1\r\n:5\r\n:1\r\n:1796000000000\r\n";
        let Scan::Done { bytes } = Scanner::new().scan(reply) else {
            panic!("a whole reply");
        };
        let told = answer(Asked::Reserve, 1 << 32, &read(&reply[..bytes]));
        let told = told.expect("a reserve's reply");
        granted += u64::from(matches!(told.answer, LedgerAnswer::Granted(_)));
    }
    let counted = counting::allocations() - before;
    assert_eq!(granted, ROUNDS);
    assert_eq!(counted, 0, "{counted} allocations in {ROUNDS} rounds");
    println!("redis_allocations: 0 in {ROUNDS} rounds of three asks and an answer");
}
