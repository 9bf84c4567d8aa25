//! What one client was told about one request, in order; all that a broken promise is measured by.

use crate::demo::words::{Ask, Words, name};
use weir_proto::answer::{Code, RequestState};
use weir_proto::ids::{RequestId, ReservationId, UserId};

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// For a unit.
    Submit,
    /// Where the request stands.
    Status,
    /// To book a payment.
    Payment,
}

/// One answer, as far as it promises something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// To what.
    pub asked: Asked,
    /// Its code.
    pub code: Code,
    /// Its state.
    pub state: RequestState,
    /// The reservation that it names.
    pub reservation: Option<ReservationId>,
}

impl Said {
    /// "Not now": it promises nothing.
    pub fn is_try_again(&self) -> bool {
        matches!(
            self.code,
            Code::SystemOverloaded | Code::DependencyUnavailable | Code::RateLimited
        )
    }

    /// True when it says where the request stands; "not known yet" says nothing.
    pub fn is_status(&self) -> bool {
        self.asked == Asked::Status && self.code != Code::SeckillPending
    }

    /// True when it names a reservation as this request's own.
    pub fn is_grant(&self) -> bool {
        self.asked != Asked::Payment && self.reservation.is_some()
    }

    /// True when it says that this request got nothing and never will.
    pub fn is_never(&self) -> bool {
        self.state == RequestState::NotAccepted
    }
}

/// One request of one buyer, and all that was said about it.
#[derive(Clone, Debug)]
pub struct Told {
    /// Whose.
    pub buyer: u32,
    /// Which of the buyer's.
    pub number: u8,
    /// The answers.
    pub said: Vec<Said>,
    /// The server died before it answered this.
    pub unanswered: Option<Asked>,
}

impl Told {
    /// Nothing was said yet.
    pub const fn new(buyer: u32, number: u8) -> Self {
        Self {
            buyer,
            number,
            said: Vec::new(),
            unanswered: None,
        }
    }

    /// The request in the words of the load.
    pub const fn ask(&self) -> Ask {
        Ask {
            buyer: self.buyer,
            request: self.number,
            ticket: self.number,
            quantity: 1,
        }
    }

    /// Its user.
    pub const fn user(&self) -> UserId {
        UserId(Words::user(self.buyer))
    }

    /// Its name.
    pub fn request_id(&self) -> RequestId {
        name(self.ask())
    }

    /// What it was granted.
    pub fn reservation(&self) -> Option<ReservationId> {
        let mut grants = self.said.iter().filter(|said| said.is_grant());
        grants.next().and_then(|said| said.reservation)
    }

    /// True when its payment was said to be booked.
    pub fn is_paid(&self) -> bool {
        let booked =
            |said: &Said| matches!(said.code, Code::PaymentAccepted | Code::PaymentRepeated);
        self.said.iter().any(booked)
    }

    /// True when it was said that its order is closed.
    pub fn is_closed(&self) -> bool {
        let closed = |said: &Said| said.is_status() && said.state == RequestState::Closed;
        self.said.iter().any(closed)
    }

    /// True when something of the kind was said.
    pub fn was_told(&self, code: Code) -> bool {
        self.said.iter().any(|said| said.code == code)
    }
}

/// Which state a terminal one may still turn into: money that comes late is noted.
pub fn may_follow(ended: RequestState, now: RequestState) -> bool {
    now == ended || (ended, now) == (RequestState::Closed, RequestState::PaidLate)
}
