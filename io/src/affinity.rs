//! Gives a thread a core of its own, so that a shard's tables stay in that core's caches.

use crate::error::DriverError;
use crate::sys;

/// Lets the calling thread run on `cpu` only (0 is the first).
///
/// # Errors
/// [`DriverError::Pin`] when there is no such core or this process may not use it.
pub fn pin_this_thread(cpu: usize) -> Result<(), DriverError> {
    sys::affinity::pin_this_thread(cpu).map_err(|error| DriverError::Pin { cpu, error })
}

/// The cores that this process may use, in order; never empty.
///
/// # Errors
/// Whatever the system says; not expected.
pub fn allowed_cpus() -> std::io::Result<Vec<usize>> {
    sys::affinity::allowed_cpus()
}
