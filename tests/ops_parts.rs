//! Real parts on the page of metrics and in the admission log: every sample has its row, every line its fields.

#![allow(clippy::unwrap_used, clippy::result_large_err, reason = "test code")]

#[path = "../src/core/tests/shard_kit/mod.rs"]
mod shard_kit;

use shard_kit::{Kit, SKU, config, held, sale, submit, ticket};
use std::io::Write;
use std::sync::{Arc, Mutex};
use weir::log::{FLUSH_BYTES, LogWriter};
use weir::ops::drivers::{driver_samples, post_samples};
use weir::ops::page::Page;
use weir::ops::process;
use weir::store::{LedgerStore, StoreConfig};
use weir_core::ask::LedgerAnswer;
use weir_core::ledger::owner::{Owner, OwnerConfig};
use weir_core::mail::{Addr, MAILBOX_MAX, Mail};
use weir_core::order::worker::Worker;
use weir_core::port::{Effects, Event, Handler};
use weir_core::record::AdmissionRecord;
use weir_core::stats::Stats;
use weir_core::time::{Mono, Now, WallMs};
use weir_io::choice::DriverKind;
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;
use weir_proto::answer::Reason;

fn at(ms: u64) -> Now {
    Now {
        mono: Mono(ms * 1_000_000),
        wall: WallMs(1_800_000_000_000 + ms),
    }
}

fn stats_of(handler: &mut dyn Handler) -> Stats {
    let mut fx = Effects::new(0);
    handler.on_event(at(1), Event::Mail(Mail::StatsAsk), &mut fx);
    let mut found = None;
    fx.deliver_posts(|to, mail| {
        if let (Addr::Ops, Mail::Stats(stats)) = (to, mail) {
            found = Some(*stats);
        }
        Ok(())
    });
    found.expect("the part answers a question for its counters")
}

