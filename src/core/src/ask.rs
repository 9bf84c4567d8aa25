//! The contract of the ledger: what may be asked, and every answer. One contract, two homes (design §5).
//!
//! Askers: shards (reserve, lookup), the worker (confirm, settle, release, late), ops (open, close, mode, restock).
//! Every ask has an id, a deadline and exactly one of three results: done, failed, unknown (design §4, issue 3 §3).

use crate::mail::Addr;
use crate::time::{Mono, WallMs};
use weir_proto::ids::{Nonce, RequestId, ReservationId, SkuKey, UserId};

/// Names an ask among the asks of one asker; never used twice within a run of the asker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AskId(pub u64);

/// One exchange with the ledger.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Who wants the answer.
    pub from: Addr,
    /// The asker's name for it.
    pub id: AskId,
    /// The owner refuses ([`Failure::Late`]) what it takes up after this instant (design §12.5).
    pub deadline: Mono,
    /// What is asked.
    pub op: LedgerOp,
}

/// The answer to an [`Ask`].
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The asker's name for the ask.
    pub id: AskId,
    /// What came of it.
    pub outcome: Outcome,
}

/// The three results of an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was decided, and what the decision rests on is durable.
    Done(LedgerAnswer),
    /// It was not done and never will be.
    Failed(Failure),
    /// Nobody knows: the commit failed or the answer was lost. Not a failure: query, never resend blindly.
    Unknown,
}

/// Why an ask was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Failure {
    /// Taken up after its deadline.
    Late,
    /// The store failed earlier; no grants until a restart (design §12.3).
    Poisoned,
    /// The ledger is still recovering.
    Recovering,
    /// No such SKU in the ledger.
    UnknownSku,
    /// The batch that fills is full while another commits, or the link to Redis is: nothing was done; ask again.
    Busy,
    /// Redis cannot be reached, or has said that it did not execute this.
    Unavailable,
    /// The Redis that answers has not got the books: it may have lost grants. None is made until they are mended.
    Frozen,
}

/// What can be asked of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerOp {
    /// Hold units for a user, if everything allows it; one atomic step.
    Reserve(Reserve),
    /// What became of a request; writes a short-lived tombstone when it was never seen (design §12.5).
    Lookup(Lookup),
    /// The order row of this reservation exists.
    Confirm(ReservationRef),
    /// The order is paid: held becomes sold.
    Settle(ReservationRef),
    /// Give the units back after a definite end; idempotent; leaves a tombstone.
    Release(Release),
    /// A payment came after the release: hold and sell again if units are free and the user holds nothing, else record PAID_LATE (design §12.8).
    PaidLate(ReservationRef),
    /// Put a SKU on sale with its first stock; idempotent by request_id.
    Open(Open),
    /// End the sale of a SKU for good or until `Open` comes again.
    Close(OpsRef),
    /// Set the admission mode.
    SetMode(SetMode),
    /// Add units; idempotent by request_id.
    Restock(Restock),
}

impl LedgerOp {
    /// The SKU that it is about.
    pub const fn sku(&self) -> SkuKey {
        match self {
            Self::Reserve(reserve) => reserve.sku,
            Self::Lookup(lookup) => lookup.sku,
            Self::Confirm(target) | Self::Settle(target) | Self::PaidLate(target) => target.sku,
            Self::Release(release) => release.target.sku,
            Self::Open(open) => open.target.sku,
            Self::Close(target) => target.sku,
            Self::SetMode(set) => set.target.sku,
            Self::Restock(restock) => restock.target.sku,
        }
    }
}

/// Hold `quantity` units for `user`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// What.
    pub sku: SkuKey,
    /// For whom.
    pub user: UserId,
    /// The idempotency key, unique per (activity, SKU, user).
    pub request_id: RequestId,
    /// The ticket's nonce.
    pub nonce: Nonce,
    /// The nonce must be remembered until then: expiry + skew + margin (B6).
    pub nonce_until: WallMs,
    /// Units, 1..=the SKU's `quantity_max`.
    pub quantity: u32,
}

/// Ask for the fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// What.
    pub sku: SkuKey,
    /// Whose request.
    pub user: UserId,
    /// Which request.
    pub request_id: RequestId,
    /// A status query closes the door for a request never seen: a later reserve of it is refused. A submit's retry
    /// after sold-out does not need that.
    pub tombstone: bool,
}

