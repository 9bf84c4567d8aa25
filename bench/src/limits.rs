//! Every capacity of the load generator, with the reason for its number (style §3).

/// Most connections of one engine: two sources' worth of ports is far away, and a lane costs under 1 KiB.
pub const CONNECTIONS_MAX: u32 = 16 * 1024;
/// Most requests under way on one connection.
pub const PIPELINE_MAX: u32 = 64;
/// Most requests under way in one engine: 64 bytes each.
pub const IN_FLIGHT_MAX: usize = 1 << 18;
/// Jobs that wait for a connection of their own choice. When full the workload is not asked for more: its schedule
/// runs late, and the report says by how much. Small, because it is walked whenever a connection gets room.
pub const PARKED_MAX: usize = 256;
/// Connects under way at once: below the smallest listen backlog in use (128), so that no SYN is dropped and
/// repeated a second later.
pub const CONNECTING_MAX: usize = 128;
/// Longest head of an answer; ours have under 300 bytes.
pub const ANSWER_HEAD_BYTES_MAX: usize = 8 * 1024;
/// Longest body of an answer: with the head it stays below what a driver keeps unconsumed (weir-io's `RECV_BACKLOG_BYTES_MAX`).
pub const ANSWER_BODY_BYTES_MAX: usize = 23 * 1024;
/// Header lines of an answer.
pub const ANSWER_LINES_MAX: usize = 64;
/// How often answers that are overdue and pauses that are over are looked for: their times are seconds.
pub const SCAN_MS: u64 = 20;
/// First pause after a connect failed; doubles up to [`CONNECT_PAUSE_MS_MAX`], drawn with full jitter.
pub const CONNECT_PAUSE_MS: u64 = 20;
/// Longest pause between two connects of one lane.
pub const CONNECT_PAUSE_MS_MAX: u64 = 1_000;
/// Longest run: a mistyped duration must not load a machine for days; also the longest life of a ticket.
pub const DURATION_MS_MAX: u64 = 60 * 60 * 1_000;
/// Most requests of one run.
pub const REQUESTS_MAX: u64 = 100_000_000;
/// Highest rate: more than one core can send on any machine that we know.
pub const RATE_PER_S_MAX: u64 = 10_000_000;
/// Local addresses to send from.
pub const SOURCES_MAX: u32 = 4_096;
/// Tickets minted ahead take at most so much memory: 1.4 million of the compact form.
pub const TICKET_STORE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Between the first connection and the first request: the others connect meanwhile.
pub const START_PAUSE_MS: u64 = 100;
/// A run whose requests could not be sent in time goes on for so long after its duration; what is left then is
/// counted as not sent.
pub const OVERRUN_MS_MAX: u64 = 10_000;
/// A server that accepts no connection for so long ends the run.
pub const UNREACHABLE_MS: u64 = 5_000;
