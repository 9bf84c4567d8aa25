//! Every metric that weir shows: name, kind, how the values of several parts combine, help. The one table.
//!
//! Names are seed 000 §12.1's for all that exists; `weir_*` for the rest; `process_*` as the Prometheus client libraries
//! have them. A part's sample whose name is not here is not shown and counted; a test of all real parts finds it first.
//! To add a metric: give the sample in its part, add one row here.

/// What kind of value it is (Prometheus text format 0.0.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows within a run.
    Counter,
    /// Goes up and down.
    Gauge,
    /// `_bucket`, `_sum` and `_count` samples of this name.
    Histogram,
}

impl Kind {
    /// The word of the TYPE line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// How equal (name, label) pairs of several parts become one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// Added.
    Sum,
    /// The largest: copies of one truth, of which some are older.
    Max,
}

/// How a sample's whole number is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// As it is.
    One,
    /// Thousandths: 1234 is shown as 1.234.
    Thousandths,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// How parts' values combine.
    pub combine: Combine,
    /// How a value is shown.
    pub scale: Scale,
    /// One English sentence.
    pub help: &'static str,
}

impl Metric {
    /// The row that a sample of this name belongs to.
    pub fn of(sample_name: &str) -> Option<&'static Self> {
        let exact = METRICS.iter().find(|metric| metric.name == sample_name);
        exact
            .filter(|metric| metric.kind != Kind::Histogram)
            .or_else(|| {
                let family = ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|suffix| sample_name.strip_suffix(suffix))?;
                METRICS
                    .iter()
                    .find(|metric| metric.kind == Kind::Histogram && metric.name == family)
            })
    }
}

macro_rules! metrics {
    ($($name:literal $kind:ident $combine:ident $scale:ident $help:literal;)*) => {
        /// The table, in the order of the page.
        pub static METRICS: &[Metric] = &[$(Metric {
            name: $name,
            kind: Kind::$kind,
            combine: Combine::$combine,
            scale: Scale::$scale,
            help: $help,
        },)*];
    };
}

