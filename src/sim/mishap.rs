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
    DrainShard(u16),
    StrayRelease(u64),
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

/// Draws of a kind.
const KINDS: u64 = 22;
/// A bit for each.
const ALL_KINDS: u32 = (1 << KINDS) - 1;
/// The draw of a backward step.
const STEP_BACK: u64 = 16;

impl Mishap {
    /// True when these kinds have the backward step of the wall clock.
    pub(super) fn steps_back(kinds: u32) -> bool {
        kinds >> STEP_BACK & 1 == 1 || kinds & ALL_KINDS == 0
    }

    /// One mishap of a world with so many shards and these kinds, a bit for each; the order of draws is part of what a
    /// seed means.
    pub(super) fn draw(rng: &mut Rng, kinds: u32, shards_count: u16) -> Self {
        let shard = rng.below(u64::from(shards_count)) as u16;
        let drawn = rng.below(KINDS);
        // The next kind that there is, from the drawn one on; the drawn one when there is none.
        let rotated = (kinds & ALL_KINDS).rotate_right(drawn as u32);
        match (drawn + u64::from(rotated.trailing_zeros())) % 32 {
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
            STEP_BACK => Mishap::StepWall(-1 - rng.below(20_000) as i64),
            17 => Mishap::DrainShard(shard),
            18 => Mishap::StrayRelease(rng.next_u64()),
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
