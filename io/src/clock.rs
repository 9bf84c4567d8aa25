//! The only clock of weir: read once per turn by a driver, passed down as [`Now`].

use crate::sys;
use weir_core::time::{Mono, Now, WallMs};

/// Both clocks, now: CLOCK_MONOTONIC and CLOCK_REALTIME.
pub fn read() -> Now {
    Now {
        mono: Mono(sys::clock::monotonic_ns()),
        wall: WallMs(sys::clock::realtime_ms()),
    }
}
