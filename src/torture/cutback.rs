//! Rebuilds the files of a directory as a power cut would leave them, from a record of what was done to them.
//!
//! Give it the files from before the run, the record and a point in it: what the record says up to there has happened.
//! [`Cut::Strict`] keeps what a completed sync covers and nothing else: bytes by a sync of their file, names by a sync
//! of their directory. The seeded cuts keep some of the rest too, whole writes in order or any 512-byte sectors. -shm
//! files are left out: SQLite rebuilds them. Records come from `watch`, in tests also from `tests/recorder`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weir_core::rng::Rng;

/// What a torn write is made of.
const SECTOR_BYTES: u64 = 512;

/// One thing that was done; paths are relative to the recorded directory, which itself is "".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A file was made.
    Created(PathBuf),
    /// Bytes were written.
    Written {
        /// To this file.
        path: PathBuf,
        /// From this offset on.
        at: u64,
        /// These.
        bytes: Vec<u8>,
    },
    /// A file was cut or grown.
    CutTo {
        /// This one.
        path: PathBuf,
        /// To so many bytes.
        len: u64,
    },
    /// A sync of a file or a directory came to its end.
    Synced(PathBuf),
    /// A sync failed: what it should have covered may be lost although a later sync succeeds (field bug R55).
    SyncFailed(PathBuf),
    /// A name was removed.
    Unlinked(PathBuf),
    /// A file got another name.
    Renamed {
        /// The old one.
        from: PathBuf,
        /// The new one.
        to: PathBuf,
    },
}

/// The files of a directory: relative path to content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(pub BTreeMap<PathBuf, Vec<u8>>);

impl Files {
    /// Everything below `dir`; a `dir` that does not exist has no files.
    /// # Errors
    /// A file cannot be read.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let mut files = Self::default();
        files.read_below(dir, Path::new(""))?;
        Ok(files)
    }

    fn read_below(&mut self, dir: &Path, below: &Path) -> io::Result<()> {
        let entries = match fs::read_dir(dir.join(below)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                self.read_below(dir, &path)?;
            } else {
                let bytes = fs::read(dir.join(&path))?;
                self.0.insert(path, bytes);
            }
        }
        Ok(())
    }

    /// Writes them below `dir`, which is emptied first, or made below a directory that exists.
    /// # Errors
    /// The directory cannot be emptied or written.
    pub fn write_to(&self, dir: &Path) -> io::Result<()> {
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir(dir)?,
        }
        for (path, bytes) in &self.0 {
            let path = dir.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            // As the server makes them: it refuses files that others can read.
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            options.open(path)?.write_all(bytes)?;
        }
        Ok(())
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
    /// A failed sync loses what it should have covered.
    forgets: bool,
}

enum NameOp {
    Add(PathBuf, usize),
    Remove(PathBuf),
}

impl NameOp {
    fn dir(&self) -> &Path {
        let (Self::Add(path, _) | Self::Remove(path)) = self;
        path.parent().unwrap_or(Path::new(""))
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Add(path, inode) => names.insert(path.clone(), *inode),
            Self::Remove(path) => names.remove(path),
        };
    }
}

impl<'a> Disk<'a> {
    fn of(before: &Files, forgets: bool) -> Self {
        let mut disk = Self {
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable: BTreeMap::new(),
            pending: Vec::new(),
            forgets,
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
                    .expect("what is written was there before or was made");
                self.inodes[inode].ops.push(record);
            }
            Record::Synced(path) => match self.names.get(path) {
                Some(inode) => {
                    let inode = &mut self.inodes[*inode];
                    inode.synced = inode.ops.len();
                }
                None => self.sync_directory(path),
            },
            // Only the strictest disk forgets at once; the others may still have it.
            Record::SyncFailed(path) => {
                if let Some(inode) = self.names.get(path).filter(|_| self.forgets) {
                    let inode = &mut self.inodes[*inode];
                    inode.ops.truncate(inode.synced);
                }
            }
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
    let mut disk = Disk::of(before, cut == Cut::Strict);
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
    let mut disk = Disk::of(before, false);
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
                content.resize(*len as usize, 0);
            }
        }
        Record::Written { at, bytes, .. } => {
            let mut done = 0;
            let mut sector = 0;
            while done < bytes.len() {
                let from = at + done as u64;
                let to_edge = SECTOR_BYTES - from % SECTOR_BYTES;
                let count = (to_edge as usize).min(bytes.len() - done);
                if keep(sector) {
                    let start = from as usize;
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