metrics! {
    // Seed 000 §12.1: the funnel.
    "seckill_ingress_requests_total" Counter Sum One "Requests answered, by the stage, decision and reason they ended with.";
    "seckill_admitted_requests_total" Counter Sum One "Submits that got a unit.";
    "seckill_rejected_requests_total" Counter Sum One "Requests refused, by stage and reason.";
    "seckill_ticket_issued_total" Counter Sum One "Tickets minted by the operator's listener.";
    "seckill_ticket_verify_total" Counter Sum One "Tickets of submits that were accepted (ok), and of all requests that were refused.";
    "seckill_replay_claim_total" Counter Sum One "Nonces that were consumed (claimed), and submits refused because another request had consumed theirs (rejected).";
    // Seed 000 §12.1: limits.
    "seckill_local_limiter_reject_total" Counter Sum One "Requests refused by a keyed limit.";
    "seckill_local_limiter_entries" Gauge Sum One "Keys that a keyed limit holds, estimated from a part of its table.";
    "seckill_local_limiter_overflow_total" Counter Sum One "Keys that found no slot and shared the stricter overflow bucket.";
    "weir_limiter_policy_changes_total" Counter Sum One "Changes of a keyed limit's rate and burst, counted by each shard.";
    "weir_limiter_shadow_would_deny_total" Counter Sum One "Calls that passed a keyed limit and that its shadow would have refused.";
    "weir_limiter_shadow_would_pass_total" Counter Sum One "Calls that a keyed limit refused and that its shadow would have let pass.";
    "seckill_global_lease_remaining" Gauge Sum One "Prepaid admission tokens that an instance holds, over all SKUs.";
    "seckill_global_lease_wasted_total" Counter Sum One "Prepaid tokens that expired unspent.";
    // Seed 000 §12.1: overload.
    "seckill_admission_mode" Gauge Max One "1 for the admission mode of a SKU.";
    "seckill_admission_rate_limit" Gauge Max Thousandths "Submits per second that may ask the ledger for a SKU, over all shards, and over all instances of a stock in Redis.";
    "seckill_inflight_requests" Gauge Sum One "Requests that wait for the ledger.";
    "seckill_inflight_limit" Gauge Sum One "Most requests that may wait for the ledger.";
    "seckill_load_shed_total" Counter Sum One "Requests refused because the system is too busy.";
    // Seed 000 §12.1: sold out.
    "seckill_local_soldout_hits_total" Counter Sum One "Submits refused by the local sold-out mark.";
    "seckill_soldout_version" Gauge Max One "Newest version of a SKU's view.";
    "seckill_stock_epoch" Gauge Max One "Stock epoch of a SKU: grows at every sold-out and reopening.";
    "seckill_stock_reopened_total" Counter Max One "How often a sold-out SKU had units again.";
    // Shards.
    "weir_shard_ready" Gauge Max One "1 when the shard knows the state of every SKU and accepts.";
    "weir_shard_draining" Gauge Max One "1 when the shard is shutting down.";
    "weir_reply_latency_microseconds" Histogram Sum One "From the arrival of a request's bytes to its reply, in microseconds.";
    "weir_connections_accepted_total" Counter Sum One "Connections accepted.";
    "weir_connections_open" Gauge Sum One "Connections open.";
    "weir_connection_sources" Gauge Sum One "Addresses (IPv4 /32, IPv6 /64) with an open connection that is counted.";
    "weir_connections_counted" Gauge Sum One "Open connections that count towards their address's limit; those of trusted proxies do not.";
    "weir_connections_turned_away_open" Gauge Sum One "Connections that were turned away at the door and have not closed yet.";
    "weir_connections_turned_away_total" Counter Sum One "Connections turned away at the door by a limit or list, by whether they could be told why.";
    "weir_deny_entries" Gauge Max One "Ranges, users and devices that operators deny, each counted once.";
    "weir_bans_active" Gauge Sum One "Clients that are banned now for ignoring 429, as each shard counts them.";
    "weir_bans_total" Counter Sum One "Bans begun.";
    "weir_bans_unwatched_total" Counter Sum One "Refusals by a limit whose client found no place in the table of bans.";
    "weir_bans_lifted_total" Counter Sum One "Bans that an operator lifted.";
    "weir_connection_timeouts_total" Counter Sum One "Deadlines of connections that passed.";
    "weir_ledger_asks_total" Counter Sum One "Reserves answered by the ledger, by result.";
    "weir_unknown_results_total" Counter Sum One "Submits that were told to query because the ledger did not answer in time.";
    "weir_stale_answers_total" Counter Sum One "Answers to asks that were not out any more.";
    "weir_admission_log_lines_total" Counter Sum One "Lines handed to the admission log.";
    // The ledger's owner.
    "weir_ledger_serving" Gauge Max One "1 when the ledger has recovered and answers.";
    "weir_ledger_poisoned" Gauge Max One "1 when the ledger's store failed: no grants until a restart.";
    "weir_ledger_batches_total" Counter Max One "Batches of the journal, as the owner sent and the store committed them.";
    "weir_ledger_entries_total" Counter Sum One "Entries of those batches.";
    "weir_ledger_journal_bytes_total" Counter Sum One "Bytes of those batches.";
    "weir_ledger_snapshots_total" Counter Max One "Snapshots made.";
    "weir_ledger_batch_bytes_total" Counter Sum One "Bytes of batches that the store committed.";
    "weir_ledger_batches_refused_total" Counter Sum One "Batches that the store refused after a fault.";
    "weir_ledger_commit_us" Histogram Sum One "How long a commit of the journal took, in microseconds.";
    "weir_ledger_orders_resent_total" Counter Sum One "Reservations handed to the worker again.";
    "weir_ledger_asks_failed_total" Counter Sum One "Asks that were not done, by cause.";
    "weir_ledger_units_total" Gauge Max One "Units ever put on sale.";
    "weir_ledger_units_free" Gauge Max One "Units that nobody holds.";
    "weir_ledger_units_held" Gauge Max One "Units held by unpaid reservations.";
    "weir_ledger_units_sold" Gauge Max One "Units paid for.";
    "weir_ledger_units_quarantined" Gauge Max One "Units whose owner is disputed.";
    "weir_ledger_reservations" Gauge Max One "Reservations that the ledger remembers.";
    "weir_lease_tokens_granted_total" Counter Sum One "Admission tokens given to shards.";
    "weir_lease_tokens_returned_total" Counter Sum One "Admission tokens given back.";
    "weir_lease_tokens_void_total" Counter Sum One "Admission tokens that ended with their lease.";
    "weir_lease_draws_stale_total" Counter Sum One "Draws that came twice or too late.";
    "weir_instance_draws_total" Counter Sum One "Draws of an instance's tokens that were sent to the bucket in Redis, repeats included.";
    "weir_instance_tokens_drawn_total" Counter Sum One "Tokens that an instance drew from the bucket in Redis, and that its shards gave back.";
    "weir_instance_tokens_returned_total" Counter Sum One "Tokens that an instance gave back to the bucket in Redis.";
    "weir_instance_tokens_wasted_total" Counter Sum One "Tokens of an instance that expired before a shard asked for them, or whose bucket is gone.";
    "weir_instance_tokens_held" Gauge Sum One "Tokens that an instance drew and that no shard has asked for yet.";
    "weir_budget_reachable" Gauge Max One "1 while the Redis of a SKU's bucket can be asked; 0: what is leased is spent, then nothing is admitted.";
    "weir_budget_open" Gauge Max One "1 while the bucket of a SKU's budget is there; a missing one admits nothing.";
    "weir_budget_policy_version" Gauge Max One "Version of the budget's policy that holds.";
    "weir_budget_policy_followed" Gauge Max One "1 while a budget's policy holds that this instance was not configured with: a newer one, or another one of the same version.";
    "weir_budget_weights" Gauge Max One "Sum of the weights of the instances that share a budget.";
    "weir_limiter_result_unknown_total" Counter Sum One "Draws of tokens of which nobody knows whether they were carried out (LIMITER_RESULT_UNKNOWN); they are sent again with their number, and get the same tokens.";
    "weir_lease_refused" Gauge Max One "1 while the bucket refuses this instance's draws: another process has its name (limiter.instance), or there are too many names.";
    "weir_redis_asks_total" Counter Sum One "Asks written to Redis.";
    "weir_redis_resends_total" Counter Sum One "Asks written again because Redis had not carried them out.";
    "weir_redis_unknown_total" Counter Sum One "Asks whose answer was lost.";
    "weir_redis_refusals_total" Counter Sum One "Error replies that say that nothing was carried out.";
    "weir_redis_faults_total" Counter Sum One "Replies that no command of ours should get.";
    "weir_redis_broken_total" Counter Sum One "Asks that an open breaker kept back.";
    "weir_redis_links_lost_total" Counter Sum One "Connections to Redis that ended.";
    "weir_redis_link_faults_total" Counter Sum One "Connections to Redis that were not made or ended, by why.";
    "weir_redis_outbox_total" Counter Sum One "Reservations without an order that were handed to the worker.";
    "weir_redis_stream_taken_total" Counter Sum One "Order messages of streams that were handed to the worker.";
    "weir_redis_stream_forgotten_total" Counter Sum One "Order messages removed from streams, their orders being confirmed.";
    "weir_redis_stream_unreadable_total" Counter Sum One "Entries of order streams that are no order messages: removed; an order that was meant comes by the scan.";
    "weir_redis_errors_total" Counter Sum One "Error replies of Redis, by their first word.";
    "weir_redis_orders_elsewhere" Gauge Max One "1: another order store, or a later run of this one, makes the orders of this stock.";
    "weir_redis_orphans_total" Counter Sum One "Pending reservations without a record, or with one that cannot be read.";
    "weir_redis_servers_changed" Gauge Max One "Servers that have a SKU's slot and not its books, after a failover or a restart: no grant is asked of them.";
    "weir_redis_unreplicated_total" Counter Sum One "Answers that too few replicas had in time: they were looked up.";
    "weir_redis_mending" Gauge Max One "1 while a SKU's books are mended after a failover.";
    "weir_redis_mended_total" Counter Sum One "Times that this instance ended the mending of a SKU's books.";
    "weir_redis_grants_kept" Gauge Sum One "Grants that are remembered until their orders exist.";
    "weir_redis_grants_revoked_total" Counter Sum One "Grants that a failover lost and whose units were gone: they are FAILED.";
    "weir_redis_frozen" Gauge Max One "1 while a SKU is frozen in Redis.";
    // The worker.
    "weir_orders_total" Counter Sum One "Steps of orders, by the state they led to.";
    "weir_payments_total" Counter Sum One "Payment callbacks, by result.";
    "weir_orders_queue_length" Gauge Sum One "Reservations that wait to become orders.";
    "weir_payments_queue_length" Gauge Sum One "Payments that wait for the order store.";
    "weir_orders_ledger_steps_open" Gauge Sum One "Steps that the ledger has not acknowledged.";
    "weir_orders_ledger_disputes_total" Counter Sum One "Steps that the ledger refused.";
    "weir_orders_dead_letters_total" Counter Sum One "Order messages that could not be carried out.";
    "weir_orders_messages_dropped_total" Counter Sum One "Order messages that found no room; the ledger sends them again.";
    "weir_orders_batches_resent_total" Counter Sum One "Batches sent to the order store again.";
    "weir_orders_commands_broken_total" Counter Sum One "Commands that the order store could not carry out.";
    "weir_orders_strange_mail_total" Counter Sum One "Mail that is not for the worker.";
    "weir_orders_store_healthy" Gauge Max One "1 while the order store works.";
    // The admission log and this listener.
    "weir_log_lines_total" Counter Sum One "Lines of the admission log written.";
    "weir_log_write_errors_total" Counter Sum One "Writes of the admission log that failed; their lines are lost.";
    "weir_log_lines_dropped_total" Counter Sum One "Lines of the admission log that found its box full.";
    "weir_ops_requests_total" Counter Sum One "Answers of the operator's listener, by class of status.";
    "weir_ops_samples_unknown" Gauge Sum One "Samples on this page whose name is not in the table; always 0 but for a bug.";
    "weir_ops_parts_silent" Gauge Sum One "Parts whose samples are missing on this page because they did not answer in time.";
    // The drivers.
    "weir_driver_info" Gauge Max One "1 for the driver that carries shards and operator: uring, epoll, monoio or glommio.";
    "weir_driver_accepts_total" Counter Sum One "Connections that the drivers accepted.";
    "weir_driver_accept_errors_total" Counter Sum One "Accepts that failed: no descriptor, no memory, or the peer had gone.";
    "weir_driver_recv_enobufs_total" Counter Sum One "Receives that found no buffer and were armed again.";
    "weir_driver_recv_stops_total" Counter Sum One "Receives stopped because too much was left unread.";
    "weir_driver_cq_overflow_total" Counter Sum One "Turns that found the completion queue full.";
    "weir_driver_rings_unrestricted_total" Counter Sum One "Rings that this kernel could not restrict to the operations in use.";
    "weir_driver_sqe_total" Counter Sum One "Operations given to the kernel.";
    "weir_driver_cqe_total" Counter Sum One "Completions taken from the kernel.";
    "weir_driver_enters_total" Counter Sum One "System calls of the loops.";
    "weir_driver_turns_total" Counter Sum One "Turns of the loops.";
    "weir_driver_sends_short_total" Counter Sum One "Sends that the kernel took only in part.";
    "weir_driver_mail_in_total" Counter Sum One "Mail shown to parts.";
    "weir_driver_mail_refused_total" Counter Sum One "Tries to put mail into a full box.";
    "weir_driver_mail_dropped_total" Counter Sum One "Mail to parts that do not exist in this process.";
    "weir_shard_ring_sqe_total" Counter Sum One "Operations that a shard's driver gave to the kernel.";
    "weir_shard_ring_cqe_total" Counter Sum One "Completions that it took.";
    "weir_shard_ring_enters_total" Counter Sum One "Its system calls; completions per call are its batch.";
    "weir_shard_ring_turns_total" Counter Sum One "Its turns.";
    "weir_shard_ring_cq_overflow_total" Counter Sum One "Its turns that found the completion queue full.";
    "weir_shard_ring_recv_enobufs_total" Counter Sum One "Its receives that found no buffer and were armed again.";
    "weir_shard_ring_recv_stops_total" Counter Sum One "Its receives stopped because too much was left unread.";
    "weir_shard_ring_sends_short_total" Counter Sum One "Its sends that the kernel took only in part.";
    "weir_shard_ring_accepts_total" Counter Sum One "Connections that it accepted.";
    "weir_shard_ring_accept_errors_total" Counter Sum One "Its accepts that failed.";
    "weir_shard_ring_buffers" Gauge Sum One "Receive buffers of its ring; 0 where the driver has no ring.";
    // The process.
    "process_resident_memory_bytes" Gauge Sum One "Resident memory in bytes.";
    "process_cpu_seconds_total" Counter Sum Thousandths "User and system time in seconds.";
    "process_open_fds" Gauge Sum One "Open file descriptors.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_well_formed_and_say_what_they_are() {
        let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for metric in METRICS {
            let plain =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            assert!(metric.name.bytes().all(plain), "{}", metric.name);
            if metric.name.ends_with("_total") {
                let units = metric.name == "weir_ledger_units_total";
                assert!(metric.kind == Kind::Counter || units, "{}", metric.name);
            } else {
                assert_ne!(metric.kind, Kind::Counter, "{}", metric.name);
            }
            assert!(metric.help.ends_with('.') && !metric.help.contains(['\\', '\n']));
        }
    }

    #[test]
    fn a_histograms_samples_belong_to_its_row_and_its_bare_name_does_not() {
        for suffix in ["bucket", "sum", "count"] {
            let name = format!("weir_reply_latency_microseconds_{suffix}");
            assert_eq!(Metric::of(&name).unwrap().kind, Kind::Histogram);
        }
        assert!(Metric::of("weir_reply_latency_microseconds").is_none());
        assert!(Metric::of("weir_connections_open_sum").is_none());
        assert!(Metric::of("nonsense").is_none());
    }
}
