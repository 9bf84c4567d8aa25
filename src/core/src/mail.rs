//! Mail: every message between parts, by value, in one enum, so that a driver can carry it without knowing it.
//!
//! Parts and their mailboxes are named by [`Addr`]. A message between two parts keeps its order. Capacities of the
//! boxes are in `limits`; askers bound what they have outstanding, so a box that is full is a named refusal.

use crate::ask::{Answer, Ask, AskId};
use crate::journal::{Batch, BatchResult, Image};
use crate::limit::deny::{DenyList, UserHash};
use crate::limit::dimension::Dim;
use crate::limit::gcra::{Policy, Rate};
use crate::limit::lease::{LeaseDraw, LeaseGrant, LeaseReturn, ShardId};
use crate::order::contract::{
    OrderBatch, OrderDone, OrderMessage, PaymentAnswer, PaymentAsk, Restocked, RestocksTold,
    StockTotal,
};
use crate::record::AdmissionRecord;
use crate::redis::endpoint::Endpoint;
use crate::redis::offer::Offer;
use crate::stats::Stats;
use crate::time::Mono;
use crate::view::SkuView;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use weir_proto::addr::Cidr;
use weir_proto::ids::{ReservationId, SkuKey, UserId};

/// Capacity of every part's box; re-exported for the drivers, which may name `mail` but not `limits`.
pub use crate::limits::MAILBOX_MAX;

/// A part of weir that has a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Addr {
    /// One core's shard.
    Shard(ShardId),
    /// The embedded ledger's owner.
    Owner,
    /// The ledger's store: journal and snapshots.
    Store,
    /// The orders' worker.
    Worker,
    /// The order store: SQL.
    OrderStore,
    /// Finds addresses of Redis servers' names; it may block.
    Resolver,
    /// The operator's listener.
    Ops,
    /// The admission log's writer.
    Log,
    /// A buyer or another stranger: only in the simulator.
    Client(u16),
}

/// Another rate and burst for one limited dimension; its kind stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitChange {
    /// Which.
    pub dim: Dim,
    /// The shard's part of the new policy, checked against the dimension's kind.
    pub policy: Policy,
}

/// Another admission rate for a SKU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetChange {
    /// Which.
    pub sku: SkuKey,
    /// One that is not above the version that holds changes nothing.
    pub version: u64,
    /// Over all shards, and all instances; a budget can enforce it.
    pub rate: Rate,
    /// The sum of the weights of all instances; `None`: as it is. The embedded ledger has no other instances.
    pub weights: Option<u32>,
}

/// Whose bans an operator lifts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BanLift {
    /// Everybody's.
    All,
    /// Addresses of a network.
    Network(Cidr),
    /// A user.
    User(UserId),
    /// A user by the hash of the admission log.
    UserHash(UserHash),
}

/// What came of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Whose name it was.
    pub endpoint: Endpoint,
    /// Its first address; `None`: it has none now.
    pub to: Option<SocketAddr>,
}

/// What an operator wants of books in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MendWish {
    /// No new reservation until it thaws.
    Freeze,
    /// End of the freeze; a fence stays.
    Thaw,
    /// Everything that is remembered, and every order, is offered once more.
    Rebuild,
}

/// An operator's wish; its answer is an [`Answer`] with the books after it. Idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MendAsk {
    /// The asker's name for it.
    pub id: AskId,
    /// Given up then.
    pub deadline: Mono,
    /// Which SKU.
    pub sku: SkuKey,
    /// What.
    pub wish: MendWish,
}

/// Which orders a clerk wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsAsk {
    /// Of which SKU.
    pub sku: SkuKey,
    /// Only larger reservations.
    pub after: ReservationId,
}

/// A page of the orders of one SKU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderRows {
    /// Of which SKU.
    pub sku: SkuKey,
    /// As it was asked.
    pub after: ReservationId,
    /// All units ever put on sale, as the order store was told.
    pub total: u64,
    /// With the first page: its newest restocks, at most `limits::RESTOCKS_MENDED_MAX`, oldest first.
    pub restocks: Vec<Restocked>,
    /// In order of reservation.
    pub offers: Vec<Offer>,
    /// A further page may exist.
    pub more: bool,
}

/// One message.
#[derive(Clone, Debug)]
pub enum Mail {
    /// To the owner: do this before its deadline.
    Ask(Ask),
    /// From the owner to the asker: what came of it.
    Answer(Answer),
    /// Shard to owner: prepaid tokens, please.
    LeaseDraw(LeaseDraw),
    /// Owner to shard: here they are (maybe none).
    LeaseGrant(LeaseGrant),
    /// Shard to owner: unused tokens back.
    LeaseReturn(LeaseReturn),
    /// Shard to owner, at start and after a new owner boot is seen: send me every SKU's view.
    ViewsAsk(ShardId),
    /// Owner to shard: the state of one SKU as committed.
    View(SkuView),
    /// Owner to store: append this batch and sync.
    Append(Box<Batch>),
    /// Store to owner: the fate of a batch; its buffer comes back.
    Appended(Box<BatchResult>),
    /// Owner to store, at its start: give me what you have.
    RecoverAsk,
    /// Store to owner: newest snapshot and the batches after it.
    Recovered(Box<Image>),
    /// Worker to owner, at its start and from time to time while its store is well: send again what is not confirmed.
    OutboxAsk {
        /// It is new, or has dropped something.
        lacks: bool,
    },
    /// Worker to owner: the order store failed; grant nothing more until an `OutboxAsk` of a run whose store is well.
    OrdersStopped,
    /// Owner to worker: committed reservations that have no order yet. At least once.
    Reserved(Vec<OrderMessage>),
    /// Owner to worker: all units ever put on sale of a SKU, after each committed change and on each `OutboxAsk`,
    /// before the reservations that use them. SQL's conditional stock update follows it.
    StockTotal(StockTotal),
    /// Clerk to worker: restocks by their names, and the total once every restock in it was told.
    Restocked(Box<RestocksTold>),
    /// Shard to worker: a verified payment.
    PaymentAsk(Box<PaymentAsk>),
    /// Worker to shard: what came of it.
    PaymentAnswer(Box<PaymentAnswer>),
    /// Worker to order store: one transaction. Shared, so that sending it again to a slow disk takes no memory.
    Orders(Arc<OrderBatch>),
    /// Order store to worker: its results.
    OrdersDone(Box<OrderDone>),
    /// Ops to clerk: an operator's wish.
    MendAsk(MendAsk),
    /// Clerk to worker: orders of one SKU, please, once every reservation that was sent has its order.
    RowsAsk(RowsAsk),
    /// Worker to clerk: a page of them.
    Rows(Box<OrderRows>),
    /// Clerk to resolver: the address of this server's name, please.
    ResolveAsk(Box<Endpoint>),
    /// Resolver to clerk.
    Resolved(Box<Resolved>),
    /// To the admission log. Dropped and counted when its box is full.
    Record(AdmissionRecord),
    /// Ops to shard: another rate and burst for one dimension, from here on.
    LimitChange(LimitChange),
    /// Ops to the owner: another admission rate, if it is newer.
    BudgetChange(BudgetChange),
    /// Ops to a shard: this is who is denied from here on (A6).
    Deny(Arc<DenyList>),
    /// Ops to a shard: lift bans.
    BanLift(BanLift),
    /// Ops to any part: your counters, please.
    StatsAsk,
    /// Any part to ops.
    Stats(Box<Stats>),
}
