//! The ledger's SQLite store, held against a plain vector: round trips, snapshots, damage, locks, full disks.
#![allow(clippy::unwrap_used)] // a test that meets one has failed
#![allow(clippy::result_large_err)] // a post that is refused gives its mail back

#[path = "support/say.rs"]
mod say;

use say::skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir::store::{
    Damage, LEDGER_FILE, LedgerStore, StoreConfig, StoreError, Synchronous, read_image,
};
use weir_core::journal::{Batch, BatchResult, Image, StoreFault};
use weir_core::limits::BATCH_BYTES_MAX;
use weir_core::mail::{Addr, Mail};
use weir_core::port::{Effects, Event, Handler};
use weir_core::rng::Rng;
use weir_core::time::{Mono, Now};

/// A directory that is gone afterwards.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("store-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn ledger(&self) -> PathBuf {
        self.0.join(LEDGER_FILE)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The smallest driver: mail in, one turn, posts out.
struct Run {
    store: LedgerStore,
    fx: Effects,
}

impl Run {
    /// `synchronous=OFF`: process crashes and reopenings need no sync, and the tests are quicker.
    fn open(dir: &Path) -> Result<Self, StoreError> {
        let config = StoreConfig {
            dir: dir.to_path_buf(),
            synchronous: Synchronous::Off,
        };
        Ok(Self {
            store: LedgerStore::open(&config)?,
            fx: Effects::new(0),
        })
    }

    fn turn(&mut self, event: Event<'_>, now: Now) -> Vec<Mail> {
        self.store.on_event(now, event, &mut self.fx);
        self.store.on_flush(now, &mut self.fx);
        let mut posts = Vec::new();
        self.fx.deliver_posts(|to, mail| {
            assert!(matches!(to, Addr::Owner | Addr::Ops));
            posts.push(mail);
            Ok(())
        });
        posts
    }

    fn mail(&mut self, mail: Mail) -> Vec<Mail> {
        let posts = self.turn(Event::Mail(mail), Now::default());
        if self.store.next_deadline() == Some(Mono(0)) {
            assert!(self.turn(Event::Tick, Now::default()).is_empty());
        }
        posts
    }

    fn recover(&mut self) -> Image {
        match self.mail(Mail::RecoverAsk).pop() {
            Some(Mail::Recovered(image)) => *image,
            other => panic!("no image but {other:?}"),
        }
    }

    fn append(&mut self, seq: u64, bytes: &[u8], snapshot: Option<Vec<u8>>) -> BatchResult {
        let batch = Batch {
            seq,
            bytes: bytes.to_vec(),
            snapshot,
        };
        match self.mail(Mail::Append(Box::new(batch))).pop() {
            Some(Mail::Appended(fate)) => *fate,
            other => panic!("no fate but {other:?}"),
        }
    }

    fn append_ok(&mut self, seq: u64, bytes: &[u8]) {
        let fate = self.append(seq, bytes, None);
        assert_eq!((fate.seq, fate.result), (seq, Ok(())));
        assert!(fate.buffer.is_empty() && fate.buffer.capacity() >= bytes.len());
    }

    fn sample(&mut self, name: &str) -> u64 {
        match self.mail(Mail::StatsAsk).pop() {
            Some(Mail::Stats(stats)) => {
                stats
                    .samples
                    .iter()
                    .find(|sample| sample.name == name)
                    .unwrap()
                    .value
            }
            other => panic!("no counters but {other:?}"),
        }
    }
}

fn bytes(rng: &mut Rng, most: u64) -> Vec<u8> {
    let count = 1 + rng.below(most);
    (0..count).map(|_| rng.next_u64() as u8).collect()
}

fn with_sql(dir: &Dir, sql: &str) {
    let connection = rusqlite::Connection::open(dir.ledger()).unwrap();
    connection.execute_batch(sql).unwrap();
}

fn refusal(dir: &Dir) -> StoreError {
    match Run::open(&dir.0) {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    }
}

