//! Every capacity of the core, in one place (style §3): at each there is a Reason, a status and a counter.

/// Most bytes of one journal batch: 1,024 entries of at most 256 bytes. One blob row of this size syncs in about the
/// time of a small one.
pub const BATCH_BYTES_MAX: usize = 256 * 1024;
/// Most commands of one order transaction: 14 ms of indexed rows were measured for 1,024 (issue 3 §5).
pub const ORDER_BATCH_MAX: usize = 1024;
/// Mail that fits in one part's box. A power of two above everything that askers may have outstanding together.
pub const MAILBOX_MAX: usize = 16 * 1024;
/// Most activities of one process: found by a linear walk per request.
pub const ACTIVITIES_MAX: usize = 16;
/// Most SKUs of one activity: found by a linear walk per request.
pub const SKUS_PER_ACTIVITY_MAX: usize = 64;

// Limits and leases (`limit`).

/// Largest burst of a sliding log: a key's instants are 8 cache lines, walked at every decision.
pub const LOG_ENTRIES_MAX: u32 = 64;

/// How much of the admission rate the owner's bucket may save up: more would be a burst that the ledger did not plan for.
pub const BUDGET_BURST_MS: u64 = 200;
/// A lease unspent for so long is void: a shard that sleeps or is cut off cannot hoard tokens for a later burst.
pub const LEASE_TTL_MS: u64 = 2_000;
/// A lease is renewed so long before it expires: many round trips to a busy owner, a small part of its life.
pub const LEASE_RENEW_MS: u64 = 500;
/// Fewest tokens that a draw asks for: a quiet shard can answer the first turns of a burst without a round trip.
pub const LEASE_TOKENS_MIN: u32 = 32;
/// Most tokens of one draw: bounds what a crash can waste.
pub const LEASE_TOKENS_MAX: u32 = 65_536;
/// A draw without an answer is sent again after this, with the same number.
pub const LEASE_RESEND_MS: u64 = 100;
/// After less than was wanted, the owner asks for this pause: the time in which a bucket of `BUDGET_BURST_MS` refills by a twentieth.
pub const LEASE_RETRY_MS: u64 = 10;
/// A new or restarted budget climbs to its full rate in this time, in `BUDGET_RAMP_STEPS` equal steps (J6).
pub const BUDGET_RAMP_MS: u64 = 1_000;
/// Steps of the climb.
pub const BUDGET_RAMP_STEPS: u64 = 8;

/// Time that a client has to read a 429 before a further request counts as ignoring it: a round trip around the world.
pub const BAN_GRACE_MS: u64 = 250;
/// Keys that each table of hot keys holds: any key above a sixty-fourth of the traffic is in it; a lookup reads two
/// cache lines or three.
pub const HOT_KEYS_MAX: usize = 64;
/// Hot keys are those of the last whole such window: long enough for the rare, short enough to act on.
pub const HOT_WINDOW_MS: u64 = 10_000;

// Ledger and its owner (`ledger`).

/// Largest encoded journal entry with its length: a grant with the longest request id and nonce has 174 bytes.
pub const ENTRY_BYTES_MAX: usize = 256;
/// Answers that wait for one batch; all that a full mailbox can hold, so that the bytes of a batch fill first.
pub const HELD_ANSWERS_MAX: usize = MAILBOX_MAX;
/// Reservations remembered per SKU, per unit put on sale: every unit may be released and sold again three times.
pub const RESERVATIONS_PER_UNIT: u64 = 4;
/// Reservations remembered per SKU beyond that: a small SKU whose units come back often.
pub const RESERVATIONS_EXTRA: u64 = 4096;
/// Most reservations of one SKU, whatever its stock: about 750 MB of records.
pub const RESERVATIONS_MAX: u64 = 1 << 22;
/// Most units of one SKU over its whole life; sums of books stay far from overflow.
pub const UNITS_MAX: u64 = 1 << 40;
/// Tombstones per generation, two generations: 2,184 status queries of unseen ids per second for ever, in 12 MB.
pub const TOMBSTONES_MAX: usize = 64 * 1024;
/// A tombstone lives at least so long, at most twice: ask deadline (under 2 s), head and body deadlines of a slow
/// connection (under 20 s) and a margin. Measured by the monotonic clock, so a wall step cannot shorten it.
pub const TOMBSTONE_TTL_MS: u64 = 30_000;
/// Operators' request ids remembered per SKU.
pub const OPS_REMEMBERED_MAX: usize = 1024;
/// An operator's request id is remembered at least so long: a repeat on the next day is a new wish.
pub const OPS_REMEMBERED_MS: u64 = 24 * 3600 * 1000;
/// Releases and restocks of a sold-out SKU gather so long, then one epoch step reopens it (design §12.9).
pub const REOPEN_TICK_MS: u64 = 200;
/// Views are repeated so often; below every sold-out TTL (at least 2 s), so a lost one converges in time.
pub const VIEW_REFRESH_MS: u64 = 1_000;
/// What is still unconfirmed after one to two of these periods is sent to the worker again (field bug R40).
pub const OUTBOX_RESCAN_MS: u64 = 5_000;
/// Restocks of a SKU by which its books are mended, the newest; older ones are in its total.
pub const RESTOCKS_MENDED_MAX: usize = 64;
/// Restocks of one page of the outbox.
pub const RESTOCKS_PAGE: usize = 16;
/// Order messages of re-sent reservations per reopen tick, in chunks of [`ORDER_BATCH_MAX`]: 20,480 per second.
pub const OUTBOX_CHUNKS_PER_TICK: usize = 4;
/// Records walked per reopen tick to find them: about a millisecond.
pub const OUTBOX_WALK_MAX: u64 = 64 * 1024;
/// A snapshot is due after so many journal bytes, or as many as the last snapshot had, whichever is more.
pub const SNAPSHOT_AFTER_BYTES: usize = 16 * 1024 * 1024;
/// A snapshot is due after so many batches: a restart replays at most so many rows.
pub const SNAPSHOT_AFTER_BATCHES: u64 = 4096;
/// Requests of one connection that are read and not answered; then reading stops (field bug R19).
pub const PIPELINE_MAX: u32 = 64;
/// Bytes of replies of one connection that the kernel has not taken; then reading stops (field bug R19). Small, because
/// any number of clients may refuse to read at once; a pipeline of sixteen fits several times.
pub const UNSENT_BYTES_MAX: usize = 16 * 1024;
/// Bytes that a connection may still send after our FIN before it is closed hard: more than any honest body.
pub const LINGER_BYTES_MAX: u64 = 2 * 1024 * 1024;
/// Replies of one shard that wait for an earlier one of their connection.
pub const HELD_REPLIES_MAX: usize = 16 * 1024;
/// Requests that one turn stages; the rest is read in the next turn.
pub const STAGED_MAX: usize = 4096;
/// Bytes of tickets and devices that one turn keeps: an average of 1 KiB for each staged request.
pub const STAGED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Origins of shop pages.
pub const ORIGINS_MAX: usize = 32;
/// Mail of one part that its receivers' boxes have not taken; then no more is asked of them.
pub const POSTS_WAITING_MAX: usize = 4096;

