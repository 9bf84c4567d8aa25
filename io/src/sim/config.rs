//! How a world behaves when nothing is wrong: latencies, sizes, capacities.

use weir_core::mail::MAILBOX_MAX;
use weir_core::rng::Rng;

/// A range to draw from, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The least.
    pub min: u64,
    /// The most; at least `min`.
    pub max: u64,
}

impl Span {
    /// Always this.
    pub const fn exactly(value: u64) -> Self {
        Self {
            min: value,
            max: value,
        }
    }

    /// One of the range, all equally likely.
    pub fn draw(self, rng: &mut Rng) -> u64 {
        if self.min >= self.max {
            return self.min;
        }
        self.min + rng.below(self.max - self.min + 1)
    }
}

/// How the world behaves when nothing is wrong. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The wall clock at the start, milliseconds since 1970.
    pub wall_start_ms: u64,
    /// From the first news to the turn that takes it up: what gathers meanwhile shares the turn.
    pub wake_ns: Span,
    /// How long a turn takes; at least 1 is used.
    pub turn_ns: Span,
    /// How long a mail takes.
    pub mail_ns: Span,
    /// How long a segment takes.
    pub net_ns: Span,
    /// Of a thousand segments, how many are cut at a random byte.
    pub split_per_mille: u64,
    /// Bytes on the wire or held back in one direction; at the cap the sender's bytes wait with its driver. At least 1.
    pub window_bytes: usize,
    /// Bytes a driver keeps for a handler that receives and does not consume, beyond the window; where it has connected,
    /// `limits::REPLY_BACKLOG_BYTES_MAX` at least.
    pub input_bytes_max: usize,
    /// Connects that wait for an accept; one more is not answered until it is tried again.
    pub backlog_max: usize,
    /// Mail on its way to one part and in its box; at the cap the poster keeps it.
    pub mailbox_max: usize,
}

impl Default for Config {
    /// A quick machine: microseconds between parts, 50 to 500 microseconds on the network.
    fn default() -> Self {
        Self {
            wall_start_ms: 1_800_000_000_000,
            wake_ns: Span {
                min: 500,
                max: 20_000,
            },
            turn_ns: Span {
                min: 1_000,
                max: 50_000,
            },
            mail_ns: Span {
                min: 200,
                max: 10_000,
            },
            net_ns: Span {
                min: 50_000,
                max: 500_000,
            },
            split_per_mille: 250,
            window_bytes: 64 * 1024,
            input_bytes_max: 32 * 1024,
            backlog_max: 4096,
            mailbox_max: MAILBOX_MAX,
        }
    }
}