#[test]
fn every_sample_of_every_real_part_has_a_row_in_the_table() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    kit.bytes(0, &submit(1, "request-1", b"no ticket"));
    kit.end_turn();
    let mut owner = Owner::new(OwnerConfig {
        sale: Arc::new(sale()),
        shards_count: 1,
        seed: 1,
    });
    let mut worker = Worker::new(Arc::new(sale()), 1);
    let mut log = LogWriter::new(Box::new(std::io::sink()));
    let dir = std::env::temp_dir().join(format!("weir-ops-parts-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let mut store = LedgerStore::open(&StoreConfig::new(&dir)).unwrap();
    let mut page = Page::new();
    for handler in [
        &mut kit.shard as &mut dyn Handler,
        &mut owner,
        &mut store,
        &mut worker,
        &mut log,
    ] {
        let stats = stats_of(handler);
        assert!(!stats.samples.is_empty(), "{:?}", stats.from);
        for sample in &stats.samples {
            let before = page.unknown_count();
            page.add(sample);
            assert_eq!(
                page.unknown_count(),
                before,
                "{} has no row in src/ops/metrics.rs",
                sample.name
            );
        }
    }
    drop(store);
    std::fs::remove_dir_all(&dir).unwrap();
    let post = PostOffice::new([Addr::Log]).unwrap();
    for samples in [
        driver_samples(DriverKind::Uring, &DriverStats::default()),
        post_samples(&post),
        process::samples(),
    ] {
        samples.iter().for_each(|sample| page.add(sample));
    }
    assert_eq!(page.unknown_count(), 0);
    let text = page.write();
    for name in [
        "seckill_admitted_requests_total",
        "weir_shard_ready{instance=\"0\"} 1",
        "seckill_ingress_requests_total{",
    ] {
        assert!(text.contains(name), "{name} in\n{text}");
    }
}

/// What was written, for the test to read; fails while told to.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<(Vec<u8>, bool, u32)>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut inner = self.0.lock().unwrap();
        if inner.1 {
            return Err(std::io::Error::other("the disk is full"));
        }
        inner.2 += 1;
        inner.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn lines(&self) -> Vec<serde_json::Value> {
        let text = String::from_utf8(self.0.lock().unwrap().0.clone()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn records_of(kit: &mut Kit) -> Vec<AdmissionRecord> {
    let mail = std::mem::take(&mut kit.mail);
    mail.into_iter()
        .filter_map(|(_, mail)| match mail {
            Mail::Record(record) => Some(record),
            _ => None,
        })
        .collect()
}

#[test]
fn lines_have_the_seeds_fields_and_the_key_of_tickets_that_verified_only() {
    let mut config = config();
    config.log_admitted_every = 1;
    config.log_refused_every = 1;
    let mut kit = Kit::open(config);
    kit.connect(0);
    let good = ticket(424_242, 1, false);
    let mut forged = ticket(424_242, 2, true);
    let last = forged.len() - 2;
    forged[last] = if forged[last] == b'A' { b'B' } else { b'A' };
    kit.bytes(0, &submit(424_242, "request-good", &good));
    kit.end_turn();
    let asks = kit.asks();
    kit.answer(&asks[0], LedgerAnswer::Granted(held(1)));
    kit.end_turn();
    kit.bytes(0, &submit(424_242, "request-forged", &forged));
    kit.end_turn();
    let records = records_of(&mut kit);
    let out = Shared::default();
    let mut log = LogWriter::new(Box::new(out.clone()));
    let mut fx = Effects::new(0);
    for record in records {
        log.on_event(at(1), Event::Mail(Mail::Record(record)), &mut fx);
    }
    assert!(out.lines().is_empty(), "lines are gathered");
    log.on_event(at(101), Event::Tick, &mut fx);
    let lines = out.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    let (good_line, forged_line) = (&lines[0], &lines[1]);
    assert_eq!(good_line["event"], "seckill_admission");
    assert_eq!(good_line["request_id"], "request-good");
    assert_eq!(good_line["activity_id"].as_u64(), Some(SKU.activity.0));
    assert_eq!(good_line["sku_id"].as_u64(), Some(SKU.sku.0));
    assert_eq!(good_line["ticket_key_id"], "k1");
    assert_eq!(good_line["activity_version"], 8);
    assert_eq!(good_line["admission_stage"], "answer");
    assert_eq!(good_line["decision"], "ADMIT");
    assert_eq!(
        (good_line["reason"].as_str(), good_line["code"].as_str()),
        (Some("queued"), Some("SECKILL_QUEUED"))
    );
    assert!(good_line["latency_ms"].is_number() && good_line["time"].is_string());
    let hash = good_line["user_id_hash"].as_str().unwrap();
    assert!(hash.len() == 19 && hash.starts_with("b3:"));
    assert_eq!(forged_line["admission_stage"], "ticket");
    assert_eq!(forged_line["reason"], "ticket_signature");
    assert!(
        forged_line["ticket_key_id"].is_null(),
        "a key id of a forged ticket is a stranger's word"
    );
    let text = String::from_utf8(out.0.lock().unwrap().0.clone()).unwrap();
    for secret in [&good, &forged] {
        assert!(!text.contains(std::str::from_utf8(secret).unwrap()));
    }
    assert!(!text.contains("424242"), "a raw user id in {text}");
}

fn record() -> AdmissionRecord {
    AdmissionRecord {
        at: WallMs(1_800_000_000_000),
        request_id: Default::default(),
        sku: None,
        user_hash: None,
        key_id: Default::default(),
        activity_version: 0,
        reason: Reason::LimitedIp,
        retry_after_ms: Some(250),
        latency_us: 4_200,
    }
}

#[test]
fn what_is_unknown_is_null_and_times_are_milliseconds() {
    let out = Shared::default();
    let mut log = LogWriter::new(Box::new(out.clone()));
    let mut fx = Effects::new(0);
    log.on_event(at(1), Event::Mail(Mail::Record(record())), &mut fx);
    log.on_event(at(2), Event::Drain, &mut fx);
    log.on_flush(at(2), &mut fx);
    let lines = out.lines();
    for member in [
        "request_id",
        "activity_id",
        "sku_id",
        "user_id_hash",
        "ticket_key_id",
        "activity_version",
    ] {
        assert!(lines[0][member].is_null(), "{member}");
    }
    assert_eq!(
        (
            lines[0]["retry_after_ms"].as_u64(),
            lines[0]["latency_ms"].as_f64()
        ),
        (Some(250), Some(4.2))
    );
    assert_eq!(lines[0]["time"], "2027-01-15T08:00:00.000Z");
}

#[test]
fn many_lines_leave_in_few_writes_and_a_failed_write_stops_nothing() {
    let out = Shared::default();
    let mut log = LogWriter::new(Box::new(out.clone()));
    let mut fx = Effects::new(0);
    let count = 2000;
    for _ in 0..count {
        log.on_event(at(1), Event::Mail(Mail::Record(record())), &mut fx);
    }
    log.on_event(at(200), Event::Tick, &mut fx);
    let bytes = out.0.lock().unwrap().0.len();
    assert_eq!(out.lines().len(), count);
    assert_eq!(out.0.lock().unwrap().2 as usize, bytes / FLUSH_BYTES + 1);
    assert_eq!(log.next_deadline(), None);
    out.0.lock().unwrap().1 = true;
    log.on_event(at(300), Event::Mail(Mail::Record(record())), &mut fx);
    assert_eq!(log.next_deadline(), Some(at(400).mono));
    log.on_event(at(400), Event::Tick, &mut fx);
    out.0.lock().unwrap().1 = false;
    log.on_event(at(500), Event::Mail(Mail::Record(record())), &mut fx);
    log.on_event(at(600), Event::Tick, &mut fx);
    assert_eq!(out.lines().len(), count + 1);
    let values: Vec<u64> = stats_of(&mut log)
        .samples
        .iter()
        .map(|sample| sample.value)
        .collect();
    assert_eq!(values, [count as u64 + 1, 1]);
}

#[test]
fn records_for_a_full_log_are_dropped_and_counted_and_other_mail_waits() {
    let post = PostOffice::new([Addr::Log]).unwrap();
    for _ in 0..MAILBOX_MAX + 3 {
        assert!(post.deliver(Addr::Log, Mail::Record(record())).is_ok());
    }
    assert_eq!(post.records_dropped.get(), 3);
    assert!(post.deliver(Addr::Log, Mail::StatsAsk).is_err());
}
