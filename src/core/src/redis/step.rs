//! An ask as one EVALSHA frame: a template made once for each script and SKU, then what the ask says.
//!
//! Called by links. Nothing is allocated while the buffer has room. Numbers are written in decimal and names as they are,
//! each with its length before it: nothing of a client is ever part of a script or read as a command.
//! Keys and arguments are those of the scripts' headers in `lua/`.

mod mend;
mod take;

pub use take::{Maker, StreamId, Take};

use super::link::greeting::HomeId;
use super::script::Script;
use crate::ask::{LedgerOp, Lookup, Mode, OpsRef, ReleaseEnd, ReservationRef, Reserve};
use crate::limits::{RESERVATIONS_MAX, TOMBSTONE_TTL_MS};
use crate::order::contract::Money;
use crate::time::WallMs;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
pub use mend::{Rehomed, Stock};
use weir_proto::ids::{ReservationId, SkuKey};
use weir_proto::resp::{CommandWriter, DECIMAL_BYTES_MAX, decimal};

/// What the steps of a SKU need that no ask says; the same on every instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepPlan {
    /// Which SKU.
    pub sku: SkuKey,
    /// Most reservations of its first stock, 1..=`limits::RESERVATIONS_MAX`; restocks raise it.
    pub reservations_max: u32,
    /// Price of one unit, written into each grant.
    pub unit_price: Money,
    /// End of the sale plus the time that history is kept; everything but the stock goes then. Below 10^15.
    pub keep_until: WallMs,
    /// Version of the policy; steps of an older one reserve nothing once a newer one has opened the SKU.
    pub policy: u64,
    /// Redis numbers reservations per SKU from 1; a reservation's number is this plus that. SKUs of one order store lie
    /// at least `limits::RESERVATIONS_MAX` apart.
    pub ids_above: u64,
}

/// The frames of one SKU's steps.
#[derive(Debug)]
pub struct SkuSteps {
    plan: StepPlan,
    /// `{a1:s2}`, without the colon behind it.
    tag: String,
    /// Of each script, by its place in [`Script::ALL`]: everything up to the last key that is always the same. Empty
    /// for scripts that are not about a SKU's stock.
    heads: [Box<[u8]>; Script::ALL.len()],
    /// Arguments of a reserve that are always the same; they follow the tombstone's key.
    reserve_terms: Box<[u8]>,
}

/// Keys that are the same in each run of a script, and how many parts follow them.
const fn shape(script: Script) -> (&'static [&'static str], usize) {
    match script {
        Script::Reserve => (
            &[
                "sku", "res", "req", "nonce", "user", "pending", "orders", "events",
            ],
            1 + 10,
        ),
        Script::Lookup => (&["sku", "res", "req"], 1 + 3),
        Script::Confirm | Script::Settle => (&["sku", "res", "pending"], 1),
        Script::Release => (&["sku", "res", "pending"], 2),
        Script::PaidLate => (&["sku", "res", "user", "pending", "events"], 2),
        Script::Open => (&["sku", "ops"], 7),
        Script::Close => (&["sku", "ops"], 2),
        Script::SetMode | Script::Restock => (&["sku", "ops"], 3),
        Script::Reopen => (&["sku", "events"], 1),
        Script::Freeze => (&["sku"], 1),
        Script::Thaw => (&["sku", "events"], 2),
        Script::Fence => (&["sku"], 2),
        Script::Rehome => (&["sku", "events"], 6),
        Script::Offer => (
            &[
                "sku", "res", "req", "nonce", "user", "pending", "orders", "events",
            ],
            11,
        ),
        Script::Mark => (&["sku"], 0),
        Script::Snapshot => (&["sku", "user", "pending"], 2),
        Script::Outbox => (&["sku", "res", "pending", "ops"], 4),
        // Their arguments are as many as they are about.
        Script::Restore
        | Script::Take
        | Script::LeasePolicy
        | Script::LeaseDraw
        | Script::LeaseReturn
        | Script::Bucket
        | Script::WindowLog => (&[], 0),
    }
}

