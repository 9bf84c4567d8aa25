//! Damage in the middle of the write-ahead log, which SQLite would take for its end (field bug R58).
//!
//! SQLite reads a WAL up to the first bad frame. After a crash at most one commit, never acknowledged, can lie behind
//! it: a commit is synced before the next is written, and each opening starts a new WAL. Two commits behind a bad frame
//! mean that synced bytes changed: silently dropping them would lose grants. Format: SQLite file format §4 (the WAL file).

use super::error::{Damage, StoreError};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

/// File format §4.1: header of the file.
const HEADER_BYTES: usize = 32;
/// File format §4.1: header of each frame.
const FRAME_HEADER_BYTES: usize = 24;
/// File format §4.1: magic, without the bit that names the byte order of the checksums.
const MAGIC: u32 = 0x377f_0682;

/// Refuses a WAL of the database `path` that was damaged before its end. A missing or headless one is fine.
pub(super) fn check(path: &Path) -> Result<(), StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    let wal = PathBuf::from(name);
    let file = match File::open(&wal) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StoreError::of_io(&wal, &error)),
    };
    match damage_offset(BufReader::with_capacity(64 * 1024, file)) {
        Ok(None) => Ok(()),
        Ok(Some(offset)) => Err(StoreError::Corrupt {
            path: path.to_path_buf(),
            damage: Damage::Wal { offset },
        }),
        Err(error) => Err(StoreError::of_io(&wal, &error)),
    }
}

/// The offset of a bad frame that two commits follow.
fn damage_offset(mut wal: impl Read) -> io::Result<Option<u64>> {
    let mut header = [0; HEADER_BYTES];
    if !fill(&mut wal, &mut header)? {
        return Ok(None);
    }
    let magic = big_endian(&header, 0);
    let page_bytes = big_endian(&header, 8) as usize;
    if magic & !1 != MAGIC || !page_bytes.is_power_of_two() || !(512..=65536).contains(&page_bytes)
    {
        return Ok(None);
    }
    let mut sums = Sums {
        big_endian: magic & 1 == 1,
        s: [0, 0],
    };
    sums.add(&header[..24]);
    if sums.s != [big_endian(&header, 24), big_endian(&header, 28)] {
        // A header torn by a crash: nothing of this generation was ever committed.
        return Ok(None);
    }
    let salts = &header[16..24];
    let mut frame = vec![0; FRAME_HEADER_BYTES + page_bytes];
    let mut offset = HEADER_BYTES as u64;
    let mut bad_at = None;
    let mut commits_behind = 0;
    while fill(&mut wal, &mut frame)? {
        // Frames of the generation before, which had other salts, end the log.
        let current = &frame[8..16] == salts;
        if bad_at.is_none() {
            sums.add(&frame[..8]);
            sums.add(&frame[FRAME_HEADER_BYTES..]);
            if !current || sums.s != [big_endian(&frame, 16), big_endian(&frame, 20)] {
                bad_at = Some(offset);
            }
        }
        if bad_at.is_some() && current && big_endian(&frame, 4) != 0 {
            commits_behind += 1;
        }
        offset += frame.len() as u64;
    }
    Ok(bad_at.filter(|_| commits_behind >= 2))
}

/// File format §4.2: the running checksum.
struct Sums {
    big_endian: bool,
    s: [u32; 2],
}

impl Sums {
    /// `bytes`: a multiple of 8.
    fn add(&mut self, bytes: &[u8]) {
        for pair in bytes.chunks_exact(8) {
            let (first, second) = if self.big_endian {
                (big_endian(pair, 0), big_endian(pair, 4))
            } else {
                (
                    big_endian(pair, 0).swap_bytes(),
                    big_endian(pair, 4).swap_bytes(),
                )
            };
            self.s[0] = self.s[0].wrapping_add(first).wrapping_add(self.s[1]);
            self.s[1] = self.s[1].wrapping_add(second).wrapping_add(self.s[0]);
        }
    }
}

fn big_endian(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Fills `buffer`; false when the input ends before.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
