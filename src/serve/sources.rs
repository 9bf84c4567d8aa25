//! Samples that no part gives by mail: of the drivers, the post office and the process, for `/metrics`.

use crate::ops::{Source, drivers, process};
use std::sync::Arc;
use weir_io::choice::DriverKind;
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;

/// All of them.
pub fn sources(kind: DriverKind, stats: &Arc<DriverStats>, post: &Arc<PostOffice>) -> Vec<Source> {
    let (stats, post) = (Arc::clone(stats), Arc::clone(post));
    vec![
        Box::new(move || drivers::driver_samples(kind, &stats)),
        Box::new(move || drivers::post_samples(&post)),
        Box::new(process::samples),
    ]
}
