//! Coverage marks: what must have happened somewhere in a swarm of worlds before it may be called tested.
//!
//! Told by the parts' own counters, their mail and the journal, so serving pays nothing for them. Every [`Reason`], every
//! transition of the tables of orders and reservations, every kind of fault, and a list of events of leases, SKUs and
//! their modes. A row that is added to one of those tables is a mark at once, missing until a world reaches it.

use super::LedgerKind;
use super::record::STATES;
use super::tally::Faults;
use std::collections::BTreeMap;
use weir_core::ask::{Mode, ReservationState};
use weir_core::order::state::{OrderEvent, OrderState};
use weir_proto::answer::Reason;

/// Reasons that no world with that ledger can reach, each with its why. One that is reached after all is an error of this
/// list.
const fn never(ledger: LedgerKind) -> &'static [(Reason, &'static str)] {
    match ledger {
        LedgerKind::Embedded => NEVER_EMBEDDED,
        LedgerKind::Redis => NEVER_REDIS,
    }
}

const NEVER_REDIS: &[(Reason, &str)] = &[
    (
        Reason::NonceTableFull,
        "a nonce is kept with its reservation, so only the table of reservations can be full",
    ),
    (
        Reason::StatusReserved,
        "a reservation without an order is told QUEUED: the ledger cannot know whether the worker has taken it",
    ),
];

const NEVER_EMBEDDED: &[(Reason, &str)] = &[
    (
        Reason::NonceTableFull,
        "the embedded ledger keeps a nonce with its reservation, so only the table of reservations can be full",
    ),
    (
        Reason::StatusReserved,
        "a reservation without an order is told QUEUED: the ledger cannot know whether the worker has taken it",
    ),
];

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// What has no table of its own.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Happened { $($(#[$doc])* $name,)* }

        const EVENTS: &[&str] = &[$($text,)*];
    };
}

events! {
    /// A shard asked for tokens.
    LeaseDrawn = "lease.drawn";
    /// The same draw again: its answer was late or lost.
    LeaseDrawnAgain = "lease.drawn_again";
    /// Tokens came.
    LeaseGranted = "lease.granted";
    /// None were there.
    LeaseDry = "lease.dry";
    /// The owner answered a draw a second time.
    LeaseRepeated = "lease.repeated";
    /// The owner refused a draw older than one it had answered.
    LeaseStale = "lease.stale";
    /// Tokens ran out of time, or were of an earlier run of the owner.
    LeaseWasted = "lease.wasted";
    /// A shard that ends gave tokens back.
    LeaseReturned = "lease.returned";
    /// The owner refused tokens that came back twice or to another run.
    LeaseReturnVoid = "lease.return_void";
    /// A SKU was put on sale, at first or again.
    Opened = "sku.opened";
    /// Its sale was ended.
    Closed = "sku.closed";
    /// Units were added.
    Restocked = "sku.restocked";
    /// The last free unit went.
    SoldOut = "sku.sold_out";
    /// Units that gathered can be had again.
    Reopened = "sku.reopened";
    /// A unit was held for a user who had one before.
    HeldAgain = "sku.held_again";
    /// Its mode was set to NORMAL.
    Normal = "mode.normal";
    /// Its mode was set to DEGRADED.
    Degraded = "mode.degraded";
    /// Its mode was set to QUEUE_ONLY.
    QueueOnly = "mode.queue_only";
    /// Its mode was set to CLOSED.
    Shut = "mode.closed";
    /// A unit was held.
    Granted = "ledger.granted";
    /// The door was closed for a request id.
    Tombstoned = "ledger.tombstoned";
    /// Tombstones were forgotten.
    TombstonesTurned = "ledger.tombstones_turned";
    /// The ledger came back from a snapshot and batches.
    FromSnapshot = "ledger.from_snapshot";
    /// The ledger came back from batches alone.
    FromBatches = "ledger.from_batches";
    /// An ask was refused: taken up after its deadline.
    AskLate = "ask.late";
    /// An ask was refused: the store or the order store is gone.
    AskPoisoned = "ask.poisoned";
    /// An ask was refused: the ledger is coming back.
    AskRecovering = "ask.recovering";
    /// An ask was refused: the batch is full.
    AskBusy = "ask.busy";
    /// The ledger does not know what became of an ask.
    AskUnknown = "ask.unknown";
    /// An ask was refused: Redis is not reached, or said that it did not execute it.
    AskUnavailable = "ask.unavailable";
    /// An ask was refused: the Redis that answers has not got the books.
    AskFrozen = "ask.frozen";
    /// An ask without a result was looked up.
    LookedUp = "unknown.looked_up";
    /// It had been carried out.
    LookedUpFound = "unknown.found";
    /// It had not been, and never will be.
    LookedUpNotFound = "unknown.not_found";
    /// A reserve came after the door was closed for it.
    TombstoneMet = "ledger.tombstone_met";
    /// A reservation was handed to the worker a second time.
    OutboxAgain = "outbox.again";
    /// A machine was told that a SKU sold out, where events are heard.
    SoldOutHeard = "sku.sold_out_heard";
    /// A machine found out that a SKU sold out, where no event is heard.
    SoldOutPulled = "sku.sold_out_pulled";
    /// A unit was held after a reopening.
    SoldAgain = "sku.sold_again";
    /// A script that was not there was loaded.
    ScriptLoaded = "redis.script_loaded";
    /// An ask that was certainly not executed was sent again.
    Resent = "redis.resent";
    /// A link to Redis was lost.
    LinkLost = "redis.link_lost";
    /// Redis said that it did not execute an ask.
    Refused = "redis.refused";
    /// The breaker of a clerk opened.
    BreakerOpened = "breaker.opened";
    /// An ask was kept back by it.
    BreakerKeptBack = "breaker.kept_back";
    /// It closed again.
    BreakerClosed = "breaker.closed";
    /// A SKU whose books another run of Redis had was fenced.
    Fenced = "redis.fenced";
    /// Its books were mended, and it sold on.
    Mended = "redis.mended";
    /// A grant that Redis had lost was put in again.
    OfferedBack = "redis.offered_back";
    /// A grant that Redis had lost could not be kept: it is FAILED.
    Revoked = "redis.revoked";
    /// A grant was lost with Redis, and so was who remembered it.
    LostForGood = "redis.lost_for_good";
}

