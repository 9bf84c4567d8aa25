//! How a driver with sockets is set up.

use crate::error::DriverError;
use crate::limits::{CONNS_MAX, RECV_BUFFERS_MAX, RING_ENTRIES_MAX};
use crate::net::ListenSocket;
use weir_core::mail::Addr;

/// How a driver is set up. Start from [`DriverConfig::new`] and change what differs.
#[derive(Debug)]
pub struct DriverConfig {
    /// Whose mail this driver's handler gets; it must have a box in the post office.
    pub addr: Addr,
    /// Where clients come in; `None`: nowhere.
    pub listen: Option<ListenSocket>,
    /// Most connections at once, in and out, 0..2^24. At the cap accepting pauses: clients wait in the kernel's backlog.
    pub conns_max: u32,
    /// Submission queue of a ring, 1..=16384 (rounded up to a power of two); the completion queue is four times as long.
    /// With epoll: events taken at once.
    pub ring_entries: u32,
    /// Receive buffers shared by all conns, a power of two, 1..=32768. Only uring shares; elsewhere each conn has one.
    pub recv_buffers: u16,
    /// Bytes of each, at least 64.
    pub recv_buffer_bytes: u32,
    /// Accepted sockets live in the ring's own table, not among the process's descriptors. Only uring has one.
    pub direct: bool,
    /// The core to run on; `None`: any.
    pub cpu: Option<usize>,
}

impl DriverConfig {
    /// A driver for a few thousand connections: 4,096 slots, 1,024 entries, 1,024 receive buffers of 2 KiB (one holds
    /// a whole submit; 2 MiB stay in the L2 cache of a server core).
    pub fn new(addr: Addr) -> Self {
        Self {
            addr,
            listen: None,
            conns_max: 4096,
            ring_entries: 1024,
            recv_buffers: 1024,
            recv_buffer_bytes: 2048,
            direct: false,
            cpu: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), DriverError> {
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
        if !(1..=RING_ENTRIES_MAX).contains(&self.ring_entries) {
            return wrong("ring_entries", self.ring_entries.into(), "1..=16384");
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
