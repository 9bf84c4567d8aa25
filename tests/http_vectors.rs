//! Every row of `http1-vectors.jsonl` against the running program, on every driver that has sockets: in one piece, byte
//! by byte, cut in two at every place, in seeded pieces, as its own delivery says, and left alone until its deadline (A1).
//!
//! The program is `weir serve` with its own parser, shard and driver; `WEIR_PLANT_ECHO` makes its shards answer each
//! request with what they read, so that decoded bodies can be compared. The judge is the parser test's own.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

#[path = "support/answers.rs"]
mod answers;
#[path = "bad_input_world/mod.rs"]
mod bad_input_world;
#[path = "http_vectors/crowd.rs"]
mod crowd;
#[path = "http_vectors/heard.rs"]
mod heard;
#[path = "../proto/tests/vectors/http_rows.rs"]
mod http_rows;
#[path = "http_vectors/jobs.rs"]
mod jobs;
#[path = "support/line.rs"]
mod line;
#[path = "support/say.rs"]
mod say;
#[path = "support/served.rs"]
mod served;
#[path = "http_vectors/slow.rs"]
mod slow;

use bad_input_world::{Running, Shop};
use crowd::{Crowd, Findings};
use http_rows::{EXTRA, rows};
use jobs::{bytewise, splits, whole};
use served::DRIVERS;

/// A server of one shard that echoes; `timeout`: of heads and bodies.
fn server(driver: &str, timeout: &str) -> (Shop, Running) {
    let lines = format!(
        "head_timeout = \"{timeout}\"\nbody_timeout = \"{timeout}\"\nidle_timeout = \"{timeout}\""
    );
    let shop = served::shop(&format!("vectors-{timeout}"), driver, &lines);
    let mut command = shop.command();
    command.env("WEIR_PLANT_ECHO", "1");
    let running = Running::of(command);
    (shop, running)
}

#[test]
fn every_row_has_its_answer_however_its_bytes_arrive() {
    let rows = rows();
    let (mut counts, mut differences) = ([0; 3], Vec::new());
    for driver in DRIVERS {
        let mut take = |findings: Findings| {
            let told = findings.differences.into_iter();
            differences.extend(told.map(|difference| format!("{driver}: {difference}")));
            findings.judged
        };
        let (_shop, patient) = server(driver, "9s");
        let mut crowd = Crowd::of(patient.listen.port());
        counts[0] += take(crowd.run(&whole(&rows)));
        counts[1] += take(crowd.run(&bytewise(&rows)));
        counts[2] += take(crowd.run(&splits(&rows)));
        let (_hasty_shop, hasty) = server(driver, "2s");
        let ports = (patient.listen.port(), hasty.listen.port());
        let delivered = take(slow::deliveries(&rows, ports.0, ports.1));
        let overdue = take(slow::deadlines(&rows, ports.1));
        assert_eq!((delivered, overdue), (21, rows.len() as u64));
        hasty.stop();
        patient.stop();
    }
    let is_extra = |difference: &&String| difference.contains(EXTRA);
    let extra = differences.iter().filter(is_extra).count();
    let line = format!(
        "{} rows × {{{}}}: whole {}, bytewise {}, splits {}, differences {}, {EXTRA} {extra}",
        rows.len(),
        DRIVERS.join(", "),
        counts[0],
        counts[1],
        counts[2],
        differences.len(),
    );
    say::say(&line);
    let first: Vec<&String> = differences.iter().take(20).collect();
    assert!(differences.is_empty(), "{first:#?}");
    assert!(counts[2] > 30_000, "{counts:?}");
}
