//! Decisions: the shard, its limits, the ledger, the orders. Events in, effects out.
//!
//! Called by the drivers of weir-io through [`port::Handler`]. Invariants: no clock, no socket, no entropy, no
//! unsafe; time comes as [`time::Now`], chance from a seed; every table and queue has its capacity in [`limits`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod ask;
pub mod journal;
pub mod ledger;
pub mod limit;
pub mod limits;
pub mod mail;
pub mod order;
pub mod planted;
pub mod port;
pub mod record;
pub mod redis;
pub mod rng;
pub mod sale;
pub mod shard;
pub mod stats;
pub mod time;
pub mod tls;
pub mod view;
