//! The permissions that `lua/README.md` tells an operator to give are enough for every step, and each of them is needed.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

mod lua_part;
mod redis_part;

use lua_part::{Reply, Wire};
use redis_part::Redis;
use weir_core::ask::*;
use weir_core::limit::gcra::Rate;
use weir_core::limit::lease::{LeaseDraw, LeaseReturn, ShardId};
use weir_core::order::contract::{Money, ORDER_MESSAGE_VERSION, OrderMessage};
use weir_core::redis::lease::{LeasePolicy, LeaseSteps};
use weir_core::redis::link::greeting::HomeId;
use weir_core::redis::offer::Offer;
use weir_core::redis::step::{Maker, Rehomed, SkuSteps, StepPlan, Stock, StreamId, Take};
use weir_core::time::WallMs;
use weir_proto::ids::*;

const README: &str = include_str!("../lua/README.md");

fn permissions() -> Vec<&'static str> {
    let (_, section) = README.split_once("## Permissions").unwrap();
    let rules = section.split("```").nth(1).unwrap();
    rules.split_whitespace().collect()
}

const SKU: SkuKey = SkuKey {
    activity: ActivityId(1),
    sku: SkuId(1),
};

fn ops(name: &str) -> OpsRef {
    OpsRef {
        sku: SKU,
        request_id: RequestId::new(name.as_bytes()).unwrap(),
    }
}

fn reserve(user: u64) -> LedgerOp {
    LedgerOp::Reserve(Reserve {
        sku: SKU,
        user: UserId(user),
        request_id: RequestId::new(b"request-1").unwrap(),
        nonce: Nonce::new(user.to_string().as_bytes()).unwrap(),
        nonce_until: WallMs(0),
        quantity: 1,
    })
}

fn named(id: u64) -> ReservationRef {
    ReservationRef {
        sku: SKU,
        reservation: ReservationId(id),
    }
}

fn granted(user: u64) -> Offer {
    Offer {
        message: OrderMessage {
            version: ORDER_MESSAGE_VERSION,
            reservation: ReservationId(40),
            sku: SKU,
            user: UserId(user),
            quantity: 1,
            request_id: RequestId::new(b"request-7").unwrap(),
            unit_price: Money {
                minor: 100,
                currency: *b"CNY",
            },
            reserved_at: WallMs(1_796_000_000_000),
        },
        nonce: Nonce::new(b"seven"),
        state: ReservationState::Reserved,
    }
}

