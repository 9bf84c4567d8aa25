//! What the operating system allows this process: read at start to refuse what does not fit.

use crate::sys;
use std::io;

/// A limit: the value in force and the most that this process may raise it to. `u64::MAX` is "no limit".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// In force (`ulimit -S`).
    pub soft: u64,
    /// The most that may be set without privilege (`ulimit -H`).
    pub hard: u64,
}

/// Open descriptors (RLIMIT_NOFILE): one per connection and a few dozen.
///
/// # Errors
/// Whatever the system says; not expected.
pub fn open_files() -> io::Result<Limit> {
    sys::rlimit::open_files().map(|(soft, hard)| Limit { soft, hard })
}

/// Locked memory, bytes (RLIMIT_MEMLOCK): rings count against it before Linux 5.12.
///
/// # Errors
/// Whatever the system says; not expected.
pub fn locked_bytes() -> io::Result<Limit> {
    sys::rlimit::locked_bytes().map(|(soft, hard)| Limit { soft, hard })
}

/// Raises the soft limit of open descriptors to the hard one, and tells what is then in force.
///
/// # Errors
/// Whatever the system says; not expected.
pub fn raise_open_files() -> io::Result<Limit> {
    let limit = open_files()?;
    if limit.soft < limit.hard {
        sys::rlimit::set_open_files(limit.hard)?;
    }
    open_files()
}
