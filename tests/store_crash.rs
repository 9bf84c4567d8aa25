//! Power cuts and failing syncs: every batch that was acknowledged comes back, whatever the disk had not synced.
//!
//! A child (this binary again) appends batches under the recorder and notes each acknowledgement in a file of the
//! same directory, so that the log has syncs and acknowledgements in one order. The log is then cut at many points.
#![allow(clippy::unwrap_used)] // a test that meets one has failed
#![allow(clippy::result_large_err)] // a post that is refused gives its mail back

#[path = "support/cutback.rs"]
mod cutback;
#[path = "support/recorder.rs"]
mod recorder;

use cutback::{Cut, Files, Log, Record, cut_back, unsynced_writes};
use recorder::{FailSync, Recorder};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weir::store::{LedgerStore, StoreConfig, StoreError, Synchronous, read_image};
use weir_core::journal::{Batch, Image, StoreFault};
use weir_core::mail::Mail;
use weir_core::port::{Effects, Event, Handler};
use weir_core::rng::Rng;
use weir_core::time::{Mono, Now};

/// Says to [`child_appends`] where, and how: "full 100" or "off 100".
const CHILD: &str = "WEIR_STORE_CRASH_CHILD";
const ACKS: &str = "acks";

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("crash-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("data")).unwrap();
        Self(path)
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    fn log(&self) -> PathBuf {
        self.0.join("log")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Batch `seq` of every run: mostly small, sometimes large.
fn batch_bytes(seq: u64) -> Vec<u8> {
    let mut rng = Rng::new(seq);
    let most = if rng.chance(1, 8) { 200_000 } else { 3_000 };
    let count = 1 + rng.below(most);
    (0..count).map(|_| rng.next_u64() as u8).collect()
}

fn snapshot_bytes(seq: u64) -> Option<Vec<u8>> {
    let mut rng = Rng::new(seq ^ 0xABCD);
    seq.is_multiple_of(37).then(|| {
        (0..50_000 * (seq % 5))
            .map(|_| rng.next_u64() as u8)
            .collect()
    })
}

/// One turn per mail, as a driver would; the fate of the append.
fn append(store: &mut LedgerStore, seq: u64) -> Result<(), StoreFault> {
    let batch = Batch {
        seq,
        bytes: batch_bytes(seq),
        snapshot: snapshot_bytes(seq),
    };
    let mut fx = Effects::new(0);
    let now = Now::default();
    store.on_event(now, Event::Mail(Mail::Append(Box::new(batch))), &mut fx);
    store.on_flush(now, &mut fx);
    let mut fate = None;
    fx.deliver_posts(|_, mail| {
        if let Mail::Appended(appended) = mail {
            assert_eq!(appended.seq, seq);
            fate = Some(appended.result);
        }
        Ok(())
    });
    fate.unwrap()
}

fn tick(store: &mut LedgerStore) {
    if store.next_deadline() == Some(Mono(0)) {
        store.on_event(Now::default(), Event::Tick, &mut Effects::new(0));
    }
}

/// Not a test of its own: the body of the child.
#[test]
fn child_appends() {
    let Ok(how) = std::env::var(CHILD) else {
        return;
    };
    let (level, rest) = how.split_once(' ').unwrap();
    let (last, dir) = rest.split_once(' ').unwrap();
    let config = StoreConfig {
        dir: PathBuf::from(dir),
        synchronous: match level {
            "full" => Synchronous::Full,
            _ => Synchronous::Off,
        },
    };
    let mut store = LedgerStore::open(&config).unwrap();
    let first = store_last_seq(&mut store) + 1;
    let mut acks = File::create(config.dir.join(ACKS)).unwrap();
    for seq in first..=last.parse().unwrap() {
        match append(&mut store, seq) {
            Ok(()) => {
                acks.write_all(&seq.to_le_bytes()).unwrap();
                println!("acknowledged {seq}");
            }
            Err(fault) => println!("fault {seq} {fault:?}"),
        }
        tick(&mut store);
    }
}

fn store_last_seq(store: &mut LedgerStore) -> u64 {
    let mut fx = Effects::new(0);
    store.on_event(Now::default(), Event::Mail(Mail::RecoverAsk), &mut fx);
    let mut last = None;
    fx.deliver_posts(|_, mail| {
        if let Mail::Recovered(image) = mail {
            last = Some(last_seq(&image));
        }
        Ok(())
    });
    last.unwrap()
}

fn last_seq(image: &Image) -> u64 {
    let snapshot = image.snapshot.as_ref().map_or(0, |(seq, _)| *seq);
    image.batches.last().map_or(snapshot, |batch| batch.seq)
}

fn child(dir: &Dir, recorder: &Recorder, level: &str, last: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "child_appends",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CHILD, format!("{level} {last} {}", dir.data().display()))
        .stdout(Stdio::piped());
    recorder.watch(&mut command, &dir.data(), &dir.log());
    command
}

/// The last acknowledgement that the child noted within `records`.
fn acknowledged(records: &[Record]) -> u64 {
    let noted = records.iter().rev().find_map(|record| match record {
        Record::Written { path, bytes, .. } if path == Path::new(ACKS) => Some(bytes),
        _ => None,
    });
    noted.map_or(0, |bytes| {
        u64::from_le_bytes(bytes[..8].try_into().unwrap())
    })
}

/// What a restart on `files` recovers, checked against what was ever appended.
fn recover(files: &Files, at: &Path) -> u64 {
    files.write_to(at).unwrap();
    // Nobody cuts the power of this run; without syncs it is quicker.
    let config = StoreConfig {
        dir: at.to_path_buf(),
        synchronous: Synchronous::Off,
    };
    let mut store = LedgerStore::open(&config).unwrap();
    let mut fx = Effects::new(0);
    store.on_event(Now::default(), Event::Mail(Mail::RecoverAsk), &mut fx);
    let mut image = None;
    fx.deliver_posts(|_, mail| {
        if let Mail::Recovered(recovered) = mail {
            image = Some(recovered);
        }
        Ok(())
    });
    let image = image.unwrap();
    if let Some((seq, bytes)) = &image.snapshot {
        assert_eq!(Some(bytes), snapshot_bytes(*seq).as_ref());
    }
    for batch in &image.batches {
        assert_eq!(batch.bytes, batch_bytes(batch.seq));
    }
    let last = last_seq(&image);
    // The restarted store goes on where the old one was cut off.
    append(&mut store, last + 1).unwrap();
    last
}

#[test]
fn a_power_cut_at_any_point_keeps_every_acknowledged_batch() {
    let dir = Dir::new("any-point");
    let recorder = Recorder::build();
    let output = child(&dir, &recorder, "full", 120).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let log = Log::read(&dir.log(), &dir.data());
    let records = log.records();
    assert_eq!(acknowledged(records), 120);
    let main_synced = Record::Synced(PathBuf::from("ledger.sqlite"));
    let checkpoints = records.iter().filter(|r| **r == main_synced).count();
    assert!(
        checkpoints >= 2,
        "{checkpoints}: the run must cross checkpoints"
    );

    let before = Files::default();
    let mut rng = Rng::new(11);
    let (mut lost_some, mut kept_unacknowledged) = (0, 0);
    for _ in 0..70 {
        let point = rng.below(records.len() as u64 + 1) as usize;
        let happened = &records[..point];
        let promised = acknowledged(happened);
        let seed = rng.next_u64();
        for cut in [Cut::Strict, Cut::Prefix(seed), Cut::Torn(seed)] {
            let files = cut_back(&before, happened, cut);
            let last = recover(&files, &dir.0.join("restarted"));
            assert!(
                last >= promised && last <= promised + 1,
                "record {point}, {cut:?}: {promised} acknowledged, {last} recovered"
            );
            kept_unacknowledged += u64::from(last > promised);
        }
        lost_some += usize::from(unsynced_writes(&before, happened) > 0);
    }
    // The cuts did cut: points inside a transaction, and points between sync and acknowledgement.
    assert!(lost_some >= 25, "{lost_some}");
    assert!(kept_unacknowledged >= 1, "{kept_unacknowledged}");
}

#[test]
fn a_killed_store_keeps_what_its_reader_was_told() {
    let recorder = Recorder::build();
    let mut rng = Rng::new(3);
    for round in 0..6 {
        let dir = Dir::new(&format!("kill-{round}"));
        let mut running = child(&dir, &recorder, "full", 100_000).spawn().unwrap();
        let mut told = 0;
        let until = rng.below(150);
        let lines = BufReader::new(running.stdout.take().unwrap()).lines();
        let mut killed = false;
        for line in lines {
            let line = line.unwrap();
            if let Some((_, seq)) = line.split_once("acknowledged ") {
                told = seq.parse().unwrap();
            }
            if !killed && told >= until {
                running.kill().unwrap();
                killed = true;
            }
        }
        running.wait().unwrap();
        assert!(killed && told >= until);
        let log = Log::read(&dir.log(), &dir.data());
        for cut in [Cut::Strict, Cut::Prefix(round), Cut::Torn(round)] {
            let files = cut_back(&Files::default(), log.records(), cut);
            let last = recover(&files, &dir.0.join("restarted"));
            assert!(
                last >= told,
                "{cut:?}: {told} acknowledged, {last} recovered"
            );
        }
        // Without a power cut the files themselves are there too.
        let image = read_image(&dir.data()).unwrap();
        assert!(last_seq(&image) >= told);
    }
}

#[test]
fn crash_after_crash_loses_nothing() {
    let recorder = Recorder::build();
    let dir = Dir::new("again");
    let mut rng = Rng::new(5);
    let mut before = Files::default();
    let mut promised = 0;
    for round in 0..40 {
        let _ = fs::remove_file(dir.log());
        before.0.remove(Path::new(ACKS));
        before.write_to(&dir.data()).unwrap();
        // Few batches: most cuts fall into the restart or shortly after it, where the log still has the torn end.
        let last = promised + 1 + rng.below(3);
        let output = child(&dir, &recorder, "full", last).output().unwrap();
        assert!(output.status.success(), "round {round}: {output:?}");
        let log = Log::read(&dir.log(), &dir.data());
        let point = rng.below(log.records().len() as u64 + 1) as usize;
        let happened = &log.records()[..point];
        let told = acknowledged(happened).max(promised);
        before = cut_back(&before, happened, Cut::Torn(rng.next_u64()));
        // Read from a copy: the next run itself meets the files as the cut left them.
        before.write_to(&dir.0.join("read")).unwrap();
        // What a restart showed counts as promised too: it was answered from.
        promised = match read_image(&dir.0.join("read")) {
            Ok(image) => last_seq(&image),
            Err(StoreError::Missing { .. }) => 0,
            Err(error) => panic!("round {round}: {error}"),
        };
        assert!(promised >= told, "round {round}: {promised} of {told}");
    }
    assert!(promised >= 8, "{promised}");
}

#[test]
fn without_syncs_the_same_check_finds_lost_batches() {
    let dir = Dir::new("planted");
    let recorder = Recorder::build();
    let output = child(&dir, &recorder, "off", 60).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let log = Log::read(&dir.log(), &dir.data());
    assert_eq!(acknowledged(log.records()), 60);
    let files = cut_back(&Files::default(), log.records(), Cut::Strict);
    let last = recover(&files, &dir.0.join("restarted"));
    assert!(
        last < 60,
        "synchronous=OFF lost nothing: the check is blind"
    );
}

#[test]
fn a_failed_sync_is_never_tried_again() {
    let recorder = Recorder::build();
    let calm = Dir::new("sync-calm");
    let output = child(&calm, &recorder, "full", 1).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let start = Log::read(&calm.log(), &calm.data());
    // Both kinds of sync after the start: one of a commit, and one of a checkpoint.
    for (name, later) in [("ledger.sqlite-wal", 20), ("ledger.sqlite", 1)] {
        let dir = Dir::new(&format!("sync-{name}"));
        let mut command = child(&dir, &recorder, "full", 200);
        let synced = Record::Synced(PathBuf::from(name));
        let at_start = start.records().iter().filter(|r| **r == synced).count();
        let fail = FailSync {
            nth: u32::try_from(at_start).unwrap() + later,
            suffix: name,
        };
        Recorder::fail_sync(&mut command, &fail);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let told = text.matches("acknowledged ").count();
        let faults = text.matches(" Io").count();
        assert_eq!(told + faults, 200, "{name}");
        assert!(told > 0 && faults > 0, "{name}: {told} acknowledged");

        let log = Log::read(&dir.log(), &dir.data());
        let failed = log
            .records()
            .iter()
            .position(|record| matches!(record, Record::SyncFailed(_)))
            .unwrap();
        let synced_again = log.records()[failed..]
            .iter()
            .any(|record| matches!(record, Record::Synced(_)));
        assert!(!synced_again, "{name}");
        let files = cut_back(&Files::default(), log.records(), Cut::Strict);
        let last = recover(&files, &dir.0.join("restarted"));
        assert!(last >= told as u64, "{name}");
    }
}
