//! Hears every file operation of a server: keeps the record that cuts need, lets the planned ones fail, kills at the
//! planned one.
//!
//! One thread per server, started before the server's first operation and ended by the server's end. A write is recorded
//! before it happens (nothing covers it yet, so a cut may keep or lose it), a sync after it has happened: the record
//! never says that something is durable which is not.

use super::cutback::Record;
use super::{Result, TortureError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use weir_io::signals::{self, Signal};
use weir_io::watched::{Act, Call, Calls, DiskError, Next};

/// How often a silent server is looked at again, milliseconds.
const QUIET_MS: i32 = 200;

/// One operation of those on files whose name ends in `suffix`, counted from 1.
#[derive(Clone, Copy, Debug)]
pub struct Nth {
    /// Which.
    pub nth: u64,
    /// The end of the name.
    pub suffix: &'static str,
}

/// What the disk does to its server once the load has begun.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskPlan {
    /// This sync fails with EIO; later ones succeed, as the kernel's do.
    pub sync_error: Option<Nth>,
    /// This write fails with EIO.
    pub write_error: Option<Nth>,
    /// The disk is full when all files together have so many bytes.
    pub full_at: Option<u64>,
    /// The server is killed in this operation, counted from 1.
    pub kill_at: Option<u64>,
    /// Everything above counts from the server's first operation, not from the load's beginning.
    pub from_start: bool,
}

/// What others see and say while a server runs.
#[derive(Debug, Default)]
pub struct Live {
    /// The load has begun: set by the sale.
    pub armed: AtomicBool,
    /// The server was killed by its disk plan.
    pub killed: AtomicBool,
    /// Operations that failed as planned.
    pub hits: AtomicU64,
}

/// The record of one server's life.
#[derive(Debug, Default)]
pub struct Recording {
    /// What was done to the files, in order.
    pub records: Vec<Record>,
    /// Syncs of a file after one of its syncs had failed: a promise broken (field bug R55).
    pub synced_again: Vec<PathBuf>,
}

/// Starts hearing the server `pid`, whose files lie below `dir`.
/// # Errors
/// No thread.
pub fn start(
    calls: Calls,
    dir: PathBuf,
    pid: u32,
    plan: DiskPlan,
    live: &Arc<Live>,
) -> Result<JoinHandle<std::io::Result<Recording>>> {
    let live = Arc::clone(live);
    let mut watcher = Watcher {
        calls,
        dir,
        pid,
        plan,
        live,
        recording: Recording::default(),
        sizes: BTreeMap::new(),
        steps: 0,
        syncs: 0,
        writes: 0,
        failed: Vec::new(),
    };
    let body = move || watcher.run().map(|()| watcher.recording);
    std::thread::Builder::new()
        .name("weir-torture-disk".into())
        .spawn(body)
        .map_err(TortureError::of)
}

struct Watcher {
    calls: Calls,
    dir: PathBuf,
    pid: u32,
    plan: DiskPlan,
    live: Arc<Live>,
    recording: Recording,
    /// Bytes of each file that was written.
    sizes: BTreeMap<PathBuf, u64>,
    steps: u64,
    syncs: u64,
    writes: u64,
    failed: Vec<PathBuf>,
}

impl Watcher {
    fn run(&mut self) -> std::io::Result<()> {
        loop {
            match self.calls.next(QUIET_MS)? {
                Next::Call(call) => self.take(&call)?,
                Next::Quiet => {}
                Next::Over => return Ok(()),
            }
        }
    }

    fn take(&mut self, call: &Call) -> std::io::Result<()> {
        let Some((record, path)) = self.record_of(&call.act) else {
            self.calls.go_on(call);
            return Ok(());
        };
        let armed = self.plan.from_start || self.live.armed.load(Ordering::Acquire);
        self.steps += u64::from(armed);
        let dies = armed && self.plan.kill_at == Some(self.steps);
        // Half of the operations that a server dies in have happened.
        if dies && self.steps.is_multiple_of(2) {
            self.kill();
            return Ok(());
        }
        if let Act::Sync { .. } = call.act {
            self.sync(call, path, armed && !dies);
        } else if let Some(error) = self.error_for(&record, &path, armed) {
            self.live.hits.fetch_add(1, Ordering::AcqRel);
            self.calls.refuse(call, error);
        } else {
            self.note_size(&record);
            self.recording.records.push(record);
            if !dies {
                self.calls.go_on(call);
            }
        }
        if dies {
            self.kill();
        }
        Ok(())
    }

