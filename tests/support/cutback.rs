//! Rebuilds the files of a directory as a power cut would leave them, from the recorder's log.
//!
//! Give it the files from before the run ([`Files::read`]), the log ([`Log::read`]) and a point in it: what the log
//! says up to there has happened. [`Cut::Strict`] keeps what a completed sync covers and nothing else: bytes by a sync
//! of their file, names by a sync of their directory. The seeded cuts keep some of the rest too, whole writes in order
//! or any 512-byte sectors. -shm files are left out: SQLite rebuilds them. For a kill test of the server: watch it with
//! `recorder`, kill it, `cut_back(&before, log.records(), cut)`, `write_to` a fresh directory, start it there.
#![allow(dead_code)] // each test binary uses what it needs

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use weir_core::rng::Rng;

/// What a torn write is made of.
const SECTOR_BYTES: u64 = 512;

/// One line of the log; paths are relative to the recorded directory, which itself is "".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Created(PathBuf),
    Written {
        path: PathBuf,
        at: u64,
        bytes: Vec<u8>,
    },
    CutTo {
        path: PathBuf,
        len: u64,
    },
    Synced(PathBuf),
    SyncFailed(PathBuf),
    Unlinked(PathBuf),
    Renamed {
        from: PathBuf,
        to: PathBuf,
    },
}

/// The recorder's log.
#[derive(Default)]
pub struct Log {
    records: Vec<Record>,
}

impl Log {
    /// Reads `log` of a run in `dir`. A record that the kill cut off is left out.
    pub fn read(log: &Path, dir: &Path) -> Self {
        let dir = dir.canonicalize().unwrap();
        let data = fs::read(log).unwrap();
        let mut rest = data.as_slice();
        let mut records = Vec::new();
        while let Some((record, after)) = read_record(rest, &dir) {
            records.push(record);
            rest = after;
        }
        Self { records }
    }

    /// All of it, in order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }
}

fn read_record<'a>(data: &'a [u8], dir: &Path) -> Option<(Record, &'a [u8])> {
    let (head, rest) = data.split_at_checked(24)?;
    let path_bytes = usize::from(u16::from_le_bytes([head[2], head[3]]));
    let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
    let (at, data_bytes) = (number(8), usize::try_from(number(16)).unwrap());
    let (path, rest) = rest.split_at_checked(path_bytes)?;
    let (bytes, rest) = rest.split_at_checked(data_bytes)?;
    let relative = |path: &[u8]| {
        let path = Path::new(std::str::from_utf8(path).unwrap());
        path.strip_prefix(dir).unwrap().to_path_buf()
    };
    let path = relative(path);
    let record = match head[0] {
        b'C' => Record::Created(path),
        b'W' => Record::Written {
            path,
            at,
            bytes: bytes.to_vec(),
        },
        b'T' => Record::CutTo { path, len: at },
        b'S' => Record::Synced(path),
        b'F' => Record::SyncFailed(path),
        b'U' => Record::Unlinked(path),
        b'R' => Record::Renamed {
            from: path,
            to: relative(bytes),
        },
        other => panic!("the log has a record of kind {other}"),
    };
    Some((record, rest))
}

/// The files of a directory: relative path to content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(pub BTreeMap<PathBuf, Vec<u8>>);

impl Files {
    /// Everything below `dir` (for the state before a run); a `dir` that does not exist has no files.
    pub fn read(dir: &Path) -> Self {
        let mut files = Self::default();
        files.read_below(dir, Path::new(""));
        files
    }

    fn read_below(&mut self, dir: &Path, below: &Path) {
        let Ok(entries) = fs::read_dir(dir.join(below)) else {
            return;
        };
        for entry in entries {
            let entry = entry.unwrap();
            let path = below.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                self.read_below(dir, &path);
            } else {
                self.0
                    .insert(path.clone(), fs::read(dir.join(&path)).unwrap());
            }
        }
    }

    /// Writes them below `dir`, which is emptied first.
    pub fn write_to(&self, dir: &Path) {
        let _ = fs::remove_dir_all(dir);
        fs::create_dir_all(dir).unwrap();
        for (path, bytes) in &self.0 {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }
}

/// What survives besides what was synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing.
    Strict,
    /// Of each file and directory the first few unsynced operations, the last write torn.
    Prefix(u64),
    /// Any sectors of any unsynced writes, any cuts; names as with `Prefix` (file systems keep their order).
    Torn(u64),
}

#[derive(Clone, Default)]
struct Inode<'a> {
    base: Vec<u8>,
    ops: Vec<&'a Record>,
    synced: usize,
}

/// The disk: inodes, the names that the process sees, the names that are durable, and those on their way.
struct Disk<'a> {
    inodes: Vec<Inode<'a>>,
    names: BTreeMap<PathBuf, usize>,
    durable: BTreeMap<PathBuf, usize>,
    pending: Vec<NameOp>,
}

enum NameOp {
    Add(PathBuf, usize),
    Remove(PathBuf),
}

impl NameOp {
    fn dir(&self) -> &Path {
        let (Self::Add(path, _) | Self::Remove(path)) = self;
        path.parent().unwrap()
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Add(path, inode) => names.insert(path.clone(), *inode),
            Self::Remove(path) => names.remove(path),
        };
    }
}

