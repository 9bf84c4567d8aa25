//! The whole sale in one deterministic world: shards, ledger, store model, worker, orders, buyers, operator, faults.
//!
//! Called by `weir sim` and tests. One seed is one world: configuration, load and faults are drawn from it. Checkers look
//! after every turn; then faults and load end, the world drains in bounded virtual time and the books are compared.
//! Invariants: equal seeds give equal hashes on every machine and with any number of threads.

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
pub mod redis;
mod report;
mod store;
mod tally;
mod weather;

pub use director::{SeedReport, run_seed, seed_here};
pub use marks::Marks;
pub use report::{Report, run_range};
pub use tally::{Fault, Faults, Sin, SinKind};

/// What a run may be told beside its seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Print one line per event to stdout.
    pub trace: bool,
    /// The fault put in on purpose.
    #[cfg(weir_planted)]
    pub planted: weir_core::planted::Planted,
}

impl Options {
    /// Without any fault put in; `trace`: print every event.
    pub fn traced(trace: bool) -> Self {
        Self {
            trace,
            #[cfg(weir_planted)]
            planted: weir_core::planted::Planted::None,
        }
    }
}

/// Bytes of a world's part of the hash of a range; see [`Report`].
const HASH_BYTES: usize = 32;
