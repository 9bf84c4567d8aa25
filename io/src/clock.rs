//! The only clock of weir: read once per turn by a driver, passed down as [`Now`].

use crate::sys;
use std::sync::atomic::{AtomicI64, Ordering};
use weir_core::time::{Mono, Now, WallMs};

/// Added to CLOCK_REALTIME; 0 in every program but the one whose clock a torture run moves.
static WALL_SHIFT_MS: AtomicI64 = AtomicI64::new(0);

/// Both clocks, now: CLOCK_MONOTONIC and CLOCK_REALTIME.
pub fn read() -> Now {
    let shift_ms = WALL_SHIFT_MS.load(Ordering::Relaxed);
    Now {
        mono: Mono(sys::clock::monotonic_ns()),
        wall: WallMs(sys::clock::realtime_ms().saturating_add_signed(shift_ms)),
    }
}

/// Moves this process's wall clock to `shift_ms` from the system's, as a step of the system's clock would. Threads see
/// it in their next turn.
pub fn shift_wall(shift_ms: i64) {
    WALL_SHIFT_MS.store(shift_ms, Ordering::Relaxed);
}
