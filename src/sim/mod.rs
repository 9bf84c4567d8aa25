//! The whole sale in one deterministic world: shards, ledger, store model, worker, orders, buyers, operator, faults.
//!
//! Called by `weir sim` and tests. One seed is one world: configuration, load and faults are drawn from it. Checkers look
//! after every turn; then faults and load end, the world drains in bounded virtual time and the books are compared.
//! Invariants: equal seeds give equal hashes on every machine and with any number of threads.

mod afar;
mod books;
mod check;
mod crowd;
mod director;
mod end;
mod gates;
#[cfg(weir_planted)]
pub mod hunt;
mod journal;
mod marks;
mod mishap;
mod operator;
mod plan;
mod record;
pub mod redis;
mod report;
mod squall;
mod store;
mod tally;
mod truth;
mod weather;

pub use director::{SeedReport, run_seed, seed_here};
pub use marks::Marks;
pub use report::{Report, run_range};
pub use tally::{Fault, Faults, Sin, SinKind};

/// Where the ledger of the worlds is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LedgerKind {
    /// In the process.
    #[default]
    Embedded,
    /// In a modelled Redis that runs the shipped scripts, asked by one or two machines.
    Redis,
}

impl LedgerKind {
    /// The options of `weir sim` that name it, each behind a space.
    pub const fn options(self) -> &'static str {
        match self {
            Self::Embedded => "",
            Self::Redis => " --ledger redis",
        }
    }
}

/// What a run may be told beside its seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Where the ledger is.
    pub ledger: LedgerKind,
    /// Print one line per event to stdout.
    pub trace: bool,
    /// The fault put in on purpose.
    #[cfg(weir_planted)]
    pub planted: weir_core::planted::Planted,
}

impl Options {
    /// Without any fault put in; `trace`: print every event.
    pub fn traced(ledger: LedgerKind, trace: bool) -> Self {
        Self {
            ledger,
            trace,
            #[cfg(weir_planted)]
            planted: weir_core::planted::Planted::None,
        }
    }
}

/// Bytes of a world's part of the hash of a range; see [`Report`].
const HASH_BYTES: usize = 32;
