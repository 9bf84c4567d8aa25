//! Damage to the ledger's journal: a torn end is cut, a flipped bit before the end is refused by its place (field bugs
//! R56, R57, R58).

use super::faults::wal_name;
use super::limits::{ANSWERS_MAX, DAMAGE_TRIES, JOURNAL_COMMITS_MIN};
use super::promises::Sin;
use super::report::Tally;
use super::running::Started;
use super::sale::{End, Sale, Wait};
use super::watch::DiskPlan;
use super::{Result, TortureError};
use crate::store::{LEDGER_FILE, read_image};
use std::path::Path;
use weir_core::rng::Rng;

/// SQLite file format §4.1: header of the write-ahead log, header of a frame.
const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// Makes a journal by a load, tears its end, flips its bits.
///
/// # Errors
/// This machine cannot run it; broken promises are findings.
pub fn run(mut sale: Sale, rng: &mut Rng, tally: &mut Tally) -> Result<()> {
    for _ in 0..DAMAGE_TRIES {
        let answers = ANSWERS_MAX / 2 + rng.below(ANSWERS_MAX);
        sale.kill_once(End::Answers(answers), DiskPlan::default(), rng, tally)?;
        flip_in_wal(&mut sale, rng, tally)?;
        if tear(&mut sale, rng) {
            // Append after the cut, crash again, recover: what stood before the torn end and what came after it is there.
            sale.kill_once(End::Answers(answers), DiskPlan::default(), rng, tally)?;
            tally.torn_tails += 1;
        }
    }
    flip_in_database(sale, rng, tally)
}

/// Appends a part of a frame that a crash may have left: of this generation, without its checksum.
fn tear(sale: &mut Sale, rng: &mut Rng) -> bool {
    let Some(wal) = sale.files.0.get_mut(&wal_name()) else {
        return false;
    };
    let Some(frame_bytes) = frame_bytes(wal) else {
        return false;
    };
    let whole = (wal.len() - HEADER_BYTES) / frame_bytes * frame_bytes + HEADER_BYTES;
    wal.truncate(whole);
    let mut frame: Vec<u8> = (0..frame_bytes).map(|_| rng.next_u64() as u8).collect();
    frame[8..16].copy_from_slice(&wal[16..24]);
    frame.truncate(1 + rng.below(frame_bytes as u64 - 1) as usize);
    wal.extend(frame);
    true
}

/// Bytes of one frame; `None` when the log has no whole header.
fn frame_bytes(wal: &[u8]) -> Option<usize> {
    let page = wal.get(8..12)?.try_into().ok().map(u32::from_be_bytes)?;
    (wal.len() >= HEADER_BYTES).then_some(FRAME_HEADER_BYTES + page as usize)
}

/// Offsets of the frames of the log's generation, and which of them commit.
fn frames(wal: &[u8]) -> Vec<(usize, bool)> {
    let Some(frame_bytes) = frame_bytes(wal) else {
        return Vec::new();
    };
    let whole = (HEADER_BYTES..wal.len()).step_by(frame_bytes);
    whole
        .take_while(|at| at + frame_bytes <= wal.len() && wal[at + 8..at + 16] == wal[16..24])
        .map(|at| (at, wal[at + 4..at + 8] != [0; 4]))
        .collect()
}

/// A bit of a frame that two commits follow: the start is refused, and the frame's offset is named.
fn flip_in_wal(sale: &mut Sale, rng: &mut Rng, tally: &mut Tally) -> Result<()> {
    let healthy = sale.files.clone();
    let Some(wal) = sale.files.0.get_mut(&wal_name()) else {
        return Ok(());
    };
    let frames = frames(wal);
    let commits: Vec<usize> = (0..frames.len()).filter(|n| frames[*n].1).collect();
    let Some(last) = commits.len().checked_sub(JOURNAL_COMMITS_MIN) else {
        return Ok(()); // too short to have a middle
    };
    let at = frames[rng.below(commits[last] as u64 + 1) as usize].0;
    let frame_bytes = frame_bytes(wal).unwrap_or(FRAME_HEADER_BYTES + 1);
    wal[at + rng.below(frame_bytes as u64) as usize] ^= 1 << rng.below(8);
    expect_refusal(
        sale,
        &format!("the frame at byte {at} of its -wal file is damaged"),
        tally,
    )?;
    sale.files = healthy;
    Ok(())
}

/// A bit of a batch that was moved into the database: the start is refused, and the batch is named.
fn flip_in_database(mut sale: Sale, rng: &mut Rng, tally: &mut Tally) -> Result<()> {
    let Started::Serving(running) = sale.start(sale.serve()?, DiskPlan::default())? else {
        let what = sale.named("no start before the last damage");
        tally.findings.note(Sin::NoRestart, what);
        return Ok(());
    };
    sale.check_statuses(&running, Wait::UntilAllRest, tally);
    sale.end_in_order(running, tally)?;
    let data = sale.data();
    sale.files =
        super::cutback::Files::read(&data).map_err(|error| TortureError::at(&data, &error))?;
    let healthy = sale.files.clone();
    let image = read_image(&data).map_err(TortureError::of)?;
    for _ in 0..DAMAGE_TRIES.min(image.batches.len() as u64) {
        let batch = &image.batches[rng.below(image.batches.len() as u64) as usize];
        let Some(database) = sale.files.0.get_mut(Path::new(LEDGER_FILE)) else {
            break;
        };
        // Every copy of it: an older page may still hold one that nobody reads.
        let places: Vec<usize> = database
            .windows(batch.bytes.len())
            .enumerate()
            .filter_map(|(at, bytes)| (bytes == batch.bytes).then_some(at))
            .collect();
        if places.is_empty() {
            continue; // it spans pages
        }
        let (byte, bit) = (rng.below(batch.bytes.len() as u64) as usize, rng.below(8));
        for at in places {
            database[at + byte] ^= 1 << bit;
        }
        expect_refusal(
            &mut sale,
            &format!("batch seq {} does not match", batch.seq),
            tally,
        )?;
        sale.files = healthy.clone();
    }
    sale.remove_if_clean(tally);
    Ok(())
}

/// A server on the damaged files must not start, and its message must say `place`.
fn expect_refusal(sale: &mut Sale, place: &str, tally: &mut Tally) -> Result<()> {
    tally.flipped_bits += 1;
    let what = match sale.start(sale.serve()?, DiskPlan::default())? {
        Started::Refused(words) if words.contains(place) => return Ok(()),
        Started::Refused(words) => format!("{words} instead of \"{place}\""),
        Started::Died(_) => "it died".to_owned(),
        Started::Serving(running) => {
            running.kill()?;
            running.end()?;
            format!("it serves although {place}")
        }
    };
    tally.findings.note(Sin::DamageMissed, sale.named(&what));
    Ok(())
}
