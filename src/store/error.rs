//! Why the ledger cannot be opened or read, in words for an operator: what, where, remedy.

use rusqlite::ffi;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a ledger was not opened.
#[derive(Debug)]
pub enum StoreError {
    /// The directory or a file in it cannot be made or written.
    Unwritable {
        /// Which.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// There is no ledger to read.
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Another program has the directory.
    Locked {
        /// The directory.
        dir: PathBuf,
        /// Its pid, when the lock file tells.
        pid: Option<u32>,
    },
    /// A file of that name that weir did not write.
    NotALedger {
        /// The file.
        path: PathBuf,
    },
    /// Written by a newer weir.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest that this program reads.
        known: i64,
    },
    /// The content is damaged.
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        damage: Damage,
    },
    /// No space left.
    DiskFull {
        /// The file.
        path: PathBuf,
    },
    /// A read, write or sync failed.
    Io {
        /// The file.
        path: PathBuf,
        /// What the system or SQLite said.
        why: String,
    },
}

/// What is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The checksum, version or length of a batch is wrong.
    Batch {
        /// Its number.
        seq: u64,
    },
    /// A batch is missing although later ones exist.
    Hole {
        /// The first missing number.
        seq: u64,
        /// The number found in its place.
        found: u64,
    },
    /// A part of the newest snapshot is missing or wrong.
    Snapshot {
        /// The number of the batch that it stands after.
        seq: u64,
        /// The part, from 0.
        part: u64,
    },
    /// Commits follow a bad frame of the write-ahead log: it was damaged after it had been synced.
    Wal {
        /// Byte offset of the bad frame in `ledger.sqlite-wal`.
        offset: u64,
    },
    /// SQLite found its own structures broken.
    Pages {
        /// What SQLite said.
        why: String,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch { seq } => write!(f, "batch seq {seq} does not match its checksum"),
            Self::Hole { seq, found } => {
                write!(
                    f,
                    "batch seq {seq} is missing, seq {found} stands in its place"
                )
            }
            Self::Snapshot { seq, part } => {
                write!(
                    f,
                    "part {part} of the snapshot after seq {seq} is missing or does not match its checksum"
                )
            }
            Self::Wal { offset } => write!(
                f,
                "the frame at byte {offset} of its -wal file is damaged, and commits follow it"
            ),
            Self::Pages { why } => write!(f, "SQLite cannot read it: {why}"),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unwritable { path, why } => write!(
                f,
                "cannot write {}: {why}. Make the directory writable for the user that runs weir, or choose another one",
                path.display()
            ),
            Self::Missing { path } => write!(
                f,
                "there is no ledger at {}. Check the directory; `weir serve` makes a ledger at its first start",
                path.display()
            ),
            Self::Locked { dir, pid } => {
                write!(f, "another weir is using {}", dir.display())?;
                if let Some(pid) = pid {
                    write!(f, " (pid {pid})")?;
                }
                f.write_str(". Stop it first, or give this one another directory; never delete the lock file while it runs")
            }
            Self::NotALedger { path } => write!(
                f,
                "{} is not a ledger that weir wrote. Move it away, or choose another directory",
                path.display()
            ),
            Self::Newer { path, found, known } => write!(
                f,
                "{} has version {found}; this weir reads versions up to {known}. Run the newer weir that wrote it",
                path.display()
            ),
            Self::Corrupt { path, damage } => write_corrupt(f, path, damage),
            Self::DiskFull { path } => write!(
                f,
                "no space left to write {}. Free some space, then start again; what was acknowledged is safe",
                path.display()
            ),
            Self::Io { path, why } => write!(
                f,
                "reading or writing {} failed: {why}. Check the disk and the system's log before starting again",
                path.display()
            ),
        }
    }
}

/// The remedy of damage: a copy first, a backup second, the good prefix as the last resort.
fn write_corrupt(
    f: &mut fmt::Formatter<'_>,
    path: &std::path::Path,
    damage: &Damage,
) -> fmt::Result {
    write!(
        f,
        "{} is damaged: {damage}. weir does not guess around it. Copy the whole directory first, then restore the \
         ledger from a backup",
        path.display()
    )?;
    if let Damage::Batch { seq } | Damage::Hole { seq, .. } = damage {
        write!(
            f,
            ". Last resort, which forgets every grant from seq {seq} on: sqlite3 {} 'DELETE FROM batches WHERE seq >= {seq}', \
             then `weir reconcile`",
            path.display()
        )?;
    }
    Ok(())
}

impl std::error::Error for StoreError {}

impl StoreError {
    /// Sorts a failure of a system call on `path`.
    pub(super) fn of_io(path: &std::path::Path, error: &io::Error) -> Self {
        let path = path.to_path_buf();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory => Self::Unwritable {
                path,
                why: error.to_string(),
            },
            _ => Self::Io {
                path,
                why: error.to_string(),
            },
        }
    }

    /// Sorts a failure of SQLite on `path`.
    pub(super) fn of_sqlite(path: &std::path::Path, error: &rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        let path = path.to_path_buf();
        let why = error.to_string();
        // A reader needs 32 KiB for the index of the log.
        if error
            .sqlite_error()
            .is_some_and(|e| e.extended_code == ffi::SQLITE_IOERR_SHMSIZE)
        {
            return Self::DiskFull { path };
        }
        match error.sqlite_error_code() {
            Some(Code::DiskFull) => Self::DiskFull { path },
            Some(Code::ReadOnly | Code::CannotOpen | Code::PermissionDenied) => {
                Self::Unwritable { path, why }
            }
            Some(Code::DatabaseBusy | Code::DatabaseLocked) => Self::Locked {
                dir: path.parent().map(PathBuf::from).unwrap_or_default(),
                pid: None,
            },
            Some(Code::NotADatabase) => Self::NotALedger { path },
            Some(Code::DatabaseCorrupt) => Self::Corrupt {
                path,
                damage: Damage::Pages { why },
            },
            _ => Self::Io { path, why },
        }
    }
}