/// Only where the ledger is embedded.
const OF_JOURNAL: &[Happened] = &[
    Happened::LeaseRepeated,
    Happened::LeaseStale,
    Happened::LeaseReturnVoid,
    Happened::TombstonesTurned,
    Happened::FromSnapshot,
    Happened::FromBatches,
    Happened::AskRecovering,
    Happened::AskBusy,
];

/// True when a world with that ledger can reach the event of this place.
fn belongs(place: usize, ledger: LedgerKind) -> bool {
    match ledger {
        LedgerKind::Embedded => place < Happened::AskUnavailable as usize,
        LedgerKind::Redis => OF_JOURNAL.iter().all(|event| *event as usize != place),
    }
}

impl Happened {
    /// The mode was set.
    pub fn of_mode(mode: Mode) -> Self {
        match mode {
            Mode::Normal => Self::Normal,
            Mode::Degraded => Self::Degraded,
            Mode::QueueOnly => Self::QueueOnly,
            Mode::Closed => Self::Shut,
        }
    }
}

/// True when a reservation may go this way (the ledger's table of states, written a second time).
const fn may_move(from: ReservationState, to: ReservationState) -> bool {
    use ReservationState::{Closed, Confirmed, Failed, PaidLate, Reserved, Settled};
    matches!(
        (from, to),
        (Reserved, Confirmed | Settled | Closed | Failed)
            | (Confirmed, Settled | Closed | Failed)
            | (Closed | Failed, Settled | PaidLate)
    )
}

/// Where an order can come from and go to: the order table, without the worker's own RESERVED → QUEUED, for which there
/// is no row.
fn order_moves() -> impl Iterator<Item = (OrderState, OrderState)> {
    let from = OrderState::ALL.into_iter();
    let from = from.filter(|from| *from != OrderState::Reserved);
    from.flat_map(|from| {
        let to = OrderEvent::ALL.into_iter();
        to.filter_map(move |event| Some((from, from.after(event).ok()?)))
    })
}

/// Counts by mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    reasons: Vec<u64>,
    orders: [[u64; OrderState::ALL.len()]; OrderState::ALL.len()],
    reservations: [[u64; STATES.len()]; STATES.len()],
    events: [u64; EVENTS.len()],
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            reasons: vec![0; Reason::ALL.len()],
            orders: Default::default(),
            reservations: Default::default(),
            events: [0; EVENTS.len()],
        }
    }
}

impl Marks {
    /// Replies by reason, as a shard counts them.
    pub fn replies(&mut self, by_reason: &[u64]) {
        for (sum, count) in self.reasons.iter_mut().zip(by_reason) {
            *sum += count;
        }
    }

