//! Sizes of a torture run on Redis, each with the reason for its number (style §3).

/// Most failovers of one run: an hour of them, as long as a sale's tickets are good.
pub const FAILOVERS_MAX: u64 = 200;
/// Masters of the cluster: the fewest that can elect an heir.
pub const MASTERS: usize = 3;
/// Most replicas that a write may be made to wait for: two of each master are six processes beside three.
pub const REPLICAS_MAX: u64 = 2;
/// A node that is silent for so long is taken for dead: short, each failover waits for it; long enough for two busy cores.
pub const NODE_TIMEOUT_MS: u64 = 1_500;
/// A replica is fresh when it was heard within so many seconds; it speaks once a second, so less would doubt good ones.
pub const MAX_LAG_S: u64 = 2;
/// A frozen SKU stays so at least so long: an old master may take writes for the lag and the node timeout together.
pub const FREEZE_MS: u64 = 1_000 * (1 + MAX_LAG_S) + NODE_TIMEOUT_MS;
/// We wait so long for a node's answer: one that stands still must not hold up the run.
pub const ANSWER_MS: u64 = 400;
/// Client threads, each with one buyer at a time.
pub const CLIENTS: u64 = 8;
/// New buyers per second of all threads together while there are faults: two cores also carry nine servers.
pub const BUYERS_PER_S: u64 = 200;
/// After "not now", and while no instance is there, a buyer waits so long.
pub const PAUSE_MS: u64 = 40;
/// Questions for the result of a request that is not known yet, before its buyer turns to something else.
pub const POLLS_MAX: u32 = 25;
/// Units for each failover: what the buyers can take in the time between two, and a rest for the end.
pub const UNITS_PER_FAILOVER: u64 = 1_200;
/// Of these, units that may be taken before the next failover; the rest is sold when all faults are over.
pub const QUOTA_PER_FAILOVER: i64 = 900;
/// The shortest and the longest time of selling between two failovers.
pub const CALM_MS: (u64, u64) = (300, 2_000);
/// A change of masters that has not come about by then does not come.
pub const CHANGE_MS_MAX: u64 = 20_000;
/// A cluster that is not whole by then, or a SKU that does not sell by then, never will be.
pub const THAW_MS_MAX: u64 = 30_000;
/// Selling the rest takes no longer, with a margin for two busy cores.
pub const SELL_MS_MAX: u64 = 90_000;
/// An instance that was killed is started again after so long at most.
pub const DEAD_MS_MAX: u64 = 3_000;
/// Milliseconds of one failover with its thaw and the selling behind it, measured on two cores of 2.1 GHz.
pub const FAILOVER_MS: u64 = 13_000;
/// Seconds of a run beside its failovers: the cluster's start, the last units, the books.
pub const AROUND_S: u64 = 20;
/// Of a finding in words so much is shown: its beginning says which request, and what was wrong first.
pub const FINDING_CHARS_MAX: usize = 1_000;
