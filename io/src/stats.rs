//! Counters of one driver, written by its thread, read by the ops listener at any time.

use std::sync::atomic::{AtomicU64, Ordering};

/// One counter: only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        if n > 0 {
            self.0.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one driver counts. Several drivers may share one; then it holds their sum.
#[derive(Debug, Default)]
pub struct DriverStats {
    /// Connections accepted and shown to the handler.
    pub accepts: Counter,
    /// Accepts that failed: no descriptor, no memory, or the peer had gone.
    pub accept_errors: Counter,
    /// Receives that found no provided buffer and were armed again.
    pub recv_enobufs: Counter,
    /// Receives stopped because the handler left too much unconsumed.
    pub recv_stops: Counter,
    /// Turns that found completions waiting in the kernel because the completion queue was full.
    pub cq_overflow: Counter,
    /// Rings that this kernel could not restrict to the operations in use; grows only when a driver starts.
    pub rings_unrestricted: Counter,
    /// Operations given to the kernel.
    pub sqe: Counter,
    /// Completions taken from the kernel.
    pub cqe: Counter,
    /// io_uring_enter calls, or sleeps of a part without sockets.
    pub enters: Counter,
    /// Turns.
    pub turns: Counter,
    /// Sends that the kernel took only in part.
    pub sends_short: Counter,
    /// Mail shown to the handler.
    pub mail_in: Counter,
    /// Posts that a full box refused; each try counts.
    pub mail_refused: Counter,
}
