//! Limits: GCRA, the keyed table, leases, in-flight slots.

pub mod gcra;
pub mod lease;
