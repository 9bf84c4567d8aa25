//! The desk on real drivers against one server, whose scripts are flushed and whose links are cut meanwhile.

use super::books;
use super::load::{End, Load, Report, Sale};
use super::redis_part::say;
use super::redis_part::{Redis, until};
use weir_io::choice::{DriverKind, Wanted};

/// Buyers of each of two SKUs; with releases and looks some 30,000 asks.
const BUYERS: u64 = 10_000;
const STOCK: u64 = 1_000_000;
/// Of the SKU that sells out.
const FEW: u64 = 2_000;

fn sell(redis: &Redis, kind: DriverKind, mut meanwhile: impl FnMut(u64)) -> Report {
    let load = Load::start(Sale {
        ports: vec![redis.port],
        is_cluster: false,
        kind,
        skus: vec![(1, STOCK), (2, FEW)],
        lanes: 64,
        buyers: Some(BUYERS),
        patience_ms: 30_000,
    });
    let mut round = 0;
    let mut report = None;
    until("all buyers are done", || {
        meanwhile(round);
        round += 1;
        report = load.finished();
        report.is_some()
    });
    report.expect("it was awaited")
}

/// Says the sums of it and holds the books against it.
fn judge(what: &str, redis: &Redis, report: &Report) {
    let mut wrong = report.wrong.clone();
    wrong.extend(books::differences(redis, report, 0, 1));
    wrong.extend(books::differences(redis, report, 1, 2));
    let resent = report.wrong.iter().filter(|what| what.contains("Repeated"));
    say::say(&format!(
        "{what}: asks {}, wrong {}, resent_unknown {}; {:?}",
        report.asks,
        wrong.len(),
        resent.count(),
        report.counts
    ));
    wrong.truncate(5);
    assert_eq!(wrong, [""; 0]);
    for place in [0, 1] {
        let ends = report.ends(place);
        let given_up = [End::GaveUp, End::Unknown, End::Lost].map(|end| ends.contains_key(&end));
        assert_eq!(given_up, [false; 3], "{ends:?}");
    }
}

/// Field bugs B29 and Q20: scripts are gone in the middle of a sale.
#[test]
fn scripts_flushed_again_and_again_cost_a_load_and_no_answer() {
    let Some(redis) = Redis::start() else { return };
    let chosen = Wanted::Auto.choose(false).unwrap();
    let mut link = super::redis_part::link::Link::new(&redis);
    let mut flushes = 0;
    let report = sell(&redis, chosen.kind, |_| {
        link.order("SCRIPT FLUSH");
        flushes += 1;
    });
    judge(&format!("{flushes} SCRIPT FLUSH"), &redis, &report);
    let counts = report.counts;
    assert!(
        flushes >= 5 && counts.loads > flushes,
        "{flushes}: {counts:?}"
    );
    assert!(counts.resends > 0, "{counts:?}");
    assert_eq!((counts.faults, counts.unknown), (0, 0));
    let few = report.ends(1);
    assert!(few[&End::Refused] > 0, "it sells out: {few:?}");
}

/// Field bug R23 and Q19: what was under way when a link broke is looked up, not sent again.
#[test]
fn a_cut_link_leaves_unknowns_that_are_looked_up_and_never_sent_again() {
    let Some(redis) = Redis::start() else { return };
    let mut link = super::redis_part::link::Link::new(&redis);
    let report = sell(&redis, DriverKind::Epoll, |round| {
        if round % 3 == 2 {
            link.say("CLIENT KILL TYPE pubsub"); // what a link is once it listens to events
        }
    });
    judge("links cut", &redis, &report);
    let counts = report.counts;
    assert!(counts.lost > 3 && counts.unknown > 0, "{counts:?}");
}
