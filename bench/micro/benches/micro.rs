//! Times by criterion, one group per piece: ours and, where there is one, the peer on the same bytes or keys.
//!
//! `cargo bench -p weir-micro --features bench`; behind `--` a filter, such as `limiter` or `10M`. The scenarios are
//! those of the instruction counts (`src/lib.rs`); each checks at every turn that it did what its name says.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::time::{Duration, Instant};
use weir_micro::{Scenario, ours, peers};

fn all(criterion: &mut Criterion) {
    let peers = peers();
    for scenario in ours() {
        let mut group = criterion.benchmark_group(scenario.name);
        group.throughput(Throughput::Elements(scenario.per_turn));
        let beside = peers
            .iter()
            .filter(|peer| peer.stands_beside(scenario.name));
        for one in core::iter::once(&scenario).chain(beside) {
            let label = one.name.split_once('/').map_or("weir", |(peer, _)| peer);
            let mut work = None; // made when the filter lets it run: some tables are of ten million keys
            group.bench_function(label, |bencher| {
                let work = work.get_or_insert_with(|| {
                    let mut work = (one.make)();
                    one.warm(work.as_mut());
                    work
                });
                bencher.iter_custom(|turns| time(one, work.as_mut(), turns));
            });
        }
        group.finish();
    }
}

/// The time of `turns`, without what makes room for them.
fn time(scenario: &Scenario, work: &mut dyn weir_micro::Work, turns: u64) -> Duration {
    let mut left = turns;
    let mut sum = Duration::ZERO;
    while left > 0 {
        let some = left.min(scenario.chunk);
        work.refill();
        let start = Instant::now();
        scenario.run(work, some);
        sum += start.elapsed();
        left -= some;
    }
    sum
}

criterion_group! {
    name = micro;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = all
}
criterion_main!(micro);
