//! What can be wrong with stored bytes of the ledger, and with books.

use core::fmt;
use weir_proto::ids::SkuKey;

/// Bytes that this program cannot have written in this order. The owner refuses to start on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalError {
    /// Byte offset in the batch or snapshot.
    pub offset: usize,
    /// What is wrong there.
    pub wrong: Wrong,
}

/// What is wrong with stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Written in another format: by a newer program, or not by weir.
    Version(u8),
    /// The bytes end within a value.
    Short,
    /// Bytes follow after the last value.
    LeftOver,
    /// A value that has no meaning: what it should be, and what it is.
    Value(&'static str, u64),
    /// Well-formed, but not possible after what came before it.
    Impossible(&'static str),
}

impl JournalError {
    pub(super) fn shifted(self, by: usize) -> Self {
        Self {
            offset: self.offset + by,
            wrong: self.wrong,
        }
    }
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.offset;
        match self.wrong {
            Wrong::Version(version) => {
                write!(
                    f,
                    "format version {version} at byte {offset} is not known; this program reads versions up to 1: start the newer program"
                )
            }
            Wrong::Short => write!(f, "the bytes end within a value at byte {offset}"),
            Wrong::LeftOver => write!(f, "bytes follow the last value at byte {offset}"),
            Wrong::Value(what, value) => {
                write!(f, "{what} {value} at byte {offset} has no meaning")
            }
            Wrong::Impossible(what) => write!(
                f,
                "the entry at byte {offset} cannot follow what came before: {what}"
            ),
        }
    }
}

/// Books that contradict the reservations: a bug of ours, found by [`super::Ledger::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BooksFault {
    /// Which SKU.
    pub sku: SkuKey,
    /// What does not hold.
    pub what: &'static str,
}

impl fmt::Display for BooksFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SkuKey { activity, sku } = self.sku;
        write!(f, "activity {activity}, SKU {sku}: {}", self.what)
    }
}
