//! The frame by which the one maker of orders takes messages from a SKU's stream.

use super::SkuSteps;
use crate::limits::TAKE_PAGE;
use crate::redis::script::Script;
use alloc::format;
use alloc::vec::Vec;
use weir_proto::ids::ReservationId;
use weir_proto::resp::CommandWriter;

/// Who makes the orders: only one order store may, and of it the newest run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maker {
    /// The order store's number: made with its file.
    pub store: u64,
    /// Larger than any earlier run's of that store.
    pub run: u64,
}

/// A message's place in the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    /// Milliseconds.
    pub ms: u64,
    /// Number within them.
    pub seq: u64,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Take<'a> {
    /// For whom.
    pub maker: Maker,
    /// Most new messages, 0..=[`TAKE_PAGE`].
    pub count: u32,
    /// From there on also what was handed out before and not forgotten; `None`: nothing of it.
    pub claim_from: Option<StreamId>,
    /// Only what was handed out so long ago.
    pub idle_ms: u64,
    /// Messages to forget, at most [`TAKE_PAGE`].
    pub done: &'a [StreamId],
    /// Reservations to look at, at most [`TAKE_PAGE`].
    pub look_at: &'a [ReservationId],
}

impl SkuSteps {
    /// Appends the frame of `take`. [`reply::taken`](crate::redis::reply::taken) reads its reply.
    pub fn push_take(&self, take: &Take<'_>, out: &mut Vec<u8>) {
        let most = TAKE_PAGE as usize;
        debug_assert!(take.done.len() <= most && take.look_at.len() <= most);
        let parts = 3 + 3 + 6 + take.done.len() + take.look_at.len();
        let mut writer = CommandWriter::begin(out, parts);
        writer.part(b"EVALSHA");
        writer.part(&Script::Take.sha1());
        writer.part_u64(3);
        for key in ["sku", "res", "orders"] {
            writer.part(self.key(key).as_bytes());
        }
        writer.part_u64(take.maker.store);
        writer.part_u64(take.maker.run);
        writer.part_u64(u64::from(take.count));
        let text = |id: &StreamId| format!("{}-{}", id.ms, id.seq);
        let from = take.claim_from.as_ref().map(text).unwrap_or_default();
        writer.part(from.as_bytes());
        writer.part_u64(take.idle_ms);
        writer.part_u64(take.done.len() as u64);
        for id in take.done {
            writer.part(text(id).as_bytes());
        }
        for reservation in take.look_at {
            writer.part_u64(self.number_of(*reservation));
        }
        writer.finish();
    }
}