/// True when one more key, of this request, follows the others.
const fn has_tombstone(script: Script) -> bool {
    matches!(script, Script::Reserve | Script::Lookup)
}

impl SkuSteps {
    /// The templates of `plan`; allocates once.
    pub fn new(plan: StepPlan) -> Self {
        let tag = format!("{{a{}:s{}}}", plan.sku.activity.0, plan.sku.sku.0);
        let heads = Script::ALL.map(|script| head(script, &tag));
        let mut terms = Vec::new();
        let mut writer = CommandWriter::resume(&mut terms, 5);
        writer.part_u64(u64::from(plan.reservations_max));
        writer.part_u64(plan.unit_price.minor);
        writer.part(&plan.unit_price.currency);
        writer.part_u64(plan.keep_until.0);
        writer.part_u64(plan.policy);
        writer.finish();
        Self {
            plan,
            tag,
            heads,
            reserve_terms: terms.into_boxed_slice(),
        }
    }

    /// What it was made of.
    pub const fn plan(&self) -> &StepPlan {
        &self.plan
    }

    /// A key of this SKU by the name behind its tag; every such key is in one slot.
    pub fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.tag)
    }

    /// Appends the frame of `op`, which is about this SKU, for the server of that name (empty: books that have no home).
    /// [`reply::answer`](super::reply::answer) reads what comes back.
    pub fn push(&self, op: &LedgerOp, home: &HomeId, out: &mut Vec<u8>) {
        debug_assert_eq!(op.sku(), self.plan.sku, "an ask goes to its own SKU");
        match op {
            LedgerOp::Reserve(reserve) => self.push_reserve(reserve, home, out),
            LedgerOp::Lookup(lookup) => self.push_lookup(lookup, out),
            LedgerOp::Confirm(target) => self.push_move(Script::Confirm, *target, out),
            LedgerOp::Settle(target) => self.push_move(Script::Settle, *target, out),
            LedgerOp::Release(release) => {
                let mut writer = self.begin(Script::Release, out);
                writer.part_u64(self.number_of(release.target.reservation));
                writer.part(match release.end {
                    ReleaseEnd::Closed => b"3",
                    ReleaseEnd::Failed => b"4",
                });
                writer.finish();
            }
            LedgerOp::PaidLate(target) => {
                let mut writer = self.begin(Script::PaidLate, out);
                writer.part_u64(self.number_of(target.reservation));
                writer.part_u64(self.plan.keep_until.0);
                writer.finish();
            }
            LedgerOp::Open(open) => self.push_open(open, home, out),
            LedgerOp::Close(target) => self.begin_ops(Script::Close, target, out).finish(),
            LedgerOp::SetMode(set) => {
                let mut writer = self.begin_ops(Script::SetMode, &set.target, out);
                writer.part(match set.mode {
                    Mode::Normal => b"0",
                    Mode::Degraded => b"1",
                    Mode::QueueOnly => b"2",
                    Mode::Closed => b"3",
                });
                writer.finish();
            }
            LedgerOp::Restock(restock) => {
                let mut writer = self.begin_ops(Script::Restock, &restock.target, out);
                writer.part_u64(restock.units);
                writer.finish();
            }
        }
    }

    /// Appends the frame that makes units sellable which gathered while sold out; due once per
    /// `limits::REOPEN_TICK_MS` while the view shows such. [`reply::stepped`](super::reply::stepped) reads its reply.
    pub fn push_reopen(&self, out: &mut Vec<u8>) {
        let mut writer = self.begin(Script::Reopen, out);
        writer.part_u64(self.plan.keep_until.0);
        writer.finish();
    }

    /// Appends the frame for the SKU's state and a page of about `users_count` winners, at most 1,024, from `cursor`
    /// (0 at first). [`reply::page`](super::reply::page) reads its reply.
    pub fn push_snapshot(&self, cursor: u64, users_count: u32, out: &mut Vec<u8>) {
        let mut writer = self.begin(Script::Snapshot, out);
        writer.part_u64(cursor);
        writer.part_u64(u64::from(users_count));
        writer.finish();
    }

    /// Appends the frame for a page of at most `count`, 1..=256, reservations without an order that were granted at `from`
    /// or later, `skip` of them passed over. [`reply::outbox`](super::reply::outbox) reads its reply.
    /// Restocks go from the operators' request of that number on.
    pub fn push_outbox(
        &self,
        (from, skip): (WallMs, u64),
        count: u32,
        request: u64,
        out: &mut Vec<u8>,
    ) {
        let mut writer = self.begin(Script::Outbox, out);
        writer.part_u64(from.0);
        writer.part_u64(skip);
        writer.part_u64(u64::from(count));
        writer.part_u64(request);
        writer.finish();
    }

    fn push_reserve(&self, reserve: &Reserve, home: &HomeId, out: &mut Vec<u8>) {
        let mut writer = self.begin(Script::Reserve, out);
        let request_id = reserve.request_id.as_bytes();
        self.push_tombstone_key(reserve.user.0, request_id, &mut writer);
        out.extend_from_slice(&self.reserve_terms);
        let mut writer = CommandWriter::resume(out, 5);
        writer.part_u64(reserve.user.0);
        writer.part(reserve.request_id.as_bytes());
        writer.part(reserve.nonce.as_bytes());
        writer.part_u64(u64::from(reserve.quantity));
        writer.part(home.as_bytes());
        writer.finish();
    }

    fn push_lookup(&self, lookup: &Lookup, out: &mut Vec<u8>) {
        let mut writer = self.begin(Script::Lookup, out);
        let request_id = lookup.request_id.as_bytes();
        self.push_tombstone_key(lookup.user.0, request_id, &mut writer);
        writer.part_u64(lookup.user.0);
        writer.part(lookup.request_id.as_bytes());
        writer.part_u64(if lookup.tombstone {
            TOMBSTONE_TTL_MS
        } else {
            0
        });
        writer.finish();
    }

    fn push_move(&self, script: Script, target: ReservationRef, out: &mut Vec<u8>) {
        let mut writer = self.begin(script, out);
        writer.part_u64(self.number_of(target.reservation));
        writer.finish();
    }

    fn begin<'a>(&self, script: Script, out: &'a mut Vec<u8>) -> CommandWriter<'a> {
        out.extend_from_slice(&self.heads[script as usize]);
        CommandWriter::resume(out, shape(script).1)
    }

    fn begin_ops<'a>(
        &self,
        script: Script,
        target: &OpsRef,
        out: &'a mut Vec<u8>,
    ) -> CommandWriter<'a> {
        let mut writer = self.begin(script, out);
        writer.part(target.request_id.as_bytes());
        writer.part_u64(self.plan.keep_until.0);
        writer
    }

    /// Redis' number of a reservation; 0, which names none, for one that cannot be of this SKU.
    fn number_of(&self, reservation: ReservationId) -> u64 {
        let number = reservation.0.checked_sub(self.plan.ids_above);
        number
            .filter(|&number| number <= RESERVATIONS_MAX)
            .unwrap_or(0)
    }

    /// The key of a tombstone: `{a1:s2}:tomb:`, the user, `:`, the request id.
    fn push_tombstone_key(&self, user: u64, request_id: &[u8], writer: &mut CommandWriter<'_>) {
        let mut digits = [0; DECIMAL_BYTES_MAX];
        let user = decimal(user, &mut digits);
        writer.part_of([self.tag.as_bytes(), b":tomb:", user, b":", request_id]);
    }
}