    /// An order went from one state to another.
    pub fn order(&mut self, from: OrderState, to: OrderState) {
        self.orders[from as usize][to as usize] += 1;
    }

    /// A reservation went from one state to another; false when none may.
    pub fn reservation(&mut self, from: ReservationState, to: ReservationState) -> bool {
        let place = |state| STATES.iter().position(|other| *other == state);
        if let (Some(from), Some(to)) = (place(from), place(to)) {
            self.reservations[from][to] += 1;
        }
        may_move(from, to)
    }

    /// It happened so many times.
    pub fn happened(&mut self, what: Happened, times: u64) {
        self.events[what as usize] += times;
    }

    /// Adds another world's counts.
    pub fn add(&mut self, other: &Self) {
        let rows = [(&mut self.reasons[..], &other.reasons[..])].into_iter();
        let orders = self.orders.iter_mut().map(|row| &mut row[..]);
        let orders = orders.zip(other.orders.iter().map(|row| &row[..]));
        let moves = self.reservations.iter_mut().map(|row| &mut row[..]);
        let moves = moves.zip(other.reservations.iter().map(|row| &row[..]));
        let events = [(&mut self.events[..], &other.events[..])].into_iter();
        for (sums, counts) in rows.chain(orders).chain(moves).chain(events) {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count;
            }
        }
    }

    /// Every mark of worlds with that ledger and its count, those never reached included; `faults` are marks, too.
    pub fn all(&self, faults: &Faults, ledger: LedgerKind) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for reason in Reason::ALL {
            let count = self.reasons[*reason as usize];
            // A reason of the list that was reached stays out of `missing` and in the report.
            if count > 0 || !never(ledger).iter().any(|(never, _)| never == reason) {
                all.insert(format!("reason.{}", reason.row().label), count);
            }
        }
        for (from, to) in order_moves() {
            let name = format!("order.{}-{}", from.text(), to.text()).to_lowercase();
            all.insert(name, self.orders[from as usize][to as usize]);
        }
        for (at, from) in STATES.into_iter().enumerate() {
            for (count, to) in self.reservations[at].into_iter().zip(STATES) {
                if may_move(from, to) {
                    let name = format!("reservation.{from:?}-{to:?}").to_lowercase();
                    all.insert(name, count);
                }
            }
        }
        let events = EVENTS.iter().zip(self.events).enumerate();
        let events = events.filter(|(place, _)| belongs(*place, ledger));
        all.extend(events.map(|(_, (name, count))| ((*name).to_owned(), count)));
        all.extend(
            faults
                .iter(ledger)
                .map(|(name, count)| (format!("fault.{name}"), count)),
        );
        all
    }

    /// Reasons that were reached though the list says that they cannot be.
    pub fn wrongly_excused(&self, ledger: LedgerKind) -> impl Iterator<Item = &'static str> + '_ {
        let reached = |reason: &Reason| self.reasons[*reason as usize] > 0;
        never(ledger)
            .iter()
            .filter(move |(reason, _)| reached(reason))
            .map(|(reason, _)| reason.row().label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_every_table_is_a_mark_and_missing_at_first() {
        let marks = Marks::default().all(&Faults::default(), LedgerKind::Embedded);
        assert!(marks.values().all(|count| *count == 0));
        let of = |family: &str| marks.keys().filter(|name| name.starts_with(family)).count();
        assert_eq!(of("reason."), Reason::ALL.len() - NEVER_EMBEDDED.len());
        assert_eq!((of("order."), of("reservation.")), (8, 11));
        assert_eq!(
            of("fault."),
            Faults::default().iter(LedgerKind::Embedded).count()
        );
    }

    #[test]
    fn what_happened_is_counted_where_it_belongs() {
        let (mut one, mut both) = (Marks::default(), Marks::default());
        assert!(one.reservation(ReservationState::Closed, ReservationState::PaidLate));
        assert!(!one.reservation(ReservationState::Settled, ReservationState::Closed));
        one.order(OrderState::Created, OrderState::Paid);
        one.happened(Happened::SoldOut, 2);
        both.add(&one);
        both.add(&one);
        let all = both.all(&Faults::default(), LedgerKind::Embedded);
        let seen: Vec<_> = all.iter().filter(|(_, count)| **count > 0).collect();
        let names = [
            "order.created-paid",
            "reservation.closed-paidlate",
            "sku.sold_out",
        ];
        assert_eq!(
            seen.iter()
                .map(|(name, _)| name.as_str())
                .collect::<Vec<_>>(),
            names
        );
        assert_eq!(all["sku.sold_out"], 4);
    }
}
