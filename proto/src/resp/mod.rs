//! Redis' protocol, RESP2 and RESP3: where a reply ends, what is in it, and how a command is written.
//!
//! Called by the link to Redis and by the slot map of weir-core. Facts: the RESP3 specification 1.6
//! (github.com/redis/redis-specifications, protocol/RESP3.md, "the text" below) and redis.io/docs/reference/protocol-spec.
//!
//! A [`Scanner`] finds a reply's end and refuses whatever is not of the grammar or over a limit; [`read`] then walks what
//! was found, in place. Both versions are read at once: which one a connection speaks is not asked, its types tell.
//! Invariants: nothing is allocated, a peer's count is only compared and counted down, nothing recurses.
//! Not here: streamed strings and aggregates (no Redis sends them; they are refused by name), and what attributes say
//! (they are checked and skipped).

mod command;
mod number;
mod reject;
mod scan;
mod slot;
mod value;

pub use command::{CommandWriter, DECIMAL_BYTES_MAX, command, decimal};
pub use reject::RespReject;
pub use scan::{Scan, Scanner};
pub use slot::{SLOTS_COUNT, crc16, key_slot};
pub use value::{ErrorReply, Items, Value, read};
