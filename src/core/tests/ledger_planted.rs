//! Faults put in on purpose are found by the checks that must find them (design §12.16).
//! Built only with `RUSTFLAGS="--cfg weir_planted"`; empty otherwise.
#![cfg(weir_planted)]
#![allow(clippy::unwrap_used)] // a test that meets one has failed
#![allow(clippy::result_large_err)] // a full mailbox gives the mail back by value

use std::sync::Arc;
use weir_core::ask::*;
use weir_core::journal::Image;
use weir_core::ledger::codec::Journal;
use weir_core::ledger::owner::{Owner, OwnerConfig};
use weir_core::ledger::{Ledger, LedgerConfig, SkuPlan};
use weir_core::mail::{Addr, Mail};
use weir_core::order::contract::Money;
use weir_core::planted::{self, Planted};
use weir_core::port::{Effects, Event, Handler};
use weir_core::sale::Sale;
use weir_core::time::{Mono, Now, WallMs};
use weir_proto::ids::*;
use weir_proto::text::Text;

const SKU: SkuKey = SkuKey {
    activity: ActivityId(1),
    sku: SkuId(1),
};

fn text<const N: usize>(text: &str) -> Text<N> {
    Text::new(text.as_bytes()).unwrap()
}

fn reserve(user: u64) -> LedgerOp {
    LedgerOp::Reserve(Reserve {
        sku: SKU,
        user: UserId(user),
        request_id: text(&format!("request-{user}")),
        nonce: text(&format!("nonce-{user}")),
        nonce_until: WallMs(1),
        quantity: 1,
    })
}

fn open() -> LedgerOp {
    LedgerOp::Open(Open {
        target: OpsRef {
            sku: SKU,
            request_id: text("operator-1"),
        },
        stock: 2,
        quantity_max: 1,
        once_per_activity: false,
    })
}

#[test]
fn a_release_applied_twice_oversells_and_the_audit_says_so() {
    for planted in [Planted::None, Planted::ReleaseTwice] {
        planted::set(planted);
        let mut ledger = Ledger::new(LedgerConfig {
            plans: vec![SkuPlan {
                sku: SKU,
                reservations_max: 10,
                unit_price: Money {
                    minor: 1,
                    currency: *b"CNY",
                },
            }],
            tombstones_max: 1,
            seed: 1,
        });
        let mut journal = Journal::new(Vec::new());
        let release = LedgerOp::Release(Release {
            target: ReservationRef {
                sku: SKU,
                reservation: ReservationId(1),
            },
            end: ReleaseEnd::Closed,
        });
        for op in [open(), reserve(1), reserve(2), release, release] {
            ledger.apply(WallMs(1), &op, &mut journal);
        }
        ledger.reopen(WallMs(1), &mut journal);
        for user in 3..=5 {
            ledger.apply(WallMs(1), &reserve(user), &mut journal);
        }
        let live = ledger.reservations().filter(|r| r.state.is_live()).count();
        let is_planted = planted == Planted::ReleaseTwice;
        assert_eq!(
            live,
            if is_planted { 3 } else { 2 },
            "live reservations of 2 units"
        );
        assert_eq!(ledger.check().is_err(), is_planted);
    }
}

#[test]
fn an_answer_before_the_commit_is_seen_before_the_store_has_synced() {
    for planted in [Planted::None, Planted::AnswerBeforeCommit] {
        planted::set(planted);
        let mut owner = Owner::new(OwnerConfig {
            sale: Arc::new(Sale::default()),
            shards_count: 1,
            seed: 1,
        });
        // The SKU comes from the store's image: the sale is not needed to see an answer leave.
        let mut ledger = Ledger::new(LedgerConfig {
            plans: vec![SkuPlan {
                sku: SKU,
                reservations_max: 10,
                unit_price: Money {
                    minor: 1,
                    currency: *b"CNY",
                },
            }],
            tombstones_max: 1,
            seed: 1,
        });
        ledger.apply(WallMs(1), &open(), &mut Journal::new(Vec::new()));
        let mut snapshot = Vec::new();
        ledger.snapshot_into(&mut snapshot);
        let image = Image {
            snapshot: Some((1, snapshot)),
            batches: Vec::new(),
            boot_epoch: 1,
        };
        let mut fx = Effects::new(0);
        let now = Now::default();
        owner.on_start(now, &mut fx);
        owner.on_event(now, Event::Mail(Mail::Recovered(Box::new(image))), &mut fx);
        let restock = LedgerOp::Restock(Restock {
            target: OpsRef {
                sku: SKU,
                request_id: text("operator-2"),
            },
            units: 1,
        });
        let ask = Ask {
            from: Addr::Ops,
            id: AskId(1),
            deadline: Mono(1),
            op: restock,
        };
        owner.on_event(now, Event::Mail(Mail::Ask(ask)), &mut fx);
        owner.on_flush(now, &mut fx);
        let mut answers = 0;
        fx.deliver_posts(|_, mail| {
            answers += usize::from(matches!(mail, Mail::Answer(_)));
            Ok(())
        });
        assert_eq!(answers, usize::from(planted == Planted::AnswerBeforeCommit));
    }
}