/// Every script once, on every way that writes; the errors.
fn everything_once(wire: &mut Wire) -> Vec<String> {
    let steps = SkuSteps::new(StepPlan {
        sku: SKU,
        reservations_max: 100,
        unit_price: Money {
            minor: 100,
            currency: *b"CNY",
        },
        keep_until: WallMs(1_900_000_000_000),
        policy: 1,
        ids_above: 0,
    });
    let release = |id| {
        LedgerOp::Release(Release {
            target: named(id),
            end: ReleaseEnd::Closed,
        })
    };
    let asks = [
        LedgerOp::Open(Open {
            target: ops("open-one"),
            stock: 2,
            quantity_max: 1,
            once_per_activity: false,
        }),
        LedgerOp::Lookup(Lookup {
            sku: SKU,
            user: UserId(9),
            request_id: RequestId::new(b"request-9").unwrap(),
            tombstone: true,
        }),
        reserve(1),
        reserve(2), // sells out
        LedgerOp::Confirm(named(1)),
        LedgerOp::Settle(named(1)),
        release(2),
        LedgerOp::PaidLate(named(2)),
        LedgerOp::Restock(Restock {
            target: ops("restock-1"),
            units: 1,
        }),
        LedgerOp::SetMode(SetMode {
            target: ops("mode-one"),
            mode: Mode::Normal,
        }),
        LedgerOp::Close(ops("close-one")),
    ];
    let mut replies: Vec<Reply> = Vec::new();
    for ask in &asks {
        replies.push(wire.run(|out| steps.push(ask, &HomeId::default(), out)));
    }
    replies.push(wire.run(|out| steps.push_outbox((WallMs(0), 0), 10, 0, out)));
    // With a group, and a claim; then what was taken is forgotten.
    let take = Take {
        maker: Maker { store: 1, run: 1 },
        count: 10,
        claim_from: Some(StreamId::default()),
        idle_ms: 0,
        done: &[],
        look_at: &[ReservationId(1)],
    };
    replies.push(wire.run(|out| steps.push_take(&take, out)));
    let done = [StreamId { ms: 1, seq: 0 }];
    let take = Take {
        done: &done,
        ..take
    };
    replies.push(wire.run(|out| steps.push_take(&take, out)));
    replies.push(wire.run(|out| steps.push_reopen(out)));
    replies.push(wire.run(|out| steps.push_freeze("failover", out)));
    replies.push(wire.run(|out| steps.push_thaw(5, out)));
    replies.push(wire.run(|out| steps.push_snapshot(0, 10, out)));
    let here = HomeId::new(b"here:now").unwrap();
    let maker = Maker { store: 1, run: 1 };
    let stock = Stock {
        total: 9,
        quantity_max: 1,
        once_per_activity: false,
    };
    replies.push(wire.run(|out| steps.push_fence(&here, 5, out)));
    replies.push(wire.run(|out| steps.push_restore(&here, (&stock, &maker), &[], 5, out)));
    replies.push(wire.run(|out| steps.push_offer(&here, &granted(7), out)));
    replies.push(wire.run(|out| steps.push_rehome(&Rehomed::Mended(maker), &here, 5, out)));
    replies.push(wire.run(|out| steps.push_mark(out)));
    let leases = LeaseSteps::new(SKU, "host");
    let policy = LeasePolicy {
        version: 1,
        rate: Rate::per_second(1000),
        weights: 1,
    };
    replies.push(wire.run(|out| leases.push_policy(&policy, out)));
    let draw = LeaseDraw {
        shard: ShardId(0),
        sku: SKU,
        shard_boot: 1,
        seq: 1,
        want: 1,
        weight: 1,
    };
    let drawn = wire.run(|out| leases.push_draw(&draw, out));
    let owner_boot = match &drawn {
        Reply::List(_) => drawn.integers()[3] as u64,
        _ => 0,
    };
    replies.push(drawn);
    let back = LeaseReturn {
        shard: ShardId(0),
        sku: SKU,
        owner_boot,
        shard_boot: 1,
        seq: 1,
        tokens: 0,
    };
    replies.push(wire.run(|out| leases.push_return(&back, out)));
    let errors = replies.into_iter().filter_map(|reply| match reply {
        Reply::Error(error) => Some(error),
        _ => None,
    });
    errors.collect()
}

#[test]
fn the_permissions_of_the_readme_are_enough_and_each_is_needed() {
    let Some(redis) = Redis::start() else { return };
    let mut admin = Wire::new(redis.connect());
    let rules = permissions();
    let mut set = vec!["ACL", "SETUSER", "weir", "reset", "on", ">secret"];
    set.extend(&rules);
    assert_eq!(admin.ask(&set).text(), "OK");
    let mut wire = Wire::as_user(redis.connect(), "weir", "secret");
    assert_eq!(everything_once(&mut wire), Vec::<String>::new());
    let heard = admin.ask(&["XLEN", "{a1:s1}:events"]);
    assert_eq!(
        heard,
        Reply::Integer(4),
        "sold out, reopened, thawed, at home again"
    );
    for rule in rules.iter().filter(|rule| rule.starts_with('+')) {
        if *rule == "+publish" || *rule == "+script|load" || *rule == "+hdel" {
            continue; // only a hint; used when connecting; forgets an operator's request of the day before
        }
        admin.ask(&["FLUSHALL"]);
        let taken = rule.replacen('+', "-", 1);
        admin.ask(&["ACL", "SETUSER", "weir", &taken]);
        let errors = everything_once(&mut wire);
        assert!(
            errors
                .iter()
                .any(|error| error.contains("NOPERM") || error.contains("can't run")),
            "{rule} is not needed: {errors:?}"
        );
        admin.ask(&["ACL", "SETUSER", "weir", rule]);
    }
    admin.ask(&["FLUSHALL"]);
    assert_eq!(everything_once(&mut wire), Vec::<String>::new());
    // Nothing else: not another application's keys, not a command that no script has.
    for denied in [
        &["GET", "other"][..],
        &["FLUSHALL"],
        &["HSET", "other", "a", "b"],
    ] {
        let reply = wire.ask(denied);
        assert!(
            matches!(&reply, Reply::Error(error) if error.starts_with("NOPERM")),
            "{reply:?}"
        );
    }
}
