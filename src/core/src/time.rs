//! Time as an argument: read once per turn by the driver, passed down (style §2).

/// Nanoseconds of the monotonic clock; only differences mean anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Mono(pub u64);

/// Milliseconds since 1970-01-01T00:00:00Z by the wall clock; may step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct WallMs(pub u64);

/// One reading of both clocks: limits and deadlines of a process use `mono`, what is stored uses `wall` (design §12.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Now {
    /// Monotonic nanoseconds.
    pub mono: Mono,
    /// Wall milliseconds.
    pub wall: WallMs,
}

/// Nanoseconds in a millisecond.
pub const NS_PER_MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const NS_PER_S: u64 = 1_000_000_000;

impl Mono {
    /// This instant plus `ms` milliseconds, saturating.
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(NS_PER_MS)))
    }

    /// This instant plus `ns` nanoseconds, saturating.
    pub const fn plus_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// Nanoseconds since `earlier`; 0 when `earlier` is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl WallMs {
    /// This instant plus `ms` milliseconds, saturating.
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds since `earlier`; 0 when `earlier` is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
