//! Orders: what follows a reservation. Decisions here, SQL in `src/orders`.
//!
//! States RESERVED, QUEUED, CREATED, PAID, CLOSED, FAILED, PAID_LATE, fenced by version (requirement G6, design §8).

pub mod contract;
mod intake;
pub mod model;
pub mod state;
mod steps;
mod tally;
pub mod worker;
