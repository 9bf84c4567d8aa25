//! The rate of a limit (the algorithm follows from its own branch).

/// `tokens` per `per_ns` nanoseconds, an exact rational; 0 tokens never refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Tokens.
    pub tokens: u64,
    /// Nanoseconds, at least 1.
    pub per_ns: u64,
}