/// The constant beginning of a script's frame for the SKU of `tag`.
fn head(script: Script, tag: &str) -> Box<[u8]> {
    let (keys, parts_behind) = shape(script);
    let mut out = Vec::new();
    if keys.is_empty() {
        return out.into_boxed_slice();
    }
    let keys_count = keys.len() + usize::from(has_tombstone(script));
    let mut writer = CommandWriter::begin(&mut out, 3 + keys.len() + parts_behind);
    writer.part(b"EVALSHA");
    writer.part(&script.sha1());
    writer.part_u64(keys_count as u64);
    for key in keys {
        writer.part(format!("{tag}:{key}").as_bytes());
    }
    out.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::contract::{ORDER_MESSAGE_VERSION, OrderMessage};
    use crate::redis::offer::Offer;
    use weir_proto::ids::{ActivityId, Nonce, RequestId, SkuId, UserId};
    use weir_proto::resp::{Scan, Scanner, Value, key_slot, read};

    const BIG: u64 = i64::MAX as u64;

    fn steps(id: u64) -> SkuSteps {
        SkuSteps::new(StepPlan {
            sku: SkuKey {
                activity: ActivityId(id),
                sku: SkuId(id),
            },
            reservations_max: 100,
            unit_price: Money {
                minor: u64::MAX,
                currency: *b"CNY",
            },
            keep_until: WallMs(1_900_000_000_000),
            policy: 7,
            ids_above: 1 << 32,
        })
    }

    fn framed(write: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }

    fn parts(frame: &[u8]) -> Vec<Vec<u8>> {
        let Scan::Done { bytes } = Scanner::new().scan(frame) else {
            panic!("no whole frame: {}", String::from_utf8_lossy(frame));
        };
        assert_eq!(bytes, frame.len(), "exactly one frame");
        let Value::Array(items) = read(frame) else {
            panic!("a frame is an array");
        };
        items.map(|item| item.text().unwrap().to_vec()).collect()
    }

    /// The numbers of KEYS and ARGV that a script's header tells.
    fn told(script: Script, name: &str) -> usize {
        let head = script.source().lines().take_while(|l| l.starts_with("--"));
        head.map(|line| line.matches(&format!("{name}[")).count())
            .sum()
    }

    fn offer(sku: SkuKey, request_id: RequestId) -> Offer {
        Offer {
            message: OrderMessage {
                version: ORDER_MESSAGE_VERSION,
                reservation: ReservationId((1 << 32) + 5),
                sku,
                user: UserId(BIG),
                quantity: 2,
                request_id,
                unit_price: Money {
                    minor: 1,
                    currency: *b"CNY",
                },
                reserved_at: WallMs(1),
            },
            nonce: Nonce::new(b"{nonce:1"),
            state: crate::ask::ReservationState::Settled,
        }
    }

    #[test]
    fn every_frame_has_the_keys_and_arguments_of_its_script_in_one_slot() {
        let steps = steps(BIG);
        let sku = steps.plan().sku;
        let longest = || RequestId::new(&[b'}'; 64]).unwrap();
        let target = OpsRef {
            sku,
            request_id: longest(),
        };
        let reservation = ReservationRef {
            sku,
            reservation: ReservationId((1 << 32) + 5),
        };
        let ops = [
            LedgerOp::Reserve(Reserve {
                sku,
                user: UserId(BIG),
                request_id: longest(),
                nonce: Nonce::new(b"{nonce:1").unwrap(),
                nonce_until: WallMs(0),
                quantity: u32::MAX,
            }),
            LedgerOp::Lookup(Lookup {
                sku,
                user: UserId(BIG),
                request_id: longest(),
                tombstone: true,
            }),
            LedgerOp::Confirm(reservation),
            LedgerOp::Settle(reservation),
            LedgerOp::Release(crate::ask::Release {
                target: reservation,
                end: ReleaseEnd::Failed,
            }),
            LedgerOp::PaidLate(reservation),
            LedgerOp::Open(crate::ask::Open {
                target,
                stock: u64::MAX,
                quantity_max: 1,
                once_per_activity: true,
            }),
            LedgerOp::Close(target),
            LedgerOp::SetMode(crate::ask::SetMode {
                target,
                mode: Mode::Closed,
            }),
            LedgerOp::Restock(crate::ask::Restock { target, units: 1 }),
        ];
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for op in &ops {
            frames.push(framed(|out| steps.push(op, &HomeId::default(), out)));
        }
        frames.push(framed(|out| steps.push_reopen(out)));
        frames.push(framed(|out| steps.push_freeze("failover", out)));
        frames.push(framed(|out| steps.push_thaw(9, out)));
        let (here, offer) = (HomeId::default(), offer(sku, longest()));
        let stock = Stock {
            total: u64::MAX,
            quantity_max: 1,
            once_per_activity: true,
        };
        let maker = Maker { store: 1, run: 2 };
        frames.push(framed(|out| steps.push_fence(&here, 9, out)));
        frames.push(framed(|out| {
            steps.push_rehome(&Rehomed::Mended(maker), &here, 9, out)
        }));
        frames.push(framed(|out| steps.push_offer(&here, &offer, out)));
        frames.push(framed(|out| {
            steps.push_restore(&here, (&stock, &maker), &[], 9, out)
        }));
        frames.push(framed(|out| steps.push_mark(out)));
        frames.push(framed(|out| steps.push_snapshot(0, 100, out)));
        for (script, frame) in Script::ALL.into_iter().zip(frames) {
            let parts = parts(&frame);
            assert_eq!(parts[0], b"EVALSHA");
            assert_eq!(parts[1], script.sha1());
            let keys_count: usize = core::str::from_utf8(&parts[2]).unwrap().parse().unwrap();
            assert_eq!(keys_count, told(script, "KEYS"), "{script:?}");
            assert_eq!(
                parts.len() - 3 - keys_count,
                told(script, "ARGV"),
                "{script:?}"
            );
            let slot = key_slot(steps.key("sku").as_bytes());
            assert!(
                parts[3..3 + keys_count]
                    .iter()
                    .all(|key| key_slot(key) == slot)
            );
        }
    }

    #[test]
    fn a_reserve_is_written_without_an_allocation() {
        let steps = steps(1);
        let reserve = LedgerOp::Reserve(Reserve {
            sku: steps.plan().sku,
            user: UserId(42),
            request_id: RequestId::new(b"a:b:c:d:e").unwrap(),
            nonce: Nonce::new(b"n").unwrap(),
            nonce_until: WallMs(0),
            quantity: 2,
        });
        let mut out = Vec::with_capacity(1024);
        let room = out.as_ptr();
        steps.push(&reserve, &HomeId::default(), &mut out);
        assert_eq!(out.as_ptr(), room, "it had room for the frame");
        let parts = parts(&out);
        let last: Vec<&[u8]> = parts[11..].iter().map(Vec::as_slice).collect();
        let wanted: [&[u8]; 11] = [
            b"{a1:s1}:tomb:42:a:b:c:d:e",
            b"100",
            b"18446744073709551615",
            b"CNY",
            b"1900000000000",
            b"7",
            b"42",
            b"a:b:c:d:e",
            b"n",
            b"2",
            b"",
        ];
        assert_eq!(last, wanted);
    }

    #[test]
    fn a_reservation_of_another_sku_is_number_0() {
        let steps = steps(1);
        for (id, number) in [
            (0, 0),
            (1 << 32, 0),
            ((1 << 32) + 1, 1),
            ((1 << 32) + RESERVATIONS_MAX, RESERVATIONS_MAX),
            ((1 << 32) + RESERVATIONS_MAX + 1, 0),
            (u64::MAX, 0),
        ] {
            assert_eq!(steps.number_of(ReservationId(id)), number, "{id}");
        }
    }
}