#[test]
fn what_was_appended_comes_back_and_each_opening_has_its_own_epoch() {
    let dir = Dir::new("round-trip");
    let mut run = Run::open(&dir.0).unwrap();
    let fresh = run.recover();
    assert_eq!(
        fresh,
        Image {
            snapshot: None,
            batches: vec![],
            boot_epoch: 1
        }
    );
    run.append_ok(1, b"one");
    run.append_ok(2, &[7; BATCH_BYTES_MAX]);
    assert_eq!(run.sample("weir_ledger_batches_total"), 2);
    assert_eq!(run.sample("weir_ledger_poisoned"), 0);
    drop(run);

    let mut run = Run::open(&dir.0).unwrap();
    assert_eq!(run.store.image_bytes(), 3 + BATCH_BYTES_MAX);
    let image = run.recover();
    assert_eq!(image.boot_epoch, 2);
    assert_eq!(image.batches.len(), 2);
    assert_eq!(
        (image.batches[0].seq, image.batches[0].bytes.as_slice()),
        (1, &b"one"[..])
    );
    assert_eq!(
        (image.batches[1].seq, image.batches[1].bytes.len()),
        (2, BATCH_BYTES_MAX)
    );
    run.append_ok(3, b"three");
    // A second asker in the same run sees the new batch, under a new epoch.
    let again = run.recover();
    assert_eq!((again.boot_epoch, again.batches.len()), (3, 3));
}

#[test]
fn a_batch_out_of_order_poisons_for_ever() {
    let dir = Dir::new("order");
    let mut run = Run::open(&dir.0).unwrap();
    run.append_ok(1, b"one");
    for seq in [3, 2, 2] {
        let fate = run.append(seq, b"x", None);
        assert_eq!((fate.seq, fate.result), (seq, Err(StoreFault::OutOfOrder)));
    }
    assert!(run.mail(Mail::RecoverAsk).is_empty());
    assert_eq!(run.sample("weir_ledger_poisoned"), 1);
    assert_eq!(run.sample("weir_ledger_batches_refused_total"), 3);
    drop(run);
    assert_eq!(Run::open(&dir.0).unwrap().recover().batches.len(), 1);
}

