//! What may befall a world, and to which part: drawn from the seed by the director, who carries it out.

use weir_core::limit::lease::ShardId;
use weir_core::mail::Addr;
use weir_core::rng::Rng;
use weir_core::time::NS_PER_MS;

/// What may befall a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mishap {
    CrashProcess,
    CrashShard(u16),
    CrashLedger,
    CrashWorker,
    CrashOrders,
    Restart(Part),
    StoreFull,
    StoreIo,
    OrdersBusy(u64),
    OrdersFull,
    OrdersIo,
    OrdersSlow(u64),
    Poison(u64),
    StepWall(i64),
    Pause(Part, u64),
    /// A failed part is looked for and restarted, as its operator would.
    Look,
}

/// A part by its place in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Shard(u16),
    Owner,
    Store,
    Worker,
    OrderStore,
}

impl Part {
    /// Where its mail goes.
    pub(super) fn addr(self) -> Addr {
        match self {
            Self::Shard(shard) => Addr::Shard(ShardId(shard)),
            Self::Owner => Addr::Owner,
            Self::Store => Addr::Store,
            Self::Worker => Addr::Worker,
            Self::OrderStore => Addr::OrderStore,
        }
    }
}

impl Mishap {
    /// One mishap of a world with so many shards; the order of draws is part of what a seed means.
    pub(super) fn draw(rng: &mut Rng, shards_count: u16) -> Self {
        let shard = rng.below(u64::from(shards_count)) as u16;
        match rng.below(20) {
            0 | 1 => Mishap::CrashProcess,
            2 | 3 => Mishap::CrashShard(shard),
            4 | 5 => Mishap::CrashLedger,
            6 => Mishap::CrashWorker,
            7 => Mishap::CrashOrders,
            8 => Mishap::StoreFull,
            9 => Mishap::StoreIo,
            10 => Mishap::OrdersBusy(1 + rng.below(4)),
            11 => Mishap::OrdersFull,
            12 => Mishap::OrdersIo,
            13 => Mishap::OrdersSlow(rng.below(500)),
            14 => Mishap::Poison(1 + rng.below(12)),
            15 => Mishap::StepWall(1 + rng.below(20_000) as i64),
            16 => Mishap::StepWall(-1 - rng.below(20_000) as i64),
            _ => {
                let parts = [Part::Owner, Part::Store, Part::Worker, Part::OrderStore];
                let part = match rng.below(6) {
                    at @ 0..4 => parts[at as usize],
                    _ => Part::Shard(shard),
                };
                Mishap::Pause(part, (1 + rng.below(400)) * NS_PER_MS)
            }
        }
    }
}
