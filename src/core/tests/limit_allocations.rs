//! No decision of the limits allocates: counted by this binary's own allocator.

use weir_core::limit::book::LeaseBook;
use weir_core::limit::budget::BudgetShare;
use weir_core::limit::gcra::{Bucket, Policy, Rate};
use weir_core::limit::inflight::{SkuSlot, SlotCaps, Slots};
use weir_core::limit::lease::ShardId;
use weir_core::limit::rule::{Kind, Rule};
use weir_core::limit::table::{KeyedLimiter, TableSpec};
use weir_core::time::Mono;
use weir_proto::ids::{ActivityId, SkuId, SkuKey, UserId};

#[path = "../../../tests/support/counting.rs"]
mod counting;

fn main() {
    let policy = Policy::new(Rate::per_second(5), 10).expect("enforceable");
    let spec = TableSpec {
        slots: 1 << 12,
        rule: Rule::gcra(policy),
        overflow: policy,
        secret: [1; 16],
    };
    let (mut users, mut devices) = (
        KeyedLimiter::new(Mono(0), &spec),
        KeyedLimiter::new(Mono(0), &spec),
    );
    let mut instance = Bucket::full(
        Policy::new(Rate::per_second(1_000_000), 1_000).expect("enforceable"),
        Mono(0),
    );
    let mut book = LeaseBook::new(Mono(0), 1, Rate::per_second(50_000), 2).expect("enforceable");
    let sku = SkuKey {
        activity: ActivityId(1),
        sku: SkuId(1),
    };
    let mut share = BudgetShare::new(Mono(0), ShardId(0), sku, 7);
    let mut slots = Slots::new(
        SlotCaps {
            submits_max: 56,
            status_max: 8,
            sku_max: 32,
            sku_min: 8,
            user_max: 4,
        },
        1,
        [5; 16],
    );
    let (mut admitted, before) = (0u64, counting::allocations());
    for user in 0..2_000_000u64 {
        let now = Mono(user * 1_000);
        if let Some(grant) = share.want(now).and_then(|draw| book.draw(now, &draw)) {
            share.grant(now, &grant);
        }
        if !instance.take(now, 1).is_allow() {
            continue;
        }
        let (user_key, device_key) = (
            users.key(&user.to_le_bytes()),
            devices.key(&(user / 3).to_le_bytes()),
        );
        let (a, b) = (
            users.probe(now, user_key, 1),
            devices.probe(now, device_key, 1),
        );
        if !a.verdict.and(b.verdict).is_allow() || !share.take(now, 1) {
            continue;
        }
        users.charge(&a);
        devices.charge(&b);
        let slot = slots
            .acquire_submit(SkuSlot(0), UserId(user))
            .expect("released below");
        slots.release(slot);
        admitted += 1;
    }
    let allocations = counting::allocations() - before;
    let mut by_kind = Kind::ALL.map(|kind| {
        let rule = Rule::new(kind, policy).expect("enforceable");
        KeyedLimiter::new(Mono(0), &TableSpec { rule, ..spec })
    });
    let before_kinds = counting::allocations();
    for user in 0..200_000u64 {
        for table in &mut by_kind {
            let key = table.key(&(user % 9_000).to_le_bytes()); // more keys than slots: the sketch decides, too
            admitted += u64::from(table.take(Mono(user * 10_000), key, 1).is_allow());
        }
    }
    for table in &mut by_kind {
        let slower = Policy::new(Rate::per_second(3), 8).expect("enforceable");
        table
            .set_policy(Mono(3_000_000_000), slower, policy)
            .expect("enforceable");
        assert!(table.overflow_total() > 0);
    }
    let allocations = allocations + (counting::allocations() - before_kinds);
    println!("limits: 3000000 decisions, {admitted} admitted, {allocations} allocations");
    assert_eq!(allocations, 0, "a decision allocated");
    assert!(admitted > 1_000);
    assert_eq!(u64::from(slots.in_flight()), 0);
    share.audit();
}
