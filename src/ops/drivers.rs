//! The drivers' and the post office's counters as samples: they have no mailbox to ask.

use weir_core::limit::lease::ShardId;
use weir_core::stats::{Label, Sample};
use weir_io::choice::DriverKind;
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;

/// Which driver it is; the counters of one, or of several that share them. The page adds up those of all drivers.
pub fn driver_samples(kind: DriverKind, stats: &DriverStats) -> Vec<Sample> {
    let counters = [
        ("weir_driver_accepts_total", &stats.accepts),
        ("weir_driver_accept_errors_total", &stats.accept_errors),
        ("weir_driver_recv_enobufs_total", &stats.recv_enobufs),
        ("weir_driver_recv_stops_total", &stats.recv_stops),
        ("weir_driver_cq_overflow_total", &stats.cq_overflow),
        (
            "weir_driver_rings_unrestricted_total",
            &stats.rings_unrestricted,
        ),
        ("weir_driver_sqe_total", &stats.sqe),
        ("weir_driver_cqe_total", &stats.cqe),
        ("weir_driver_enters_total", &stats.enters),
        ("weir_driver_turns_total", &stats.turns),
        ("weir_driver_sends_short_total", &stats.sends_short),
        ("weir_driver_mail_in_total", &stats.mail_in),
        ("weir_driver_mail_refused_total", &stats.mail_refused),
    ]
    .map(|(name, counter)| Sample {
        name,
        label: Label::None,
        value: counter.get(),
    });
    let which = Sample {
        name: "weir_driver_info",
        label: Label::Driver(kind.name()),
        value: 1,
    };
    std::iter::once(which).chain(counters).collect()
}

/// The counters of the driver that carries `shard`, for `perf/ring.sh`: what its ring is asked, what comes back at a
/// time, what ran out. `buffers`: receive buffers of a ring; other drivers than uring have none to share.
pub fn ring_samples(
    kind: DriverKind,
    shard: ShardId,
    stats: &DriverStats,
    buffers: u16,
) -> Vec<Sample> {
    let counters = [
        ("weir_shard_ring_sqe_total", &stats.sqe),
        ("weir_shard_ring_cqe_total", &stats.cqe),
        ("weir_shard_ring_enters_total", &stats.enters),
        ("weir_shard_ring_turns_total", &stats.turns),
        ("weir_shard_ring_cq_overflow_total", &stats.cq_overflow),
        ("weir_shard_ring_recv_enobufs_total", &stats.recv_enobufs),
        ("weir_shard_ring_recv_stops_total", &stats.recv_stops),
        ("weir_shard_ring_sends_short_total", &stats.sends_short),
        ("weir_shard_ring_accepts_total", &stats.accepts),
        ("weir_shard_ring_accept_errors_total", &stats.accept_errors),
    ]
    .map(|(name, counter)| (name, counter.get()));
    let buffers = match kind {
        DriverKind::Uring => u64::from(buffers),
        _ => 0,
    };
    counters
        .into_iter()
        .chain([("weir_shard_ring_buffers", buffers)])
        .map(|(name, value)| Sample {
            name,
            label: Label::Shard(shard),
            value,
        })
        .collect()
}

/// The counters of the post office.
pub fn post_samples(post: &PostOffice) -> Vec<Sample> {
    [
        ("weir_driver_mail_dropped_total", &post.dropped),
        ("weir_log_lines_dropped_total", &post.records_dropped),
    ]
    .map(|(name, counter)| Sample {
        name,
        label: Label::None,
        value: counter.get(),
    })
    .to_vec()
}
