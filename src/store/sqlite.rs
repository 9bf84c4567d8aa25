//! The part that commits the ledger's batches, one transaction each, and hands back what it has at start.
//!
//! Runs on a thread that only has mail: it blocks in commits while the owner fills the next batch. Called by a driver
//! with `RecoverAsk` and `Append` from the owner; posts `Recovered` and `Appended`. Invariants: `Appended(Ok)` after
//! the sync; after a fault every later batch gets that fault; checkpoints run in a tick, after the answers have left.

use super::error::StoreError;
use super::limits::{CHECKPOINT_AFTER_BYTES, COMMIT_OVERHEAD_BYTES, DRAIN_QUIET_MS};
use super::lock::DirLock;
use super::{Identity, LEDGER_FILE, StoreConfig, rows, schema};
use rusqlite::{Connection, ErrorCode};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_core::journal::{Batch, BatchResult, Image, StoreFault};
use weir_core::limits::BATCH_BYTES_MAX;
use weir_core::mail::{Addr, Mail};
use weir_core::port::{Effects, Event, Handler};
use weir_core::stats::{Label, Sample, Stats};
use weir_core::time::{Mono, Now};

/// Upper bounds of the commit histogram in microseconds; syncs here take 200 to 3,500.
const COMMIT_BUCKETS_US: [u64; 9] = [
    250,
    500,
    1_000,
    2_000,
    4_000,
    8_000,
    16_000,
    64_000,
    u64::MAX,
];

/// The embedded ledger's store on `ledger.sqlite`.
pub struct LedgerStore {
    connection: Connection,
    path: PathBuf,
    /// What was read at opening, until the owner asks for it.
    image: Option<Image>,
    last_seq: u64,
    fault: Option<StoreFault>,
    /// Rows up to the snapshot after this batch are obsolete and dropped step by step.
    garbage_below: Option<u64>,
    wal_bytes: usize,
    checkpoint_due: bool,
    /// Set by `Drain`: when to stop if no mail comes.
    stop_at: Option<Mono>,
    counts: Counts,
    /// Last, so that it is released after the connection is closed.
    _lock: DirLock,
}

#[derive(Default)]
struct Counts {
    batches: u64,
    batch_bytes: u64,
    snapshots: u64,
    refused: u64,
    commit_us_sum: u64,
    commits_per_bucket: [u64; COMMIT_BUCKETS_US.len()],
}

impl std::fmt::Debug for LedgerStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LedgerStore")
            .field("path", &self.path)
            .field("last_seq", &self.last_seq)
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}

impl LedgerStore {
    /// Takes the directory's lock, opens or makes the ledger, reads and checks all of it, and makes a new boot epoch
    /// durable. Takes as long as reading the newest snapshot and the batches after it.
    ///
    /// # Errors
    /// Everything that an operator can mend, and damage; see [`StoreError`]. Nothing was changed then.
    pub fn open(config: &StoreConfig) -> Result<Self, StoreError> {
        let lock = take_directory(&config.dir)?;
        let path = config.dir.join(LEDGER_FILE);
        let mut connection = schema::open(&path, config.synchronous)?;
        let image = recover(&mut connection, &path)?;
        Ok(Self {
            last_seq: last_seq(&image),
            garbage_below: image.snapshot.as_ref().map(|(seq, _)| *seq),
            connection,
            path,
            image: Some(image),
            fault: None,
            wal_bytes: 0,
            checkpoint_due: false,
            stop_at: None,
            counts: Counts::default(),
            _lock: lock,
        })
    }

    /// Bytes of the stored image: what the owner will replay. 0 once the owner has it.
    pub fn image_bytes(&self) -> usize {
        self.image.as_ref().map_or(0, |image| {
            let snapshot = image.snapshot.as_ref().map_or(0, |(_, bytes)| bytes.len());
            snapshot
                + image
                    .batches
                    .iter()
                    .map(|batch| batch.bytes.len())
                    .sum::<usize>()
        })
    }

    /// What was read at opening, until the owner asks for it.
    pub fn image(&self) -> Option<&Image> {
        self.image.as_ref()
    }

    /// Who this ledger is, see [`Identity`].
    /// # Errors
    /// The file cannot be read.
    pub fn identity(&self) -> Result<Identity, StoreError> {
        rows::identity(&self.connection).map_err(|error| StoreError::of_sqlite(&self.path, &error))
    }

    /// Makes durable that an order store belongs to this ledger.
    /// # Errors
    /// The file cannot be written.
    pub fn note_orders(&self) -> Result<(), StoreError> {
        rows::note_orders(&self.connection)
            .map_err(|error| StoreError::of_sqlite(&self.path, &error))
    }

