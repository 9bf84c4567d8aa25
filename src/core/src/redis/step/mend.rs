//! The frames by which a SKU's books are mended after a failover, and its freeze by an operator.

use super::{Maker, SkuSteps};
use crate::ask::{Open, ReservationState};
use crate::limits::RESTOCKS_MENDED_MAX;
use crate::order::contract::Restocked;
use crate::redis::link::greeting::HomeId;
use crate::redis::offer::Offer;
use crate::redis::script::Script;
use alloc::vec::Vec;
use weir_proto::resp::CommandWriter;

/// A stock as the order store knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stock {
    /// All units ever put on sale.
    pub total: u64,
    /// Most units of one user's request.
    pub quantity_max: u32,
    /// A closed order does not free the user.
    pub once_per_activity: bool,
}

/// Why books are right at another server than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rehomed {
    /// The slot was moved there, from that server.
    Moved(HomeId),
    /// They were mended behind the fence, with every order of that maker.
    Mended(Maker),
}

impl SkuSteps {
    /// Appends the frame that puts the SKU on sale at the server `home`; empty: books of a server without a name.
    pub(super) fn push_open(&self, open: &Open, home: &HomeId, out: &mut Vec<u8>) {
        let mut writer = self.begin_ops(Script::Open, &open.target, out);
        writer.part_u64(open.stock);
        writer.part_u64(u64::from(open.quantity_max));
        writer.part_u64(u64::from(open.once_per_activity));
        writer.part_u64(self.plan().policy);
        writer.part(home.as_bytes());
        writer.finish();
    }

    /// Appends the frame that lets no new reservation in until a thaw. `reason`: 1..=64 bytes, for the operator; Redis
    /// answers others with an error.
    pub fn push_freeze(&self, reason: &str, out: &mut Vec<u8>) {
        let mut writer = self.begin(Script::Freeze, out);
        writer.part(reason.as_bytes());
        writer.finish();
    }

    /// Appends the frame that ends a freeze. `epoch_heard`: the largest that anybody has shown; the new one is above it.
    pub fn push_thaw(&self, epoch_heard: u64, out: &mut Vec<u8>) {
        let mut writer = self.begin(Script::Thaw, out);
        writer.part_u64(self.plan().keep_until.0);
        writer.part_u64(epoch_heard);
        writer.finish();
    }

    /// Appends the frame that fences the SKU at the server `here`, whose books are of another one.
    pub fn push_fence(&self, here: &HomeId, epoch_heard: u64, out: &mut Vec<u8>) {
        let mut writer = self.begin(Script::Fence, out);
        writer.part(here.as_bytes());
        writer.part_u64(epoch_heard);
        writer.finish();
    }

    /// Appends the frame that says that the books are right at the server `here`: its slot was moved there `from`
    /// another, or they were mended behind the fence by who makes the orders.
    pub fn push_rehome(&self, how: &Rehomed, here: &HomeId, epoch_heard: u64, out: &mut Vec<u8>) {
        let mut writer = self.begin(Script::Rehome, out);
        writer.part_u64(self.plan().keep_until.0);
        writer.part_u64(epoch_heard);
        match how {
            Rehomed::Moved(from) => {
                writer.part(from.as_bytes());
                writer.part(here.as_bytes());
                writer.part(b"");
                writer.part(b"");
            }
            Rehomed::Mended(maker) => {
                writer.part(b"");
                writer.part(here.as_bytes());
                writer.part_u64(maker.store);
                writer.part_u64(maker.run);
            }
        }
        writer.finish();
    }

    /// Appends the frame that gives the fenced SKU all units that were ever put on sale, of them `restocks` by name: at
    /// most [`RESTOCKS_MENDED_MAX`], oldest first.
    pub fn push_restore(
        &self,
        here: &HomeId,
        (stock, maker): (&Stock, &Maker),
        restocks: &[Restocked],
        epoch_heard: u64,
        out: &mut Vec<u8>,
    ) {
        const KEYS: [&str; 6] = ["sku", "ops", "res", "req", "user", "pending"];
        debug_assert!(restocks.len() <= RESTOCKS_MENDED_MAX);
        let parts = 3 + KEYS.len() + 10 + 3 * restocks.len();
        let mut writer = CommandWriter::begin(out, parts);
        writer.part(b"EVALSHA");
        writer.part(&Script::Restore.sha1());
        writer.part_u64(KEYS.len() as u64);
        for key in KEYS {
            writer.part(self.key(key).as_bytes());
        }
        writer.part(here.as_bytes());
        writer.part_u64(stock.total);
        writer.part_u64(u64::from(stock.quantity_max));
        writer.part_u64(u64::from(stock.once_per_activity));
        writer.part_u64(self.plan().policy);
        writer.part_u64(epoch_heard);
        writer.part_u64(maker.store);
        writer.part_u64(maker.run);
        writer.part_u64(self.plan().keep_until.0);
        writer.part_u64(restocks.len() as u64);
        for restock in restocks {
            writer.part(restock.request_id.as_bytes());
            writer.part_u64(restock.at.0);
            writer.part_u64(restock.units);
        }
        writer.finish();
    }

    /// Appends the frame that puts in a reservation at the server `here`.
    /// [`reply::offered`](crate::redis::reply::offered) reads its reply.
    pub fn push_offer(&self, here: &HomeId, offer: &Offer, out: &mut Vec<u8>) {
        let message = &offer.message;
        let mut writer = self.begin(Script::Offer, out);
        writer.part(here.as_bytes());
        writer.part_u64(self.number_of(message.reservation));
        writer.part(match offer.state {
            ReservationState::Reserved => b"0",
            ReservationState::Confirmed => b"1",
            ReservationState::Settled => b"2",
            ReservationState::Closed => b"3",
            ReservationState::Failed => b"4",
            ReservationState::PaidLate => b"5",
        });
        writer.part_u64(u64::from(message.quantity));
        writer.part_u64(message.reserved_at.0);
        writer.part_u64(message.user.0);
        writer.part_u64(message.unit_price.minor);
        writer.part(&message.unit_price.currency);
        writer.part(message.request_id.as_bytes());
        writer.part(offer.nonce.as_ref().map_or(b"", |nonce| nonce.as_bytes()));
        writer.part_u64(self.plan().keep_until.0);
        writer.finish();
    }

    /// Appends the frame of a write that says nothing new: WAIT behind it counts the replicas that have all before it.
    pub fn push_mark(&self, out: &mut Vec<u8>) {
        self.begin(Script::Mark, out).finish();
    }
}
