//! No reserve, refusal, lookup or step of the ledger allocates, and the owner allocates per batch, never per ask:
//! counted by this binary's own allocator. `main` of its own, so that no test harness allocates in between.

use std::sync::Arc;
use weir_core::ask::*;
use weir_core::journal::{BatchResult, Image};
use weir_core::ledger::codec::Journal;
use weir_core::ledger::owner::{Owner, OwnerConfig};
use weir_core::ledger::{Ledger, LedgerConfig};
use weir_core::limit::gcra::Rate;
use weir_core::limit::lease::ShardId;
use weir_core::limits::BATCH_BYTES_MAX;
use weir_core::mail::{Addr, Mail};
use weir_core::order::contract::Money;
use weir_core::port::{Effects, Event, Handler};
use weir_core::sale::{Activity, Sale, Sku};
use weir_core::time::{Mono, Now, WallMs};
use weir_proto::ids::*;
use weir_proto::text::Text;

#[path = "../../../tests/support/counting.rs"]
mod counting;

const KEY: SkuKey = SkuKey {
    activity: ActivityId(1),
    sku: SkuId(1),
};
const STOCK: u64 = 5_000;

fn sale() -> Arc<Sale> {
    let sku = Sku {
        id: KEY.sku,
        first_stock: STOCK,
        quantity_max: 1,
        once_per_activity: false,
        unit_price: Money {
            minor: 1,
            currency: *b"CNY",
        },
        unpaid_timeout_ms: 1,
        budget: Rate::per_second(1),
        sold_out_ttl_ms: 2_000,
    };
    Arc::new(Sale {
        activities: vec![Activity {
            id: KEY.activity,
            version: 1,
            path_id: text(b"p", 1),
            opens_at: WallMs(0),
            closes_at: WallMs(1),
            retention_ms: 0,
            device_salt: [0; 32],
            skus: vec![sku],
        }],
    })
}

/// `prefix` and 8 digits, without allocating.
fn text<const N: usize>(prefix: &[u8], number: u64) -> Text<N> {
    let mut bytes = [b'0'; 16];
    bytes[..prefix.len()].copy_from_slice(prefix);
    for place in 0..8 {
        bytes[15 - place] = b'0' + (number / 10u64.pow(place as u32) % 10) as u8;
    }
    Text::new(&bytes).expect("visible ASCII")
}

fn reserve(user: u64) -> LedgerOp {
    LedgerOp::Reserve(Reserve {
        sku: KEY,
        user: UserId(user),
        request_id: text(b"request", user),
        nonce: text(b"nonce", user),
        nonce_until: WallMs(1),
        quantity: 1,
    })
}

fn lookup(user: u64, tombstone: bool) -> LedgerOp {
    LedgerOp::Lookup(Lookup {
        sku: KEY,
        user: UserId(user),
        request_id: text(b"request", user),
        tombstone,
    })
}

fn open() -> LedgerOp {
    LedgerOp::Open(Open {
        target: OpsRef {
            sku: KEY,
            request_id: text(b"open", 1),
        },
        stock: STOCK,
        quantity_max: 1,
        once_per_activity: false,
    })
}

fn the_ledger_allocates_nothing() {
    let mut ledger = Ledger::new(LedgerConfig::of_sale(&sale(), 1));
    let mut journal = Journal::new(Vec::with_capacity(16 * BATCH_BYTES_MAX));
    ledger.apply(WallMs(1), &open(), &mut journal);
    let before = counting::allocations();
    for user in 1..=STOCK + 1_000 {
        ledger.apply(WallMs(1), &reserve(user), &mut journal);
        ledger.apply(WallMs(1), &reserve(user), &mut journal);
        ledger.apply(WallMs(1), &lookup(user + 1_000_000, true), &mut journal);
        ledger.apply(WallMs(1), &lookup(user, false), &mut journal);
        if user % 500 == 0 {
            ledger.turn_tombstones(WallMs(1), &mut journal);
        }
    }
    for number in 1..=STOCK {
        let target = ReservationRef {
            sku: KEY,
            reservation: ReservationId(number),
        };
        ledger.apply(WallMs(1), &LedgerOp::Confirm(target), &mut journal);
        let end = ReleaseEnd::Closed;
        ledger.apply(
            WallMs(1),
            &LedgerOp::Release(Release { target, end }),
            &mut journal,
        );
    }
    ledger.reopen(WallMs(1), &mut journal);
    for user in 20_001..=20_000 + STOCK {
        ledger.apply(WallMs(1), &reserve(user), &mut journal);
    }
    let count = counting::allocations() - before;
    assert_eq!(count, 0, "the ledger allocated while serving");
    assert_eq!(
        ledger.next_reservation().0,
        2 * STOCK + 1,
        "all of it was sold twice"
    );
}

