//! One weir per directory: an flock on a file of its own.
//!
//! A file of its own, because a POSIX lock on the database would vanish when anything in the process closes a second
//! descriptor of it; flock belongs to the open file and ends with the process, however that ends.

use super::LOCK_FILE;
use super::error::StoreError;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

/// Held as long as it lives.
#[derive(Debug)]
pub struct DirLock {
    file: File,
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // By name, not by closing: a child that was just forked may share the open file until it execs.
        let _ = self.file.unlock();
    }
}

impl DirLock {
    /// Takes `dir` for the one writer and leaves our pid in the file.
    pub(super) fn exclusive(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(LOCK_FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| StoreError::of_io(&path, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(locked(dir, file)),
            Err(TryLockError::Error(error)) => return Err(StoreError::of_io(&path, &error)),
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(|error| StoreError::of_io(&path, &error))?;
        Ok(Self { file })
    }

    /// Keeps writers away while `dir` is read; `None` when there is no lock file, so nobody ever wrote here.
    pub(super) fn shared(dir: &Path) -> Result<Option<Self>, StoreError> {
        let path = dir.join(LOCK_FILE);
        let Ok(file) = File::open(&path) else {
            return Ok(None);
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(Self { file })),
            Err(TryLockError::WouldBlock) => Err(locked(dir, file)),
            Err(TryLockError::Error(error)) => Err(StoreError::of_io(&path, &error)),
        }
    }
}

fn locked(dir: &Path, file: File) -> StoreError {
    let mut text = String::new();
    // 16 bytes hold every pid; what else may be in the file is not ours.
    let read = file.take(16).read_to_string(&mut text);
    StoreError::Locked {
        dir: dir.to_path_buf(),
        pid: read.ok().and_then(|_| text.trim().parse().ok()),
    }
}