    /// Commits one batch. Before: `seq` is the last plus one. After `Ok`: it is on the disk. After `Err`: whether it is
    /// on the disk is unknown until a restart reads it, and nothing more is accepted.
    fn append(&mut self, batch: &Batch) -> Result<(), StoreFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let result = self.commit(batch);
        if let Err(fault) = result {
            self.fault = Some(fault);
        }
        result
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreFault> {
        if batch.seq != self.last_seq + 1 {
            return Err(StoreFault::OutOfOrder);
        }
        // A restart refuses longer rows, so they must never get in.
        assert!(
            (1..=BATCH_BYTES_MAX).contains(&batch.bytes.len()),
            "the owner seals batches within BATCH_BYTES_MAX"
        );
        let started = Instant::now();
        let appended = rows::append(&mut self.connection, batch, self.garbage_below)
            .map_err(|error| fault_of(&error))?;
        self.last_seq = batch.seq;
        if !appended.garbage_left {
            self.garbage_below = None;
        }
        let snapshot_bytes = batch.snapshot.as_ref().map_or(0, Vec::len);
        if batch.snapshot.is_some() {
            self.garbage_below = Some(batch.seq);
            self.counts.snapshots += 1;
        }
        self.wal_bytes += batch.bytes.len() + snapshot_bytes + COMMIT_OVERHEAD_BYTES;
        self.checkpoint_due |= self.wal_bytes >= CHECKPOINT_AFTER_BYTES;
        self.counts.committed(batch.bytes.len(), started.elapsed());
        Ok(())
    }

    /// Moves the WAL's pages into the database, so that the WAL starts again at its head. A failure poisons: the WAL
    /// or the database may have lost what was acknowledged, and a second sync would not tell (R55).
    fn checkpoint(&mut self, mode: &str) {
        self.checkpoint_due = false;
        self.wal_bytes = 0;
        if self.fault.is_some() {
            return;
        }
        if let Err(error) = checkpoint(&self.connection, mode) {
            self.fault = Some(fault_of(&error));
        }
    }

    /// The image read at opening; a second asker gets a fresh reading under a new boot epoch. `None`: poisoned.
    fn take_image(&mut self) -> Option<Image> {
        if self.fault.is_some() {
            return None;
        }
        if let Some(image) = self.image.take() {
            return Some(image);
        }
        match recover(&mut self.connection, &self.path) {
            Ok(image) => Some(image),
            Err(_) => {
                self.fault = Some(StoreFault::Io);
                None
            }
        }
    }

    fn on_mail(&mut self, mail: Mail, fx: &mut Effects) {
        match mail {
            // Without an answer the owner never opens: closed by construction.
            Mail::RecoverAsk => {
                if let Some(image) = self.take_image() {
                    fx.post(Addr::Owner, Mail::Recovered(Box::new(image)));
                }
            }
            Mail::Append(batch) => {
                let result = self.append(&batch);
                self.counts.refused += u64::from(result.is_err());
                let seq = batch.seq;
                let mut buffer = batch.bytes;
                buffer.clear();
                let fate = BatchResult {
                    seq,
                    result,
                    buffer,
                };
                fx.post(Addr::Owner, Mail::Appended(Box::new(fate)));
            }
            Mail::StatsAsk => fx.post(Addr::Ops, Mail::Stats(Box::new(self.stats()))),
            _ => {}
        }
    }

    fn stats(&self) -> Stats {
        let plain = |name, value| Sample {
            name,
            label: Label::None,
            value,
        };
        let mut samples = vec![
            plain("weir_ledger_batches_total", self.counts.batches),
            plain("weir_ledger_batch_bytes_total", self.counts.batch_bytes),
            plain("weir_ledger_snapshots_total", self.counts.snapshots),
            plain("weir_ledger_batches_refused_total", self.counts.refused),
            plain("weir_ledger_poisoned", u64::from(self.fault.is_some())),
            plain("weir_ledger_commit_us_sum", self.counts.commit_us_sum),
            plain("weir_ledger_commit_us_count", self.counts.batches),
        ];
        // Prometheus buckets are cumulative.
        let mut at_most = 0;
        for (bound, commits) in COMMIT_BUCKETS_US.iter().zip(self.counts.commits_per_bucket) {
            at_most += commits;
            samples.push(Sample {
                name: "weir_ledger_commit_us_bucket",
                label: Label::BucketUs(*bound),
                value: at_most,
            });
        }
        Stats {
            from: Addr::Store,
            samples,
            hot: Vec::new(),
        }
    }
}

