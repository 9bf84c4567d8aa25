//! The default driver: one io_uring per pinned thread, run to completion, no futures.
//!
//! `turn` is the loop (order of design §3); `accept`, `receive`, `send` and `close` are what it does for conns, `ring`
//! owns what the kernel may touch. Operations are never cancelled, with two exceptions where nothing can be lost: the
//! multishot accept at the cap (what is not accepted stays in the backlog), and the multishot receive of a conn
//! whose handler leaves too much unconsumed (see `receive`). A conn keeps its slot until its last completion came.

mod accept;
mod buffers;
mod close;
mod connect;
mod conns;
mod receive;
mod ring;
mod send;
mod tag;
mod turn;

use crate::drain::DrainSwitch;
use crate::error::DriverError;
use crate::limits::{CONN_WARM_BYTES, CONNS_MAX, RECV_BUFFERS_MAX};
use crate::net::ListenSocket;
use crate::post::PostOffice;
use crate::stats::DriverStats;
use std::sync::Arc;
use weir_core::mail::Addr;
use weir_core::port::{Effects, Handler};

/// How one ring is set up. Start from [`UringConfig::new`] and change what differs.
#[derive(Debug)]
pub struct UringConfig {
    /// Whose mail this ring's handler gets; it must have a box in the post office.
    pub addr: Addr,
    /// Where clients come in; `None`: nowhere.
    pub listen: Option<ListenSocket>,
    /// Most connections at once, in and out, 0..2^24. At the cap accepting pauses: clients wait in the kernel's backlog.
    pub conns_max: u32,
    /// Submission queue, 1..=32768 (rounded up to a power of two); the completion queue is four times as long.
    pub ring_entries: u32,
    /// Receive buffers shared by all conns, a power of two, 1..=32768.
    pub recv_buffers: u16,
    /// Bytes of each, at least 64.
    pub recv_buffer_bytes: u32,
    /// The core to run on; `None`: any.
    pub cpu: Option<usize>,
}

impl UringConfig {
    /// A ring for a few thousand connections: 4,096 slots, 1,024 entries, 1,024 receive buffers of 2 KiB (one holds
    /// a whole submit; 2 MiB stay in the L2 cache of a server core).
    pub fn new(addr: Addr) -> Self {
        Self {
            addr,
            listen: None,
            conns_max: 4096,
            ring_entries: 1024,
            recv_buffers: 1024,
            recv_buffer_bytes: 2048,
            cpu: None,
        }
    }

    fn check(&self) -> Result<(), DriverError> {
        let wrong = |key, value: u64, allowed| {
            Err(DriverError::Config {
                key,
                value,
                allowed,
            })
        };
        if self.conns_max >= CONNS_MAX {
            return wrong("conns_max", self.conns_max.into(), "0..=16777215");
        }
        if !(1..=32_768).contains(&self.ring_entries) {
            return wrong("ring_entries", self.ring_entries.into(), "1..=32768");
        }
        if !self.recv_buffers.is_power_of_two() || self.recv_buffers > RECV_BUFFERS_MAX {
            return wrong(
                "recv_buffers",
                self.recv_buffers.into(),
                "a power of two, 1..=32768",
            );
        }
        if !(64..=1 << 20).contains(&self.recv_buffer_bytes) {
            return wrong(
                "recv_buffer_bytes",
                self.recv_buffer_bytes.into(),
                "64..=1048576",
            );
        }
        Ok(())
    }
}

/// Bytes that one ring of this configuration needs: its queues, receive buffers, table of conns, box, and two warm send
/// buffers per conn. A conn may take up to `limits::RECV_BACKLOG_BYTES_MAX` and its unsent bytes more.
pub fn memory_needed(config: &UringConfig) -> usize {
    ring::Ring::memory_needed(config)
        + conns::Conns::memory_needed(config.conns_max)
        + turn::Lists::memory_needed(config.conns_max as usize)
        + config.conns_max as usize * CONN_WARM_BYTES
        + PostOffice::box_bytes()
}

/// Runs `handler` on the calling thread until it stops; gives it back.
///
/// # Errors
/// [`DriverError`]: a value out of range, no box, no such core, io_uring missing or forbidden.
pub fn run(
    config: UringConfig,
    handler: Box<dyn Handler>,
    post: Arc<PostOffice>,
    drain: Arc<DrainSwitch>,
    stats: Arc<DriverStats>,
) -> Result<Box<dyn Handler>, DriverError> {
    config.check()?;
    let mailbox = post
        .take_box(config.addr)
        .map_err(|error| DriverError::from_take(config.addr, error))?;
    if let Some(cpu) = config.cpu {
        crate::affinity::pin_this_thread(cpu)?;
    }
    let driver = Driver {
        ring: ring::Ring::new(&config)?,
        conns: conns::Conns::new(config.conns_max),
        fx: Effects::new(config.conns_max as usize),
        handler,
        now: crate::clock::read(),
        listener: config.listen.map(accept::Listener::new),
        mailbox,
        post,
        drain,
        stats,
        lists: turn::Lists::new(config.conns_max as usize),
        phase: turn::Phase::Running,
        drain_shown: false,
        tick_due: None,
    };
    driver.run_to_end()
}

/// Everything of one ring's thread.
struct Driver {
    /// Before `conns` and `listener`: fields are dropped in this order, and the ring uses their sockets.
    ring: ring::Ring,
    conns: conns::Conns,
    fx: Effects,
    handler: Box<dyn Handler>,
    now: weir_core::time::Now,
    listener: Option<accept::Listener>,
    mailbox: crate::post::TakenBox,
    post: Arc<PostOffice>,
    drain: Arc<DrainSwitch>,
    stats: Arc<DriverStats>,
    lists: turn::Lists,
    phase: turn::Phase,
    drain_shown: bool,
    tick_due: Option<weir_core::time::Mono>,
}
