//! Who the buyers are: their kinds, how they pay, and each wish of theirs with what they were told of it.

use crate::sim::plan::{Plan, WALL_START_MS};
use weir_core::rng::Rng;
use weir_proto::answer::RequestState;
use weir_proto::ids::{RequestId, ReservationId, UserId};
use weir_proto::ticket::{
    Claims, DeviceClaim, NonceClaim, TicketKey, base64url, mint_compact, mint_jws,
};

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
    /// Has a ticket with this flaw.
    BadTicket(Flaw),
    /// Sends what is no request of ours.
    Vandal,
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

/// What is wrong with a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) enum Flaw {
    /// Nobody signed it.
    Forged,
    /// It is of yesterday.
    Expired,
    /// It is of tomorrow.
    Early,
    /// It is another user's.
    Foreign,
    /// It is bound to another device.
    OtherDevice,
    /// There is none.
    Missing,
    /// It has no form.
    Shapeless,
    /// Its key is not one of ours.
    UnknownKey,
    /// It is signed, and says nothing.
    Claimless,
}

const FLAWS: [Flaw; 9] = [
    Flaw::Forged,
    Flaw::Expired,
    Flaw::Early,
    Flaw::Foreign,
    Flaw::OtherDevice,
    Flaw::Missing,
    Flaw::Shapeless,
    Flaw::UnknownKey,
    Flaw::Claimless,
];

impl Kind {
    /// Of those that this world has; `kinds` has a bit for each, the honest are everywhere.
    fn draw(kinds: u32, rng: &mut Rng) -> Self {
        let (bit, kind) = match rng.below(36) {
            0..10 => return Self::Honest,
            10..15 => (0, Self::DoubleClick),
            15..18 => (1, Self::OtherRequest),
            18..20 => (2, Self::SameNonce),
            20..22 => (3, Self::OtherBody),
            22..24 => {
                let flaw = FLAWS[rng.below(FLAWS.len() as u64) as usize];
                (4, Self::BadTicket(flaw))
            }
            24 => (5, Self::WrongPath),
            25 => (6, Self::TooMany),
            26..29 => (7, Self::Impatient),
            29..31 => (8, Self::Pipelined),
            31 => (9, Self::AsksFirst),
            _ => (10, Self::Vandal),
        };
        if kinds >> bit & 1 == 1 {
            kind
        } else {
            Self::Honest
        }
    }

    /// True when no request of this kind may ever be granted.
    pub const fn is_barred(self) -> bool {
        matches!(
            self,
            Self::BadTicket(_) | Self::WrongPath | Self::TooMany | Self::Vandal
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
    /// Twice under one payment id, with two amounts.
    OneIdForTwo,
}

impl Pays {
    fn draw(rng: &mut Rng) -> Self {
        match rng.below(11) {
            0..3 => Self::Never,
            3..7 => Self::InTime,
            7 => Self::AfterTheEnd,
            8 => Self::TooLittleFirst,
            9 => Self::OneIdForTwo,
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
            kind: Kind::draw(plan.crowds.kinds, rng),
            pays: Pays::draw(rng),
            sku: rng.below(plan.skus_count() as u64) as usize,
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
    /// Its bodies that were accepted: the first one, another one.
    pub bodies: [bool; 2],
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

/// A ticket for `buyer`: `nonce` tells the buyer's tickets apart.
pub(super) fn ticket(plan: &Plan, buyer: &Buyer, nonce: u32, rng: &mut Rng) -> Vec<u8> {
    const HOUR_MS: u64 = 3_600_000;
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&buyer.user.0.to_be_bytes());
    raw[8..12].copy_from_slice(&nonce.to_be_bytes());
    let activity = plan.activity(buyer.sku);
    let flaw = match buyer.kind {
        Kind::BadTicket(flaw) => Some(flaw),
        _ => None,
    };
    let from_ms = match flaw {
        Some(Flaw::Expired) => WALL_START_MS - 24 * HOUR_MS,
        Some(Flaw::Early) => WALL_START_MS + 24 * HOUR_MS,
        _ => WALL_START_MS - HOUR_MS / 4,
    };
    let device = match flaw {
        Some(Flaw::OtherDevice) => Some("somebody's".into()),
        _ => plan.device(buyer.user).map(device_name),
    };
    let salt = &activity.device_salt;
    let bound = device.and_then(|name| DeviceClaim::of_device(salt, name.as_bytes()));
    let claims = Claims {
        activity: activity.id,
        sku: plan.sku(buyer.sku).id,
        user: UserId(buyer.user.0 + u64::from(flaw == Some(Flaw::Foreign))),
        activity_version: activity.version,
        path_id: activity.path_id,
        nonce: NonceClaim::Raw(raw),
        device: bound.unwrap_or(DeviceClaim::Unbound),
        not_before_ms: from_ms,
        expires_at_ms: from_ms + HOUR_MS,
    };
    let nobodys = TicketKey::new(b"k9", b"a key of nobody, 32 bytes or more").expect("long enough");
    let key = match flaw {
        Some(Flaw::UnknownKey) => &nobodys,
        _ => &plan.key,
    };
    let mut ticket = Vec::with_capacity(256);
    let minted = if rng.chance(1, 4) || flaw == Some(Flaw::Claimless) {
        mint_jws(&claims, key, &mut ticket)
    } else {
        mint_compact(&claims, key, &mut ticket)
    };
    minted.expect("the claims are in range");
    if let Some(flaw) = flaw {
        spoil(flaw, key, &mut ticket);
    }
    ticket
}

/// The flaws that no claim makes.
fn spoil(flaw: Flaw, key: &TicketKey, ticket: &mut Vec<u8>) {
    match flaw {
        Flaw::Forged => {
            let at = ticket.len() - 2; // the MAC is at the end
            ticket[at] = if ticket[at] == b'A' { b'B' } else { b'A' };
        }
        Flaw::Missing => ticket.clear(),
        Flaw::Shapeless => *ticket = b"no.ticket".to_vec(),
        Flaw::Claimless => {
            let header_bytes = ticket.iter().position(|byte| *byte == b'.').unwrap_or(0);
            ticket.truncate(header_bytes);
            ticket.extend_from_slice(b".e30"); // an object without members
            let mac = key.hs256(ticket);
            ticket.push(b'.');
            base64url::append(&mac, ticket);
        }
        _ => {}
    }
}

/// What a device calls itself.
pub(in crate::sim) fn device_name(device: u64) -> String {
    format!("device-{device}")
}
