//! Limits: the five kinds of rule, the keyed table, prepaid budget, in-flight slots, deny-lists, bans, hot keys.
//!
//! The admission pipeline asks them in the order of design §4. User, device and budget are charged all or nothing:
//! probe both tables, take from the budget last, then charge both probes; a refusal by any of them charges none (B21).

pub mod bans;
pub mod book;
pub mod budget;
pub mod deny;
pub mod dimension;
pub mod gcra;
mod hash;
pub mod holds;
pub mod inflight;
pub mod lease;
mod line;
mod log;
pub mod pool;
pub mod rule;
pub mod shaper;
pub mod share;
mod sketch;
pub mod table;
pub mod topk;
mod window;