/// A reservation by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationRef {
    /// The SKU it belongs to.
    pub sku: SkuKey,
    /// The reservation.
    pub reservation: ReservationId,
}

/// Give back what a reservation holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Which.
    pub target: ReservationRef,
    /// Why; becomes the final state.
    pub end: ReleaseEnd,
}

/// How a released reservation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseEnd {
    /// Not paid in time, or cancelled: CLOSED.
    Closed,
    /// The order could not be made: FAILED.
    Failed,
}

/// Names an operator's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpsRef {
    /// Which SKU.
    pub sku: SkuKey,
    /// The operator's idempotency key.
    pub request_id: RequestId,
}

/// Put on sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Which, and the operator's key.
    pub target: OpsRef,
    /// First stock in units; ignored when the SKU was opened before.
    pub stock: u64,
    /// Most units of one user's request.
    pub quantity_max: u32,
    /// A closed order does not free the user when set (design §12.6).
    pub once_per_activity: bool,
}

/// Set the admission mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetMode {
    /// Which, and the operator's key.
    pub target: OpsRef,
    /// The mode.
    pub mode: Mode,
}

/// Add units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restock {
    /// Which, and the operator's key.
    pub target: OpsRef,
    /// Units to add, at least 1.
    pub units: u64,
}

/// The admission mode of a SKU (requirement J1, seed 000 §7.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// Submits open.
    Normal,
    /// Submits at a reduced rate.
    Degraded,
    /// No new submits enter; status stays.
    QueueOnly,
    /// New submits refused; status as long as possible.
    Closed,
}

/// Where a reservation stands; the ledger learns the order's states from the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReservationState {
    /// Units held, no order row yet: the client sees QUEUED.
    Reserved,
    /// The order row exists, unpaid: CREATED.
    Confirmed,
    /// Paid: the units are sold.
    Settled,
    /// Released unpaid.
    Closed,
    /// Released because no order could be made.
    Failed,
    /// Paid after its release and nothing was free: holds no unit, a refund is due.
    PaidLate,
}

impl ReservationState {
    /// True while the units belong to the reservation.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Reserved | Self::Confirmed | Self::Settled)
    }
}

/// A reservation as an answer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its number.
    pub reservation: ReservationId,
    /// Where it stands.
    pub state: ReservationState,
    /// Units.
    pub quantity: u32,
}

/// What the ledger decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerAnswer {
    /// Units are held now.
    Granted(Held),
    /// The same request was granted before: its first answer, and where it stands.
    Repeated(Held),
    /// No unit is free. The stock epoch it was decided in.
    SoldOut {
        /// See design §2, stock_epoch.
        epoch: u64,
    },
    /// Another request of this user holds or bought.
    AlreadyHolds(Held),
    /// The request_id names another body.
    RequestIdConflict,
    /// The nonce was granted to another request.
    ReplayRejected,
    /// A status query closed the door for this request (design §12.5).
    Tombstoned,
    /// The SKU is not on sale (never opened, or closed).
    NotOpen,
    /// The mode lets no new submit in.
    ModeRefused(Mode),
    /// Fewer units are free than asked for, or more are asked for than the policy allows.
    QuantityRefused,
    /// The ledger's table for this SKU is full.
    TableFull,
    /// Lookup: found.
    Found(Held),
    /// Lookup: never seen; with `tombstone`, it never will be accepted.
    NotFound,
    /// Confirm, settle, release: where the reservation stands now (also when it stood there before).
    Now(Held),
    /// Confirm, settle, release: this step is not possible from the state it is in.
    StepRefused(Held),
    /// No such reservation.
    NoReservation,
    /// An operator's step was done (or had been, by the same request_id); the books after it.
    OpsDone(Books),
}

/// The books of one SKU: `total = free + held + sold + quarantined`, always (requirement G7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// All units ever put on sale.
    pub total: u64,
    /// Not held by anybody.
    pub free: u64,
    /// Held by unpaid reservations.
    pub held: u64,
    /// Paid.
    pub sold: u64,
    /// Owner disputed; not sold until reconcile or an operator decides.
    pub quarantined: u64,
}

impl Books {
    /// True when the invariant holds.
    pub const fn balance(&self) -> bool {
        self.total == self.free + self.held + self.sold + self.quarantined
    }
}