impl Counts {
    fn committed(&mut self, bytes: usize, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = COMMIT_BUCKETS_US.partition_point(|bound| *bound < took_us);
        self.commits_per_bucket[bucket] += 1;
        self.commit_us_sum = self.commit_us_sum.saturating_add(took_us);
        self.batches += 1;
        self.batch_bytes += bytes as u64;
    }
}

impl Handler for LedgerStore {
    fn on_start(&mut self, _now: Now, _fx: &mut Effects) {}

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Mail(mail) => {
                if self.stop_at.is_some() {
                    self.stop_at = Some(now.mono.plus_ms(DRAIN_QUIET_MS));
                }
                self.on_mail(mail, fx);
            }
            // The owner may have batches to come: the store ends last, when its box stays empty.
            Event::Drain => self.stop_at = Some(now.mono.plus_ms(DRAIN_QUIET_MS)),
            Event::Tick => {
                if self.checkpoint_due {
                    self.checkpoint("PASSIVE");
                }
                if self.stop_at.is_some_and(|at| now.mono >= at) {
                    self.checkpoint("TRUNCATE");
                    fx.stop();
                }
            }
            Event::Accepted { .. }
            | Event::Connected { .. }
            | Event::ConnectFailed { .. }
            | Event::Received { .. }
            | Event::Sent { .. }
            | Event::Closed { .. } => {}
        }
    }

    fn on_flush(&mut self, _now: Now, _fx: &mut Effects) {}

    fn next_deadline(&self) -> Option<Mono> {
        if self.checkpoint_due {
            // At once, but in the next turn: the answers of this one leave first.
            return Some(Mono(0));
        }
        self.stop_at
    }
}

/// Reads what the journal at `path` (a directory or the file itself) has, without changing it; for `weir reconcile`
/// and tests. `boot_epoch` is that of the last run.
///
/// # Errors
/// `Locked` while a weir runs on the directory; `Missing`, or what [`LedgerStore::open`] refuses too.
pub fn read_image(path: &Path) -> Result<Image, StoreError> {
    let file = if path.is_dir() {
        path.join(LEDGER_FILE)
    } else {
        path.to_path_buf()
    };
    let dir = file.parent().unwrap_or(Path::new("."));
    let _lock = DirLock::shared(dir)?;
    let connection = schema::open_to_read(&file)?;
    let mut image = rows::read(&connection, &file)?;
    image.boot_epoch =
        rows::boot_epoch(&connection).map_err(|error| StoreError::of_sqlite(&file, &error))?;
    Ok(image)
}

/// Reads everything first: a damaged journal is left as it is.
fn recover(connection: &mut Connection, path: &Path) -> Result<Image, StoreError> {
    let sqlite = |error: rusqlite::Error| StoreError::of_sqlite(path, &error);
    let mut image = rows::read(connection, path)?;
    // Before the first write: the WAL may end in a commit that a crash tore, and what is written over its head would
    // leave its tail behind, of the same generation; after a second crash that would look like damage (see `wal`).
    checkpoint(connection, "TRUNCATE").map_err(sqlite)?;
    image.boot_epoch = rows::next_boot_epoch(connection).map_err(sqlite)?;
    Ok(image)
}

/// Copies the WAL into the database; also an error when SQLite could not finish, which an exclusive lock rules out.
fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<()> {
    let busy: i64 = connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        row.get(0)
    })?;
    if busy == 0 {
        Ok(())
    } else {
        Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR),
            None,
        ))
    }
}

fn last_seq(image: &Image) -> u64 {
    let snapshot_seq = image.snapshot.as_ref().map_or(0, |(seq, _)| *seq);
    image.batches.last().map_or(snapshot_seq, |batch| batch.seq)
}

/// Makes a data directory when it is missing, and takes it for this process as long as the lock lives.
///
/// # Errors
/// Another process has it, or it cannot be made or written.
pub fn take_directory(dir: &Path) -> Result<DirLock, StoreError> {
    make_directory(dir)?;
    DirLock::exclusive(dir)
}

/// Makes the last component only: a typing error further up is noticed.
fn make_directory(dir: &Path) -> Result<(), StoreError> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::create_dir(dir)
        .and_then(
            |()| match dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                Some(parent) => fs::File::open(parent)?.sync_all(),
                None => fs::File::open(".")?.sync_all(),
            },
        )
        .map_err(|error| StoreError::of_io(dir, &error))
}

fn fault_of(error: &rusqlite::Error) -> StoreFault {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreFault::DiskFull,
        _ => StoreFault::Io,
    }
}
