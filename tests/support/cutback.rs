//! Reads the recorder's log for `weir::torture::cutback`, which rebuilds files as a power cut would leave them.
//!
//! For a kill test: watch a program with `recorder`, kill it, `cut_back(&before, log.records(), cut)`, `write_to` a fresh
//! directory, start it there.
#![allow(dead_code, unused_imports)] // each test binary uses what it needs

use std::fs;
use std::path::{Path, PathBuf};
pub use weir::torture::cutback::{Cut, Files, Record, cut_back, unsynced_writes};

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
