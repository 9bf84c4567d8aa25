//! A counter in the kernel that wakes whoever waits on it: eventfd(2).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// One eventfd. Blocking on purpose: the ring arms a poll for a blocking file and answers EAGAIN for another.
#[derive(Debug)]
pub struct EventFd(File);

impl EventFd {
    /// A new one, at zero.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is open, fresh, and owned by nobody else.
        Ok(Self(File::from(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Wakes the waiter, now or at its next wait.
    pub fn ring(&self) {
        // Fails only when the counter would pass 2^64 - 2: then the waiter is woken anyway.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    /// Waits until rung or until `timeout` has passed (`None`: for ever), and empties the counter.
    pub fn wait(&self, timeout: Option<Duration>) {
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let at = timeout.map(|t| libc::timespec {
            tv_sec: t.as_secs().min(i64::MAX as u64) as libc::time_t,
            tv_nsec: t.subsec_nanos().into(),
        });
        let at_ptr = at.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: one pollfd, valid for the call; `at_ptr` is null or points at `at`, alive here; no signal mask.
        let ready = unsafe { libc::ppoll(&mut poll, 1, at_ptr, std::ptr::null()) };
        if ready > 0 {
            let mut count = [0u8; 8];
            // One reader per eventfd: what poll saw is still there, so this does not block.
            let _ = (&self.0).read(&mut count);
        }
    }

    /// A second descriptor of the same counter.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn another(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// The descriptor, for the ring.
    pub fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl From<EventFd> for OwnedFd {
    fn from(bell: EventFd) -> Self {
        bell.0.into()
    }
}
