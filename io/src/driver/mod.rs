//! The loop of a part with sockets, whatever carries its I/O.
//!
//! `turn` is the loop (order of design §3); `accept`, `receive`, `send`, `connect` and `close` are what it does for conns,
//! over a [`Backend`]: `uring::ring` (completions of our own ring) or `tasks` (an async runtime of one thread). Operations
//! are never cancelled, with two exceptions where nothing can be lost: an accept at the cap (what is not accepted stays in
//! the backlog), and a receive of a conn whose handler leaves too much unconsumed (see `receive`). A backend may also end
//! what is under way on a conn that closes by cancelling it. A conn keeps its slot until its last completion came.

mod accept;
mod backend;
mod close;
mod config;
mod connect;
mod conns;
mod receive;
mod send;
mod turn;

pub(crate) use backend::{Backend, Completion, SendProgress, Wait};
pub use config::DriverConfig;
pub(crate) use conns::empty;

use crate::drain::DrainSwitch;
use crate::error::DriverError;
use crate::limits::CONN_WARM_BYTES;
use crate::post::{PostOffice, TakenBox};
use crate::stats::DriverStats;
use crate::sys::eventfd::EventFd;
use std::sync::Arc;
use weir_core::port::{Effects, Handler};
use weir_core::time::{Mono, Now};

/// Bytes that every driver needs for this configuration, whatever its backend: the table of conns, the box, and two warm
/// send buffers per conn. A conn may take up to `limits::RECV_BACKLOG_BYTES_MAX` (one that we connected:
/// `REPLY_BACKLOG_BYTES_MAX`) and its unsent bytes more.
pub(crate) fn memory_needed(config: &DriverConfig) -> usize {
    conns::Conns::memory_needed(config.conns_max)
        + turn::lists_memory_needed(config.conns_max as usize)
        + config.conns_max as usize * CONN_WARM_BYTES
        + PostOffice::box_bytes()
}

/// What a driver shares with the rest of the process.
pub(crate) struct Shared {
    /// Where mail goes.
    pub post: Arc<PostOffice>,
    /// Asks it to finish.
    pub drain: Arc<DrainSwitch>,
    /// Its counters.
    pub stats: Arc<DriverStats>,
}

/// A driver before it has its backend.
pub(crate) struct Prepared {
    mailbox: TakenBox,
    handler: Box<dyn Handler>,
    shared: Shared,
    conns_max: u32,
    listens: bool,
}

impl Prepared {
    /// Checks the configuration, takes the part's box and moves the calling thread to its core.
    ///
    /// # Errors
    /// [`DriverError`]: a value out of range, no box, no such core.
    pub(crate) fn new(
        config: &DriverConfig,
        handler: Box<dyn Handler>,
        shared: Shared,
    ) -> Result<Self, DriverError> {
        config.check()?;
        let mailbox = shared
            .post
            .take_box(config.addr)
            .map_err(|error| DriverError::from_take(config.addr, error))?;
        if let Some(cpu) = config.cpu {
            crate::affinity::pin_this_thread(cpu)?;
        }
        Ok(Self {
            mailbox,
            handler,
            shared,
            conns_max: config.conns_max,
            listens: config.listen.is_some(),
        })
    }

    /// What wakes the driver when mail comes.
    pub(crate) fn bell(&self) -> &EventFd {
        self.mailbox.bell()
    }

    /// The driver; nothing has run yet.
    pub(crate) fn with<B: Backend>(self, backend: B) -> Driver<B> {
        Driver {
            backend,
            conns: conns::Conns::new(self.conns_max),
            fx: Effects::new(self.conns_max as usize),
            handler: self.handler,
            now: crate::clock::read(),
            listener: self.listens.then(accept::Listener::new),
            mailbox: self.mailbox,
            shared: self.shared,
            lists: turn::Lists::new(self.conns_max as usize),
            phase: turn::Phase::Running,
            drain_shown: false,
            tick_due: None,
        }
    }
}

/// Everything of one thread with sockets.
pub(crate) struct Driver<B: Backend> {
    /// First: fields are dropped in this order, and the backend may wait for the doorbell of `mailbox`.
    pub backend: B,
    conns: conns::Conns,
    fx: Effects,
    handler: Box<dyn Handler>,
    now: Now,
    listener: Option<accept::Listener<B::Socket>>,
    mailbox: TakenBox,
    shared: Shared,
    lists: turn::Lists<B::Socket>,
    phase: turn::Phase,
    drain_shown: bool,
    tick_due: Option<Mono>,
}

impl<B: Backend> Driver<B> {
    /// Wakes this driver itself.
    pub(crate) fn ring_bell(&self) {
        self.mailbox.bell().ring();
    }

    /// The handler, after the last turn.
    pub(crate) fn into_handler(self) -> Box<dyn Handler> {
        self.handler
    }
}
