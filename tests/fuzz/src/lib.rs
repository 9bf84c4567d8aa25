//! weir's readers of foreign bytes against other readers and slow, obvious models.
//!
//! Called by the fuzz targets and, on the stable toolchain, by `tests/differential.rs`, which takes this file in by path.
//! Each `check` takes any bytes and says what differs; it never panics unless a reader does. What weir does otherwise than
//! the other reader, on purpose, is in the table "Differences" of `tests/fuzz/README.md`.

pub mod config;
pub mod forwarded;
mod forwarded_model;
pub mod http;
pub(crate) mod http_model;
pub mod json;
pub mod resp;
pub(crate) mod resp_model;
pub mod ticket;
mod ticket_model;

/// Nothing to say, or what differs.
pub type Checked = Result<(), String>;

/// What a target does with its bytes.
pub type Check = fn(&[u8]) -> Checked;

/// Every target by the name of its corpus.
pub const TARGETS: [(&str, Check); 6] = [
    ("http", http::check),
    ("json", json::check),
    ("ticket", ticket::check),
    ("forwarded", forwarded::check),
    ("config", config::check),
    ("resp", resp::check),
];

/// `Err` with both values when they are not the same.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, ours: &T, theirs: &T) -> Checked {
    if ours == theirs {
        return Ok(());
    }
    Err(format!("{what}: weir {ours:?}, the other {theirs:?}"))
}

/// A number from the bytes, the same in every run: what is cut or changed depends on the input alone.
fn seed_of(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
