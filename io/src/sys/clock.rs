//! Reads the kernel's clocks: clock_gettime(2), through the vDSO.

/// Seconds and nanoseconds of `clock`.
fn read(clock: libc::clockid_t) -> (u64, u64) {
    let mut at = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `at` is valid for writing; both clocks used here exist on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &mut at) };
    (at.tv_sec.unsigned_abs(), at.tv_nsec.unsigned_abs())
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    let (s, ns) = read(libc::CLOCK_MONOTONIC);
    s * 1_000_000_000 + ns
}

/// Milliseconds of CLOCK_REALTIME.
pub fn realtime_ms() -> u64 {
    let (s, ns) = read(libc::CLOCK_REALTIME);
    s * 1_000 + ns / 1_000_000
}