// Orders (`order`).

/// Order messages that the worker keeps: 64 batches. What does not fit stays in the ledger's outbox and is asked for
/// again, so a flood costs time, never an order.
pub const ORDER_QUEUE_MAX: usize = 64 * ORDER_BATCH_MAX;
/// Payments that wait for a transaction: 8 batches of their share; at the cap the provider is told to retry.
pub const PAYMENT_QUEUE_MAX: usize = 2048;
/// Payments of one batch, so that a flood of them leaves room for orders.
pub const PAYMENTS_PER_BATCH_MAX: usize = 256;
/// Acknowledgements and other inner commands of one batch: half, so that orders are always made, too.
pub const INNER_PER_BATCH_MAX: usize = ORDER_BATCH_MAX / 2;
/// Rows of one page (orders due, orders not acknowledged): a transaction stays under some milliseconds.
pub const ORDER_PAGE_MAX: u32 = 256;
/// Asks to the ledger that the worker has outstanding or waits to repeat; below `MAILBOX_MAX`, so that the owner's box
/// always has room for shards. Beyond it the order rows remember (`acked < version`) and a sweep finds them.
pub const LEDGER_STEPS_MAX: usize = MAILBOX_MAX / 4;
/// Tries of one order message before it is a dead letter.
pub const ORDER_ATTEMPTS_MAX: u32 = 5;
/// Past the drain's deadline a shard that still has connections closes them again after this; a shard that asked to be
/// woken at once would only keep its thread from closing them.
pub const DRAIN_AGAIN_MS: u64 = 100;

// Redis (`redis`).

