//! The loops: the only clock and sockets of weir.
//!
//! A driver owns one thread, turns I/O into `port::Event`s and carries out `port::Effects`: [`driver`] for parts with
//! connections, over [`uring`] or an async runtime as [`choice`] says, [`mailbox`] for parts without, [`sim`] for all at
//! once on one virtual clock. [`post`] carries mail between them. Called by `src/` (boot) and `bench/`; knows nothing of
//! HTTP, sales or ledgers. Unsafe code lives in `sys` and in `uring/{ring,buffers,setup}.rs`.

#![allow(
    clippy::result_large_err,
    reason = "a full box gives the mail back by value: that is its whole answer, and rare"
)]

pub mod affinity;
mod asleep;
pub mod choice;
/// What [`asleep`] is made of: named here once, so that a checker of interleavings can put its own in their place.
mod atomics {
    pub(crate) use std::sync::atomic::{AtomicBool, Ordering, fence};
}
pub mod clock;
pub mod drain;
pub mod driver;
pub mod error;
pub mod limits;
pub mod mailbox;
pub mod net;
pub mod post;
pub mod rlimit;
pub mod signals;
pub mod sim;
pub mod stats;
mod sys;
mod tasks;
pub mod tls;
pub mod uring;
pub mod watched;
