//! What the caller may do to mail, connects and segments: one hook object, asked at each of them.
//!
//! Crashes, pauses and clock steps are methods of the world, called between turns. Faults keep the seam's promises:
//! mail between two parts keeps its order (a delayed one holds back what follows; a second copy may come late), bytes
//! keep theirs, and no byte is changed.

use super::part::Seat;
use std::net::SocketAddr;
use weir_core::mail::Mail;
use weir_core::rng::Rng;
use weir_core::time::Now;

/// Between whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The sender.
    pub from: Seat,
    /// The receiver.
    pub to: Seat,
}

/// A connect about to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dial {
    /// Who connects.
    pub from: Seat,
    /// To where.
    pub to: SocketAddr,
}

/// What becomes of a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailFate {
    /// It arrives, so many nanoseconds later than it would have.
    Deliver {
        /// 0 for no fault.
        delay_ns: u64,
    },
    /// It never arrives.
    Lose,
    /// It arrives, and a second copy so many nanoseconds after it.
    Duplicate {
        /// Between the two.
        again_ns: u64,
    },
}

/// What becomes of a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialFate {
    /// It goes to whoever listens there.
    Pass,
    /// It is answered with a reset.
    Refuse,
    /// It is never answered: the connect times out.
    Drop,
}

/// What becomes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentFate {
    /// It arrives, so many nanoseconds later than it would have; later ones of this direction wait behind it.
    Pass {
        /// 0 for no fault.
        delay_ns: u64,
    },
    /// The connection is reset for both ends; what was on the way is lost.
    Reset,
}

/// Decides the fate of everything that travels. Every draw must come from `rng`, or the run cannot be repeated.
pub trait Faults {
    /// A mail leaves.
    fn mail(&mut self, now: Now, route: Route, mail: &Mail, rng: &mut Rng) -> MailFate {
        let _ = (now, route, mail, rng);
        MailFate::Deliver { delay_ns: 0 }
    }

    /// A connect leaves.
    fn dial(&mut self, now: Now, dial: Dial, rng: &mut Rng) -> DialFate {
        let _ = (now, dial, rng);
        DialFate::Pass
    }

    /// A segment of `bytes` bytes leaves.
    fn segment(&mut self, now: Now, route: Route, bytes: usize, rng: &mut Rng) -> SegmentFate {
        let _ = (now, route, bytes, rng);
        SegmentFate::Pass { delay_ns: 0 }
    }
}

/// A world where nothing goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFaults;

impl Faults for NoFaults {}
