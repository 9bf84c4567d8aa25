//! Capacities and sizes of a torture run, each with the reason for its number (style §3).

/// Most kills of one run: a day of them.
pub const KILLS_MAX: u64 = 50_000;
/// Kills of one sale before the next sale begins: enough for crash after crash on the same files.
pub const KILLS_PER_SALE: u64 = 8;
/// Fewest units of a sale: it is sold out early, most answers are refusals.
pub const STOCK_MIN: u64 = 60;
/// Most units of a sale: not sold out before its last kill.
pub const STOCK_MAX: u64 = 1_500;
/// Most answers before a kill that waits for answers: some hundred commits.
pub const ANSWERS_MAX: u64 = 350;
/// Most microseconds between the chosen answer and the kill: as long as a few commits.
pub const SPIN_US_MAX: u64 = 3_000;
/// Most file operations before a kill that waits for one: as many as those answers need.
pub const DISK_STEPS_MAX: u64 = 700;
/// File operations of a start, at least: kills among them fall into recovery.
pub const START_STEPS_MAX: u64 = 40;
/// Client threads of one sale, each with one buyer at a time.
pub const CLIENTS: u32 = 10;
/// Buyers of one client thread in one run of a server; more than any run has time for.
pub const BUYERS_PER_CLIENT: u32 = 4_000;
/// Requests that are asked again after a restart, of each kind.
pub const REPEATS: usize = 12;
/// Requests on their way at one time on one connection, of the 64 that a server takes.
pub const PIPELINE: usize = 32;
/// A request that has no end so long after a restart is in limbo (design §12.7).
pub const LIMBO_MS: u64 = 30_000;
/// A load that met neither its kill nor its end for so long is stopped: the machine is too busy for its instant.
pub const RUSH_MS_MAX: u64 = 15_000;
/// Every 15 minutes nobody pays too late: no order of a short sale runs out.
pub const UNPAID_LONG_MS: u64 = 15 * 60_000;
/// Orders run out while the sale lasts.
pub const UNPAID_SHORT_MS: u64 = 1_000;
/// After a restart nothing shall be unknown for want of time; the most that a configuration may say.
pub const BUDGET_LONG_MS: u64 = 1_900;
/// Many answers are "not known yet" on a busy disk.
pub const BUDGET_SHORT_MS: u64 = 20;
/// The small disk: the files of a start need 200 KiB, a write-ahead log grows to 4 MiB before it is moved.
pub const SMALL_DISK_BYTES: u64 = 768 * 1024;
/// Findings that are told in words.
pub const FINDINGS_MAX: usize = 12;
/// Seconds of a run beside its kills: the faults that are tried once.
pub const FAULTS_S: u64 = 30;
/// Milliseconds of one kill with its restart and its checks on one lane, measured on two cores of 2.1 GHz.
pub const KILL_MS: u64 = 900;
/// Sales that run beside each other on one core: half of the time each waits for a disk or for an end in order.
pub const LANES_PER_CORE: usize = 2;
/// Sales that run beside each other: more would make each kill late.
pub const LANES_MAX: usize = 4;
/// One of so many restarts is given the time to bring every order to rest; the others are killed in recovery's wake.
pub const RESTS_DIVISOR: u64 = 5;
/// A server whose disk failed is asked for so long before it is killed.
pub const AFTER_FAULT_MS: u64 = 300;
/// Longest pause of a server (SIGSTOP): longer than a request's budget may be.
pub const PAUSE_MS_MAX: u64 = 2_500;
/// Submits per second that may ask the ledger in the sales whose limit is watched; far below what they could.
pub const WATCHED_RATE: u64 = 300;
/// Longest step of the wall clock: tickets of a sale are good for 25 minutes around its beginning.
pub const JUMP_MS: i64 = 20 * 60 * 1000;
/// "Not now" answers after which a disk counts as full: its server grants nothing any more.
pub const REFUSALS_OF_A_FULL_DISK: u64 = 50;
/// Rounds of damage to one journal: flips, torn ends and crashes in turn.
pub const DAMAGE_TRIES: u64 = 5;
/// Commits that a write-ahead log must have from a damaged frame on, the frame's own included: two behind it are what
/// tells damage from a torn end.
pub const JOURNAL_COMMITS_MIN: usize = 3;
