//! Capacities and times of the operator's listener (style §3): each with the reason for its number.

/// Connections at once; give the driver the same number. A scraper, probes and a few operators need a dozen.
pub const OPS_CONNS_MAX: usize = 64;
/// From accept to the end of the head, absolute: on a management network a head is one packet.
pub const HEAD_MS_MAX: u64 = 5_000;
/// From the end of the head to the end of the body, absolute.
pub const BODY_MS_MAX: u64 = 5_000;
/// From the answer until the connection is closed whatever the client does: the answer must be read in this time.
pub const LINGER_MS_MAX: u64 = 5_000;
/// Bytes that a client may still send after its answer: more than any body that is read.
pub const LINGER_BYTES_MAX: usize = 64 * 1024;
/// How long parts have to give their counters: scrapers give up after seconds, and a part that is well needs under 1 ms.
pub const GATHER_MS_MAX: u64 = 1_000;
/// After so long without an answer a part is asked for its counters again: the mail is lost.
pub const GATHER_RESEND_MS: u64 = 10_000;
/// How long the owner has to do a step until the client is told that the result is unknown.
pub const STEP_MS_MAX: u64 = 5_000;
/// Steps without an answer, those of clients that left included: far more than operators can type.
pub const STEPS_MAX: usize = 256;
/// A step without an answer is forgotten after so long; the audit log has its line.
pub const STEP_FORGOTTEN_MS: u64 = 60_000;
/// Longest time a ticket may be minted for, in seconds (design §12.12).
pub const TICKET_TTL_S_MAX: u64 = 3_600;
/// A ticket's time when the request names none: from the product page to the press of the button.
pub const TICKET_TTL_S: u64 = 300;
/// Longest text of a rate: more digits than any rate has.
pub const RATE_BYTES_MAX: usize = 32;
/// Longest time that an entry of the deny-list may be given, in seconds: a year; without a time it stays.
pub const DENY_TTL_S_MAX: u64 = 366 * 24 * 3600;
/// Longest text of a network, or of a user's or device's hash: an IPv6 network has 43 characters.
pub const SUBJECT_BYTES_MAX: usize = 64;
/// Hot keys shown of each dimension: what a person reads; the tables hold twice as many.
pub const HOT_SHOWN_MAX: usize = 32;
/// Longest name of an operator.
pub const ACTOR_BYTES_MAX: usize = 64;