/// One turn of `ops`; the store syncs at once when `syncs`. Returns how many answers came.
fn turn(
    owner: &mut Owner,
    fx: &mut Effects,
    ops: impl Iterator<Item = LedgerOp>,
    syncs: bool,
) -> u64 {
    let now = Now {
        mono: Mono(1),
        wall: WallMs(1),
    };
    for (number, op) in (0..).zip(ops) {
        let ask = Ask {
            from: Addr::Shard(ShardId(0)),
            id: AskId(number),
            deadline: Mono(2),
            op,
        };
        owner.on_event(now, Event::Mail(Mail::Ask(ask)), fx);
    }
    owner.on_flush(now, fx);
    let (mut batch, mut answers) = (None, 0);
    let mut collect = |mail| match mail {
        Mail::Append(sealed) => batch = Some(sealed),
        Mail::Answer(_) => answers += 1,
        _ => {}
    };
    deliver(fx, &mut collect);
    if let Some(batch) = batch.filter(|_| syncs) {
        let result = BatchResult {
            seq: batch.seq,
            result: Ok(()),
            buffer: batch.bytes,
        };
        owner.on_event(now, Event::Mail(Mail::Appended(Box::new(result))), fx);
        owner.on_flush(now, fx);
        deliver(fx, &mut |mail| {
            answers += u64::from(matches!(mail, Mail::Answer(_)))
        });
    }
    answers
}

#[allow(clippy::result_large_err)] // a full mailbox gives the mail back by value
fn deliver(fx: &mut Effects, take: &mut impl FnMut(Mail)) {
    fx.deliver_posts(|_, mail| {
        take(mail);
        Ok(())
    });
}

fn the_owner_allocates_per_batch_only() {
    let mut owner = Owner::new(OwnerConfig {
        sale: sale(),
        shards_count: 1,
        seed: 1,
    });
    let mut fx = Effects::new(0);
    let now = Now::default();
    owner.on_start(now, &mut fx);
    deliver(&mut fx, &mut |_| {});
    let image = Box::new(Image::default());
    owner.on_event(now, Event::Mail(Mail::Recovered(image)), &mut fx);
    turn(&mut owner, &mut fx, std::iter::empty(), true);
    turn(&mut owner, &mut fx, (1..1_001).map(reserve), true); // warm-up: queues get their size

    let before = counting::allocations();
    let mut answers = 0;
    for round in 0..3 {
        let start = 2_000 + round * 1_000;
        answers += turn(
            &mut owner,
            &mut fx,
            (start..start + 1_000).map(reserve),
            true,
        );
    }
    let count = counting::allocations() - before;
    assert_eq!(answers, 3_000);
    // Per batch: its box, its result's box (of this test), the order messages, which grow by doubling.
    assert!(count <= 3 * 14, "{count} allocations for 3 batches");

    turn(&mut owner, &mut fx, (10_000..11_000).map(reserve), true); // sells out: the filter is built once
    let before = counting::allocations();
    let refused = turn(&mut owner, &mut fx, (20_000..21_000).map(reserve), true);
    let found = turn(
        &mut owner,
        &mut fx,
        (1..1_001).map(|user| lookup(user, false)),
        true,
    );
    let repeated = turn(&mut owner, &mut fx, (1..1_001).map(reserve), true);
    let count = counting::allocations() - before;
    assert_eq!((refused, found, repeated), (1_000, 1_000, 1_000));
    assert_eq!(count, 0, "refusals, lookups and repeats allocated");
}

fn main() {
    the_ledger_allocates_nothing();
    the_owner_allocates_per_batch_only();
    println!("ledger: 0 allocations per ask");
}
