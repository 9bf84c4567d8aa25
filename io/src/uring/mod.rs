//! The default driver: one io_uring per pinned thread, run to completion, no futures.
//!
//! [`crate::driver`] is the loop and what it does for conns, `ring` is its backend and owns what the kernel may touch,
//! `setup` tells the kernel what to refuse, `sockets` says what an accepted socket is.

mod buffers;
mod ring;
mod setup;
mod sockets;
mod tag;

use crate::drain::DrainSwitch;
use crate::driver::{self, DriverConfig, Prepared, Shared, Wait};
use crate::error::DriverError;
use crate::post::PostOffice;
use crate::stats::DriverStats;
use crate::sys::eventfd::EventFd;
use std::sync::Arc;
use weir_core::mail::Addr;
use weir_core::port::Handler;

/// Bytes that one ring of this configuration needs: its queues, receive buffers, and what every driver has.
pub fn memory_needed(config: &DriverConfig) -> usize {
    ring::Ring::memory_needed(config) + driver::memory_needed(config)
}

/// Sets up the plainest of rings and enters the kernel once: what every runtime on io_uring needs. Asked before one is
/// built, because they do not say that entering is refused.
///
/// # Errors
/// [`DriverError::Ring`]: io_uring is missing or forbidden.
pub(crate) fn is_allowed() -> Result<(), DriverError> {
    let ring = io_uring::IoUring::new(8).map_err(|e| DriverError::ring("io_uring_setup", e))?;
    let entered = ring.submitter().submit();
    entered.map_err(|error| DriverError::ring("io_uring_enter", error))?;
    Ok(())
}

/// Sets a small ring up, enters the kernel once, and takes it down.
///
/// # Errors
/// [`DriverError::Ring`]: io_uring, or a part of it that weir needs, is missing or forbidden.
pub(crate) fn try_out() -> Result<(), DriverError> {
    let config = DriverConfig {
        ring_entries: 8,
        recv_buffers: 2,
        conns_max: 0,
        ..DriverConfig::new(Addr::Ops)
    };
    let bell = EventFd::new().map_err(|error| DriverError::ring("its doorbell", error))?;
    let mut ring = ring::Ring::new(config, &bell)?;
    let entered = ring.enter(Wait::No);
    entered.map_err(|error| DriverError::ring("io_uring_enter", error))
}

pub(crate) use setup::try_out_direct;

/// Runs `handler` on the calling thread until it stops; gives it back.
///
/// # Errors
/// [`DriverError`]: a value out of range, no box, no such core, io_uring missing or forbidden.
pub fn run(
    config: DriverConfig,
    handler: Box<dyn Handler>,
    post: Arc<PostOffice>,
    drain: Arc<DrainSwitch>,
    stats: Arc<DriverStats>,
) -> Result<Box<dyn Handler>, DriverError> {
    let counters = Arc::clone(&stats);
    let prepared = Prepared::new(&config, handler, Shared { post, drain, stats })?;
    let ring = ring::Ring::new(config, prepared.bell())?;
    counters
        .rings_unrestricted
        .add((!ring.is_restricted()).into());
    let mut driver = prepared.with(ring);
    driver.start()?;
    while !driver.is_done() {
        let wait = driver.may_sleep();
        driver.backend.enter(wait)?;
        driver.turn()?;
    }
    driver.ring_bell();
    driver.backend.leave()?;
    Ok(driver.into_handler())
}