/// Most nodes of a cluster, masters and replicas together: 128 of each. One master carries tens of thousands of reserves
/// per second, and each SKU lies on one of them.
pub const REDIS_NODES_MAX: usize = 256;
/// Longest name of a host (RFC 1035 §2.3.4: 255 bytes on the wire, 253 as text).
pub const HOST_NAME_BYTES_MAX: usize = 253;
/// Things sent on one link to Redis and not answered: with replies within 10 ms this is 400,000 asks a second; as many
/// unknowns at most when the link is lost.
pub const LINK_SENT_MAX: usize = 4096;
/// Bytes of one link that the kernel has not taken: a ring full of the longest asks; above it the server does not read.
pub const LINK_UNSENT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// First pause before a lost link is connected again, at most (full jitter).
pub const LINK_BACKOFF_FIRST_MS: u64 = 50;
/// Longest pause: a server that comes back is used again within this time.
pub const LINK_BACKOFF_MAX_MS: u64 = 2_000;
/// Times that an ask which was certainly not executed may be sent again: script not loaded, slot moved or moving.
pub const ASK_HOPS_MAX: u8 = 3;
/// A node that does not vouch for the new master of its slot is asked again after this.
pub const HOME_ASK_EVERY_MS: u64 = 100;
/// The slot map is asked for at most so often, however many replies say MOVED.
pub const SLOTS_REFRESH_MIN_MS: u64 = 100;
/// And at least so often, so that a lost hint costs no longer.
pub const SLOTS_REFRESH_EVERY_MS: u64 = 15_000;
/// Hints that wait to be looked at; more than SKUs with events in one turn, and those lost are pulled by the timer.
pub const DESK_NEWS_MAX: usize = 4096;
/// Winners asked for at a time: about 10 KiB, so that a reply stays far below what a driver keeps for one connection
/// (40 KiB), also when HSCAN gives more than it was asked for.
pub const PAGE_USERS: u32 = 250;
/// A SKU's snapshot is pulled so often, whatever events say: a reopened SKU sells again within a second although every
/// event was lost, and a million refused requests cost four pulls.
pub const PULL_EVERY_MS: u64 = 500;
/// A pull that could not be sent, or was lost, is tried again after this.
pub const PULL_AGAIN_MS: u64 = 50;
/// Reservations without an order that are read at a time: at most 16 KiB, for the same reason.
pub const OUTBOX_PAGE: u32 = 64;
/// The outbox is looked at so often; an order is made so much later at most.
pub const OUTBOX_POLL_MS: u64 = 50;
/// The stream of a SKU that is sold out, and whose orders all exist, is looked at so often.
pub const TAKE_SOLD_OUT_MS: u64 = 1_000;
/// Operators' wishes that the clerk has at once.
pub const CLERK_WISHES_MAX: usize = 64;
/// Grants of one SKU that an instance remembers until their orders exist: some 16 MiB at most. None is made beyond.
pub const GRANTS_KEPT_MAX: usize = 64 * 1024;
/// Offers of one SKU that are out at once while its books are mended.
pub const OFFERS_OUT_MAX: usize = 256;
/// What of mending waits for something is tried again after this.
pub const MEND_AGAIN_MS: u64 = 100;
/// Messages of the outbox stream that are taken at a time, as many as `take.lua` allows: at most 24 KiB of a reply.
pub const TAKE_PAGE: u32 = 64;
/// Messages of a SKU that are taken and not forgotten: what the worker has, or waits for its confirmation.
pub const TAKEN_MAX: usize = 1_024;
/// What was handed out so long ago and is not forgotten is taken again.
pub const TAKEN_IDLE_MS: u64 = 10_000;
/// An ask of the clerk's own, such as the opening of a SKU, may wait so long.
pub const CLERK_ASK_MS: u64 = 5_000;

// Budgets in Redis (`redis::lease`).

/// Fastest budget that the bucket counts exactly: five million tokens per second, in thousandths.
pub const BUCKET_RATE_MILLI_MAX: u64 = 5_000_000_000;
/// Longest name of an instance: a field of a hash with 1,024 of them.
pub const INSTANCE_BYTES_MAX: usize = 64;
/// Largest sum of weights.
pub const BUCKET_WEIGHTS_MAX: u32 = 1_000_000;
/// How much of its rate the bucket in Redis may save up: an instance that draws every `POOL_PAUSE_MS_MAX` finds all that
/// came in meanwhile, and as much again for another one. What leaves an instance is still paced by `BUDGET_BURST_MS`.
pub const BUCKET_BURST_MS: u64 = 1_400;
/// Largest burst of a bucket in Redis, in tokens: with the units of a token, 8 x 10^9, it stays below 2^53.
pub const BUCKET_BURST_MAX: u64 = 1_000_000;
/// What an instance drew is void after this; it gives out nothing that ends within `POOL_LASTING_MS`.
pub const POOL_TTL_MS: u64 = 3_000;
/// Tokens with less than this to live are left to expire: a shard renews its lease `LEASE_RENEW_MS` before its end.
pub const POOL_LASTING_MS: u64 = 1_000;
/// After fewer tokens than wanted, an instance draws again when twice as many have come in, but no sooner than this: an
/// empty bucket is asked twenty times a second by each instance at most.
pub const POOL_PAUSE_MS_MIN: u64 = 50;
/// And no later: at 1,000 tokens a second these are 700 tokens for one command.
pub const POOL_PAUSE_MS_MAX: u64 = 700;
/// A draw that was lost, or that found no bucket, is sent again after this.
pub const POOL_AGAIN_MS: u64 = 50;
/// A draw that was refused because another process has this instance's name, or because a bucket remembers no more
/// instances, is sent again after this: somebody has to mend it.
pub const POOL_REFUSED_MS: u64 = 1_000;
/// The policy of a bucket is set again so often: it keeps the bucket alive, and shows one that was changed elsewhere.
pub const BUCKET_POLICY_EVERY_MS: u64 = 5_000;
/// A clerk that ends waits so long for Redis to take unspent tokens back: longer than a round trip, and nobody misses
/// tokens that are void soon anyway.
pub const POOL_RETURN_MS: u64 = 500;
/// Shards of a SKU that is sold out ask for tokens again after this: a reopened one sells again within that time.
pub const LEASE_SOLD_OUT_MS: u64 = 200;
/// A bucket that nobody uses for so long is gone, and a new one starts empty. Far above every pause between two draws,
/// far below the time in which somebody would miss that a sale has ended.
pub const BUCKET_TTL_MS: u64 = 3_600_000;