    /// The call waits for us, so its process is alive and its own.
    fn kill(&self) {
        // Said first: whoever sees it gone shall know why.
        self.live.killed.store(true, Ordering::Release);
        // It may have been killed by its sale meanwhile.
        let _ = signals::send(self.pid, Signal::Kill);
    }

    fn sync(&mut self, call: &Call, path: PathBuf, may_fail: bool) {
        let file_name = |path: &Path| path.to_string_lossy().into_owned();
        let planned = self.plan.sync_error.is_some_and(|nth| {
            let counts = may_fail && file_name(&path).ends_with(nth.suffix);
            self.syncs += u64::from(counts);
            counts && self.syncs == nth.nth
        });
        if planned || call.sync().is_err() {
            self.live
                .hits
                .fetch_add(u64::from(planned), Ordering::AcqRel);
            self.recording
                .records
                .push(Record::SyncFailed(path.clone()));
            self.failed.push(path);
            self.calls.refuse(call, DiskError::Io);
            return;
        }
        if self.failed.contains(&path) {
            self.recording.synced_again.push(path.clone());
        }
        self.recording.records.push(Record::Synced(path));
        self.calls.done(call);
    }

    fn error_for(&mut self, record: &Record, path: &Path, armed: bool) -> Option<DiskError> {
        let Record::Written { at, bytes, .. } = record else {
            return None;
        };
        if !armed {
            return None;
        }
        if let Some(nth) = self.plan.write_error
            && path.to_string_lossy().ends_with(nth.suffix)
        {
            self.writes += 1;
            if self.writes == nth.nth {
                return Some(DiskError::Io);
            }
        }
        let full_at = self.plan.full_at?;
        let has = self.sizes.get(path).copied().unwrap_or(0);
        let grows = (at + bytes.len() as u64).saturating_sub(has);
        let used: u64 = self.sizes.values().sum();
        (grows > 0 && used + grows > full_at).then_some(DiskError::Full)
    }

    fn note_size(&mut self, record: &Record) {
        match record {
            Record::Written { path, at, bytes } => {
                let size = self.sizes.entry(path.clone()).or_default();
                *size = (at + bytes.len() as u64).max(*size);
            }
            Record::CutTo { path, len } => {
                self.sizes.insert(path.clone(), *len);
            }
            Record::Unlinked(path) => {
                self.sizes.remove(path);
            }
            _ => {}
        }
    }

    /// What the call does to a file of ours; `None`: nothing.
    fn record_of(&self, act: &Act) -> Option<(Record, PathBuf)> {
        let ours = |path: &Path| {
            let path = path.strip_prefix(&self.dir).ok()?;
            // An unlinked file is nobody's after a crash; so its descriptor's link says.
            let gone = path.to_string_lossy().ends_with(" (deleted)");
            (!gone).then(|| path.to_owned())
        };
        let (record, path) = match act {
            Act::Write { path, at, bytes } => {
                let path = ours(path)?;
                let (at, bytes) = (*at, bytes.clone());
                (
                    Record::Written {
                        path: path.clone(),
                        at,
                        bytes,
                    },
                    path,
                )
            }
            Act::Sync { path } => (Record::Synced(ours(path)?), ours(path)?),
            Act::CutTo { path, len } => {
                let path = ours(path)?;
                (
                    Record::CutTo {
                        path: path.clone(),
                        len: *len,
                    },
                    path,
                )
            }
            Act::Make { path, empties } => {
                let (file, exists) = (ours(path)?, path.exists());
                let record = match (exists, *empties) {
                    (false, _) => Record::Created(file.clone()),
                    (true, true) => Record::CutTo {
                        path: file.clone(),
                        len: 0,
                    },
                    (true, false) => return None,
                };
                (record, file)
            }
            Act::Unlink { path } => (Record::Unlinked(ours(path)?), ours(path)?),
            Act::Rename { from, to } => {
                let (from, to) = (ours(from)?, ours(to)?);
                let path = from.clone();
                (Record::Renamed { from, to }, path)
            }
            Act::Other => return None,
        };
        Some((record, path))
    }
}
