//! Placeholder for the table of reasons (merged from its own branch).

/// Every way a request can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Held and queued.
    Queued,
}
