//! What is counted while the crowd buys: answers, kinds, what winners were told; and the numbers that the progress line shows.
//!
//! Filled by the crowd on its thread; [`Live`] alone is read by others while it runs.

use super::kinds::Kind;
use super::limits::COMPLAINTS_MAX;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use weir_bench::client::ClientCounts;
use weir_bench::latency::Latency;
use weir_proto::answer::{Code, RequestState};
use weir_proto::ids::ReservationId;

/// Where the sale is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Everybody comes.
    Rush,
    /// Everybody came; the operator puts units on sale again.
    Restocking,
    /// They are there; the reopening is waited for.
    Restocked,
    /// Losers come back for these.
    FirstReturn,
    /// The unpaid orders are waited for.
    Unpaid,
    /// Losers come back for their units.
    SecondReturn,
    /// Nobody comes any more; orders are paid and settled.
    Settling,
    /// All is over.
    Over,
}

impl Phase {
    const ALL: [Self; 8] = [
        Self::Rush,
        Self::Restocking,
        Self::Restocked,
        Self::FirstReturn,
        Self::Unpaid,
        Self::SecondReturn,
        Self::Settling,
        Self::Over,
    ];

    /// For the progress line.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Rush => "rush",
            Self::Restocking | Self::Restocked => "restocking",
            Self::FirstReturn => "losers return",
            Self::Unpaid => "waiting for unpaid orders",
            Self::SecondReturn => "losers return again",
            Self::Settling => "settling",
            Self::Over => "over",
        }
    }
}

/// What others may see while the crowd runs.
#[derive(Debug, Default)]
pub struct Live {
    /// Requests answered.
    pub answered: AtomicU64,
    /// Buyers who came.
    pub came: AtomicU64,
    /// Buyers who were told that a unit is theirs.
    pub granted: AtomicU64,
    /// Orders known to be paid.
    pub paid: AtomicU64,
    /// The operator has restocked: set by the demo's main thread.
    pub restocked: AtomicBool,
    phase: AtomicU8,
}

impl Live {
    /// Where the sale is.
    pub fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Ordering::Acquire))]
    }

    /// Says where it is.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }
}

/// One count; the crowd is the only writer.
pub fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What one kind was answered.
#[derive(Clone, Debug)]
pub struct KindTally {
    /// Buyers of this kind whose case came up.
    pub count: u64,
    /// Buyers who were answered what they must not be.
    pub wrong: u64,
    /// Answers by code (`Code as usize`).
    pub answers: [u64; CODES],
}

/// How many codes there are.
pub const CODES: usize = Code::ALL.len();

/// What a winner was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The reservation.
    pub reservation: ReservationId,
    /// Whose.
    pub user: u64,
    /// Its end, as the status query said; `None`: not terminal when the demo ended.
    pub end: Option<RequestState>,
}

/// All counts of a run.
#[derive(Debug)]
pub struct Tally {
    /// By kind (`Kind as usize`).
    pub kinds: Vec<KindTally>,
    /// All answers by code.
    pub answers: [u64; CODES],
    /// Requests answered.
    pub answered: u64,
    /// Requests that failed below HTTP.
    pub transport_errors: u64,
    /// Requests whose end was not known when the demo gave up.
    pub limbo: u64,
    /// Status answers that named another unit than the buyer was told.
    pub changed_reservations: u64,
    /// From the send to the answer, submits only.
    pub latency: Latency,
    /// Every unit that somebody was told to hold.
    pub told: Vec<Told>,
    /// The first wrong answers, in words.
    pub complaints: Vec<String>,
    /// It was ended before every story was told.
    pub gave_up: bool,
    /// What happened to connections.
    pub client: ClientCounts,
    /// Nanoseconds from the first request to the last answer of the rush.
    pub rush_ns: u64,
    /// Requests of the rush.
    pub rush_requests: u64,
}

impl Tally {
    /// Nothing counted; room for `told_max` winners.
    pub fn new(told_max: usize) -> Self {
        let nothing = KindTally {
            count: 0,
            wrong: 0,
            answers: [0; CODES],
        };
        Self {
            kinds: vec![nothing; Kind::ALL.len()],
            answers: [0; CODES],
            answered: 0,
            transport_errors: 0,
            limbo: 0,
            changed_reservations: 0,
            latency: Latency::new(),
            told: Vec::with_capacity(told_max),
            complaints: Vec::new(),
            gave_up: false,
            client: ClientCounts::default(),
            rush_ns: 0,
            rush_requests: 0,
        }
    }

    /// The counts of a kind.
    pub fn kind(&mut self, kind: Kind) -> &mut KindTally {
        &mut self.kinds[kind as usize]
    }

    /// Keeps the first few wrong answers in words.
    pub fn complain(&mut self, words: impl FnOnce() -> String) {
        if self.complaints.len() < COMPLAINTS_MAX {
            self.complaints.push(words());
        }
    }
}

/// Where the crowd leaves its counts when it ends.
pub type Shelf = Mutex<Option<Tally>>;
