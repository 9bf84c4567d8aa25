//! What may befall a world, and to which part: drawn from the seed by the director, who carries it out.

use weir_core::rng::Rng;
use weir_core::time::NS_PER_MS;

/// What may befall a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mishap {
    /// Every part of a machine.
    CrashProcess(u16),
    CrashShard(u16),
    /// The embedded ledger, or the clerk of that machine.
    CrashLedger(u16),
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
    /// The scripts are gone.
    FlushScripts,
    /// Every connection to Redis is reset.
    CutLinks,
    /// A machine and Redis do not reach each other for so long.
    Partition(u16, u64),
    /// Redis stops, loses nothing, and reads its data for so long.
    RestartRedis(u64),
    /// The replica of Redis gets nothing more from now on, and takes its place so much later; that machine does not
    /// reach it before the others have mended the books.
    LagReplica(u64, Option<u16>),
    /// It takes its place, out of reach of that machine.
    FailOver(Option<u16>),
    /// No write is taken for so long: no memory, or (`true`) no replica.
    RefuseWrites(bool, u64),
    /// They are taken again.
    TakeWrites,
    /// A script of somebody else runs for so long.
    BusyRedis(u64),
    /// The clock of Redis steps to so much ahead of the true time, or behind it: less than a tombstone's life apart.
    StepRedis(i64),
    /// A failed part is looked for and restarted, as its operator would.
    Look,
}

/// A part by its place in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Numbered over all machines.
    Shard(u16),
    /// The ledger's owner or clerk of that machine.
    Owner(u16),
    Store,
    Worker,
    OrderStore,
    Redis,
}

/// Draws of a kind.
const KINDS: u64 = 22;
/// A bit for each.
const ALL_KINDS: u32 = (1 << KINDS) - 1;
/// The draw of a backward step.
const STEP_BACK: u64 = 16;
/// The draw of a forward step in a world with Redis.
const STEP_ON: u64 = 12;
/// The draw of a step of Redis's clock.
const STEP_REDIS: u64 = 15;

impl Mishap {
    /// True when these kinds have the backward step of the wall clock; or any step, where Redis stamps the grants and the
    /// shards open the sale.
    pub(super) fn steps_back(kinds: u32, is_remote: bool) -> bool {
        let (steps, all) = match is_remote {
            true => (1 << STEP_ON | 1 << STEP_REDIS | 1 << STEP_BACK, u32::MAX),
            false => (1 << STEP_BACK, ALL_KINDS),
        };
        kinds & steps != 0 || kinds & all == 0
    }

    /// One mishap of a world with so many shards and these kinds, a bit for each; the order of draws is part of what a
    /// seed means.
    pub(super) fn draw(rng: &mut Rng, kinds: u32, shards_count: u16) -> Self {
        let shard = rng.below(u64::from(shards_count)) as u16;
        let drawn = rng.below(KINDS);
        // The next kind that there is, from the drawn one on; the drawn one when there is none.
        let rotated = (kinds & ALL_KINDS).rotate_right(drawn as u32);
        match (drawn + u64::from(rotated.trailing_zeros())) % 32 {
            0 | 1 => Mishap::CrashProcess(0),
            2 | 3 => Mishap::CrashShard(shard),
            4 | 5 => Mishap::CrashLedger(0),
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
                let parts = [Part::Owner(0), Part::Store, Part::Worker, Part::OrderStore];
                let part = match rng.below(6) {
                    at @ 0..4 => parts[at as usize],
                    _ => Part::Shard(shard),
                };
                Mishap::Pause(part, (1 + rng.below(400)) * NS_PER_MS)
            }
        }
    }

    /// As [`Self::draw`], of a world whose ledger is in Redis; shards are numbered over all machines.
    pub(super) fn draw_with_redis(
        rng: &mut Rng,
        kinds: u32,
        machines: u16,
        shards_count: u16,
    ) -> Self {
        let machine = rng.below(u64::from(machines)) as u16;
        let shard = rng.below(u64::from(shards_count)) as u16;
        let drawn = rng.below(32);
        let rotated = kinds.rotate_right(drawn as u32);
        match (drawn + u64::from(rotated.trailing_zeros() & 31)) % 32 {
            0 | 1 => Mishap::CrashProcess(machine),
            2 => Mishap::CrashShard(shard),
            3 | 4 => Mishap::CrashLedger(machine),
            5 => Mishap::CrashWorker,
            6 => Mishap::CrashOrders,
            7 => Mishap::OrdersBusy(1 + rng.below(4)),
            8 => Mishap::OrdersFull,
            9 => Mishap::OrdersIo,
            10 => Mishap::OrdersSlow(rng.below(500)),
            11 => Mishap::Poison(1 + rng.below(12)),
            STEP_ON => Mishap::StepWall(1 + rng.below(20_000) as i64),
            STEP_BACK => Mishap::StepWall(-1 - rng.below(20_000) as i64),
            13 => Mishap::DrainShard(shard),
            14 => Mishap::StrayRelease(rng.next_u64()),
            STEP_REDIS => Mishap::StepRedis(rng.below(20_000) as i64 - 10_000),
            17 | 18 => Mishap::FlushScripts,
            19 | 20 => Mishap::CutLinks,
            21 | 22 => Mishap::Partition(machine, 1 + rng.below(1_500)),
            23 | 24 => Mishap::RestartRedis(rng.below(400)),
            25 | 26 => Mishap::RefuseWrites(rng.chance(1, 2), 1 + rng.below(800)),
            27 => Mishap::BusyRedis(1 + rng.below(800)),
            28 | 29 => Mishap::LagReplica(1 + rng.below(300), None),
            _ => {
                let parts = [
                    Part::Redis,
                    Part::Redis,
                    Part::Owner(machine),
                    Part::Worker,
                    Part::OrderStore,
                    Part::Shard(shard),
                ];
                let part = parts[rng.below(6) as usize];
                Mishap::Pause(part, (1 + rng.below(400)) * NS_PER_MS)
            }
        }
    }
}
