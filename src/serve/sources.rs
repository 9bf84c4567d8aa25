//! Samples that no part gives by mail: of the drivers, the post office and the process, for `/metrics`.

use crate::ops::{Source, drivers, process};
use std::sync::Arc;
use weir_core::limit::lease::ShardId;
use weir_core::mail::Addr;
use weir_io::choice::DriverKind;
use weir_io::driver::DriverConfig;
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;

/// All of them. `shards`: the counters of each shard's driver, in order; `stats`: of all other parts.
pub fn sources(
    kind: DriverKind,
    stats: &Arc<DriverStats>,
    shards: &[Arc<DriverStats>],
    post: &Arc<PostOffice>,
) -> Vec<Source> {
    let (stats, post) = (Arc::clone(stats), Arc::clone(post));
    let shards: Vec<(ShardId, Arc<DriverStats>)> =
        (0_u16..).map(ShardId).zip(shards.iter().cloned()).collect();
    let of_shards = move || {
        let samples = shards.iter().flat_map(|(shard, stats)| {
            let buffers = DriverConfig::new(Addr::Shard(*shard)).recv_buffers;
            let mut samples = drivers::driver_samples(kind, stats);
            samples.extend(drivers::ring_samples(kind, *shard, stats, buffers));
            samples
        });
        samples.collect()
    };
    vec![
        Box::new(move || drivers::driver_samples(kind, &stats)),
        Box::new(of_shards),
        Box::new(move || drivers::post_samples(&post)),
        Box::new(process::samples),
    ]
}