impl<'a> Disk<'a> {
    fn of(before: &Files) -> Self {
        let mut disk = Self {
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable: BTreeMap::new(),
            pending: Vec::new(),
        };
        for (path, bytes) in &before.0 {
            disk.names.insert(path.clone(), disk.inodes.len());
            disk.inodes.push(Inode {
                base: bytes.clone(),
                ..Inode::default()
            });
        }
        disk.durable.clone_from(&disk.names);
        disk
    }

    fn name(&mut self, op: NameOp) {
        op.apply(&mut self.names);
        self.pending.push(op);
    }

    fn take(&mut self, record: &'a Record) {
        match record {
            Record::Created(path) => {
                self.inodes.push(Inode::default());
                self.name(NameOp::Add(path.clone(), self.inodes.len() - 1));
            }
            Record::Written { path, .. } | Record::CutTo { path, .. } => {
                let inode = *self
                    .names
                    .get(path)
                    .unwrap_or_else(|| panic!("{} was written but never made", path.display()));
                self.inodes[inode].ops.push(record);
            }
            Record::Synced(path) => match self.names.get(path) {
                Some(inode) => {
                    let inode = &mut self.inodes[*inode];
                    inode.synced = inode.ops.len();
                }
                None => self.sync_directory(path),
            },
            Record::SyncFailed(_) => {}
            Record::Unlinked(path) => self.name(NameOp::Remove(path.clone())),
            Record::Renamed { from, to } => {
                if let Some(inode) = self.names.get(from).copied() {
                    self.name(NameOp::Remove(from.clone()));
                    self.name(NameOp::Add(to.clone(), inode));
                }
            }
        }
    }

    fn sync_directory(&mut self, dir: &Path) {
        let (covered, rest) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition::<Vec<_>, _>(|op| op.dir() == dir);
        for op in covered {
            op.apply(&mut self.durable);
        }
        self.pending = rest;
    }
}

/// The files after a power cut at the end of `records`.
pub fn cut_back(before: &Files, records: &[Record], cut: Cut) -> Files {
    let mut disk = Disk::of(before);
    for record in records {
        disk.take(record);
    }
    let mut rng = match cut {
        Cut::Strict => None,
        Cut::Prefix(seed) | Cut::Torn(seed) => Some(Rng::new(seed)),
    };
    if let Some(rng) = &mut rng {
        let kept = rng.below(disk.pending.len() as u64 + 1) as usize;
        for op in disk.pending.drain(..kept).collect::<Vec<_>>() {
            op.apply(&mut disk.durable);
        }
    }
    let mut files = Files::default();
    for (path, inode) in &disk.durable {
        if path.to_string_lossy().ends_with("-shm") {
            continue;
        }
        let content = survive(&disk.inodes[*inode], cut, rng.as_mut());
        files.0.insert(path.clone(), content);
    }
    files
}

/// Writes that no sync covers, at the end of `records`: what a power cut there may take.
pub fn unsynced_writes(before: &Files, records: &[Record]) -> usize {
    let mut disk = Disk::of(before);
    for record in records {
        disk.take(record);
    }
    disk.inodes
        .iter()
        .map(|inode| inode.ops.len() - inode.synced)
        .sum()
}

fn survive(inode: &Inode<'_>, cut: Cut, rng: Option<&mut Rng>) -> Vec<u8> {
    let mut content = inode.base.clone();
    let (synced, unsynced) = inode.ops.split_at(inode.synced);
    for op in synced {
        apply(op, &mut content, |_| true);
    }
    let Some(rng) = rng else {
        return content;
    };
    let kept = match cut {
        Cut::Prefix(_) => rng.below(unsynced.len() as u64 + 1) as usize,
        Cut::Strict | Cut::Torn(_) => unsynced.len(),
    };
    let torn = matches!(cut, Cut::Torn(_));
    // Of all sectors, a quarter to all: now and then everything arrives, or nearly nothing.
    let quarters = rng.below(5);
    for (i, op) in unsynced[..kept].iter().enumerate() {
        let last = i + 1 == kept;
        if torn {
            apply(op, &mut content, |_| rng.chance(quarters, 4));
        } else if last {
            let sectors = rng.below(10);
            apply(op, &mut content, |sector| sector < sectors);
        } else {
            apply(op, &mut content, |_| true);
        }
    }
    content
}

/// Carries `op` out for the sectors (counted from the write's first) that `keep` names.
fn apply(op: &Record, content: &mut Vec<u8>, mut keep: impl FnMut(u64) -> bool) {
    match op {
        Record::CutTo { len, .. } => {
            if keep(0) {
                content.resize(usize::try_from(*len).unwrap(), 0);
            }
        }
        Record::Written { at, bytes, .. } => {
            let mut done = 0;
            let mut sector = 0;
            while done < bytes.len() {
                let from = at + done as u64;
                let to_edge = SECTOR_BYTES - from % SECTOR_BYTES;
                let count = usize::try_from(to_edge).unwrap().min(bytes.len() - done);
                if keep(sector) {
                    let start = usize::try_from(from).unwrap();
                    if content.len() < start + count {
                        content.resize(start + count, 0);
                    }
                    content[start..start + count].copy_from_slice(&bytes[done..done + count]);
                }
                done += count;
                sector += 1;
            }
        }
        _ => unreachable!("only writes and cuts are kept per file"),
    }
}
