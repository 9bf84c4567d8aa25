//! One buyer on the stage: who, what is under way, what is known. A few bytes, in a slab of bounded size.
//!
//! A buyer enters when it comes and leaves when its story is told; the million who are not there take no memory.

use super::kinds::Kind;
use weir_bench::client::LaneId;
use weir_core::time::Mono;
use weir_proto::ids::ReservationId;

macro_rules! moves {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One thing that a buyer does: one request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Move { $($(#[$doc])* $name,)* }

        impl Move {
            const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

moves! {
    /// The submit.
    First,
    /// The same at the same time.
    SecondClick,
    /// The same once it is answered, on another connection.
    Again,
    /// The same when the order is paid.
    AgainLater,
    /// The same request id with two units.
    OtherBody,
    /// Another request of a winner.
    Second,
    /// Another request with the same ticket.
    Replay,
    /// One of many requests, until it is limited.
    Burst,
    /// At once after the 429.
    TooSoon,
    /// After exactly the time that the 429 said.
    AfterWait,
    /// Asks for the status.
    Status,
    /// Pays.
    Pay,
    /// The same payment again.
    PayAgain,
    /// Pays too much.
    PayWrong,
    /// Pays a closed order.
    PayLate,
}

impl Move {
    /// True for submits; they are counted in the buyer's kind and in the latency.
    pub const fn is_submit(self) -> bool {
        !self.is_payment() && !matches!(self, Self::Status)
    }

    /// True for payment callbacks; they are counted in the payer's kind.
    pub const fn is_payment(self) -> bool {
        matches!(
            self,
            Self::Pay | Self::PayAgain | Self::PayWrong | Self::PayLate
        )
    }
}

/// A buyer's place in the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActId(pub u32);

/// A job of the engine: whose move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cue {
    /// Whose.
    pub act: ActId,
    /// Which.
    pub step: Move,
}

impl Cue {
    /// As the engine's number.
    pub const fn pack(self) -> u64 {
        (self.act.0 as u64) << 8 | self.step as u64
    }

    /// Back from [`Self::pack`].
    pub fn unpack(id: u64) -> Self {
        Self {
            act: ActId((id >> 8) as u32),
            step: Move::ALL[(id & 0xff) as usize],
        }
    }
}

/// How far the first request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not answered by a result yet.
    First,
    /// Answered "unknown": the status is asked for.
    Asking,
    /// A unit is held; the order is followed to its end.
    Follow,
    /// The end is known.
    Ended,
}

/// One buyer on the stage.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    /// Number, 0..buyers.
    pub buyer: u32,
    /// Who.
    pub kind: Kind,
    /// How it pays, once it holds a unit.
    pub payer: Kind,
    /// How far.
    pub stage: Stage,
    /// First of this visit's request numbers.
    pub base: u8,
    /// Requests under way or scheduled.
    pub legs: u8,
    /// Times it was told to come again.
    pub tries: u8,
    /// Requests of the burst.
    pub bursts: u8,
    /// Where the first answer came.
    pub lane: LaneId,
    /// What it holds.
    pub reservation: Option<ReservationId>,
    /// When the submit that is followed was sent first: no unit was held before.
    pub sent: Mono,
    /// The wait that a 429 told, and when.
    pub told_wait: (u64, Mono),
    /// What was heard.
    pub heard: Heard,
}

/// What a buyer heard about its first request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heard {
    /// Sold out.
    pub sold_out: bool,
    /// The result is unknown.
    pub pending: bool,
    /// A request of its own failed below HTTP: a repeat is no surprise.
    pub lost: bool,
    /// A payment was sent (again) after an answer that left it open.
    pub paid_again: bool,
    /// The payment is booked.
    pub paid: bool,
    /// The payment came too late.
    pub refund: bool,
    /// It was counted as wrongly answered.
    pub wrong: bool,
    /// It was counted as wrongly answered as a payer.
    pub wrong_payer: bool,
}

impl Act {
    /// A buyer who comes.
    pub const fn new(buyer: u32, kind: Kind, base: u8) -> Self {
        Self {
            buyer,
            kind,
            payer: Kind::Pays,
            stage: Stage::First,
            base,
            legs: 0,
            tries: 0,
            bursts: 0,
            lane: LaneId(0),
            reservation: None,
            sent: Mono(u64::MAX),
            told_wait: (0, Mono(0)),
            heard: Heard {
                sold_out: false,
                pending: false,
                lost: false,
                paid_again: false,
                paid: false,
                refund: false,
                wrong: false,
                wrong_payer: false,
            },
        }
    }
}

/// All buyers on the stage.
#[derive(Debug)]
pub struct Acts {
    acts: Vec<Act>,
    present: Vec<bool>,
    free: Vec<ActId>,
    acts_max: usize,
}

impl Acts {
    /// Room for `acts_max`.
    pub fn new(acts_max: usize) -> Self {
        Self {
            acts: Vec::with_capacity(acts_max),
            present: Vec::with_capacity(acts_max),
            free: Vec::with_capacity(acts_max),
            acts_max,
        }
    }

    /// True when one more may enter.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty() || self.acts.len() < self.acts_max
    }

    /// How many are there.
    pub fn count(&self) -> usize {
        self.acts.len() - self.free.len()
    }

    /// Enters. The caller looked for room.
    pub fn enter(&mut self, act: Act) -> ActId {
        assert!(self.has_room(), "the caller looked for room");
        if let Some(id) = self.free.pop() {
            self.acts[id.0 as usize] = act;
            self.present[id.0 as usize] = true;
            return id;
        }
        self.acts.push(act);
        self.present.push(true);
        ActId((self.acts.len() - 1) as u32)
    }

    /// Leaves; its place is free again.
    pub fn leave(&mut self, id: ActId) {
        self.present[id.0 as usize] = false;
        self.free.push(id);
    }

    /// The buyer.
    pub fn get(&self, id: ActId) -> &Act {
        &self.acts[id.0 as usize]
    }

    /// The buyer, to change.
    pub fn get_mut(&mut self, id: ActId) -> &mut Act {
        &mut self.acts[id.0 as usize]
    }

    /// Those who are still there.
    pub fn present(&self) -> impl Iterator<Item = &Act> {
        let pairs = self.acts.iter().zip(&self.present);
        pairs.filter_map(|(act, present)| present.then_some(act))
    }
}
