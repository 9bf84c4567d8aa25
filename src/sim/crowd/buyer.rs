//! Who the buyers are: their kinds, how they pay, and each wish of theirs with what they were told of it.

use crate::sim::plan::{Plan, WALL_START_MS};
use weir_core::rng::Rng;
use weir_proto::answer::RequestState;
use weir_proto::ids::{RequestId, ReservationId, UserId};
use weir_proto::ticket::{Claims, DeviceClaim, NonceClaim, mint_compact, mint_jws};

/// How a buyer behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) enum Kind {
    /// Submits, asks again when told to, polls.
    Honest,
    /// Sends the same request twice at once, on two connections.
    DoubleClick,
    /// Sends a second request with a ticket of its own.
    OtherRequest,
    /// Sends a second request with the first one's ticket.
    SameNonce,
    /// Sends another body under the same request id.
    OtherBody,
    /// Has a ticket that nobody signed.
    Forged,
    /// Has a ticket of yesterday.
    Expired,
    /// Knows an old path.
    WrongPath,
    /// Wants more than is allowed.
    TooMany,
    /// Hangs up right after sending.
    Impatient,
    /// Sends the submit and its status query in one write.
    Pipelined,
    /// Asks for the status before submitting: closes its own door.
    AsksFirst,
}

impl Kind {
    fn draw(rng: &mut Rng) -> Self {
        match rng.below(32) {
            0..10 => Self::Honest,
            10..15 => Self::DoubleClick,
            15..18 => Self::OtherRequest,
            18..20 => Self::SameNonce,
            20..22 => Self::OtherBody,
            22 => Self::Forged,
            23 => Self::Expired,
            24 => Self::WrongPath,
            25 => Self::TooMany,
            26..29 => Self::Impatient,
            29..31 => Self::Pipelined,
            _ => Self::AsksFirst,
        }
    }

    /// True when no request of this kind may ever be granted.
    pub const fn is_barred(self) -> bool {
        matches!(
            self,
            Self::Forged | Self::Expired | Self::WrongPath | Self::TooMany
        )
    }
}

/// How a buyer pays an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) enum Pays {
    Never,
    InTime,
    AfterTheEnd,
    TooLittleFirst,
    Twice,
}

impl Pays {
    fn draw(rng: &mut Rng) -> Self {
        match rng.below(10) {
            0..3 => Self::Never,
            3..7 => Self::InTime,
            7 => Self::AfterTheEnd,
            8 => Self::TooLittleFirst,
            _ => Self::Twice,
        }
    }
}

/// A buyer.
#[derive(Debug)]
pub(in crate::sim) struct Buyer {
    pub user: UserId,
    pub kind: Kind,
    pub pays: Pays,
    pub sku: usize,
    /// Wishes after the first: how often the buyer comes back.
    pub returns: u64,
    /// The latest connection, if it may be used again: line and stamp.
    pub line: Option<(u32, u32)>,
    pub wishes: u32,
}

impl Buyer {
    pub fn draw(number: u64, plan: &Plan, rng: &mut Rng) -> Self {
        Self {
            user: UserId(number + 1),
            kind: Kind::draw(rng),
            pays: Pays::draw(rng),
            sku: rng.below(plan.activity().skus.len() as u64) as usize,
            returns: rng.below(3),
            line: None,
            wishes: 0,
        }
    }
}

/// One request id of a buyer, and what the buyer knows of it.
#[derive(Debug)]
pub(in crate::sim) struct Wish {
    pub buyer: u32,
    pub user: UserId,
    pub sku: usize,
    pub quantity: u32,
    pub request_id: RequestId,
    pub ticket: Vec<u8>,
    /// Submits sent.
    pub tries: u32,
    /// Told 202 or nothing at least once: the status must become terminal.
    pub doubt: bool,
    /// Acknowledged: this reservation.
    pub queued: Option<ReservationId>,
    /// The last word of a status query.
    pub told: Option<RequestState>,
    /// A status query is on its way or planned.
    pub polling: bool,
    /// Payment callbacks sent or planned.
    pub paying: bool,
    /// Payment callbacks answered "accepted", by number.
    pub paid: Option<u32>,
}

impl Wish {
    /// True when the buyer needs no more answers.
    pub fn is_settled(&self) -> bool {
        let asks = self.doubt || self.queued.is_some();
        !asks || self.told.is_some_and(RequestState::is_terminal)
    }
}

/// A ticket for `user`: `nonce` tells the buyer's tickets apart.
pub(super) fn ticket(plan: &Plan, buyer: &Buyer, nonce: u32, rng: &mut Rng) -> Vec<u8> {
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&buyer.user.0.to_be_bytes());
    raw[8..12].copy_from_slice(&nonce.to_be_bytes());
    let activity = plan.activity();
    let from_ms = match buyer.kind {
        Kind::Expired => WALL_START_MS - 86_400_000,
        _ => WALL_START_MS - 900_000,
    };
    let claims = Claims {
        activity: activity.id,
        sku: activity.skus[buyer.sku].id,
        user: buyer.user,
        activity_version: activity.version,
        path_id: activity.path_id,
        nonce: NonceClaim::Raw(raw),
        device: DeviceClaim::Unbound,
        not_before_ms: from_ms,
        expires_at_ms: from_ms + 3_600_000,
    };
    let mut ticket = Vec::with_capacity(256);
    let minted = if rng.chance(1, 4) {
        mint_jws(&claims, &plan.key, &mut ticket)
    } else {
        mint_compact(&claims, &plan.key, &mut ticket)
    };
    minted.expect("the claims are in range");
    if buyer.kind == Kind::Forged {
        let at = ticket.len() - 2; // the MAC is at the end
        ticket[at] = if ticket[at] == b'A' { b'B' } else { b'A' };
    }
    ticket
}