#[test]
fn a_snapshot_bounds_the_journal() {
    let dir = Dir::new("snapshot");
    let mut run = Run::open(&dir.0).unwrap();
    let mut rng = Rng::new(5);
    // Three parts, the last one short.
    let first: Vec<u8> = (0..2_500_000).map(|_| rng.next_u64() as u8).collect();
    for seq in 1..=40 {
        let snapshot = match seq {
            10 => Some(first.clone()),
            20 => Some(vec![]),
            30 => Some(b"newest".to_vec()),
            _ => None,
        };
        let fate = run.append(seq, &seq.to_le_bytes(), snapshot);
        assert_eq!(fate.result, Ok(()));
        if seq == 11 {
            drop(run);
            run = Run::open(&dir.0).unwrap();
            assert_eq!(run.recover().snapshot, Some((10, first.clone())));
        }
    }
    drop(run);
    let image = read_image(&dir.0).unwrap();
    assert_eq!(image.snapshot, Some((30, b"newest".to_vec())));
    let seqs: Vec<u64> = image.batches.iter().map(|batch| batch.seq).collect();
    assert_eq!(seqs, (31..=40).collect::<Vec<_>>());
    let connection = rusqlite::Connection::open(dir.ledger()).unwrap();
    let count = |sql: &str| {
        connection
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    assert_eq!(count("SELECT count(*) FROM batches"), 10);
    assert_eq!(count("SELECT count(*) FROM snapshots"), 1);
}

#[test]
fn the_file_stays_bounded_over_many_snapshots() {
    let dir = Dir::new("bounded");
    let mut run = Run::open(&dir.0).unwrap();
    let batch = vec![1; 16 * 1024];
    let mut largest = [0; 2];
    for seq in 1..=3_000_u64 {
        let snapshot = seq.is_multiple_of(100).then(|| vec![2; 300_000]);
        assert_eq!(run.append(seq, &batch, snapshot).result, Ok(()));
        let half = usize::from(seq > 1_500);
        let wal = fs::metadata(dir.0.join("ledger.sqlite-wal")).unwrap().len();
        let main = fs::metadata(dir.ledger()).unwrap().len();
        largest[half] = largest[half].max(wal + main);
    }
    // 3,000 batches have 48 MB; a hundred of them and two snapshots have 2.2 MB.
    assert!(largest[1] < 24_000_000, "{largest:?}");
    assert!(largest[1] <= largest[0] + largest[0] / 4, "{largest:?}");
}

#[test]
fn a_thousand_random_batches_with_reopenings_equal_a_vector() {
    for seed in 0..3 {
        let dir = Dir::new(&format!("differential-{seed}"));
        let mut rng = Rng::new(seed);
        let mut run = Run::open(&dir.0).unwrap();
        let (mut model, mut snapshot) = (Vec::<Vec<u8>>::new(), None);
        for seq in 1..=1_000_u64 {
            let most = if rng.chance(1, 50) { 200_000 } else { 2_000 };
            let batch = bytes(&mut rng, most);
            let taken = rng.chance(1, 40).then(|| bytes(&mut rng, 100_000));
            assert_eq!(run.append(seq, &batch, taken.clone()).result, Ok(()));
            model.push(batch);
            if let Some(taken) = taken {
                snapshot = Some((seq, taken));
            }
            if rng.chance(1, 60) {
                drop(run);
                run = Run::open(&dir.0).unwrap();
                let image = run.recover();
                let after = snapshot.as_ref().map_or(0, |(seq, _)| *seq);
                assert_eq!(image.snapshot, snapshot);
                assert_eq!(image.batches.len() as u64, seq - after);
                for (batch, expected) in image.batches.iter().zip(after + 1..) {
                    assert_eq!(batch.seq, expected);
                    assert_eq!(batch.bytes, model[expected as usize - 1]);
                }
            }
        }
    }
}

#[test]
fn damage_is_refused_by_the_number_of_its_batch() {
    let dir = Dir::new("damage");
    let mut run = Run::open(&dir.0).unwrap();
    for seq in 1..=9_u64 {
        let marker = format!("marker-of-batch-{seq}-{}", "x".repeat(100));
        run.append_ok(seq, marker.as_bytes());
    }
    run.turn(Event::Drain, Now::default());
    let late = Now {
        mono: Mono(u64::MAX),
        ..Now::default()
    };
    run.turn(Event::Tick, late);
    let mut ops = Vec::new();
    run.fx.take_ops(&mut ops);
    assert!(matches!(ops[..], [weir_core::port::Op::Stop]));
    drop(run);

    // One bit of the file, inside the bytes of batch 6.
    let mut file = fs::read(dir.ledger()).unwrap();
    let needle = b"marker-of-batch-6-";
    let at = file
        .windows(needle.len())
        .position(|window| window == needle)
        .unwrap();
    file[at + 40] ^= 4;
    fs::write(dir.ledger(), &file).unwrap();
    let error = refusal(&dir);
    assert!(
        matches!(
            error,
            StoreError::Corrupt {
                damage: Damage::Batch { seq: 6 },
                ..
            }
        ),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(text.contains("batch seq 6") && text.contains("seq >= 6") && text.contains("backup"));
    assert!(matches!(
        read_image(&dir.0),
        Err(StoreError::Corrupt {
            damage: Damage::Batch { seq: 6 },
            ..
        })
    ));

    // The remedy that the message names as the last resort works.
    with_sql(&dir, "DELETE FROM batches WHERE seq >= 6");
    let mut run = Run::open(&dir.0).unwrap();
    assert_eq!(run.recover().batches.len(), 5);
    run.append_ok(6, b"afresh");
}

#[test]
fn holes_foreign_rows_and_lost_prefixes_are_refused() {
    let cases: [(&str, &str, Damage); 6] = [
        (
            "hole",
            "DELETE FROM batches WHERE seq = 4",
            Damage::Hole { seq: 4, found: 5 },
        ),
        (
            "prefix",
            "DELETE FROM batches WHERE seq = 1",
            Damage::Hole { seq: 1, found: 2 },
        ),
        // A whole row under another number does not pass for it.
        (
            "moved",
            "DELETE FROM batches WHERE seq = 5; UPDATE batches SET seq = 5 WHERE seq = 6",
            Damage::Batch { seq: 5 },
        ),
        (
            "version",
            "UPDATE batches SET version = 9 WHERE seq = 3",
            Damage::Batch { seq: 3 },
        ),
        (
            "part",
            "DELETE FROM snapshots WHERE part = 1",
            Damage::Snapshot { seq: 6, part: 1 },
        ),
        (
            "snapshot",
            "UPDATE snapshots SET bytes = zeroblob(length(bytes)) WHERE part = 0",
            Damage::Snapshot { seq: 6, part: 0 },
        ),
    ];
    for (name, sql, expected) in cases {
        let dir = Dir::new(&format!("hole-{name}"));
        let mut run = Run::open(&dir.0).unwrap();
        let snapshot_case = matches!(expected, Damage::Snapshot { .. });
        for seq in 1..=6 {
            let snapshot = (seq == 6 && snapshot_case).then(|| vec![3; 1_500_000]);
            assert_eq!(run.append(seq, b"batch", snapshot).result, Ok(()));
        }
        drop(run);
        with_sql(&dir, sql);
        match refusal(&dir) {
            StoreError::Corrupt { damage, .. } => assert_eq!(damage, expected, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
        // Refused again: a refusal changes nothing.
        assert!(
            matches!(refusal(&dir), StoreError::Corrupt { .. }),
            "{name}"
        );
    }
}

#[test]
fn a_missing_suffix_is_legal() {
    let dir = Dir::new("suffix");
    let mut run = Run::open(&dir.0).unwrap();
    for seq in 1..=6 {
        run.append_ok(seq, b"batch");
    }
    drop(run);
    with_sql(&dir, "DELETE FROM batches WHERE seq > 4");
    assert_eq!(Run::open(&dir.0).unwrap().recover().batches.len(), 4);
}

#[test]
fn a_log_damaged_before_its_end_is_refused_and_a_torn_end_is_cut() {
    let dir = Dir::new("wal");
    let mut run = Run::open(&dir.0).unwrap();
    run.recover();
    for seq in 1..=8_u64 {
        run.append_ok(seq, format!("marker-of-batch-{seq}").as_bytes());
    }
    let wal = dir.0.join("ledger.sqlite-wal");
    let whole = fs::read(&wal).unwrap();
    drop(run);
    let last_frame = whole.len() - 4096 - 24;

    let mut torn = whole.clone();
    torn[last_frame + 1000] ^= 1;
    fs::write(&wal, &torn).unwrap();
    let image = read_image(&dir.0).unwrap();
    assert_eq!(image.batches.len(), 7);

    let needle = b"marker-of-batch-3";
    let at = whole
        .windows(needle.len())
        .position(|window| window == needle)
        .unwrap();
    let mut damaged = whole.clone();
    damaged[at] ^= 1;
    fs::write(&wal, &damaged).unwrap();
    let bad_frame = (at as u64 - 32) / 4120 * 4120 + 32;
    for error in [refusal(&dir), read_image(&dir.0).unwrap_err()] {
        match error {
            StoreError::Corrupt {
                damage: Damage::Wal { offset },
                ..
            } => assert_eq!(offset, bad_frame),
            other => panic!("{other:?}"),
        }
    }

    // An opening starts a new log, so that nothing of a torn end stays behind what is written next.
    fs::write(&wal, &torn).unwrap();
    let mut run = Run::open(&dir.0).unwrap();
    assert_eq!(run.recover().batches.len(), 7);
    let fresh = fs::read(&wal).unwrap();
    assert!(fresh.len() < torn.len() / 2, "{} bytes", fresh.len());
    assert_ne!(
        fresh[16..24],
        torn[16..24],
        "the salts are those of the torn log"
    );
}

#[test]
fn a_second_program_on_the_directory_is_refused() {
    let dir = Dir::new("lock");
    let mut run = Run::open(&dir.0).unwrap();
    run.append_ok(1, b"one");
    let error = refusal(&dir);
    let own_pid = std::process::id();
    assert!(
        matches!(error, StoreError::Locked { pid: Some(pid), .. } if pid == own_pid),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.contains(&own_pid.to_string()) && text.contains("Stop it first"),
        "{text}"
    );
    assert!(matches!(read_image(&dir.0), Err(StoreError::Locked { .. })));
    // Even a program that ignores the lock file cannot read or write beside us.
    let other = rusqlite::Connection::open(dir.ledger()).unwrap();
    other.busy_timeout(std::time::Duration::ZERO).unwrap();
    assert!(other.execute("DELETE FROM batches", []).is_err());
    drop(other);
    run.append_ok(2, b"two");
    drop(run);
    assert_eq!(read_image(&dir.0).unwrap().batches.len(), 2);
    assert_eq!(Run::open(&dir.0).unwrap().recover().boot_epoch, 2);
}

#[test]
fn foreign_and_newer_files_are_refused_and_left_alone() {
    let dir = Dir::new("foreign");
    assert!(matches!(
        read_image(&dir.0),
        Err(StoreError::Missing { .. })
    ));
    drop(Run::open(&dir.0).unwrap());
    with_sql(&dir, "PRAGMA user_version = 2");
    let error = refusal(&dir);
    assert!(
        matches!(
            error,
            StoreError::Newer {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(error.to_string().contains("version 2"));

    let dir = Dir::new("foreign-text");
    let content = b"no database at all, but a long enough text".repeat(30);
    fs::write(dir.ledger(), &content).unwrap();
    assert!(matches!(refusal(&dir), StoreError::NotALedger { .. }));
    assert_eq!(fs::read(dir.ledger()).unwrap(), content);
    let dir = Dir::new("foreign-sqlite");
    with_sql(&dir, "CREATE TABLE mine(x)");
    assert!(matches!(refusal(&dir), StoreError::NotALedger { .. }));
    assert!(matches!(
        read_image(&dir.0),
        Err(StoreError::NotALedger { .. })
    ));
}

#[test]
fn an_interrupted_first_start_starts_again() {
    let dir = Dir::new("first");
    fs::write(dir.ledger(), b"").unwrap();
    assert!(matches!(
        read_image(&dir.0),
        Err(StoreError::Missing { .. })
    ));
    let mut run = Run::open(&dir.0).unwrap();
    assert_eq!(run.recover().boot_epoch, 1);
}

#[test]
fn the_directory_is_made_but_not_its_parents() {
    let dir = Dir::new("mkdir");
    drop(Run::open(&dir.0.join("new")).unwrap());
    let error = match Run::open(&dir.0.join("no").join("such")) {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    };
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error:?}");
}

/// A tmpfs for one test; `None` where this user may not mount.
struct Mount(PathBuf);

impl Mount {
    fn new(path: &Path, options: &str) -> Option<Self> {
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(path)
            .output()
            .ok()?
            .status;
        status.success().then(|| Self(path.to_path_buf()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_read_only_directory_is_refused() {
    let dir = Dir::new("read-only");
    let Some(_mount) = Mount::new(&dir.0, "ro,size=1m") else {
        skip("this user may not mount a tmpfs");
        return;
    };
    let error = refusal(&dir);
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error:?}");
    assert!(error.to_string().contains("writable"), "{error}");
}

#[test]
fn a_full_disk_poisons_and_keeps_what_was_acknowledged() {
    let dir = Dir::new("full");
    let Some(_mount) = Mount::new(&dir.0, "size=1m") else {
        skip("this user may not mount a tmpfs");
        return;
    };
    let mut run = Run::open(&dir.0).unwrap();
    let batch = vec![9; 60_000];
    let mut acknowledged = 0;
    let fault = loop {
        match run.append(acknowledged + 1, &batch, None).result {
            Ok(()) => acknowledged += 1,
            Err(fault) => break fault,
        }
        assert!(acknowledged < 40, "1 MiB took 2.4 MB");
    };
    assert_eq!(fault, StoreFault::DiskFull);
    assert!(acknowledged >= 3);
    // A small one would fit; it is refused all the same, for ever.
    for _ in 0..3 {
        let fate = run.append(acknowledged + 1, b"small", None);
        assert_eq!(fate.result, Err(StoreFault::DiskFull));
    }
    drop(run);
    // A restart needs room too, and says so.
    let error = refusal(&dir);
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error:?}");
    assert!(error.to_string().contains("Free some space"));
    let roomy = Dir::new("full-copy");
    for file in ["ledger.sqlite", "ledger.sqlite-wal"] {
        fs::copy(dir.0.join(file), roomy.0.join(file)).unwrap();
    }
    let image = Run::open(&roomy.0).unwrap().recover();
    assert_eq!(image.batches.len() as u64, acknowledged);
    assert!(image.batches.iter().all(|kept| kept.bytes == batch));
}
