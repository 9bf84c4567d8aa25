//! Orders: what follows a reservation. Decisions here, SQL in `src/orders`.
//!
//! States RESERVED, QUEUED, CREATED, PAID, CLOSED, FAILED, PAID_LATE, fenced by version (requirement G6, design §8).

pub mod contract;
